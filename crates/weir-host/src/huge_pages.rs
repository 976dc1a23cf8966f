// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An allocator that asks the kernel for huge pages where an allocation fills some.
//!
//! The tables of a million classes take hundreds of megabytes, and each packet reads a dozen lines
//! of them anywhere: with pages of 4 KiB most of these reads also miss the processor's table of
//! pages. Where the kernel gives huge pages to everybody or to nobody, the advice changes nothing.

use std::alloc::{GlobalAlloc, Layout, System};

/// The system's allocator, with `MADV_HUGEPAGE` for allocations from [`BYTES_MIN`] on:
/// `#[global_allocator]`.
#[derive(Clone, Copy, Debug, Default)]
pub struct HugePages;

// SAFETY: every call is passed on unchanged to the system's allocator, which keeps the contract;
// the advice changes neither the content of memory nor its validity.
unsafe impl GlobalAlloc for HugePages {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        let start = unsafe { System.alloc(layout) };
        advise(start, layout.size());
        start
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        let start = unsafe { System.alloc_zeroed(layout) };
        advise(start, layout.size());
        start
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and `start` is from `System`.
        unsafe { System.dealloc(start, layout) };
    }

    unsafe fn realloc(&self, start: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `realloc`, and `start` is from `System`.
        let start = unsafe { System.realloc(start, layout, size) };
        advise(start, size);
        start
    }
}

/// Asks for huge pages in the whole pages of a large allocation; what was not allocated is not.
fn advise(start: *mut u8, bytes: usize) {
    if bytes < BYTES_MIN || start.is_null() {
        return;
    }
    let first = start.align_offset(PAGE_BYTES);
    let length = bytes.saturating_sub(first) / PAGE_BYTES * PAGE_BYTES;
    // SAFETY: the range lies within the allocation, which is `bytes` long and longer than a page;
    // the advice leaves its content as it is. It may be refused: then the pages are small.
    unsafe { libc::madvise(start.wrapping_add(first).cast(), length, libc::MADV_HUGEPAGE) };
}

/// Two huge pages of 2 MiB: one at least lies within, wherever the allocation begins.
pub const BYTES_MIN: usize = 4 << 20;

/// Advice is for whole pages; a kernel with larger ones refuses what is not a multiple of them.
const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever the kernel makes of the advice, memory is as the allocator's contract says.
    #[test]
    fn large_and_small_allocations_keep_their_content() {
        for bytes in [16, BYTES_MIN - 1, BYTES_MIN, 3 * BYTES_MIN + 5] {
            let layout = Layout::from_size_align(bytes, 64).unwrap();
            let larger = Layout::from_size_align(2 * bytes, 64).unwrap();
            // SAFETY: the layouts are not empty; each pointer is used within its size and freed
            // with the layout that it has by then.
            unsafe {
                let zeroed = HugePages.alloc_zeroed(layout);
                assert!(!zeroed.is_null() && zeroed.align_offset(64) == 0);
                assert_eq!(*zeroed.add(bytes - 1), 0);
                *zeroed.add(bytes - 1) = 7;
                let moved = HugePages.realloc(zeroed, layout, 2 * bytes);
                assert_eq!((*moved, *moved.add(bytes - 1)), (0, 7));
                HugePages.dealloc(moved, larger);
            }
        }
    }
}
