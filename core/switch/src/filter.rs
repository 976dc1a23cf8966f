// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Filter rules: the first that matches decides; a frame that none matches passes.

use core::net::IpAddr;

use weir_policy::{Direction, Filter, FilterAction, MacAddr};

use crate::frame::{ArpSender, Ethernet, Ip};

/// Tells whether the rules let a frame pass. `ethernet` is the header as the vif sees it.
#[must_use]
pub(crate) fn passes(
    rules: &[Filter],
    direction: Direction,
    frame: &[u8],
    ethernet: &Ethernet,
) -> bool {
    let mut packet = None;
    for rule in rules {
        if matches(rule, direction, frame, ethernet, &mut packet) {
            return rule.action == FilterAction::Accept;
        }
    }
    true
}

/// Tells whether one rule matches. The header above Ethernet, once it was read, is kept in `packet`
/// for the next rule.
pub(crate) fn matches(
    rule: &Filter,
    direction: Direction,
    frame: &[u8],
    ethernet: &Ethernet,
    packet: &mut Option<Option<Ip>>,
) -> bool {
    if rule.direction.is_some_and(|wanted| wanted != direction) {
        return false;
    }
    if rule.vlan.is_some() && rule.vlan != ethernet.vlan {
        return false;
    }
    let has = |mac: u64| mac == ethernet.source || mac == ethernet.destination;
    if rule.mac.is_some_and(|mac| !has(number(mac))) {
        return false;
    }
    if rule.src.is_none() && rule.dst.is_none() && rule.protocol.is_none() && rule.port.is_none() {
        return true;
    }
    let ip = packet.get_or_insert_with(|| Ip::read(frame, ethernet));
    let Some(ip) = ip else { return matches_arp(rule, frame, ethernet) };
    let ports = || ip.ports(frame);
    rule.src.is_none_or(|prefix| prefix.contains(ip.source))
        && rule.dst.is_none_or(|prefix| prefix.contains(ip.destination))
        && rule.protocol.is_none_or(|protocol| protocol == ip.protocol)
        && rule.port.is_none_or(|port| ports().is_some_and(|(a, b)| port == a || port == b))
}

/// Tells whether an ARP packet matches, by its sender: only a rule on nothing but the source
/// address can.
fn matches_arp(rule: &Filter, frame: &[u8], ethernet: &Ethernet) -> bool {
    let (Some(prefix), None, None, None) = (rule.src, rule.dst, rule.protocol, rule.port) else {
        return false;
    };
    ArpSender::read(frame, ethernet)
        .is_some_and(|sender| prefix.contains(IpAddr::V4(sender.address)))
}

/// Returns an address as the 48-bit number that [`Ethernet`] holds.
pub(crate) fn number(mac: MacAddr) -> u64 {
    let [a, b, c, d, e, f] = mac.0;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}
