// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Links the pure crates without an operating system; never run. A dependency that needs `std`
//! brings a second panic handler, and this crate then does not compile. Without the features of
//! `weir-sched`, one of which does.
#![no_std]

#[cfg(feature = "canary")]
extern crate std;

extern crate weir_control;
extern crate weir_kernel_plan;
extern crate weir_policy;
extern crate weir_sched;
extern crate weir_switch;
extern crate weir_units;

use core::alloc::{GlobalAlloc, Layout};

struct NoMemory;

// SAFETY: it hands out no memory at all, which an allocator may do at any time.
unsafe impl GlobalAlloc for NoMemory {
    unsafe fn alloc(&self, _: Layout) -> *mut u8 {
        core::ptr::null_mut()
    }

    unsafe fn dealloc(&self, _: *mut u8, _: Layout) {}
}

#[global_allocator]
static ALLOCATOR: NoMemory = NoMemory;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
