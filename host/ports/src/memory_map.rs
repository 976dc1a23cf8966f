// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A mapping that ends with its value.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::{io, ptr};

/// Mapped memory, readable and writable, unmapped on drop.
#[derive(Debug)]
pub(crate) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping belongs to the process, not to the thread that made it; `Mapping` hands out
// only raw pointers, and whoever dereferences them argues for it.
unsafe impl Send for Mapping {}
// SAFETY: as above; a shared reference gives no more than the address and the length.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len` bytes of zeroed memory of our own, in huge pages from 2 MiB on where the kernel
    /// has them. Child processes do not get it: a fork would copy the pages that devices have
    /// pinned (some 50 ms for 50 MB, in which all threads wait), and leave the others to be copied
    /// when next written.
    pub(crate) fn anonymous(len: usize) -> io::Result<Self> {
        let mapping = Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?;
        // SAFETY: the range is exactly the mapping made above, and no child of this process uses
        // it. A failure costs time only, so its result does not matter.
        unsafe { libc::madvise(mapping.start.as_ptr().cast(), len, libc::MADV_DONTFORK) };
        if len >= HUGE_PAGE {
            // SAFETY: the range is exactly the mapping made above. The call is advice: a failure
            // costs speed only, so its result does not matter.
            unsafe { libc::madvise(mapping.start.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
        }
        Ok(mapping)
    }

    /// Maps `len` bytes that `fd` offers at `offset`, shared with the kernel.
    pub(crate) fn shared(fd: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), offset)
    }

    /// Returns the address of the first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Returns the same address, known not to be null.
    pub(crate) const fn first(&self) -> NonNull<u8> {
        self.start
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn map(len: usize, flags: i32, fd: i32, offset: libc::off_t) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: no address is asked for, so the kernel picks unused memory; nothing that exists
        // is overlaid.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, fd, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { start, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is the one mapped in `map`, and no pointer into it outlives the value
        // that holds this mapping.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// The size of a huge page on the machines that have them in this size; elsewhere a harmless
/// threshold.
const HUGE_PAGE: usize = 2 << 20;
