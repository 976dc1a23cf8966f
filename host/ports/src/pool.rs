// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one pool of frames that all ports share.
//!
//! A frame received on one device leaves by another without being copied in user space: all AF_XDP
//! sockets of the process use this memory as their UMEM, and all other ports read into it.

use std::os::fd::OwnedFd;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use weir_switch::{Frame, FramePool};

use crate::error::PortError;
use crate::memory_map::Mapping;

/// Equal chunks of memory, and the list of the free ones.
///
/// A chunk is owned by the code that took it from the list, or received its frame from a port,
/// until it is freed or given to a port for transmission.
#[derive(Debug)]
pub struct Pool {
    region: Region,
    start: Start,
    chunk: u32,
    frames: u32,
    free: Vec<u32>,
    /// One bit a chunk, set while it is free, so that a second freeing is detected and ignored.
    is_free: Vec<u64>,
    /// The socket whose rings hold a chunk, 0 for none: the chunks return when it closes.
    lent_to: Vec<u16>,
}

/// The memory of a pool without its list of free chunks: enough to open a socket on any thread.
#[derive(Clone, Debug)]
pub struct Region {
    memory: Arc<Mapping>,
    chunk: u32,
    registry: Arc<Mutex<Registry>>,
}

/// The sockets that share the memory.
#[derive(Debug, Default)]
struct Registry {
    borrowers: u16,
    idle: Vec<Borrower>,
    anchors: Vec<(BindMode, Weak<OwnedFd>)>,
}

/// The first byte of the pool, kept here to save two pointers a frame; the region keeps it mapped.
#[derive(Debug)]
struct Start(NonNull<u8>);

// SAFETY: the memory belongs to the process, not to a thread; `Pool` argues where it dereferences.
unsafe impl Send for Start {}
// SAFETY: as above; a shared reference gives no more than the address.
unsafe impl Sync for Start {}

/// The number of a socket that holds chunks in its rings; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Borrower(u16);

/// The chunks that are still lent to the sockets of a closed port, until [`Pool::reclaim`].
#[derive(Debug, Default)]
#[must_use = "the chunks come back with Pool::reclaim"]
pub struct LentChunks(pub(crate) Vec<Borrower>);

/// The way in which frames get from the device into the pool and back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BindMode {
    /// The kernel copies each frame. Works on every device.
    Copy,
    /// The device reads and writes the pool itself.
    ZeroCopy,
}

impl Pool {
    /// Makes a pool of `frames` chunks (1 ..= 2²⁴) of `chunk` bytes (2048 or 4096).
    ///
    /// # Errors
    /// A size is out of bounds, or there is no memory.
    pub fn new(frames: u32, chunk: u32) -> Result<Self, PortError> {
        if chunk != 2048 && chunk != 4096 {
            let message = format!("frame_size is {chunk}; it may be 2048 or 4096");
            return Err(PortError::bound("pool", message));
        }
        if frames == 0 || frames > FRAMES_MAX {
            let message = format!("frames is {frames}; it may be 1 to {FRAMES_MAX}");
            return Err(PortError::bound("pool", message));
        }
        let len = frames as usize * chunk as usize;
        let memory = Mapping::anonymous(len)
            .map_err(|error| PortError::system("pool", "map its memory", error))?;
        // The least number on top: a small working set stays in the cache.
        let free = (0..frames).rev().collect();
        let is_free = vec![u64::MAX; (frames as usize).div_ceil(64)];
        let lent_to = vec![0; frames as usize];
        let start = Start(memory.first());
        let (memory, registry) = (Arc::new(memory), Arc::default());
        let region = Region { memory, chunk, registry };
        Ok(Self { region, start, chunk, frames, free, is_free, lent_to })
    }

    /// Returns the pool's memory, for opening ports on another thread.
    #[must_use]
    pub const fn region(&self) -> &Region {
        &self.region
    }

    /// Frees the chunks that the sockets of a closed port held.
    pub fn reclaim(&mut self, lent: LentChunks) {
        lent.0.into_iter().for_each(|borrower| self.forget(borrower));
    }

    /// Takes a free chunk, as a frame of `len` bytes behind the usual headroom; `None` if all
    /// chunks are in use, or the frame does not fit a chunk. The bytes are left over from an
    /// earlier frame.
    pub fn frame(&mut self, len: u16) -> Option<Frame> {
        if u32::from(len) > self.frame_max() {
            return None;
        }
        let id = self.alloc()?;
        Some(Frame { id, offset: HEADROOM, len })
    }

    /// Copies `bytes` into a new frame; `None` as for [`Self::frame`].
    pub fn copy_in(&mut self, bytes: &[u8]) -> Option<Frame> {
        let len = u16::try_from(bytes.len()).ok()?;
        let frame = self.frame(len)?;
        self.data(frame).copy_from_slice(bytes);
        Some(frame)
    }

    /// Returns the number of chunks that nobody holds.
    #[must_use]
    pub fn free_frames(&self) -> usize {
        self.free.len()
    }

    /// Returns the length of the longest frame that a port can receive or a caller can make, in
    /// bytes.
    #[must_use]
    pub fn frame_max(&self) -> u32 {
        self.chunk - u32::from(HEADROOM)
    }

    /// Returns the address of a frame as AF_XDP descriptors state it: its distance from the pool's
    /// start.
    pub(crate) fn address(&self, frame: Frame) -> u64 {
        u64::from(frame.id) * u64::from(self.chunk) + u64::from(frame.offset)
    }

    /// Returns the frame at a descriptor's address; `None` if it does not lie in one chunk.
    fn frame_at(&self, address: u64, len: u32) -> Option<Frame> {
        let chunk = u64::from(self.chunk);
        let id = u32::try_from(address / chunk).ok().filter(|id| *id < self.frames)?;
        let offset = u16::try_from(address % chunk).ok()?;
        let len = u16::try_from(len).ok()?;
        (u32::from(offset) + u32::from(len) <= self.chunk).then_some(Frame { id, offset, len })
    }

    /// Notes that `to` holds the chunk from now on.
    pub(crate) fn lend(&mut self, id: u32, to: Borrower) {
        if let Some(holder) = self.lent_to.get_mut(id as usize) {
            *holder = to.0;
        }
    }

    /// Takes the frame at a descriptor's address back from its socket; `None` if that socket does
    /// not hold it.
    pub(crate) fn take_back(&mut self, address: u64, len: u32, from: Borrower) -> Option<Frame> {
        let frame = self.frame_at(address, len)?;
        let holder = &mut self.lent_to[frame.id as usize];
        if *holder != from.0 {
            return None;
        }
        *holder = 0;
        Some(frame)
    }

    /// Frees all chunks that a closed socket held.
    pub(crate) fn forget(&mut self, borrower: Borrower) {
        for id in 0..self.frames {
            if self.lent_to[id as usize] == borrower.0 {
                self.lent_to[id as usize] = 0;
                self.free(id);
            }
        }
        self.region.registry().idle.push(borrower);
    }

    /// Returns the four bytes just before a frame as a word, and clears them; `None` without room.
    pub(crate) fn take_word_before(&mut self, frame: Frame) -> Option<u32> {
        let offset = frame.offset.checked_sub(4)?;
        let word = self.data(Frame { offset, len: 4, ..frame });
        let bytes = <[u8; 4]>::try_from(&*word).ok()?;
        word.fill(0);
        Some(u32::from_ne_bytes(bytes))
    }
}

impl Region {
    /// Returns the length of the longest frame that a port can receive, in bytes.
    pub(crate) fn frame_max(&self) -> u32 {
        self.chunk - u32::from(HEADROOM)
    }

    /// Returns the number of chunks of the pool.
    #[must_use]
    pub fn frames(&self) -> u32 {
        u32::try_from(self.memory.len() / self.chunk as usize).unwrap_or(u32::MAX)
    }

    /// Returns the address and the length of the memory, and the bytes of a chunk.
    pub(crate) fn extent(&self) -> (*mut u8, usize, u32) {
        (self.memory.start(), self.memory.len(), self.chunk)
    }

    /// Returns a live socket that has this memory registered for that mode; other sockets share its
    /// registration.
    pub(crate) fn anchor(&self, mode: BindMode) -> Option<Arc<OwnedFd>> {
        let mut registry = self.registry();
        registry.anchors.retain(|(_, socket)| socket.strong_count() > 0);
        registry.anchors.iter().filter(|(m, _)| *m == mode).find_map(|(_, socket)| socket.upgrade())
    }

    /// Adds a socket that is bound to the memory as an anchor, even one that shares another's
    /// registration. The memory thus stays registered once, whichever port closes first.
    pub(crate) fn add_anchor(&self, mode: BindMode, socket: &Arc<OwnedFd>) {
        self.registry().anchors.push((mode, Arc::downgrade(socket)));
    }

    /// Returns a number for a socket that will hold chunks; `None` while 65 535 sockets have one.
    pub(crate) fn new_borrower(&self) -> Option<Borrower> {
        let mut registry = self.registry();
        if let Some(idle) = registry.idle.pop() {
            return Some(idle);
        }
        registry.borrowers = registry.borrowers.checked_add(1)?;
        Some(Borrower(registry.borrowers))
    }

    /// Does [`Pool::reclaim`] for a port that was closed before anybody adopted it: it never
    /// held a chunk.
    pub fn retire_all(&self, lent: LentChunks) {
        lent.0.into_iter().for_each(|borrower| self.retire(borrower));
    }

    /// Takes back the number of a socket that never held a chunk.
    pub(crate) fn retire(&self, borrower: Borrower) {
        self.registry().idle.push(borrower);
    }

    /// Locks the registry. Its lists are consistent even after a panic of the lock's holder.
    fn registry(&self) -> MutexGuard<'_, Registry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FramePool for Pool {
    fn data(&mut self, frame: Frame) -> &mut [u8] {
        let end = u32::from(frame.offset) + u32::from(frame.len);
        if frame.id >= self.frames || end > self.chunk {
            debug_assert!(false, "{frame:?} is not in a pool of {} frames", self.frames);
            return &mut [];
        }
        let start = frame.id as usize * self.chunk as usize + usize::from(frame.offset);
        // SAFETY: the check above puts the range inside one chunk, hence inside the mapping. The
        // exclusive borrow of the pool is the only Rust reference into it. The kernel writes only
        // chunks in a fill ring and reads only those in a transmit ring; a caller's frame is in
        // neither, since ports take frames by value. A caller that keeps a stale copy may see
        // bytes change, which no code here relies on.
        unsafe {
            let first = self.start.0.as_ptr().add(start);
            std::slice::from_raw_parts_mut(first, usize::from(frame.len))
        }
    }

    fn room_before(&self, frame: Frame) -> usize {
        usize::from(frame.offset)
    }

    fn alloc(&mut self) -> Option<u32> {
        let id = self.free.pop()?;
        self.is_free[id as usize / 64] &= !(1 << (id % 64));
        Some(id)
    }

    fn free(&mut self, id: u32) {
        let Some(word) = self.is_free.get_mut(id as usize / 64) else { return };
        let bit = 1 << (id % 64);
        if id >= self.frames || *word & bit != 0 {
            debug_assert!(false, "chunk {id} is free already or not in the pool");
            return;
        }
        *word |= bit;
        // Within its capacity: a chunk enters once, and the list was made for all of them.
        self.free.push(id);
    }

    fn chunks(&self) -> u32 {
        self.frames
    }

    fn chunk_size(&self) -> usize {
        self.chunk as usize
    }

    fn headroom(&self) -> u16 {
        HEADROOM
    }
}

/// The room that the kernel leaves before a received frame (`XDP_PACKET_HEADROOM`). Frames made
/// here have the same, so that a tag can be pushed before any frame.
pub(crate) const HEADROOM: u16 = 256;

/// 32 GiB of the smaller chunks.
const FRAMES_MAX: u32 = 1 << 24;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_chunk_is_handed_out_once() {
        let mut pool = Pool::new(8, 2048).unwrap();
        let mut taken: Vec<_> = std::iter::from_fn(|| pool.alloc()).collect();
        taken.sort_unstable();
        assert_eq!(taken, (0..8).collect::<Vec<_>>());
        taken.into_iter().for_each(|id| pool.free(id));
        assert_eq!(pool.free_frames(), 8);
    }

    #[test]
    fn frames_keep_their_bytes_apart() {
        let mut pool = Pool::new(2, 2048).unwrap();
        let longest = vec![1; pool.frame_max() as usize];
        let first = pool.copy_in(&longest).unwrap();
        let second = pool.copy_in(&[2; 60]).unwrap();
        assert!(pool.copy_in(&[3]).is_none(), "the pool is empty");
        assert_eq!(pool.data(first), longest);
        assert_eq!(pool.data(second), [2; 60]);
        pool.free(second.id);
        assert!(pool.copy_in(&vec![0; longest.len() + 1]).is_none(), "longer than a chunk");
    }

    #[test]
    fn addresses_and_frames_are_inverse() {
        let pool = Pool::new(4, 4096).unwrap();
        let frame = Frame { id: 3, offset: 258, len: 1500 };
        assert_eq!(pool.frame_at(pool.address(frame), 1500), Some(frame));
        assert_eq!(pool.frame_at(4 * 4096, 64), None, "beyond the pool");
        assert_eq!(pool.frame_at(4000, 97), None, "over a chunk's end");
    }

    #[test]
    fn sizes_are_bounded() {
        for (frames, chunk) in [(0, 2048), (FRAMES_MAX + 1, 2048), (16, 1024), (16, 8192)] {
            assert!(Pool::new(frames, chunk).is_err(), "{frames} frames of {chunk}");
        }
    }
}
