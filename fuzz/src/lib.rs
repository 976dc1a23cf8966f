// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shared by the fuzz targets: a pool that notices every misuse, and a reader of input bytes.

use weir_switch::{Frame, FramePool};

/// Chunks in plain memory. A double free, or a foreign one, ends the run.
pub struct Pool {
    bytes: Vec<u8>,
    free: Vec<u32>,
    out: Vec<bool>,
}

/// Takes values off the front of the input; zeros when it is used up.
pub struct Input<'d>(pub &'d [u8]);

impl Pool {
    /// Bytes a chunk.
    pub const CHUNK: usize = 2048;
    /// Bytes that a fresh frame leaves free before it.
    pub const HEADROOM: u16 = 64;

    /// A pool of so many free chunks.
    pub fn new(chunks: u32) -> Self {
        Self {
            bytes: vec![0; chunks as usize * Self::CHUNK],
            free: (0..chunks).rev().collect(),
            out: vec![false; chunks as usize],
        }
    }

    /// Chunks that are somewhere else.
    pub fn taken(&self) -> usize {
        self.out.len() - self.free.len()
    }
}

impl FramePool for Pool {
    fn data(&mut self, frame: Frame) -> &mut [u8] {
        let end = usize::from(frame.offset) + usize::from(frame.len);
        if frame.id as usize >= self.out.len() || end > Self::CHUNK {
            return &mut [];
        }
        assert!(self.out[frame.id as usize], "chunk {} is used while it is free", frame.id);
        let start = frame.id as usize * Self::CHUNK + usize::from(frame.offset);
        &mut self.bytes[start..start + usize::from(frame.len)]
    }

    fn room_before(&self, frame: Frame) -> usize {
        usize::from(frame.offset)
    }

    fn alloc(&mut self) -> Option<u32> {
        let id = self.free.pop()?;
        self.out[id as usize] = true;
        Some(id)
    }

    fn free(&mut self, id: u32) {
        assert!(self.out[id as usize], "chunk {id} is free already");
        self.out[id as usize] = false;
        self.free.push(id);
    }

    fn chunks(&self) -> u32 {
        u32::try_from(self.out.len()).unwrap_or(u32::MAX)
    }

    fn chunk_size(&self) -> usize {
        Self::CHUNK
    }

    fn headroom(&self) -> u16 {
        Self::HEADROOM
    }
}

impl<'d> Input<'d> {
    /// Returns true if no byte is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    /// The next number, low byte first.
    pub fn number(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    /// The next bytes, fewer at the end.
    pub fn bytes(&mut self, count: usize) -> &'d [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

/// The sum of 16-bit words in one's complement (RFC 1071 §4.1), an odd byte padded with zero. One
/// word at a time, so that it shares nothing with what it checks.
pub fn ones_sum(bytes: &[u8]) -> u16 {
    bytes.chunks(2).fold(0, |sum: u16, pair| {
        let word = u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]);
        let (sum, carry) = sum.overflowing_add(word);
        sum + u16::from(carry)
    })
}
