// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames as they are given, byte by byte, through an AF_PACKET socket: for what no well-behaved
//! sender sends.

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::error::TrafficError;
use weir_platform::netns;

/// Sends each of `frames` once from `device` in the named namespace, as fast as it goes, and gives
/// how many of them the kernel took: it refuses those that are longer than the device's MTU allows.
///
/// # Errors
/// There is no such namespace or device, or the right to open the socket is missing.
pub fn send_raw<F: AsRef<[u8]> + Sync>(
    namespace: &str,
    device: &str,
    frames: &[F],
) -> Result<usize, TrafficError> {
    netns::in_namespace(namespace, || {
        let socket = open(device)?;
        let taken = frames.iter().filter(|frame| send(&socket, frame.as_ref()).is_ok());
        Ok(taken.count())
    })?
}

fn open(device: &str) -> Result<OwnedFd, TrafficError> {
    let fail = || TrafficError::last_os(format!("open a packet socket on {device}"));
    let name = CString::new(device).map_err(|error| {
        TrafficError::system(format!("use device {device:?}"), io::Error::other(error))
    })?;
    // SAFETY: `name` is a string that ends with a zero.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        return Err(fail());
    }
    // SAFETY: takes numbers only. Protocol 0: it receives nothing.
    let fd = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
    if fd < 0 {
        return Err(fail());
    }
    // SAFETY: the call made this descriptor, and nobody else has it.
    let socket = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = FAMILY;
    address.sll_ifindex = index.cast_signed();
    let length = libc::socklen_t::try_from(size_of_val(&address)).unwrap_or(0);
    // SAFETY: `address` is valid for reading `length` bytes.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) } {
        0 => Ok(socket),
        _ => Err(fail()),
    }
}

fn send(socket: &OwnedFd, frame: &[u8]) -> io::Result<()> {
    // SAFETY: `frame` is valid for reading its length.
    let sent = unsafe { libc::send(socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// `AF_PACKET` as an address holds it.
const FAMILY: libc::sa_family_t = 17;
const _: () = assert!(libc::AF_PACKET == 17);
