// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sends frames byte by byte as given, through a packet socket (packet(7)): for frames that no
//! well-behaved sender sends.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, netdevice, send, socket_with,
};
use weir_platform::netns;

use super::error::TrafficError;

/// Sends each of `frames` once from `device` in the named namespace, as fast as it goes, and
/// returns how many of them the kernel took: it refuses those that are longer than the device's MTU
/// allows.
pub fn send_raw<F: AsRef<[u8]> + Sync>(
    namespace: &str,
    device: &str,
    frames: &[F],
) -> Result<usize, TrafficError> {
    netns::in_namespace(namespace, || send_here(device, frames))?
}

/// Sends frames as [`send_raw`] does, in the namespace of the calling thread.
pub(super) fn send_here<F: AsRef<[u8]>>(device: &str, frames: &[F]) -> Result<usize, TrafficError> {
    let failed = |error| TrafficError::system(format!("send frames from {device}"), error);
    let socket = open(device, NOTHING).map_err(failed)?;
    let is_taken = |frame: &&F| send(&socket, frame.as_ref(), SendFlags::empty()).is_ok();
    Ok(frames.iter().filter(is_taken).count())
}

/// Opens a packet socket that is bound to `device` and receives frames of the Ethernet type
/// `protocol`, or nothing.
pub(super) fn open(device: &str, protocol: u16) -> io::Result<OwnedFd> {
    let (family, flags) = (AddressFamily::PACKET, SocketFlags::CLOEXEC);
    // Without a protocol it receives nothing until it is bound, so no frames of other devices.
    let socket = socket_with(family, SocketType::RAW, flags, None)?;
    // SAFETY: all zeros is a valid address.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = FAMILY;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = netdevice::name_to_index(&socket, device)?.cast_signed();
    // SAFETY: `address` is valid for reading the length given.
    match unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), ADDRESS_BYTES) } {
        0 => Ok(socket),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The Ethernet type of a socket that only sends.
const NOTHING: u16 = 0;
/// `AF_PACKET` as an address holds it.
const FAMILY: libc::sa_family_t = 17;
const _: () = assert!(libc::AF_PACKET == 17);
const ADDRESS_BYTES: libc::socklen_t = 20;
const _: () = assert!(size_of::<libc::sockaddr_ll>() == 20);
