// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One ring shared with the kernel: a single producer, a single consumer, a power of two of
//! entries, indexes that run freely (Linux, Documentation/networking/af_xdp.rst).

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::PortError;
use crate::memory_map::Mapping;

/// A ring that we fill: of chunks to receive into, or of frames to send.
#[derive(Debug)]
pub(super) struct ProducerRing<T> {
    ring: Ring<T>,
    /// The next entry to write; published by [`Self::submit`].
    next: u32,
    /// The kernel's index as last seen.
    consumer: u32,
}

/// A ring that the kernel fills: with received frames, or with chunks that were sent.
#[derive(Debug)]
pub(super) struct ConsumerRing<T> {
    ring: Ring<T>,
    /// The next entry to read; published by [`Self::release`].
    next: u32,
    /// The kernel's index as last seen.
    producer: u32,
}

#[derive(Debug)]
struct Ring<T> {
    map: Mapping,
    /// The offsets of the two indexes, the flags and the entries.
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    size: u32,
    entry: PhantomData<T>,
}

impl<T: Copy> ProducerRing<T> {
    /// Maps the ring that `page` names, of `size` entries (a power of two).
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page: u64,
        offsets: libc::xdp_ring_offset,
        size: u32,
        name: &str,
    ) -> Result<Self, PortError> {
        let ring = Ring::map(socket, page, offsets, size, name)?;
        Ok(Self { ring, next: 0, consumer: 0 })
    }

    /// Returns the number of entries that can be written now.
    pub(super) fn room(&mut self) -> u32 {
        self.consumer = self.ring.consumer().load(Ordering::Acquire);
        self.ring.size - self.next.wrapping_sub(self.consumer)
    }

    /// Writes one entry; false if the ring is full. The kernel sees it after [`Self::submit`].
    pub(super) fn push(&mut self, entry: T) -> bool {
        if self.next.wrapping_sub(self.consumer) == self.ring.size && self.room() == 0 {
            return false;
        }
        // SAFETY: the entry at `next` is ours: the ring has room, so the kernel has consumed what
        // was there, and it looks only at entries below the published index.
        unsafe { self.ring.entry(self.next).write(entry) };
        self.next = self.next.wrapping_add(1);
        true
    }

    /// Shows the kernel all entries written so far.
    pub(super) fn submit(&mut self) {
        self.ring.producer().store(self.next, Ordering::Release);
    }

    /// Returns the number of entries that the kernel has not consumed yet.
    pub(super) fn pending(&mut self) -> u32 {
        self.ring.size - self.room()
    }

    /// Returns whether the kernel asks for a system call to go on (`XDP_RING_NEED_WAKEUP`).
    pub(super) fn needs_wakeup(&self) -> bool {
        self.ring.flags().load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}

impl<T: Copy> ConsumerRing<T> {
    /// Maps the ring like [`ProducerRing::map`].
    pub(super) fn map(
        socket: BorrowedFd<'_>,
        page: u64,
        offsets: libc::xdp_ring_offset,
        size: u32,
        name: &str,
    ) -> Result<Self, PortError> {
        let ring = Ring::map(socket, page, offsets, size, name)?;
        Ok(Self { ring, next: 0, producer: 0 })
    }

    /// Returns the oldest entry, if there is one. Its place is free again after [`Self::release`].
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.next == self.producer {
            self.producer = self.ring.producer().load(Ordering::Acquire);
            if self.next == self.producer {
                return None;
            }
        }
        // SAFETY: the kernel has published the entry at `next` (acquired above) and does not write
        // it again before the consumer index passes it.
        let entry = unsafe { self.ring.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        Some(entry)
    }

    /// Gives the places of all entries read so far back to the kernel.
    pub(super) fn release(&mut self) {
        self.ring.consumer().store(self.next, Ordering::Release);
    }
}

impl<T> Ring<T> {
    fn map(
        socket: BorrowedFd<'_>,
        page: u64,
        offsets: libc::xdp_ring_offset,
        size: u32,
        name: &str,
    ) -> Result<Self, PortError> {
        let place = |offset: u64| {
            // Offsets are a few hundred bytes; one that does not fit makes the mapping fail.
            usize::try_from(offset).unwrap_or(usize::MAX / 2)
        };
        let (producer, consumer) = (place(offsets.producer), place(offsets.consumer));
        let (flags, entries) = (place(offsets.flags), place(offsets.desc));
        let map = Mapping::shared(socket, page, entries + size as usize * size_of::<T>())
            .map_err(|error| PortError::system(name, "map an AF_XDP ring", error))?;
        Ok(Self { map, producer, consumer, flags, entries, size, entry: PhantomData })
    }

    fn producer(&self) -> &AtomicU32 {
        self.word(self.producer)
    }

    fn consumer(&self) -> &AtomicU32 {
        self.word(self.consumer)
    }

    fn flags(&self) -> &AtomicU32 {
        self.word(self.flags)
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // The kernel states offsets before the entries; the mapping reaches beyond those.
        debug_assert!(offset < self.map.len());
        // SAFETY: the offset is the kernel's own for this ring, inside the mapping and aligned to
        // its index type. Both sides access these words atomically only.
        unsafe { AtomicU32::from_ptr(self.map.start().add(offset).cast()) }
    }

    fn entry(&self, index: u32) -> *mut T {
        let slot = (index & (self.size - 1)) as usize;
        // SAFETY: the mask keeps the slot below `size`, and the mapping was made for the offset of
        // the entries plus `size` of them.
        unsafe { self.map.start().add(self.entries).cast::<T>().add(slot) }
    }
}
