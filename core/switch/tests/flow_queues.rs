// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flow queues in the switch across changes of policy: nothing that was accepted is lost, and no
//! frame passes an earlier one of its flow.
#![allow(clippy::unwrap_used, reason = "a test stops at a surprise")]

mod common;

use common::{Rig, Steps, UP, ether, mac, mark_of, node, vif};
use weir_policy::{Policy, Queue, QueueKind, Router, SchedulerKind, Slice, SmoothWindow, VifId};
use weir_sim::DataPlane;
use weir_switch::Direction;
use weir_units::{BitRate, ByteCount, Nanos};

const A: VifId = VifId(0);
const B: VifId = VifId(1);

/// Two neighbours of one slice with queues of 1024 packets.
fn policy(kind: QueueKind) -> Policy {
    let mut policy = node(BitRate::from_mbps(100));
    policy.node.frames = 8192;
    let slice = policy.add_slice(Slice::new("s"));
    for (station, name) in [(1, "a"), (2, "b")] {
        let id = vif(&mut policy, name, slice);
        policy[id].macs = vec![weir_policy::MacAddr(mac(station))];
    }
    set_kind(&mut policy, kind);
    policy
}

/// Starts the node, and has the station beyond the port be known, so that nothing is flooded.
fn start(policy: &Policy) -> Rig {
    let mut rig = common::start(policy);
    rig.put(UP, &ether(mac(1), mac(9), 60, 0));
    assert_eq!(rig.drain().len(), 1);
    rig
}

fn set_kind(policy: &mut Policy, kind: QueueKind) {
    for vif in &mut policy.vifs {
        for queue in [&mut vif.send_queue, &mut vif.receive_queue] {
            let (packets, bytes) = (1024, ByteCount::new(8 << 20));
            *queue = Queue { kind, packets, bytes, ..queue.clone() };
        }
    }
}

/// The places where a frame can be queued: towards the port, from it, and between the vifs.
#[derive(Clone, Copy, Debug)]
enum Way {
    Out,
    In,
    Local,
}

const WAYS: [Way; 3] = [Way::Out, Way::In, Way::Local];

impl Way {
    /// Hands in a frame of one of two flows; the vif behind the queue is [`A`]. A flow is told by
    /// the type of the frame.
    fn put(self, rig: &mut Rig, flow: u8, mark: u32) {
        let (to, from, iface) = match self {
            Self::Out => (mac(9), mac(1), rig.iface(A)),
            Self::In => (mac(1), mac(9), UP),
            Self::Local => (mac(2), mac(1), rig.iface(A)),
        };
        let mut bytes = ether(to, from, 100, mark);
        bytes[13] = flow;
        rig.put(iface, &bytes);
    }

    fn direction(self) -> Direction {
        if matches!(self, Self::In) { Direction::Receive } else { Direction::Send }
    }
}

/// Lets all frames leave; returns their marks by flow.
fn drain(rig: &mut Rig) -> Vec<(u8, u32)> {
    rig.check();
    // Local frames cross in batches, without a clock.
    let mut left: Vec<_> = core::iter::from_fn(|| rig.take_vif(B)).collect();
    left.extend(rig.drain().into_iter().map(|(_, _, bytes)| bytes));
    rig.check();
    assert_eq!((rig.switch.removed(), rig.pool.taken()), (0, 0));
    left.iter().map(|bytes| (bytes[13], mark_of(bytes))).collect()
}

fn in_order_of_each_flow(left: &[(u8, u32)]) -> bool {
    [1, 2].iter().all(|flow| {
        let marks = left.iter().filter(|one| one.0 == *flow).map(|one| one.1);
        marks.is_sorted()
    })
}

/// Goal: a queue that gets flows by a change loses nothing, and new frames of a flow stay behind
/// those that were queued before, although nobody knew their flow then. Method: 100 frames of two
/// flows in one queue of each kind, the change, 50 more of both; then back, and 50 more.
#[test]
fn a_change_to_flows_and_back_keeps_each_flow_in_order() {
    for way in WAYS {
        let mut policy = policy(QueueKind::Fifo);
        let mut rig = start(&policy);
        let mut mark = 0;
        let mut put = |rig: &mut Rig, count: u32| {
            for _ in 0..count {
                way.put(rig, u8::from(mark % 10 == 9) + 1, mark);
                mark += 1;
            }
        };
        put(&mut rig, 100);
        for kind in [QueueKind::Flows, QueueKind::Fifo, QueueKind::Flows] {
            set_kind(&mut policy, kind);
            rig.apply(&policy).unwrap();
            rig.check();
            put(&mut rig, 50);
        }
        let left = drain(&mut rig);
        assert_eq!(left.len(), 250, "{way:?}");
        assert!(in_order_of_each_flow(&left), "{way:?}: {left:?}");
        assert_eq!(rig.vif_counters(A, way.direction()).dropped_total().packets, 0);
    }
}

/// Goal: frames whose class moves are all taken there, though one flow has more of them than it
/// could queue anew. Method: a flow fills its two thirds of the queue, another two thirds of the
/// rest; then the vif moves below a router, from one to another, and to another scheduler, each
/// time with a bound of a tenth.
#[test]
fn a_vif_that_moves_keeps_every_frame() {
    for way in WAYS {
        let mut policy = policy(QueueKind::Flows);
        let slice = policy[A].slice;
        let routers = ["r", "q"].map(|name| policy.add_router(Router::new(name, slice)));
        let mut rig = start(&policy);
        for (flow, count) in [(1, 682), (2, 228)] {
            (0..count).for_each(|mark| way.put(&mut rig, flow, mark));
        }
        let counters = rig.vif_counters(A, way.direction());
        assert_eq!(counters.dropped_total().packets, 0, "{way:?}");
        let vif = &mut policy[A];
        (vif.send_queue.packets, vif.receive_queue.packets) = (102, 102);
        let moves: [&dyn Fn(&mut Policy); 4] = [
            &|policy| policy[A].router = Some(routers[0]),
            &|policy| policy[A].router = Some(routers[1]),
            &|policy| policy.ports[0].scheduler = SchedulerKind::Drr,
            &|policy| policy.ports[0].scheduler = SchedulerKind::Hfsc,
        ];
        for change in moves {
            change(&mut policy);
            rig.apply(&policy).unwrap();
            rig.check();
            assert_eq!(rig.switch.removed(), 0, "{way:?}");
        }
        way.put(&mut rig, 1, 5000);
        let refused = rig.vif_counters(A, way.direction()).dropped_total();
        assert_eq!(refused.packets, 1, "the bound holds for new frames");
        let left = drain(&mut rig);
        assert_eq!(left.len(), 910, "{way:?}");
        assert!(in_order_of_each_flow(&left), "{way:?}");
    }
}

/// Goal: frames that moved and then frames that come stay in order, where the queue gets flows and
/// moves by one change. Method: as it says.
#[test]
fn a_move_and_a_change_to_flows_at_once_keep_the_order() {
    for way in WAYS {
        let mut policy = policy(QueueKind::Fifo);
        let mut rig = start(&policy);
        (0..200).for_each(|mark| way.put(&mut rig, 1, mark));
        let slice = policy[A].slice;
        policy[A].router = Some(policy.add_router(Router::new("r", slice)));
        set_kind(&mut policy, QueueKind::Flows);
        rig.apply(&policy).unwrap();
        (200..300).for_each(|mark| way.put(&mut rig, 1, mark));
        let left = drain(&mut rig);
        assert_eq!(left, (0..300).map(|mark| (1, mark)).collect::<Vec<_>>(), "{way:?}");
    }
}

/// Goal: a smooth window that goes, and leaves a queue with flows, loses none of the frames that
/// wait in it, and new ones of a flow do not pass them. Method: at 10 Mb/s a window takes 100
/// frames on its credit; it goes before and after their release, to a queue of half of the frames,
/// of 50 ms, or of less than a frame; frames come until all have left.
#[test]
fn a_window_that_goes_loses_nothing_to_flows() {
    for (way, wait, bytes) in WAYS.into_iter().flat_map(|way| {
        [(150_000_000, 6_000), (0, 62_500), (150_000_000, 50)].map(|(a, b)| (way, a, b))
    }) {
        let mut policy = policy(QueueKind::Fifo);
        let rate = Some(BitRate::from_mbps(10));
        let vif = &mut policy[A];
        (vif.send.rate, vif.receive.rate) = (rate, rate);
        let window = Some(SmoothWindow { credit: Nanos::from_millis(100), ..<_>::default() });
        (vif.send_shaper, vif.receive_shaper) = (window, window);
        let mut rig = start(&policy);
        rig.wait(1_000_000_000);
        (0..100).for_each(|mark| way.put(&mut rig, 1, mark));
        let dropped = |rig: &Rig| rig.vif_counters(A, way.direction()).dropped_total().packets;
        assert_eq!(dropped(&rig), 0, "{way:?}");
        rig.wait(wait);
        let vif = &mut policy[A];
        (vif.send_shaper, vif.receive_shaper) = (None, None);
        for queue in [&mut vif.send_queue, &mut vif.receive_queue] {
            (queue.kind, queue.bytes) = (QueueKind::Flows, ByteCount::new(bytes));
        }
        rig.apply(&policy).unwrap();
        rig.check();
        let mut left = Vec::new();
        for mark in 100..1000 {
            way.put(&mut rig, 1, mark);
            let to = [UP, rig.iface(A), rig.iface(B)];
            left.extend(to.into_iter().filter_map(|to| rig.take(to)));
            rig.wait(1_000_000);
        }
        left.extend(rig.drain().into_iter().map(|(_, _, bytes)| bytes));
        rig.check();
        assert_eq!((rig.switch.removed(), rig.pool.taken()), (0, 0), "{way:?} {wait} {bytes}");
        let marks: Vec<_> = left.iter().map(|bytes| mark_of(bytes)).collect();
        assert!(marks.is_sorted(), "{way:?} {wait} {bytes}: {marks:?}");
        assert!(marks.starts_with(&Vec::from_iter(0..100)), "{way:?} {wait} {bytes}");
        assert_eq!(marks.len() as u64 + dropped(&rig), 1000);
    }
}

/// Goal: two vifs with flows that move at once keep their frames, each its own.
#[test]
fn vifs_that_move_together_keep_their_own_frames() {
    let mut policy = policy(QueueKind::Flows);
    let mut rig = start(&policy);
    for mark in 0..300 {
        Way::Out.put(&mut rig, 1, mark);
        rig.put_vif(B, &ether(mac(9), mac(2), 100, mark));
    }
    let slice = policy[A].slice;
    let router = policy.add_router(Router::new("r", slice));
    policy.vifs.iter_mut().for_each(|vif| vif.router = Some(router));
    rig.apply(&policy).unwrap();
    for vif in [A, B] {
        assert_eq!(rig.switch.waiting(vif, Direction::Send), 300);
        assert_eq!(rig.switch.queue_backlog(vif, Direction::Send).packets, 300);
    }
    assert_eq!(drain(&mut rig).len(), 600);
}

/// Goal: frames for a device that takes none wait in the queues of their flows, and not in the list
/// before the device. Method: 1 ms of a port of 100 Mb/s may be in flight, 12.5 frames of 1000
/// bytes. At the port's rate 300 frames of one flow come, and nobody takes them. A frame of another
/// flow then waits for those in the list, one that leaves the class as it pauses, and the staged
/// one. Nothing is lost.
#[test]
fn a_slow_device_leaves_frames_in_the_queues_of_their_flows() {
    let mut policy = policy(QueueKind::Flows);
    policy.node.in_flight = Nanos::from_millis(1);
    let mut rig = start(&policy);
    let put = |rig: &mut Rig, flow: u8, mark| {
        let mut bytes = ether(mac(1), mac(9), 1000, mark);
        bytes[13] = flow;
        rig.put(UP, &bytes);
    };
    let packet = 80_000;
    for mark in 0..300 {
        put(&mut rig, 1, mark);
        rig.wait(packet);
        let now = rig.now;
        rig.switch.advance(now, &mut rig.pool);
    }
    put(&mut rig, 2, 1000);
    let mut left = Vec::new();
    while left.iter().all(|(flow, _)| *flow == 1) {
        let bytes = rig.take_vif(A).unwrap();
        left.push((bytes[13], mark_of(&bytes)));
        rig.wait(packet);
    }
    assert!((13..=16).contains(&left.len()), "{}", left.len());
    left.extend(drain(&mut rig));
    assert_eq!(left.len(), 301);
    assert!(in_order_of_each_flow(&left));
}
