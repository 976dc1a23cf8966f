// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resolves the queues of vifs: as the document says, or by defaults that follow from rates.
//!
//! A bound in bytes means a time only beside a rate. So the defaults of flow queues follow from the
//! least rate that limits the vif: at most 50 ms of bytes, and a `CoDel` target of no less than 1.5
//! packet times (RFC 8290 §5.2.1 has 1 to 2): a link that sends one packet in that time always has
//! one waiting.

use alloc::format;
use alloc::vec::Vec;

use weir_units::{BitRate, ByteCount, Nanos};

use crate::bounds::{BYTES_MAX, INTERVAL_MAX, TARGET_MAX};
use crate::document::{AqmKind, PortTable, QueueTable, RuleTable, VifShareTable, VifTable};
use crate::finding::Finding;
use crate::rule_check::of_rule;
use crate::share::{Codel, Direction, Queue, QueueKind};
use crate::{Policy, Vif, VifRule};

/// Fills in the queues of all vifs; `tables` are theirs, in the same order.
pub(crate) fn resolve_queues(
    tables: &[VifTable],
    policy: &mut Policy,
    findings: &mut Vec<Finding>,
) {
    for (index, table) in tables.iter().enumerate() {
        let Some(vif) = policy.vifs.get(index) else { continue };
        let kind = table.queue.unwrap_or(policy.node.queue);
        let shares = [&table.send, &table.receive];
        let queues = queues_of(policy, vif, (index, kind), shares, findings);
        if let Some(vif) = policy.vifs.get_mut(index) {
            [vif.send_queue, vif.receive_queue] = queues;
        }
    }
}

/// Fills in the queues of the vifs that rules make; `tables` are those of all ports.
pub(crate) fn resolve_rule_queues(
    tables: &[PortTable],
    policy: &mut Policy,
    findings: &mut Vec<Finding>,
) {
    let rules = |table: &PortTable| table.rule.clone().unwrap_or_default();
    for (port, tables) in tables.iter().map(rules).enumerate() {
        for (number, RuleTable { queue, send, receive, .. }) in tables.iter().enumerate() {
            let rule = policy.ports.get(port).and_then(|port| port.rules.get(number));
            let Some(VifRule { vif, slice, .. }) = rule.cloned() else { continue };
            // The slice that the rule makes limits its vif, as a written one would.
            let made = policy.add_slice(slice);
            let of = if vif.slice == VifRule::NO_SLICE { made } else { vif.slice };
            let vif = Vif { slice: of, ..vif };
            let kind = queue.unwrap_or(policy.node.queue);
            let mut found = Vec::new();
            let queues = queues_of(policy, &vif, (0, kind), [send, receive], &mut found);
            policy.slices.pop();
            let found = found.into_iter();
            findings.extend(found.map(|one| of_rule(port, number, &one.key, one.message)));
            let rule = policy.ports.get_mut(port).and_then(|port| port.rules.get_mut(number));
            if let Some(rule) = rule {
                [rule.vif.send_queue, rule.vif.receive_queue] = queues;
            }
        }
    }
}

/// Returns the queues of a vif, whose place among vifs is `index`, in both directions.
fn queues_of(
    policy: &Policy,
    vif: &Vif,
    (index, kind): (usize, QueueKind),
    shares: [&Option<VifShareTable>; 2],
    findings: &mut Vec<Finding>,
) -> [Queue; 2] {
    let packet = policy.node.frame_size.packet_max();
    let mut of = |direction: Direction, share: &Option<VifShareTable>| {
        let nothing = QueueTable::default();
        let table = share.as_ref().and_then(|share| share.queue.as_ref()).unwrap_or(&nothing);
        let (rate, window) = (least_rate(policy, vif, direction), vif.shaper(direction));
        // A smooth window keeps the order of what it releases, and drops at entry only.
        let kind = if window.is_some() { QueueKind::Fifo } else { kind };
        let mut queue = resolve_queue(table, table.kind.unwrap_or(kind), rate, packet);
        if let (Some(window), Some(rate)) = (window, vif.share(direction).rate) {
            let (packets, bytes) = Queue::behind(window, rate, packet);
            queue.packets = table.packets.unwrap_or(packets);
            queue.bytes = table.bytes.map_or(bytes, |text| text.0);
        }
        check_keys((index, direction.name()), table, &queue, window.is_some(), findings);
        queue
    };
    let [send, receive] = shares;
    [of(Direction::Send, send), of(Direction::Receive, receive)]
}

fn resolve_queue(
    table: &QueueTable,
    kind: QueueKind,
    rate: Option<BitRate>,
    packet: ByteCount,
) -> Queue {
    let flows = kind == QueueKind::Flows;
    let aqm = table.aqm.unwrap_or(if flows { AqmKind::Codel } else { AqmKind::None });
    let mut base = if aqm == AqmKind::Lan { Codel::LAN } else { Codel::default() };
    if let Some(rate) = rate.filter(|_| flows) {
        let packets = Nanos::new(rate.time_for_ceil(packet).as_nanos().saturating_mul(3) / 2);
        base.target = base.target.max(packets).min(TARGET_MAX);
        // A target that is near the interval would drop what a round trip explains.
        let least = Nanos::new(base.target.as_nanos().saturating_mul(INTERVAL_TARGETS));
        base.interval = base.interval.max(least).min(INTERVAL_MAX);
    }
    // A default target yields to an explicit interval.
    if let (Some(interval), None) = (table.interval.map(|text| text.0), table.target)
        && base.target >= interval
    {
        base.target = Nanos::new(interval.as_nanos() / INTERVAL_TARGETS);
    }
    let codel = (aqm != AqmKind::None).then(|| Codel {
        target: table.target.map_or(base.target, |text| text.0),
        interval: table.interval.map_or(base.interval, |text| text.0),
        ecn: table.ecn.unwrap_or(base.ecn),
    });
    let (packets, bytes) = match rate.filter(|_| flows) {
        Some(rate) => {
            let least = ByteCount::new(packet.get().saturating_mul(FLOWS_PACKETS_LEAST));
            let bytes = rate.bytes_in_floor(Queue::FLOWS_TIME).max(least);
            (Queue::FLOWS_PACKETS_DEFAULT, bytes.min(ByteCount::new(BYTES_MAX)))
        }
        None if flows => (Queue::FLOWS_PACKETS_DEFAULT, Queue::BYTES_DEFAULT),
        None => (Queue::PACKETS_DEFAULT, Queue::BYTES_DEFAULT),
    };
    Queue {
        kind,
        packets: table.packets.unwrap_or(packets),
        bytes: table.bytes.map_or(bytes, |text| text.0),
        codel,
        l4s: table.l4s.map(|text| text.0),
    }
}

impl Policy {
    /// Returns the bytes that may be on their way to a vif's device and not yet taken by its
    /// receiver: [`crate::Node::in_flight`] at the least rate that limits what the vif receives, at
    /// least two packets. `None`: as many as the device's ring holds.
    ///
    /// A ring is a queue behind the queue: no scheduler orders it, no `CoDel` keeps it short. Two
    /// packets keep a receiver busy while the worker looks elsewhere.
    #[must_use]
    pub fn in_flight(&self, vif: &Vif) -> Option<ByteCount> {
        let router = vif.router.and_then(|router| self.routers.get(router.0 as usize));
        if router.is_some_and(|router| router.xtc.is_some()) {
            return None;
        }
        let bytes = least_rate(self, vif, Direction::Receive)?.bytes_in_floor(self.node.in_flight);
        let least = ByteCount::new(self.node.frame_size.packet_max().get().saturating_mul(2));
        Some(bytes.max(least))
    }
}

/// Returns the least of the rates that limit a vif, its port's among them; `None` without a port.
fn least_rate(policy: &Policy, vif: &Vif, direction: Direction) -> Option<BitRate> {
    let port = policy.ports.get(vif.port.0 as usize).map(|port| port.rate);
    let port = port.filter(|rate| !rate.is_zero())?;
    let router = vif.router.and_then(|router| policy.routers.get(router.0 as usize));
    let slice = policy.slices.get(vif.slice.0 as usize);
    let limits = [
        vif.share(direction).rate,
        router.and_then(|router| router.share(direction).rate),
        slice.and_then(|slice| slice.share(direction).rate),
        Some(port),
    ];
    limits.into_iter().flatten().min()
}

/// Reports keys that have no meaning beside the others.
fn check_keys(
    (vif, direction): (usize, &str),
    table: &QueueTable,
    queue: &Queue,
    smooth: bool,
    findings: &mut Vec<Finding>,
) {
    let given = [
        ("target", table.target.is_some()),
        ("interval", table.interval.is_some()),
        ("ecn", table.ecn.is_some()),
    ];
    for (key, _) in given.iter().filter(|(_, given)| *given && queue.codel.is_none()) {
        let key = format!("{direction}.queue.{key}");
        findings.push(Finding::new("vif", vif, key, "needs aqm = \"codel\""));
    }
    if smooth && queue.codel.is_some() {
        let key = format!("{direction}.queue.aqm");
        let message = "must be \"none\" with shaper = \"smooth\", which drops at entry only";
        findings.push(Finding::new("vif", vif, key, message));
    }
    if smooth && queue.kind == QueueKind::Flows {
        let key = format!("{direction}.queue.kind");
        let message = "must be \"fifo\" with shaper = \"smooth\", which keeps the order";
        findings.push(Finding::new("vif", vif, key, message));
    }
    if table.l4s.is_some() && queue.kind != QueueKind::Flows {
        let key = format!("{direction}.queue.l4s");
        findings.push(Finding::new("vif", vif, key, "needs kind = \"flows\""));
    }
}

/// Least packets that fit into the default bound of bytes: a flow may hold two thirds of them.
const FLOWS_PACKETS_LEAST: u64 = 4;
/// Least interval of a default, in targets.
const INTERVAL_TARGETS: u64 = 2;
