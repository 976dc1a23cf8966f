// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the values of a policy against each other: addresses, limits, queues and the frame pool.
//! The schema has the bounds of single values; `fit` has the sums of guarantees.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;

use weir_units::ByteCount;

use crate::api;
use crate::bounds::FRAMES_MAX;
use crate::bridges;
use crate::cycle;
use crate::dataplane_check;
use crate::finding::Finding;
use crate::format::{is_linux_device, quoted, wanted};
use crate::packet_check::{other_family, without_ports};
use crate::realtime_check;
use crate::rule_check::{self, check_sums, of_rule};
use crate::xtc_check;
use crate::{
    Direction, Filter, Idle, Kind, MacAddr, Policy, Port, PortId, Queue, Reservation, Share, Vif,
};

/// Adds the problems of `policy`. References that lead nowhere are skipped: they were reported when
/// they were resolved.
pub(crate) fn check(policy: &Policy, findings: &mut Vec<Finding>) {
    check_node(policy, findings);
    let is_slice = |name: &str| policy.slices.iter().any(|slice| slice.name == name);
    api::check(&policy.api, &is_slice, findings);
    dataplane_check::check(policy, findings);
    check_devices(policy, findings);
    check_vlans(policy, findings);
    bridges::check(policy, findings);
    cycle::check(policy, findings);
    check_macs(policy, findings);
    let packet = policy.node.frame_size.packet_max();
    for direction in Direction::ALL {
        for (index, slice) in policy.slices.iter().enumerate() {
            check_share(("slice", index), direction, slice.share(direction), packet, findings);
        }
        for (index, router) in policy.routers.iter().enumerate() {
            check_share(("router", index), direction, router.share(direction), packet, findings);
        }
        for (index, vif) in policy.vifs.iter().enumerate() {
            check_share(("vif", index), direction, vif.share(direction), packet, findings);
            check_queue(index, direction, vif.queue(direction), packet, findings);
        }
        for (index, port) in policy.ports.iter().enumerate() {
            let Some(share) = port.host_share(direction) else { continue };
            let mut found = Vec::new();
            check_share(("port", index), direction, share, packet, &mut found);
            let of_host = |one: Finding| Finding { key: format!("host_{}", one.key), ..one };
            findings.extend(found.into_iter().map(of_host));
        }
    }
    for (index, vif) in policy.vifs.iter().enumerate() {
        check_router(policy, index, vif, findings);
        check_addresses(index, vif, findings);
        for (number, rule) in vif.filter.iter().enumerate() {
            check_rule(index, number, rule, findings);
        }
    }
    rule_check::check(policy, findings);
    check_rule_values(policy, findings);
    check_sums(policy, findings);
    xtc_check::check(policy, findings);
    realtime_check::check(policy, findings);
}

impl Policy {
    /// Returns the frames that all queues and devices may hold at once: the minimum of
    /// `node.frames`.
    #[must_use]
    pub fn frames_needed(&self) -> u64 {
        frames_needed(self)
    }
}

/// Frames of the pool that the rings of a device hold at most.
///
/// The gate of a vif lets in no more than its `receive`, so that a smaller ring means earlier drops
/// while the worker is away, but no drop that the gate does not count. A few vifs have deep rings.
/// A node of many must not pay for depth that its worker could not use: 128 vifs that receive 128
/// frames each keep it busy for some 10 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingFrames {
    /// Chunks ready for receiving.
    pub receive: u32,
    /// Frames on their way out.
    pub transmit: u32,
}

impl Port {
    /// The default of `receive_ring`: a worker that is away for 1 ms misses none of 1 Mpps.
    pub const RECEIVE_RING_DEFAULT: u32 = 1024;
}

impl RingFrames {
    /// The rings of each of the first [`Self::DEEP_VIFS`] vifs that are opened.
    pub const DEEP_VIF: Self = Self { receive: 512, transmit: 256 };
    /// The rings of each further vif.
    pub const VIF: Self = Self { receive: 128, transmit: 64 };
    /// Vifs at a time that have deep rings, where vifs share the pool or are at most
    /// [`Self::FEW_VIFS`].
    pub const DEEP_VIFS: usize = 8;
    /// The most vifs of a node that counts as one of few vifs.
    pub const FEW_VIFS: u32 = 128;
    /// The largest pool, in frames, that vifs share. With a larger one their sockets have memory of
    /// their own, since the kernel keeps some 128 bytes a frame for each socket that shares it:
    /// here 4 MiB. Then no frame of the pool lies in their rings.
    pub const SHARED_POOL_MAX: u32 = 32_768;

    /// Returns a port's rings.
    #[must_use]
    pub const fn of_port(receive_ring: u32) -> Self {
        Self { receive: receive_ring, transmit: 256 }
    }

    fn sum(self) -> u64 {
        u64::from(self.receive) + u64::from(self.transmit)
    }
}

pub(crate) fn frames_needed(policy: &Policy) -> u64 {
    queue_frames(policy) + ring_frames(policy)
}

/// Returns the frames that queues may hold.
fn queue_frames(policy: &Policy) -> u64 {
    let queued = |vif: &Vif| {
        // Frames to the port and frames to other vifs have a queue each. A smooth window bounds
        // both together.
        let queues = if vif.shaper(Direction::Send).is_some() { 1 } else { 2 };
        queues * u64::from(vif.send_queue.frames()) + u64::from(vif.receive_queue.frames())
    };
    policy.vifs.iter().map(queued).sum()
}

/// Returns the frames of the pool that devices may hold in their rings.
fn ring_frames(policy: &Policy) -> u64 {
    let of_port = |port: &Port| match is_on_linux(port.kind) {
        true => RingFrames::of_port(port.receive_ring).sum(),
        false => FRAMES_IN_MEMORY,
    };
    let vifs = policy.vifs.iter().filter(|vif| is_on_linux(vif.kind)).count() as u64;
    let vifs_in_memory = policy.vifs.len() as u64 - vifs;
    let of_ports =
        policy.ports.iter().map(of_port).sum::<u64>() + vifs_in_memory * FRAMES_IN_MEMORY;
    let deep = vifs.min(RingFrames::DEEP_VIFS as u64);
    let of_vifs = deep * RingFrames::DEEP_VIF.sum() + (vifs - deep) * RingFrames::VIF.sum();
    let shared_max = u64::from(RingFrames::SHARED_POOL_MAX);
    let others = queue_frames(policy) + of_ports;
    if others + of_vifs <= shared_max {
        return of_ports + of_vifs;
    }
    // Vifs do not share this pool, which is larger than what they share at most.
    of_ports + (shared_max + 1).saturating_sub(others)
}

const fn is_on_linux(kind: Kind) -> bool {
    !matches!(kind, Kind::Memory | Kind::Pcap)
}

fn check_node(policy: &Policy, findings: &mut Vec<Finding>) {
    let node = &policy.node;
    if node.idle == Idle::Spin && node.reservation == Reservation::Fifo {
        let message = "\"fifo\" needs idle = \"sleep\": a spinning real-time thread is throttled";
        findings.push(Finding::new("node", 0, "reservation", message));
    }
    let needed = frames_needed(policy);
    if u64::from(node.frames) < needed {
        let rings = ring_frames(policy);
        let queues = needed - rings;
        let why = format!("{needed} that queues ({queues}) and devices' rings ({rings}) may hold");
        let message = if node.frames < FRAMES_MAX {
            format!("{} is less than the {why}", node.frames)
        } else {
            format!("at most {FRAMES_MAX} fit, less than the {why}; lower queue.packets")
        };
        findings.push(Finding::new("node", 0, "frames", message));
    }
}

fn check_devices(policy: &Policy, findings: &mut Vec<Finding>) {
    let ports = policy.ports.iter().enumerate();
    let ports = ports.map(|(index, port)| ("port", index, &port.name, &port.device, port.kind));
    let vifs = policy.vifs.iter().enumerate();
    let vifs = vifs.map(|(index, vif)| ("vif", index, &vif.name, &vif.device, vif.kind));
    let mut owners: BTreeMap<&str, String> = BTreeMap::new();
    for (table, index, name, device, kind) in ports.chain(vifs) {
        if table == "port" && kind == Kind::Host {
            findings.push(Finding::new(table, index, "kind", "\"host\" is for vifs only"));
        }
        // A missing name was reported already.
        if device.is_empty() {
            continue;
        }
        if is_on_linux(kind) && !is_linux_device(device) {
            let message = format!("{} is not {}", quoted(device), wanted("device-name"));
            findings.push(Finding::new(table, index, "device", message));
        }
        let this = format!("{table} {}", quoted(name));
        match owners.get(device.as_str()) {
            // Two items of one name were reported already, and the device follows from the name.
            Some(owner) if *owner == this => {}
            Some(owner) => {
                let message = format!("{} is already the device of {owner}", quoted(device));
                findings.push(Finding::new(table, index, "device", message));
            }
            None => drop(owners.insert(device, this)),
        }
    }
}

fn check_vlans(policy: &Policy, findings: &mut Vec<Finding>) {
    let mut owners: BTreeMap<u16, &str> = BTreeMap::new();
    for (index, slice) in policy.slices.iter().enumerate() {
        let Some(vlan) = slice.vlan else { continue };
        match owners.get(&vlan) {
            Some(owner) => {
                let message = format!("{vlan} is already the VLAN of slice {}", quoted(owner));
                findings.push(Finding::new("slice", index, "vlan", message));
            }
            None => drop(owners.insert(vlan, &slice.name)),
        }
    }
}

/// Checks that addresses are unicast, and unique within one bridge of one port, where frames could
/// otherwise reach the wrong vif.
fn check_macs(policy: &Policy, findings: &mut Vec<Finding>) {
    let mut owners: BTreeMap<(PortId, u16, MacAddr), &str> = BTreeMap::new();
    for (index, vif) in policy.vifs.iter().enumerate() {
        let slice = policy.slices.get(vif.slice.0 as usize);
        let port = policy.ports.get(vif.port.0 as usize);
        if slice.is_none() || port.is_none() {
            continue;
        }
        let bridge = policy.bridge_of(vif.port, vif.slice);
        for (number, mac) in vif.macs.iter().enumerate() {
            let key = format!("mac.{number}");
            if mac.is_multicast() || mac.is_zero() {
                let what = if mac.is_zero() { "zero" } else { "a group address" };
                findings.push(Finding::new("vif", index, key, format!("{mac} is {what}")));
                continue;
            }
            match owners.get(&(vif.port, bridge, *mac)) {
                Some(owner) => {
                    let message = format!("{mac} is already an address of vif {}", quoted(owner));
                    findings.push(Finding::new("vif", index, key, message));
                }
                None => drop(owners.insert((vif.port, bridge, *mac), &vif.name)),
            }
        }
    }
}

fn check_router(policy: &Policy, index: usize, vif: &Vif, findings: &mut Vec<Finding>) {
    let router = vif.router.and_then(|id| policy.routers.get(id.0 as usize));
    let slice = |id: crate::SliceId| policy.slices.get(id.0 as usize);
    let Some(router) = router else { return };
    let (Some(of_vif), Some(of_router)) = (slice(vif.slice), slice(router.slice)) else { return };
    if vif.slice != router.slice {
        let message = format!(
            "{} is of slice {}, the vif of slice {}",
            quoted(&router.name),
            quoted(&of_router.name),
            quoted(&of_vif.name)
        );
        findings.push(Finding::new("vif", index, "router", message));
    }
}

fn check_addresses(index: usize, vif: &Vif, findings: &mut Vec<Finding>) {
    for (number, address) in vif.addresses.iter().enumerate() {
        let what = if address.is_unspecified() {
            "unspecified"
        } else if address.is_multicast() || is_broadcast(*address) {
            "a group address"
        } else if vif.addresses.iter().take(number).any(|earlier| earlier == address) {
            "already in the list"
        } else {
            continue;
        };
        let key = format!("addresses.{number}");
        findings.push(Finding::new("vif", index, key, format!("{address} is {what}")));
    }
}

fn check_share(
    (table, index): (&'static str, usize),
    direction: Direction,
    share: &Share,
    packet: ByteCount,
    findings: &mut Vec<Finding>,
) {
    let name = direction.name();
    if let Some(rate) = share.rate.filter(|rate| share.min_rate > *rate) {
        let message = format!("{} is more than its rate, {rate}", share.min_rate);
        findings.push(Finding::new(table, index, format!("{name}.min_rate"), message));
    }
    if let Some(limit) = share.max_pps.filter(|limit| share.min_pps > *limit) {
        let message = format!("{} is more than its max_pps, {limit}", share.min_pps);
        findings.push(Finding::new(table, index, format!("{name}.min_pps"), message));
    }
    if share.rate.is_some() && share.burst < packet {
        let message = format!("{} is less than one packet, {packet}", share.burst);
        findings.push(Finding::new(table, index, format!("{name}.burst"), message));
    }
}

fn check_queue(
    vif: usize,
    direction: Direction,
    queue: &Queue,
    packet: ByteCount,
    findings: &mut Vec<Finding>,
) {
    let name = direction.name();
    if queue.bytes < packet {
        let message = format!("{} is less than one packet, {packet}", queue.bytes);
        findings.push(Finding::new("vif", vif, format!("{name}.queue.bytes"), message));
    }
    if let Some(codel) = queue.codel.filter(|codel| codel.target >= codel.interval) {
        let message = format!("{} is not less than the interval, {}", codel.target, codel.interval);
        findings.push(Finding::new("vif", vif, format!("{name}.queue.target"), message));
    }
}

/// Checks the values of rules as those of vifs and slices.
fn check_rule_values(policy: &Policy, findings: &mut Vec<Finding>) {
    let packet = policy.node.frame_size.packet_max();
    for (port, config) in policy.ports.iter().enumerate() {
        for (number, rule) in config.rules.iter().enumerate() {
            for direction in Direction::ALL {
                let (mut of_vif, mut of_slice) = (Vec::new(), Vec::new());
                check_share(("vif", 0), direction, rule.vif.share(direction), packet, &mut of_vif);
                check_queue(0, direction, rule.vif.queue(direction), packet, &mut of_vif);
                let share = rule.slice.share(direction);
                check_share(("slice", 0), direction, share, packet, &mut of_slice);
                let of_vif = of_vif.into_iter().map(|one| (one.key, one.message));
                let of_slice = of_slice.into_iter();
                let of_slice = of_slice.map(|one| (format!("slice_{}", one.key), one.message));
                let all = of_vif.chain(of_slice);
                findings.extend(all.map(|(key, message)| of_rule(port, number, &key, message)));
            }
        }
    }
}

fn check_rule(vif: usize, number: usize, rule: &Filter, findings: &mut Vec<Finding>) {
    let family = other_family(rule.src, rule.dst).map(|why| ("dst", why));
    let port = without_ports(rule.port, rule.protocol).map(|why| ("port", why));
    for (key, why) in family.into_iter().chain(port) {
        findings.push(Finding::new("vif", vif, format!("filter.{number}.{key}"), why));
    }
}

fn is_broadcast(address: IpAddr) -> bool {
    matches!(address, IpAddr::V4(v4) if v4.is_broadcast())
}

/// Frames in one batch of a port in memory or a file.
const FRAMES_IN_MEMORY: u64 = 64;
