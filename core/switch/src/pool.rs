// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames and the pool that owns their bytes, as the switch sees them.

/// A frame in a chunk of the pool. Its holder owns the whole chunk `id`. 8 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The chunk; below [`FramePool::chunks`].
    pub id: u32,
    /// Offset of the frame in its chunk, in bytes.
    pub offset: u16,
    /// Its length in bytes, from the destination MAC on, without FCS.
    pub len: u16,
}

/// A fixed number of chunks of equal size.
///
/// A chunk is either free, in the pool, or owned by exactly one [`Frame`]: in a device's ring or in
/// a queue of the switch. No method panics, whatever the frame says: a frame outside of its
/// chunk reads as empty.
pub trait FramePool {
    /// Returns the frame's bytes; empty if they are not all inside a chunk.
    fn data(&mut self, frame: Frame) -> &mut [u8];

    /// Returns the number of bytes before the frame, in its chunk, that it can grow into.
    fn room_before(&self, frame: Frame) -> usize;

    /// Copies the bytes of one frame into another of the same length, in another chunk. Returns
    /// whether both lie inside their chunks.
    fn copy(&mut self, from: Frame, to: Frame) -> bool {
        let mut buffer = [0; 256];
        let length = usize::from(from.len);
        if from.len != to.len || self.data(from).len() != length || self.data(to).len() != length {
            return false;
        }
        for start in (0..length).step_by(buffer.len()) {
            let end = length.min(start + buffer.len());
            let part = &mut buffer[..end - start];
            part.copy_from_slice(&self.data(from)[start..end]);
            self.data(to)[start..end].copy_from_slice(part);
        }
        true
    }

    /// Takes a free chunk; `None` if there is none.
    fn alloc(&mut self) -> Option<u32>;

    /// Gives a chunk back. One that is free already, or that does not exist, is ignored.
    fn free(&mut self, id: u32);

    /// Returns the number of chunks, free or not: the bound of every `id`.
    fn chunks(&self) -> u32;

    /// Returns the size of a chunk in bytes.
    fn chunk_size(&self) -> usize;

    /// Returns the bytes that a fresh frame leaves free at the front of its chunk: at least 4, for
    /// a VLAN tag.
    fn headroom(&self) -> u16;
}
