// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network device's address and MTU, by ioctl, in the namespace of the calling thread.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use super::error::TrafficError;
use super::spec::Mac;

/// The device's address, if frames of `frame_bytes` fit its MTU.
///
/// # Errors
/// No such device; the frames are too large for it.
pub(super) fn describe(name: &str, frame_bytes: u16) -> Result<Mac, TrafficError> {
    // The Ethernet header and one VLAN tag.
    let limit = mtu(name)? + 18;
    if u32::from(frame_bytes) > limit {
        return Err(TrafficError::Device(format!(
            "frames of {frame_bytes} bytes do not fit device {name}: its MTU allows {limit}"
        )));
    }
    let request = ask(name, libc::SIOCGIFHWADDR)?;
    // SAFETY: SIOCGIFHWADDR fills in this member.
    let address = unsafe { request.ifr_ifru.ifru_hwaddr };
    let mut mac = [0; 6];
    for (to, from) in mac.iter_mut().zip(address.sa_data) {
        *to = from.to_ne_bytes()[0];
    }
    Ok(Mac(mac))
}

/// The longest packet that the device carries, in bytes.
///
/// # Errors
/// No such device.
pub(super) fn mtu(name: &str) -> Result<u32, TrafficError> {
    let request = ask(name, libc::SIOCGIFMTU)?;
    // SAFETY: SIOCGIFMTU fills in this member.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    Ok(u32::try_from(mtu).unwrap_or(0))
}

fn ask(name: &str, what: libc::c_ulong) -> Result<libc::ifreq, TrafficError> {
    let action = || format!("ask for the address and MTU of {name}");
    let socket =
        UdpSocket::bind("0.0.0.0:0").map_err(|error| TrafficError::system(action(), error))?;
    // SAFETY: all zeros is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One less, so that the name ends with a zero.
    for (to, from) in request.ifr_name.iter_mut().take(15).zip(name.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    // SAFETY: `request` is valid for reading and writing, as both requests need.
    if unsafe { libc::ioctl(socket.as_raw_fd(), what as _, &raw mut request) } != 0 {
        return Err(TrafficError::last_os(action()));
    }
    Ok(request)
}
