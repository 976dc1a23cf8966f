// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Thin, typed wrappers of the system calls that several ports use.

use std::os::fd::{AsRawFd, BorrowedFd};
use std::{io, mem, ptr};

use weir_units::Instant;

/// Returns the time of `CLOCK_MONOTONIC`, the clock of every [`Instant`] outside the pure crates.
#[must_use]
pub fn now() -> Instant {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place to write. The clock exists on every Linux, so the call
    // cannot fail; if it did, the time would read as zero.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let seconds = time.tv_sec.unsigned_abs();
    Instant::from_nanos(seconds * 1_000_000_000 + time.tv_nsec.unsigned_abs())
}

/// Returns the nanoseconds since 1970, for time stamps in files.
pub(crate) fn wall_clock_nanos() -> u64 {
    let since = std::time::UNIX_EPOCH.elapsed().unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// Sets a socket option to a plain value.
pub(crate) fn set_option<T: Copy>(
    socket: BorrowedFd<'_>,
    level: i32,
    option: i32,
    value: &T,
) -> io::Result<()> {
    let size = socklen::<T>();
    // SAFETY: the kernel reads `size` bytes from a live `T`.
    let result = unsafe {
        let value = ptr::from_ref(value).cast();
        libc::setsockopt(socket.as_raw_fd(), level, option, value, size)
    };
    check(result)
}

/// Reads a socket option made of integers only.
pub(crate) fn option<T: Plain>(socket: BorrowedFd<'_>, level: i32, option: i32) -> io::Result<T> {
    // SAFETY: `Plain` types are made of integers, for which zero is a value.
    let mut value: T = unsafe { mem::zeroed() };
    let mut size = socklen::<T>();
    // SAFETY: the kernel writes at most `size` bytes into a live `T`.
    let result = unsafe {
        let place = ptr::from_mut(&mut value).cast();
        libc::getsockopt(socket.as_raw_fd(), level, option, place, &raw mut size)
    };
    check(result).map(|()| value)
}

/// Binds a socket to an address of its family.
pub(crate) fn bind<T: Copy>(socket: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    let size = socklen::<T>();
    // SAFETY: the kernel reads `size` bytes from a live `T`.
    let result = unsafe { libc::bind(socket.as_raw_fd(), ptr::from_ref(address).cast(), size) };
    check(result)
}

/// Sends nothing, which tells the kernel to look at a transmit ring.
pub(crate) fn send_nothing(socket: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: no buffer and no address are passed.
    let sent = unsafe {
        libc::sendto(socket.as_raw_fd(), ptr::null(), 0, libc::MSG_DONTWAIT, ptr::null(), 0)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn check(result: i32) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn socklen<T>() -> libc::socklen_t {
    const { assert!(size_of::<T>() <= u32::MAX as usize) };
    // The assertion above is the proof that nothing is cut off.
    #[allow(clippy::cast_possible_truncation)]
    let size = size_of::<T>() as libc::socklen_t;
    size
}

/// Types made of integers only, for which every pattern of bits is a value.
///
/// # Safety
/// The type must be just that.
pub(crate) unsafe trait Plain: Copy {}

// SAFETY: integers only.
unsafe impl Plain for libc::xdp_mmap_offsets {}
// SAFETY: integers only.
unsafe impl Plain for libc::xdp_statistics {}
// SAFETY: integers only.
unsafe impl Plain for libc::tpacket_stats {}
// SAFETY: an integer.
unsafe impl Plain for u32 {}
