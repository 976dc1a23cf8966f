// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bounce buffers: frame memory of one AF_XDP socket, apart from the pool.
//!
//! A socket that shares the pool moves frames without a copy in user space, but the kernel keeps
//! some 128 bytes for each chunk of the memory *for each socket*. A node's pool grows with its
//! vifs, so with shared memory the kernel's part grows with their square: 128 vifs took 2 GiB and
//! 8 s to start, and 512 did not fit into 24 GiB. A socket with bounce buffers registers a few
//! hundred chunks of its own, and each frame is copied between them and the pool.

use std::io;

use crate::memory_map::Mapping;

/// Chunks to receive into, then chunks to send from.
#[derive(Debug)]
pub(super) struct BounceBuffers {
    memory: Mapping,
    chunk: u32,
    receive: u32,
    /// Addresses of chunks that hold no frame on its way out.
    idle: Vec<u64>,
}

impl BounceBuffers {
    /// Maps `receive` + `transmit` chunks of `chunk` bytes.
    pub(super) fn new(receive: u32, transmit: u32, chunk: u32) -> io::Result<Self> {
        let chunks = receive as usize + transmit as usize;
        let memory = Mapping::anonymous(chunks * chunk as usize)?;
        let idle = (receive..receive + transmit).map(|id| u64::from(id) * u64::from(chunk));
        Ok(Self { memory, chunk, receive, idle: idle.collect() })
    }

    /// Returns the address and the length of the memory, and the bytes of a chunk.
    pub(super) fn extent(&self) -> (*mut u8, usize, u32) {
        (self.memory.start(), self.memory.len(), self.chunk)
    }

    /// Returns the addresses of the chunks to receive into.
    pub(super) fn to_receive(&self) -> impl Iterator<Item = u64> + use<> {
        let chunk = u64::from(self.chunk);
        (0..u64::from(self.receive)).map(move |id| id * chunk)
    }

    /// Returns the address of the chunk that a received frame lies in.
    pub(super) fn chunk_of(&self, address: u64) -> u64 {
        address - address % u64::from(self.chunk)
    }

    /// Returns the bytes of a received frame; `None` if it is not inside one chunk to receive into.
    pub(super) fn received(&self, address: u64, len: u32) -> Option<&[u8]> {
        let chunk = u64::from(self.chunk);
        let end = address.checked_add(u64::from(len))?;
        let inside = address % chunk + u64::from(len) <= chunk;
        if !inside || end > u64::from(self.receive) * chunk {
            return None;
        }
        let (start, len) = (usize::try_from(address).ok()?, len as usize);
        // SAFETY: the checks above put the range inside the mapping. The kernel writes only chunks
        // in the fill ring, where this one returns after the borrow ends; chunks that
        // `transmit_copy` writes lie behind those to receive into.
        Some(unsafe { std::slice::from_raw_parts(self.memory.start().add(start), len) })
    }

    /// Copies a frame into an idle chunk; returns its address. `None` if none is idle, or the frame
    /// is longer than a chunk.
    pub(super) fn transmit_copy(&mut self, bytes: &[u8]) -> Option<u64> {
        if bytes.len() > self.chunk as usize {
            return None;
        }
        let address = self.idle.pop()?;
        let start = usize::try_from(address).ok()?;
        // SAFETY: an idle address is the start of a chunk of the mapping, and the bytes fit into
        // it. The kernel reads only chunks in the transmit ring, where this one is not yet; the
        // bytes are no part of this private mapping.
        unsafe {
            let to = self.memory.start().add(start);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        Some(address)
    }

    /// Takes back a chunk whose frame was sent, or was not handed over after all.
    pub(super) fn sent(&mut self, address: u64) {
        let address = self.chunk_of(address);
        debug_assert!(!self.idle.contains(&address), "chunk {address} was idle already");
        let capacity = self.memory.len() / self.chunk as usize - self.receive as usize;
        if self.idle.len() < capacity {
            self.idle.push(address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_lie_inside_one_chunk_to_receive_into() {
        let buffers = BounceBuffers::new(2, 2, 2048).unwrap();
        assert_eq!(buffers.to_receive().collect::<Vec<_>>(), [0, 2048]);
        assert_eq!(buffers.received(256, 1500).map(<[u8]>::len), Some(1500));
        assert_eq!(buffers.received(2048 + 256, 1792).map(<[u8]>::len), Some(1792));
        assert!(buffers.received(2048 + 256, 1793).is_none(), "over a chunk's end");
        assert!(buffers.received(2 * 2048, 64).is_none(), "a chunk to send from");
        assert!(buffers.received(u64::MAX, 64).is_none(), "beyond all memory");
        assert_eq!(buffers.chunk_of(2048 + 256), 2048);
    }

    #[test]
    fn a_chunk_is_sent_from_once_at_a_time() {
        let mut buffers = BounceBuffers::new(1, 2, 2048).unwrap();
        let first = buffers.transmit_copy(&[1; 60]).unwrap();
        let second = buffers.transmit_copy(&[2; 2048]).unwrap();
        assert_ne!(first, second);
        assert!(buffers.transmit_copy(&[3; 60]).is_none(), "none is idle");
        buffers.sent(first);
        assert!(buffers.transmit_copy(&[4; 2049]).is_none(), "longer than a chunk");
        assert_eq!(buffers.transmit_copy(&[4; 60]), Some(first));
    }
}
