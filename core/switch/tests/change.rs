// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A policy changes while traffic runs: nothing is lost or reordered by it, and the new values
//! hold.
#![allow(clippy::unwrap_used, reason = "a test stops at a surprise")]

mod common;

use common::sim::{by_second, in_order, run, source};
use common::{PORT, Steps, UP, ether, mac, mark_of, node, tenant};
use proptest::prelude::*;
use weir_policy::{
    Codel, Policy, PortCycle, QueueKind, Router, SchedulerKind, SmoothWindow, Vif, VifId,
};
use weir_sim::DataPlane;
use weir_switch::{Direction, Frame, FramePool, Reason, Tally, Transmit};
use weir_units::{BitRate, ByteCount, Nanos, PacketRate};

const SECOND: u64 = 1_000_000_000;

/// Three tenants, the third tagged.
fn three() -> (Policy, [VifId; 3]) {
    let mut policy = node(BitRate::from_mbps(100));
    let vifs = ["a", "b", "c"].map(|name| tenant(&mut policy, name).1);
    policy.slices[2].vlan = Some(30);
    (policy, vifs)
}

/// One change of anything that a policy says of these tenants.
fn alter(policy: &mut Policy, what: u8, value: u32) {
    let at = value as usize % 3;
    let rate = BitRate::from_mbps(u64::from(value % 90 + 1));
    let vif = &mut policy.vifs[at];
    let vlan = u16::try_from(value % 5).unwrap();
    match what % 19 {
        0 => vif.send.priority = value % 1000 + 1,
        1 => {
            let keeps = vif.send_shaper.is_some() || !value.is_multiple_of(4);
            vif.send.rate = keeps.then_some(rate);
        }
        2 => vif.send.min_rate = BitRate::from_mbps(u64::from(value % 30)),
        3 => vif.send.burst = ByteCount::new(u64::from(value % 60_000) + 3036),
        4 => {
            vif.delay =
                (!value.is_multiple_of(2)).then(|| Nanos::from_micros(u64::from(value % 900 + 100)))
        }
        5 => vif.receive.priority = value % 1000 + 1,
        6 => vif.receive.min_rate = BitRate::from_mbps(u64::from(value % 30)),
        7 => policy.slices[at].send.rate = (!value.is_multiple_of(4)).then_some(rate),
        8 => policy.slices[at].send.priority = value % 9 + 1,
        9 => policy.slices[at].send.min_rate = BitRate::from_mbps(u64::from(value % 30)),
        10 => policy.ports[0].rate = BitRate::from_mbps(u64::from(value % 900 + 10)),
        11 => policy.slices[2].vlan = (!value.is_multiple_of(3)).then_some(30 + vlan),
        12 => {
            let slice = vif.slice;
            let name = format!("r{value}");
            vif.router = None;
            policy.routers.clear();
            policy.vifs.iter_mut().for_each(|vif| vif.router = None);
            let router = policy.add_router(Router::new(&name, slice));
            policy.vifs[at].router = (!value.is_multiple_of(3)).then_some(router);
        }
        13 => {
            let kinds = [SchedulerKind::Hfsc, SchedulerKind::Drr, SchedulerKind::Wfq];
            policy.ports[0].scheduler = kinds[value as usize % 3];
        }
        14 => {
            // Another tenant comes or goes, in front of the others.
            let count = policy.slices.len();
            if count > 3 {
                policy.vifs.truncate(3);
                policy.slices.truncate(3);
            } else {
                tenant(policy, &format!("new{value}"));
            }
        }
        15 => {
            // A smooth window comes, changes or goes; it needs a rate, and one queue.
            let delay_max = Nanos::from_millis(u64::from(value % 300));
            let window = SmoothWindow { delay_max, ..SmoothWindow::default() };
            vif.send_shaper = (!value.is_multiple_of(3)).then_some(window);
            vif.send.rate = vif.send.rate.or(Some(rate));
            let flows = vif.send_shaper.is_none() && value.is_multiple_of(2);
            vif.send_queue.kind = if flows { QueueKind::Flows } else { QueueKind::Fifo };
        }
        16 => {
            // A queue gets flows or loses them, and other bounds.
            let queue =
                if value.is_multiple_of(5) { &mut vif.receive_queue } else { &mut vif.send_queue };
            let flows = vif.send_shaper.is_none() && !(value / 3).is_multiple_of(3);
            queue.kind = if flows { QueueKind::Flows } else { QueueKind::Fifo };
            queue.packets = value / 9 % 60 + 4;
            queue.bytes = ByteCount::new(u64::from(value / 7 % 20_000) + 3000);
            policy.node.flows = value / 11 % 12;
        }
        17 => alter_phases(policy, at, value),
        _ => policy.ports[0].overhead = (value % 24).cast_signed(),
    }
}

/// Phases come, change or go. A slice that comes later has none, and borrows.
fn alter_phases(policy: &mut Policy, at: usize, value: u32) {
    let millis = |count: u32| Nanos::from_millis(u64::from(count));
    let cycle = PortCycle { length: millis(9), borrow: true };
    policy.ports[0].cycle = (!value.is_multiple_of(3)).then_some(cycle);
    policy.slices[at].phase = Some(millis(2 + value / 3 % 2));
}

/// The flow of a vif's frame, of three: most are of the first.
const fn flow_of(mark: u32) -> u32 {
    (mark % 7).saturating_sub(4)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]
    /// Frames are handed in, taken and the policy changed in any order; every frame that was
    /// queued comes out, once, in order (by flow, if a queue ever had flows), and only where its
    /// slice is.
    #[test]
    fn nothing_is_lost_or_reordered_by_any_change(
        steps in prop::collection::vec((0u8..4, any::<u8>(), any::<u32>()), 1..120),
    ) {
        let (mut policy, vifs) = three();
        let mut rig = common::start(&policy);
        let (mut counts, mut had_flows) = ([0u32; 3], false);
        let mut seen: [Vec<u32>; 3] = Default::default();
        let note = |seen: &mut [Vec<u32>; 3], bytes: &[u8]| {
            seen[bytes[11] as usize - 1].push(mark_of(bytes));
        };
        for (kind, what, value) in steps {
            let at = value as usize % 3;
            match kind {
                0 | 1 => {
                    for _ in 0..value % 8 {
                        let (station, length) = (value % 3 + 1, 60 + what as usize);
                        let to = mac(9 + flow_of(counts[at]));
                        let bytes = ether(to, mac(station), length, counts[at]);
                        rig.put_vif(vifs[at], &bytes);
                        counts[at] += 1;
                    }
                }
                2 => {
                    rig.wait(u64::from(value % 100_000));
                    while let Some(bytes) = rig.take(UP) {
                        note(&mut seen, &bytes);
                    }
                }
                _ => {
                    alter(&mut policy, what, value);
                    rig.apply(&policy).unwrap();
                    let flows = |vif: &Vif| vif.send_queue.kind == QueueKind::Flows;
                    had_flows |= policy.vifs.iter().any(flows);
                }
            }
            rig.check();
        }
        for (iface, _, bytes) in rig.drain() {
            prop_assert_eq!(iface, UP);
            note(&mut seen, &bytes);
        }
        prop_assert_eq!(rig.switch.removed(), 0);
        prop_assert_eq!(rig.pool.taken(), 0);
        for (at, seen) in seen.iter().enumerate() {
            let counters = rig.vif_counters(vifs[at], Direction::Send);
            let dropped = counters.dropped_total().packets;
            prop_assert_eq!(seen.len() as u64 + dropped, u64::from(counts[at]));
            for flow in 0..3 {
                let mut of_flow = seen.iter().filter(|mark| flow_of(**mark) == flow);
                prop_assert!(of_flow.by_ref().is_sorted_by(|a, b| a < b), "{:?}", seen);
            }
            prop_assert!(had_flows || seen.is_sorted_by(|a, b| a < b), "{:?}", seen);
            if dropped == 0 {
                prop_assert_eq!(seen.len(), counts[at] as usize);
            }
        }
    }
}

/// Every change of priority takes hold at once, without a gap.
#[test]
fn priorities_swept_under_load_hold_within_each_second() {
    let (mut policy, [a, b, _]) = three();
    let mut rig = common::start(&policy);
    let gateway = mac(0xff);
    let source = |vif: VifId| source(rig.iface(vif), mac(vif.0 + 1), gateway, 1500, 90_000_000);
    let mut sources = [source(a), source(b)];
    let mut departures = Vec::new();
    for second in 0..6u64 {
        let (high, low) = (6 - second.min(5), second.min(5) + 1);
        policy[a].send.priority = u32::try_from(high).unwrap();
        policy.slices[0].send.priority = u32::try_from(high).unwrap();
        policy.slices[1].send.priority = u32::try_from(low).unwrap();
        rig.apply(&policy).unwrap();
        departures.extend(run(&mut rig, &mut sources, (second + 1) * SECOND));
        let of = |source| by_second(&departures, source, second, second + 1)[0] * 8;
        let (got, sum) = (of(0), of(0) + of(1));
        let expected = (100_000_000 * high / (high + low)).min(90_000_000);
        let other = 100_000_000 - expected;
        if other <= 90_000_000 {
            assert!(got.abs_diff(expected) <= 1_500_000, "{got} of {expected} in second {second}");
        }
        assert!(sum >= 98_000_000, "the link is full: {sum}");
    }
    assert!(in_order(&departures));
    rig.check();
}

#[test]
fn queued_frames_leave_with_the_tag_that_their_slice_has_then() {
    let (mut policy, [_, _, c]) = three();
    let mut rig = common::start(&policy);
    let frame = ether(mac(9), mac(3), 100, 5);
    let mut expected = Vec::new();
    for vlan in [None, Some(7), Some(8), None] {
        policy.slices[2].vlan = vlan;
        for _ in 0..2 {
            rig.put_vif(c, &frame);
        }
        rig.apply(&policy).unwrap();
        rig.wait(20_000);
        expected.push(vlan.map_or_else(|| frame.clone(), |vlan| common::tagged(&frame, vlan)));
        assert_eq!(rig.take(UP).as_ref(), expected.last());
        rig.check();
    }
    assert!(rig.drain().iter().all(|(.., bytes)| *bytes == frame));
}

/// A frame that is queued when its slice gets a VLAN, in a chunk without room for the tag, must not
/// leave untagged: it is a drop of port and vif, and not sent.
#[test]
fn a_frame_that_cannot_take_its_new_tag_is_a_counted_drop() {
    let (mut policy, [a, ..]) = three();
    let mut rig = common::start(&policy);
    let bytes = ether(mac(9), mac(1), 100, 7);
    let frame = Frame { offset: 2, ..rig.pool.copy_in(&bytes).unwrap() };
    rig.pool.data(frame).copy_from_slice(&bytes);
    rig.switch.receive(rig.now, rig.iface(a), frame, &mut rig.pool);
    rig.put_vif(a, &bytes);
    let slice = policy[a].slice;
    policy[slice].vlan = Some(7);
    rig.apply(&policy).unwrap();
    let left: Vec<_> = rig.drain().into_iter().map(|(.., bytes)| bytes).collect();
    assert_eq!(left, [common::tagged(&bytes, 7)], "the one with room");
    let of_port = rig.counters(UP, Direction::Send);
    for counters in [of_port, rig.vif_counters(a, Direction::Send)] {
        assert_eq!(counters.sent.packets, 1);
        assert_eq!(counters.dropped_after_for(Reason::NoHeadroom).packets, 1);
    }
    rig.check();
}

/// A device that offers room and then refuses: the frame counts as dropped, not as sent.
#[test]
fn a_frame_that_the_device_refuses_is_a_counted_drop() {
    let (policy, [a, ..]) = three();
    let mut rig = common::start(&policy);
    rig.put_vif(a, &ether(mac(9), mac(1), 100, 7));
    rig.put(UP, &ether(mac(1), mac(9), 200, 8));
    for (iface, direction) in [(UP, Direction::Send), (rig.iface(a), Direction::Receive)] {
        let given = rig.switch.transmit(rig.now, iface, &mut rig.pool);
        let Transmit::Frame(frame) = given else { panic!("{given:?}") };
        rig.switch.account_refused(iface, frame);
        rig.pool.free(frame.id);
        let counters = rig.counters(iface, direction);
        assert_eq!(counters.sent, Tally::default());
        assert_eq!(counters.dropped_after_for(Reason::RefusedByPort), counters.enqueued);
    }
    rig.check();
}

#[test]
fn a_vif_that_leaves_takes_only_its_own_frames() {
    let (mut policy, [a, b, _]) = three();
    let mut rig = common::start(&policy);
    for mark in 0..10 {
        rig.put_vif(a, &ether(mac(9), mac(1), 100, mark));
        rig.put_vif(b, &ether(mac(9), mac(2), 100, mark));
    }
    rig.put(UP, &ether(mac(1), mac(9), 100, 99));
    policy.vifs.remove(a.0 as usize);
    rig.apply(&policy).unwrap();
    assert_eq!(rig.switch.removed(), 11);
    rig.check();
    let marks: Vec<u32> = rig.drain().iter().map(|(_, _, bytes)| mark_of(bytes)).collect();
    assert_eq!(marks, (0..10).collect::<Vec<_>>());
    assert_eq!(rig.pool.taken(), 0);
    let counters = rig.vif_counters(VifId(0), Direction::Send);
    assert_eq!(counters.sent.packets, 10, "the counters moved with b");
}

#[test]
fn a_vif_in_another_slice_is_another_vif() {
    let (mut policy, [a, ..]) = three();
    let mut rig = common::start(&policy);
    rig.put_vif(a, &ether(mac(9), mac(1), 100, 0));
    policy[a].slice = policy.vifs[2].slice;
    rig.apply(&policy).unwrap();
    assert!(rig.drain().is_empty(), "a frame of one slice does not leave as another's");
    assert_eq!(rig.switch.removed(), 1);
    rig.check();
}

#[test]
fn local_frames_survive_changes_and_die_with_their_receiver() {
    let mut policy = node(BitRate::from_mbps(100));
    let slice = policy.add_slice(weir_policy::Slice::new("s"));
    let vifs = ["a", "b", "c"].map(|name| common::vif(&mut policy, name, slice));
    let mut rig = common::start(&policy);
    for vif in vifs {
        rig.put_vif(vif, &ether(mac(9), mac(vif.0 + 1), 60, 0));
    }
    rig.drain();
    for mark in 0..6 {
        rig.put_vif(vifs[2], &ether(mac(1 + mark % 2), mac(3), 60, mark));
    }
    policy.vifs.remove(0);
    rig.apply(&policy).unwrap();
    rig.check();
    let marks: Vec<u32> = rig.drain().iter().map(|(_, _, bytes)| mark_of(bytes)).collect();
    assert_eq!(marks, [1, 3, 5], "those for b");
    assert_eq!(rig.switch.removed(), 3);
    assert_eq!(rig.pool.taken(), 0);
    rig.check();
}

#[test]
fn spent_tokens_stay_spent() {
    let (mut policy, [a, ..]) = three();
    policy[a].send.max_pps = Some(PacketRate::from_pps(100));
    let mut rig = common::start(&policy);
    let frame = ether(mac(9), mac(1), 60, 0);
    for _ in 0..64 {
        rig.put_vif(a, &frame);
    }
    policy[a].send.max_pps = Some(PacketRate::from_pps(200));
    rig.apply(&policy).unwrap();
    rig.put_vif(a, &frame);
    let dropped = rig.vif_counters(a, Direction::Send).dropped_for(Reason::VifPackets);
    assert_eq!(dropped.packets, 1, "a change does not fill the bucket");
}

#[test]
fn a_policy_that_a_scheduler_refuses_changes_nothing() {
    let (policy, [a, ..]) = three();
    let mut rig = common::start(&policy);
    rig.put_vif(a, &ether(mac(9), mac(1), 60, 7));
    let mut wrong = policy.clone();
    wrong[a].send.priority = 0;
    wrong[a].send_queue.codel = Some(Codel { interval: Nanos::ZERO, ..Codel::default() });
    let refused = rig.switch.apply(rig.now, &wrong, &mut rig.pool);
    assert!(refused.unwrap_err().to_string().starts_with("port 0: "));
    wrong = policy.clone();
    wrong[a].port = weir_policy::PortId(PORT.0 + 1);
    let refused = rig.switch.apply(rig.now, &wrong, &mut rig.pool).unwrap_err();
    assert_eq!(refused.to_string(), "vif.port: no entry has index 1");
    assert_eq!(*rig.switch.policy(), policy);
    assert_eq!(rig.drain().len(), 1);
    rig.check();
}
