// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames in plain memory.

use weir_switch::{Frame, FramePool};

/// A pool of frames in plain memory that notices misuse: a chunk that is freed twice, or was never
/// given out, fails a debug assertion.
#[derive(Clone, Debug)]
pub struct MemoryPool {
    bytes: Vec<u8>,
    free: Vec<u32>,
    in_use: Vec<bool>,
}

impl MemoryPool {
    /// Makes a pool of `chunks` free chunks of [`Self::CHUNK`] bytes.
    #[must_use]
    pub fn new(chunks: u32) -> Self {
        let count = chunks as usize;
        Self {
            bytes: vec![0; count * Self::CHUNK],
            free: (0..chunks).rev().collect(),
            in_use: vec![false; count],
        }
    }

    /// Bytes of a chunk.
    pub const CHUNK: usize = 2048;

    /// Bytes that a fresh frame leaves free before it.
    pub const HEADROOM: u16 = 128;

    /// The longest frame.
    pub const FRAME_MAX: u16 = 1920;

    /// Takes a frame of `len` bytes with whatever was in its chunk before; `None` if no chunk is
    /// free or the frame is too long.
    pub fn frame_of(&mut self, len: u16) -> Option<Frame> {
        if len > Self::FRAME_MAX {
            return None;
        }
        Some(Frame { id: self.alloc()?, offset: Self::HEADROOM, len })
    }

    /// Takes a frame with a copy of `bytes`; `None` if no chunk is free or the frame is too long.
    pub fn copy_in(&mut self, bytes: &[u8]) -> Option<Frame> {
        let frame = self.frame_of(u16::try_from(bytes.len()).ok()?)?;
        self.data(frame).copy_from_slice(bytes);
        Some(frame)
    }

    /// Returns how many chunks are free.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.len()
    }

    /// Returns how many chunks are given out.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.in_use.len() - self.free.len()
    }
}

const _: () =
    assert!(MemoryPool::HEADROOM as usize + MemoryPool::FRAME_MAX as usize == MemoryPool::CHUNK);

impl FramePool for MemoryPool {
    fn data(&mut self, frame: Frame) -> &mut [u8] {
        let (offset, len) = (usize::from(frame.offset), usize::from(frame.len));
        if offset + len > Self::CHUNK {
            return &mut [];
        }
        let start = frame.id as usize * Self::CHUNK + offset;
        self.bytes.get_mut(start..start + len).unwrap_or_default()
    }

    fn room_before(&self, frame: Frame) -> usize {
        usize::from(frame.offset)
    }

    fn alloc(&mut self) -> Option<u32> {
        let id = self.free.pop()?;
        let in_use = self.in_use.get_mut(id as usize)?;
        debug_assert!(!*in_use, "chunk {id} was given out twice");
        *in_use = true;
        Some(id)
    }

    fn free(&mut self, id: u32) {
        let in_use = self.in_use.get_mut(id as usize);
        debug_assert!(in_use.as_deref() == Some(&true), "chunk {id} is not given out");
        if let Some(in_use) = in_use.filter(|in_use| **in_use) {
            *in_use = false;
            self.free.push(id);
        }
    }

    fn chunks(&self) -> u32 {
        u32::try_from(self.in_use.len()).unwrap_or(u32::MAX)
    }

    fn chunk_size(&self) -> usize {
        Self::CHUNK
    }

    fn headroom(&self) -> u16 {
        Self::HEADROOM
    }
}
