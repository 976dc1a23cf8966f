// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tunnels of a generic Linux router by devices of `ip6tnl`, for kernels without segment routing.
//!
//! An entry has a device for each of its paths, since the addresses of one cannot be changed at
//! once; an exit has a device with its outer address. The name of a device follows from its
//! addresses, and shows that it is ours. The packets of an entry's device get the mark that leads
//! to the entry's own table of routes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::Ipv6Addr;

use serde_json::Value;
use weir_network::TUNNEL_MTU;

use crate::item::{EntryItem, ExitItem, Items, NodeItem, outer_key};
use crate::marks::mark_behind;

/// Devices of ours, by name.
pub(crate) type TunnelDevices = BTreeMap<String, TunnelDevice>;

/// A device that encapsulates or ends packets of one outer address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TunnelDevice {
    outer: Ipv6Addr,
    /// The source of its packets; none at an exit.
    source: Option<Ipv6Addr>,
    /// False if it is down, has another mode or mark, or is an exit without its address.
    is_sound: bool,
}

/// Writes the lines that make the device of an exit. Nothing else of the router uses its address.
pub(crate) fn put_exit(outer: Ipv6Addr, ip: &mut String) {
    let device = exit_device(outer);
    let _ = write!(
        ip,
        "link add {device} up mtu {TUNNEL_MTU} type ip6tnl mode ip6ip6 remote any local {outer} \
         encaplimit none\n\
         addr replace {outer}/128 dev {device} nodad noprefixroute preferred_lft 0\n"
    );
}

/// Writes the line that makes the device of an entry's path, and returns its name.
pub(crate) fn put_entry(tunnel: u16, outer: Ipv6Addr, source: Ipv6Addr, ip: &mut String) -> String {
    let device = entry_device(tunnel, outer);
    let _ = writeln!(
        ip,
        "link add {device} up mtu {TUNNEL_MTU} type ip6tnl mode ip6ip6 remote {outer} \
         local {source} encaplimit none fwmark {:#x}",
        mark_behind(tunnel)
    );
    device
}

/// Returns the command that reads the devices.
pub(crate) const READING: &str = "ip -d -j addr show type ip6tnl";

/// Reads the answer to [`READING`]. Devices of others are left out.
pub(crate) fn read(answer: &[Value]) -> TunnelDevices {
    let devices = answer.iter().filter_map(|device| {
        let name = device["ifname"].as_str()?.to_owned();
        let data = &device["linkinfo"]["info_data"];
        let address = |key: &str| data[key].as_str()?.parse::<Ipv6Addr>().ok();
        let local = address("local")?;
        let remote = address("remote").filter(|remote| !remote.is_unspecified());
        let is_up = device["flags"].as_array()?.iter().any(|flag| flag == "UP");
        let is_plain = data["proto"] == "ip6ip6" && data["ip6_tnl_f_ign_encap_limit"] == true;
        let mut own = device["addr_info"].as_array().into_iter().flatten();
        let has_local =
            own.any(|own| own["local"].as_str().is_some_and(|own| own.parse() == Ok(local)));
        let (outer, source, is_ours, is_whole) = match remote {
            Some(outer) => {
                let tunnel = tunnel_of(&name)?;
                let mark = format!("{:#x}", mark_behind(tunnel));
                let is_marked = data["fwmark"] == mark;
                (outer, Some(local), name == entry_device(tunnel, outer), is_marked)
            }
            None => (local, None, name == exit_device(local), has_local),
        };
        let is_sound = is_up && is_plain && is_whole;
        is_ours.then_some((name, TunnelDevice { outer, source, is_sound }))
    });
    devices.collect()
}

/// Returns the exits among the devices.
pub(crate) fn exits(devices: &TunnelDevices) -> Items {
    let exits = devices.values().filter(|device| device.is_sound && device.source.is_none());
    let item = |outer| NodeItem::Exit(ExitItem { outer, device: None });
    exits.map(|device| (outer_key(device.outer), item(device.outer))).collect()
}

/// Returns outer address and source of an entry's device; none if it is no sound one of that entry.
pub(crate) fn entry(
    tunnel: u16,
    name: &str,
    devices: &TunnelDevices,
) -> Option<(Ipv6Addr, Ipv6Addr)> {
    let device = devices.get(name).filter(|device| device.is_sound)?;
    (tunnel_of(name) == Some(tunnel)).then_some((device.outer, device.source?))
}

/// Returns the devices that no item uses.
pub(crate) fn unused(devices: &TunnelDevices, items: &Items) -> Items {
    let used: BTreeSet<_> = items.values().filter_map(device_of).collect();
    let unused = devices.keys().filter(|name| !used.contains(*name));
    unused.map(|name| (device_key(name), NodeItem::Unused)).collect()
}

/// Returns the device of an item; none if it has none of `ip6tnl`.
pub(crate) fn device_of(item: &NodeItem) -> Option<String> {
    match item {
        NodeItem::Entry(EntryItem { tunnel, path, .. }) => {
            path.source.map(|_| entry_device(*tunnel, path.outer))
        }
        NodeItem::Exit(ExitItem { outer, device: None }) => Some(exit_device(*outer)),
        _ => None,
    }
}

/// Returns the name of a device by its key as an unused one.
pub(crate) fn device_of_key(key: &str) -> Option<&str> {
    key.strip_prefix("device/")
}

fn device_key(name: &str) -> String {
    format!("device/{name}")
}

/// Returns the name of the device of an entry that sends to this address: tunnel and generation.
fn entry_device(tunnel: u16, outer: Ipv6Addr) -> String {
    format!("wc{tunnel}t{:x}", outer.segments()[7])
}

/// Returns the tunnel in the name of an entry's device.
fn tunnel_of(name: &str) -> Option<u16> {
    name.strip_prefix("wc")?.split_once('t')?.0.parse().ok()
}

/// Returns the name of the device of an exit: the last 64 bits of the outer address in 13 digits
/// at most, so that it is no longer than a device's name may be.
fn exit_device(outer: Ipv6Addr) -> String {
    let mut left = outer.to_bits() & u128::from(u64::MAX);
    let mut digits = Vec::new();
    while left > 0 || digits.is_empty() {
        digits.push(char::from_digit(u32::try_from(left % 32).unwrap_or_default(), 32));
        left /= 32;
    }
    let digits: String = digits.into_iter().rev().flatten().collect();
    format!("wd{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_and_are_told_apart() {
        let exit = |outer: &str| exit_device(outer.parse().unwrap());
        assert_eq!(exit("fd0f::ffff:ffff:ffff:ffff"), "wdfvvvvvvvvvvvv");
        assert_eq!(exit("fd0f::ffff:ffff:ffff:ffff").len(), 15);
        assert_eq!(exit("fd0f::"), "wd0");
        assert_eq!(exit("fd0f::1:1:1"), "wd4002001");
        let entry = entry_device(4999, "fd0f::1:1:ffff".parse().unwrap());
        assert_eq!((entry.as_str(), tunnel_of(&entry)), ("wc4999tffff", Some(4999)));
        for other in ["wc1", "wc1x", "wct0", "wd0", "wlan0"] {
            assert_eq!(tunnel_of(other), None, "{other}");
        }
    }
}
