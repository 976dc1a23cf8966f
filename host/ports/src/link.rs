// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads properties of a device from the kernel: index, queues, counters. Uses rtnetlink and
//! ethtool, which answer for the network namespace of the calling thread, as `/sys` may not.

use std::ffi::CString;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;
use std::{io, ptr};

use crate::error::PortError;

/// Returns the index of a device in this network namespace.
pub(crate) fn ifindex(name: &str) -> Result<u32, PortError> {
    let text = CString::new(name).map_err(|_| PortError::bound(name, "a zero byte in a name"))?;
    // SAFETY: a string that ends in zero and lives until the call returns.
    match unsafe { libc::if_nametoindex(text.as_ptr()) } {
        0 => Err(PortError::last(name, "find the device")),
        index => Ok(index),
    }
}

/// Returns the number of queues that the device receives on now, at least 1.
pub(crate) fn receive_queues(name: &str, ifindex: u32) -> Result<u32, PortError> {
    let mut channels = EthtoolChannels { command: ETHTOOL_GCHANNELS, ..Default::default() };
    // A driver without the command (a tap's) has as many queues as the device was made with.
    match ethtool(name, ptr::from_mut(&mut channels).cast()) {
        Ok(()) => Ok((channels.rx + channels.combined).clamp(1, QUEUES_MAX)),
        Err(_) => {
            let queues = attribute(ifindex, libc::IFLA_NUM_RX_QUEUES)
                .map_err(|error| PortError::system(name, "read its queues", error))?;
            let queues = queues.get(..4).and_then(|bytes| bytes.try_into().ok());
            Ok(queues.map_or(1, u32::from_ne_bytes).clamp(1, QUEUES_MAX))
        }
    }
}

/// Returns the frames that the device dropped on transmission since it was made (`tx_dropped`).
pub(crate) fn dropped_on_transmit(ifindex: u32) -> io::Result<u64> {
    let statistics = attribute(ifindex, libc::IFLA_STATS64)?;
    let word = statistics.get(TX_DROPPED * 8..).and_then(|bytes| bytes.first_chunk::<8>());
    word.map(|bytes| u64::from_ne_bytes(*bytes))
        .ok_or_else(|| io::Error::other("the kernel gave no statistics"))
}

/// Returns whether the device takes redirected frames now. A veth does while its peer has GRO on or
/// runs a program; one that does not drops them without a word.
pub(crate) fn takes_redirects(ifindex: u32) -> bool {
    xdp_features(ifindex) & NETDEV_XDP_ACT_NDO_XMIT != 0
}

/// Returns whether the driver may let a device read and write the pool itself. Kernels before 6.3
/// do not say; then it may.
pub(crate) fn may_zero_copy(ifindex: u32) -> bool {
    let features = xdp_features(ifindex);
    features == 0 || features & NETDEV_XDP_ACT_XSK_ZEROCOPY != 0
}

/// Returns what a device can do with XDP now; 0 if the kernel does not say.
fn xdp_features(ifindex: u32) -> u64 {
    let features = netdev_family().and_then(|family| {
        let body = netlink_attribute(NETDEV_A_DEV_IFINDEX, &ifindex.to_ne_bytes());
        generic_netlink(family, NETDEV_CMD_DEV_GET, &body, NETDEV_A_DEV_XDP_FEATURES)
    });
    let word = features.ok().and_then(|bytes| bytes.first_chunk::<8>().copied());
    word.map_or(0, u64::from_ne_bytes)
}

/// Returns the number of the kernel's generic netlink family `netdev`, which stays until a reboot.
fn netdev_family() -> io::Result<u16> {
    static FAMILY: OnceLock<u16> = OnceLock::new();
    if let Some(family) = FAMILY.get() {
        return Ok(*family);
    }
    let name = netlink_attribute(CTRL_ATTR_FAMILY_NAME, b"netdev\0");
    let number = generic_netlink(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, &name, CTRL_ATTR_FAMILY_ID)?;
    let number = number.first_chunk::<2>().map(|bytes| u16::from_ne_bytes(*bytes));
    let number = number.ok_or_else(|| io::Error::other("a family without a number"))?;
    Ok(*FAMILY.get_or_init(|| number))
}

/// Runs an ethtool command; `command` points to its struct.
pub(crate) fn ethtool(name: &str, command: *mut libc::c_char) -> io::Result<()> {
    let socket = socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = command;
    // SAFETY: the request names the device and points to a live struct that begins with its
    // command and is as long as that command says, which is each caller's business.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    crate::sys::check(result)
}

/// Returns an interface request for a device.
pub(crate) fn request(name: &str) -> io::Result<libc::ifreq> {
    if name.len() >= libc::IFNAMSIZ {
        let message = format!("{name}: {} bytes in a name; at most 15", name.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // SAFETY: an array and a union of plain data; zero is a value of each.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (place, byte) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *place = byte.cast_signed();
    }
    Ok(request)
}

/// Opens a socket that closes on `exec`.
pub(crate) fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: no pointers; the result is checked before it is owned.
    let socket = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    crate::sys::check(socket)?;
    // SAFETY: just opened, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(socket) })
}

/// Returns one attribute of a device, as rtnetlink gives it.
fn attribute(ifindex: u32, wanted: u16) -> io::Result<Vec<u8>> {
    let mut body = vec![0; LINK_MESSAGE];
    body[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    ask(libc::NETLINK_ROUTE, libc::RTM_GETLINK, &body, LINK_MESSAGE, wanted)
}

/// Returns one attribute of the answer to a command of a generic netlink family.
fn generic_netlink(family: u16, command: u8, body: &[u8], wanted: u16) -> io::Result<Vec<u8>> {
    let body = [&[command, GENERIC_VERSION, 0, 0], body].concat();
    ask(libc::NETLINK_GENERIC, family, &body, GENERIC_MESSAGE, wanted)
}

/// Sends one request and returns one attribute of the answer, whose attributes begin `fixed` bytes
/// after its header.
fn ask(protocol: i32, kind: u16, body: &[u8], fixed: usize, wanted: u16) -> io::Result<Vec<u8>> {
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, protocol)?;
    let length = u32::try_from(HEADER + body.len()).map_err(io::Error::other)?;
    let mut request = Vec::with_capacity(HEADER + body.len());
    request.extend(length.to_ne_bytes());
    request.extend(kind.to_ne_bytes());
    request.extend(NLM_F_REQUEST.to_ne_bytes());
    request.extend([0; 8]); // sequence, port
    request.extend(body);
    let mut answer = vec![0; 65_536];
    let length = exchange(socket.as_fd(), &request, &mut answer)?;
    let answer = &answer[..length.min(answer.len())];
    let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
    if kind == Some(NLMSG_ERROR) {
        let code = answer.get(HEADER..HEADER + 4).and_then(|bytes| bytes.try_into().ok());
        return Err(io::Error::from_raw_os_error(-code.map_or(-libc::EINVAL, i32::from_ne_bytes)));
    }
    let mut rest = answer.get(HEADER + fixed..).unwrap_or_default();
    while let Some((head, _)) = rest.split_first_chunk::<4>() {
        let length = usize::from(u16::from_ne_bytes([head[0], head[1]]));
        let kind = u16::from_ne_bytes([head[2], head[3]]);
        let Some(value) = rest.get(4..length) else { break };
        if kind == wanted {
            return Ok(value.to_vec());
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Err(io::Error::other("the kernel did not answer that about the device"))
}

/// Returns an attribute for a request, padded to four bytes.
fn netlink_attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    let mut bytes = Vec::with_capacity(4 + value.len().next_multiple_of(4));
    bytes.extend(length.to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn exchange(socket: BorrowedFd<'_>, ask: &[u8], answer: &mut [u8]) -> io::Result<usize> {
    // SAFETY: the buffers live until the calls return, and their lengths are given.
    let length = unsafe {
        let sent = libc::send(socket.as_raw_fd(), ask.as_ptr().cast(), ask.len(), 0);
        if sent < 0 {
            return Err(io::Error::last_os_error());
        }
        libc::recv(socket.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0)
    };
    usize::try_from(length).map_err(|_| io::Error::last_os_error())
}

/// `struct ethtool_channels` of `linux/ethtool.h`.
#[repr(C)]
#[derive(Debug, Default)]
struct EthtoolChannels {
    command: u32,
    rx_max: u32,
    tx_max: u32,
    other_max: u32,
    combined_max: u32,
    rx: u32,
    tx: u32,
    other: u32,
    combined: u32,
}

/// From `linux/netdev.h`: frames can be redirected to the device.
const NETDEV_XDP_ACT_NDO_XMIT: u64 = 1 << 2;
/// From `linux/netdev.h`: AF_XDP sockets without a copy.
const NETDEV_XDP_ACT_XSK_ZEROCOPY: u64 = 1 << 3;

const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// Position of `tx_dropped` in `struct rtnl_link_stats64`.
const TX_DROPPED: usize = 7;

/// Sizes of `struct nlmsghdr`, `struct ifinfomsg` and `struct genlmsghdr`.
const HEADER: usize = 16;
const LINK_MESSAGE: usize = 16;
const GENERIC_MESSAGE: usize = 4;

/// From `linux/genetlink.h`: the family that knows the others, by name.
const GENL_ID_CTRL: u16 = 0x10;
const CTRL_CMD_GETFAMILY: u8 = 3;
const CTRL_ATTR_FAMILY_ID: u16 = 1;
const CTRL_ATTR_FAMILY_NAME: u16 = 2;
const GENERIC_VERSION: u8 = 1;

/// From `linux/netdev.h` (Linux 6.3): what a device can do with XDP.
const NETDEV_CMD_DEV_GET: u8 = 1;
const NETDEV_A_DEV_IFINDEX: u16 = 1;
const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;

/// libc has both as an `int`; in the header they are 16 bits.
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;

/// More than any device in use has; a bound on the sockets of one device.
const QUEUES_MAX: u32 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_of_the_loopback_device() {
        let loopback = ifindex("lo").unwrap();
        assert!(receive_queues("lo", loopback).unwrap() >= 1);
        assert!(dropped_on_transmit(loopback).is_ok());
        // Loopback runs no program in its driver; kernels before 6.3 say nothing, which is 0 too.
        assert_eq!(xdp_features(loopback), 0);
        assert!(attribute(u32::MAX >> 1, libc::IFLA_STATS64).is_err(), "no such device");
    }

    #[test]
    fn attributes_are_padded() {
        assert_eq!(netlink_attribute(2, b"netdev\0").len(), 12);
        assert_eq!(netlink_attribute(1, &[0; 4]).len(), 8);
    }
}
