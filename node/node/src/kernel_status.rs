// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The status of a node whose data plane is the kernel's, from the counters of programs and queues.
//!
//! A super-frame counts as the frames that it is cut into. A queue counts it as one frame when it
//! drops or holds it; the drops of a queue are therefore the difference between the frames offered
//! to it and those that left it.

use std::collections::BTreeMap;

use weir_api_types::status::{Amount, DirectionStatus, IfaceStatus, NodeStatus};
use weir_kernel::{CountPair, DirectionCounts, LeafCounts, MemberCounts, PlaneCounts, PortCounts};
use weir_policy::{Policy, Vif};

/// Returns the status of the node.
pub(crate) fn status(policy: &Policy, counts: &PlaneCounts, uptime_ns: u64) -> NodeStatus {
    let ports = policy.ports.iter().map(|port| {
        let tree = counts.trees.get(&port.device);
        let counted = counts.ports.get(&port.device).copied().unwrap_or_default();
        IfaceStatus {
            name: port.name.clone(),
            device: port.device.clone(),
            driver: DRIVER.to_owned(),
            waiting: tree.is_none(),
            send: port_send(tree, &counted),
            receive: port_dropped(PortCounts::MOVED, counted.moved),
            ..IfaceStatus::default()
        }
    });
    let vifs = policy.vifs.iter().map(|vif| vif_status(vif, counts.members.get(&vif.device)));
    NodeStatus {
        node: policy.node.name.clone(),
        now_ns: weir_ports::now().as_nanos(),
        uptime_ns,
        ports: ports.collect(),
        vifs: vifs.collect(),
        ..NodeStatus::default()
    }
}

fn vif_status(vif: &Vif, counts: Option<&MemberCounts>) -> IfaceStatus {
    let base = IfaceStatus {
        name: vif.name.clone(),
        device: vif.device.clone(),
        driver: DRIVER.to_owned(),
        waiting: counts.is_none(),
        ..IfaceStatus::default()
    };
    let Some(MemberCounts { programs, send, receive, inbound, .. }) = counts else { return base };
    let send = queued_status(&programs.send, programs.port.passed, send);
    let mut receive = match receive {
        Some(queue) => queued_status(&programs.receive, programs.receive.passed, queue),
        None => way_status(&programs.receive),
    };
    inbound.iter().for_each(|queue| add_inbound(&mut receive, queue));
    IfaceStatus { send, receive, ..base }
}

/// Adds the frames for the vif that wait or were dropped in the tree of its port's inbound traffic.
/// The vif's own program has not seen them.
fn add_inbound(receive: &mut DirectionStatus, queue: &LeafCounts) {
    let (backlog, dropped) = (amount(queue.backlog), amount(queue.dropped));
    let more = backlog.plus(dropped);
    receive.received = receive.received.plus(more);
    receive.enqueued = receive.enqueued.plus(more);
    receive.backlog = receive.backlog.plus(backlog);
    receive.dropped_after = receive.dropped_after.plus(dropped);
    for (name, amount) in dropped_by(queue) {
        let before = receive.dropped_after_by.entry(name.to_owned()).or_default();
        *before = before.plus(amount);
    }
}

/// Returns the frames that came to a port's tree, and the copies dropped before it. Drops in its
/// queues are counted at the vifs, except those of the host's own frames.
fn port_send(tree: Option<&LeafCounts>, counted: &PortCounts) -> DirectionStatus {
    let before = port_dropped(PortCounts::FLOODED, counted.flooded);
    let tree = tree.copied().unwrap_or_default();
    let (sent, backlog) = (amount(tree.sent), amount(tree.backlog));
    let dropped_after = amount(counted.host.dropped);
    let by = dropped_by(&counted.host).map(|(name, amount)| (name.to_owned(), amount));
    let enqueued = sent.plus(backlog).plus(dropped_after);
    DirectionStatus {
        received: before.received.plus(enqueued),
        enqueued,
        dropped_after,
        dropped_after_by: by.collect(),
        sent,
        backlog,
        ..before
    }
}

/// Returns the frames that a port's program dropped. It counts no others.
fn port_dropped(reason: &str, count: CountPair) -> DirectionStatus {
    let count = amount(count);
    let dropped = (count != Amount::default()).then(|| (reason.to_owned(), count));
    DirectionStatus {
        received: count,
        dropped: dropped.into_iter().collect(),
        ..DirectionStatus::default()
    }
}

/// Returns the frames that passed the programs, and those that did not, by reason.
fn way_status(way: &DirectionCounts) -> DirectionStatus {
    let named = DirectionCounts::REASONS.into_iter().zip(way.dropped);
    let policed = POLICED.into_iter().zip(way.policed);
    let all = named.into_iter().chain(policed).map(|(name, pair)| (name, amount(pair)));
    let dropped: BTreeMap<String, Amount> = all
        .filter(|(_, amount)| *amount != Amount::default())
        .map(|(name, amount)| (name.to_owned(), amount))
        .collect();
    let passed = amount(way.passed);
    let received = dropped.values().fold(passed, |sum, amount| sum.plus(*amount));
    DirectionStatus {
        received,
        dropped,
        enqueued: passed,
        sent: passed,
        ..DirectionStatus::default()
    }
}

/// Returns the frames that passed the programs, and their fate in a queue. `offered` is the
/// programs' count of frames for the queue, read at another moment than the queue's own count. Only
/// frames that the queue accounts for are reported, so that the sent frames are those that left it.
fn queued_status(way: &DirectionCounts, offered: CountPair, queue: &LeafCounts) -> DirectionStatus {
    let base = way_status(way);
    let (backlog, dropped_after) = (amount(queue.backlog), amount(queue.dropped));
    let by = dropped_by(queue).map(|(name, amount)| (name.to_owned(), amount));
    let told = |counted: Amount| counted.plus(amount(queue.offered)).minus(amount(offered));
    let enqueued = told(base.enqueued);
    DirectionStatus {
        received: told(base.received),
        enqueued,
        sent: enqueued.minus(dropped_after).minus(backlog),
        dropped_after,
        dropped_after_by: by.collect(),
        backlog,
        ..base
    }
}

/// Returns the drops of a queue, by reason.
fn dropped_by(queue: &LeafCounts) -> impl Iterator<Item = (&'static str, Amount)> {
    let (dropped, early) = (amount(queue.dropped), amount(queue.dropped_early));
    let bound = if queue.in_packets { "queue_packets" } else { "queue_bytes" };
    let by = [("codel", early), (bound, dropped.minus(early))];
    by.into_iter().filter(|(_, amount)| *amount != Amount::default())
}

const fn amount([packets, bytes]: CountPair) -> Amount {
    Amount { packets, bytes }
}

const DRIVER: &str = "kernel";

/// The names of the drop reasons of the token buckets, by position.
const POLICED: [&str; 6] =
    ["vif_packets", "vif_bits", "router_packets", "router_bits", "slice_packets", "slice_bits"];

#[cfg(test)]
mod tests {
    use super::*;
    use weir_report::interval::{KERNEL_REASONS, is_refusal};
    use weir_switch::Reason;

    /// Goal: the report knows each reason for which the programs and queues drop a frame: those of
    /// the switch, and a list of others. A frame refused for what it is was never offered; a frame
    /// dropped at a limit was.
    #[test]
    fn the_report_knows_each_reason() {
        let is_shared = |name: &&str| Reason::ALL.iter().any(|reason| reason.name() == *name);
        let own = DirectionCounts::REASONS.into_iter().filter(|name| !is_shared(name));
        assert_eq!(own.collect::<Vec<_>>(), KERNEL_REASONS);
        assert_eq!(DirectionCounts::REASONS.into_iter().find(|name| !is_refusal(name)), None);
        let queue = |in_packets| LeafCounts {
            in_packets,
            dropped: [2, 120],
            dropped_early: [1, 60],
            ..LeafCounts::default()
        };
        let queues = [queue(true), queue(false)];
        let after: Vec<&str> = queues.iter().flat_map(dropped_by).map(|(name, _)| name).collect();
        assert_eq!(after, ["codel", "queue_packets", "codel", "queue_bytes"]);
        for name in POLICED.into_iter().chain(after) {
            assert!(is_shared(&name) && !is_refusal(name), "{name}");
        }
    }

    /// Goal: frames that wait or are dropped before the bridge count for the vif, and the
    /// identities hold with and without a queue at its own device.
    #[test]
    fn identities_hold_with_a_tree_before_the_bridge() {
        let receive = DirectionCounts { passed: [100, 151_400], ..DirectionCounts::default() };
        let programs = weir_kernel::OwnerCounts { receive, ..Default::default() };
        let inbound =
            LeafCounts { backlog: [4, 6_056], dropped: [7, 10_598], ..LeafCounts::default() };
        let own =
            LeafCounts { dropped: [2, 3_028], offered: [90, 136_260], ..LeafCounts::default() };
        let vif = Vif::new("t0", weir_policy::SliceId(0), weir_policy::PortId(0));
        for (queue, dropped) in [(None, 7), (Some(own), 9)] {
            let counts = MemberCounts {
                programs: programs.clone(),
                receive: queue,
                inbound: Some(inbound),
                ..MemberCounts::default()
            };
            let status = vif_status(&vif, Some(&counts)).receive;
            assert_eq!(status.received, status.enqueued);
            let after = status.sent.plus(status.dropped_after).plus(status.backlog);
            assert_eq!(status.enqueued, after);
            assert_eq!((status.dropped_after.packets, status.backlog.packets), (dropped, 4));
            assert_eq!(status.dropped_after_by["queue_bytes"], status.dropped_after);
        }
    }

    /// Goal: a copy that is kept off a port, and a frame of the host without room in its queue, are
    /// drops of the port, under their reasons, whether the port has a tree or not; the identities
    /// hold.
    #[test]
    fn copies_and_frames_of_the_host_are_drops_of_the_port() {
        let policy = "version = 1\n[node]\nname = \"n\"\ndataplane = \"kernel\"\n[[port]]\n\
            name = \"up\"\ndevice = \"eth0\"\nbridge = \"br0\"\nrate = \"1Gbit\"\n";
        let policy = weir_policy::parse(policy).unwrap();
        let host = LeafCounts { dropped: [4, 400], ..LeafCounts::default() };
        let (moved, flooded) = ([3, 180], [2, 120]);
        let port = PortCounts { moved, flooded, host, ..PortCounts::default() };
        let mut counts = PlaneCounts::default();
        counts.ports.insert("eth0".to_owned(), port);
        let tree = LeafCounts { sent: [5, 500], backlog: [1, 100], ..LeafCounts::default() };
        for (tree, enqueued) in [(None, 4), (Some(tree), 10)] {
            counts.trees.extend(tree.map(|tree| ("eth0".to_owned(), tree)));
            let status = status(&policy, &counts, 0).ports.remove(0);
            assert_eq!(status.send.dropped["flooded"], amount([2, 120]));
            assert_eq!(status.send.enqueued.packets, enqueued);
            assert_eq!(status.send.received, status.send.enqueued.plus(amount([2, 120])));
            let after = status.send.sent.plus(status.send.backlog);
            assert_eq!(status.send.enqueued, after.plus(amount([4, 400])));
            assert_eq!(status.send.dropped_after_by["queue_bytes"], amount([4, 400]));
            assert_eq!(status.receive.dropped["moved"], amount([3, 180]));
        }
    }

    /// Goal: the identities of a status hold for what programs and queue counted.
    #[test]
    fn identities_hold() {
        let mut policed = [[0, 0]; 6];
        policed[1] = [10, 15_140];
        let mut dropped = [[0, 0]; DirectionCounts::REASONS.len()];
        dropped[0] = [2, 120];
        let send = DirectionCounts { passed: [100, 151_400], dropped, policed };
        let queue = LeafCounts {
            in_packets: true,
            backlog: [5, 7_570],
            dropped: [15, 22_710],
            dropped_early: [5, 7_570],
            // Twenty frames that the programs counted had not reached the queue when it was read.
            offered: [60, 90_840],
            ..LeafCounts::default()
        };
        // Twenty other frames went to another vif of the node, without passing the queue.
        let status = queued_status(&send, [80, 121_120], &queue);
        assert_eq!(status.sent.packets, 20 + 60 - 15 - 5);
        let dropped = status.dropped.values().fold(Amount::default(), |sum, one| sum.plus(*one));
        assert_eq!(status.received, dropped.plus(status.enqueued));
        assert_eq!(status.dropped.keys().collect::<Vec<_>>(), ["spoofed_mac", "vif_bits"]);
        let after = status.sent.plus(status.dropped_after).plus(status.backlog);
        assert_eq!(status.enqueued, after);
        assert_eq!(status.dropped_after.packets, 15);
        let by: Vec<(&str, u64)> = status
            .dropped_after_by
            .iter()
            .map(|(name, amount)| (name.as_str(), amount.packets))
            .collect();
        assert_eq!(by, [("codel", 5), ("queue_packets", 10)]);
    }
}
