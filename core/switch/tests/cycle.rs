// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A port with a cycle: slices send in their phases alone, and a live change loses nothing.

#![allow(clippy::unwrap_used, reason = "a test stops at a surprise")]

mod common;

use common::{Rig, Steps, UP, ether, mac, mark_of, node, tenant};
use weir_policy::{Policy, PortCycle, SchedulerKind, VifId};
use weir_units::{BitRate, Instant, Nanos};

/// A link of 100 Mb/s: 500 bytes take 40 µs. Phases of 100, 150 and 50 µs.
fn three(scheduler: SchedulerKind, borrow: bool) -> (Policy, [VifId; 3]) {
    let mut policy = node(BitRate::from_mbps(100));
    let vifs = ["a", "b", "c"].map(|name| tenant(&mut policy, name).1);
    policy.ports[0].scheduler = scheduler;
    policy.ports[0].cycle = Some(PortCycle { length: Nanos::from_micros(300), borrow });
    for (slice, phase) in policy.slices.iter_mut().zip([100, 150, 50]) {
        slice.phase = Some(Nanos::from_micros(phase));
    }
    (policy, vifs)
}

/// Queues so many frames of 500 bytes at each vif.
fn fill(rig: &mut Rig, vifs: &[VifId], frames: u32) {
    for number in 0..frames {
        for (index, vif) in (0..).zip(vifs) {
            rig.put_vif(*vif, &ether(mac(9), mac(index + 1), 500, 1000 * index + number));
        }
    }
}

/// The sender of each frame on the wire, and when it began in its cycle, µs.
fn on_wire(sent: &[(weir_switch::IfaceId, Instant, Vec<u8>)], cycle: u64) -> Vec<(u32, u64)> {
    let wire = sent.iter().filter(|(iface, ..)| *iface == UP);
    wire.map(|(_, at, bytes)| (mark_of(bytes) / 1000, at.as_nanos() / 1000 % cycle)).collect()
}

#[test]
fn slices_send_in_their_phases() {
    for scheduler in [SchedulerKind::Hfsc, SchedulerKind::Drr, SchedulerKind::Fifo] {
        let (policy, vifs) = three(scheduler, false);
        let mut rig = common::start(&policy);
        fill(&mut rig, &vifs, 20);
        let wire = on_wire(&rig.drain(), 300);
        assert_eq!(wire.len(), 60);
        for (sender, at) in wire {
            let allowed: &[u64] = match sender {
                0 => &[0, 40],
                1 => &[100, 140, 180],
                _ => &[250],
            };
            assert!(allowed.contains(&at), "{scheduler:?}: {sender} at {at}");
        }
        rig.check();
    }
}

#[test]
fn a_slice_that_is_alone_borrows_or_waits() {
    // Two frames in each of its phases, or six in all of a cycle.
    for (borrow, expected) in [(false, 9 * 300 + 40), (true, 3 * 300 + 40)] {
        let (policy, vifs) = three(SchedulerKind::Hfsc, borrow);
        let mut rig = common::start(&policy);
        fill(&mut rig, &vifs[..1], 20);
        let last = rig.drain().last().unwrap().1;
        assert_eq!(last.as_nanos() / 1000, expected, "{borrow}");
    }
}

/// Goal: phases that change, a cycle that comes or goes, and a slice that leaves lose no packet
/// of those that stay, and keep each vif's order.
#[test]
fn live_changes_lose_nothing() {
    let (first, vifs) = three(SchedulerKind::Hfsc, false);
    let mut rig = common::start(&first);
    fill(&mut rig, &vifs, 100);
    let mut swapped = first.clone();
    swapped.slices[0].phase = Some(Nanos::from_micros(50));
    swapped.slices[2].phase = Some(Nanos::from_micros(100));
    let mut plain = first.clone();
    plain.ports[0].cycle = None;
    let mut sent = Vec::new();
    for policy in [&swapped, &first, &plain, &first, &swapped] {
        for _ in 0..23 {
            while let Some(bytes) = rig.take(UP) {
                sent.push(mark_of(&bytes));
            }
            rig.wait(37_000);
        }
        rig.switch.apply(rig.now, policy, &mut rig.pool).unwrap();
        rig.check();
    }
    sent.extend(rig.drain().iter().map(|(_, _, bytes)| mark_of(bytes)));
    for sender in 0..3 {
        let own: Vec<u32> = sent.iter().copied().filter(|mark| mark / 1000 == sender).collect();
        let all: Vec<u32> = (1000 * sender..1000 * sender + 100).collect();
        assert_eq!(own, all, "each once, in order");
    }
    assert_eq!(rig.switch.removed(), 0);
}

#[test]
fn what_phases_do_is_counted() {
    let (policy, vifs) = three(SchedulerKind::Drr, false);
    let mut rig = common::start(&policy);
    fill(&mut rig, &vifs, 4);
    rig.wait(10_000);
    assert!(rig.take(UP).is_some());
    rig.wait(600_000);
    assert!(rig.take(UP).is_some());
    let counters = rig.switch.phase_counters(common::PORT).unwrap();
    assert_eq!(counters.late, Nanos::from_micros(10));
    assert_eq!((counters.met, counters.missed), (2, 5));
    assert!(rig.switch.phase_counters(weir_policy::PortId(1)).is_none());
}

/// Goal: the policy calls a minimum unheld from where the scheduler no longer makes up for it.
#[test]
fn the_policy_knows_for_how_long_wrr_makes_up() {
    assert_eq!(weir_policy::WRR_CATCH_UP, weir_sched::MINIMUM_CATCH_UP);
}
