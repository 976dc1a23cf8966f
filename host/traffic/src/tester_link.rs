// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The link of an interface of the tester. While it is down, no packet passes, whatever the device
//! under test does, and all of them would count as lost by the device.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use weir_platform::run::{Command, Host, RunError, json};

use super::error::TrafficError;
use super::spec::RunSpec;
use super::thread::run_inside;

/// The state of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    /// Somebody took the interface down.
    Down,
    /// Nothing is connected to it, or what is connected is down.
    NoCarrier,
    /// It carries frames.
    Up,
}

/// Waits until an interface carries frames, for [`CARRIER_MAX`] at most: a device that was reset
/// and a program that is attached take the link away for seconds.
///
/// # Errors
/// The interface is down, or has no carrier even then ([`TrafficError::NoCarrier`]).
pub(super) fn await_link(
    netns: Option<&str>,
    device: &str,
    stop: &AtomicBool,
) -> Result<(), TrafficError> {
    let begun = Instant::now();
    loop {
        match link_state(netns, device)? {
            LinkState::Up => return Ok(()),
            LinkState::NoCarrier if begun.elapsed() < CARRIER_MAX => {}
            LinkState::NoCarrier => {
                let (device, seconds) = (device.to_owned(), CARRIER_MAX.as_secs());
                return Err(TrafficError::NoCarrier { device, seconds });
            }
            LinkState::Down => return Err(is_down(device)),
        }
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        thread::sleep(LOOK);
    }
}

/// Returns true if an interface still has its carrier.
///
/// # Errors
/// The interface is down, so that a measurement on it says nothing.
pub(super) fn has_carrier(netns: Option<&str>, device: &str) -> Result<bool, TrafficError> {
    match link_state(netns, device)? {
        LinkState::Down => Err(is_down(device)),
        state => Ok(state == LinkState::Up),
    }
}

/// Counts how often an interface has lost or got its carrier since it exists. A link that is lost
/// and comes back within a trial shows in nothing else.
pub(super) fn carrier_changes(netns: Option<&str>, device: &str) -> Result<u64, TrafficError> {
    let command = Command::new("ip", ["-s", "-s", "-j", "link", "show", "dev", device])
        .maybe_in_namespace(netns);
    let failed = |error: RunError| TrafficError::Device(error.to_string());
    let links: Vec<LinkChanges> = json(&Host::default(), &command).map_err(failed)?;
    Ok(links.first().map_or(0, |link| link.stats64.tx.carrier_changes))
}

#[derive(Deserialize)]
struct LinkChanges {
    #[serde(default)]
    stats64: SentStatistics,
}

#[derive(Default, Deserialize)]
struct SentStatistics {
    #[serde(default)]
    tx: CarrierCount,
}

#[derive(Default, Deserialize)]
struct CarrierCount {
    #[serde(default)]
    carrier_changes: u64,
}

fn is_down(device: &str) -> TrafficError {
    TrafficError::Device(format!(
        "interface {device} of the tester is down: `ip link set {device} up`"
    ))
}

fn link_state(netns: Option<&str>, device: &str) -> Result<LinkState, TrafficError> {
    let run = RunSpec { netns: netns.map(ToOwned::to_owned), ..RunSpec::default() };
    let flags = run_inside(&run, || {
        flags_of(device)
            .map_err(|error| TrafficError::system(format!("read the flags of {device}"), error))
    })?;
    let has = |flag: libc::c_int| libc::c_int::from(flags) & flag != 0;
    Ok(match (has(libc::IFF_UP), has(libc::IFF_RUNNING)) {
        (false, _) => LinkState::Down,
        (true, false) => LinkState::NoCarrier,
        (true, true) => LinkState::Up,
    })
}

/// Reads the flags of a device of this thread's namespace.
fn flags_of(device: &str) -> std::io::Result<libc::c_short> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: all zeros is a valid request.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if device.len() >= request.ifr_name.len() {
        return Err(std::io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = from.cast_signed();
    }
    // SAFETY: SIOCGIFFLAGS reads the name, which ends with a zero, and writes the flags.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFFLAGS, &raw mut request) } != 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: the call has written this member.
    Ok(unsafe { request.ifr_ifru.ifru_flags })
}

/// The longest wait for a carrier. A switch port with spanning tree has its carrier by then, and
/// only forwards later.
const CARRIER_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);
