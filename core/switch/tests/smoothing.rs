// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The smooth window in the switch: its laws hold for what a vif sends and receives, whichever way,
//! and others do not notice.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at a surprise")]

mod common;

use common::sim::{run, source};
use common::{PORT, Rig, Steps, UP, ether, mac, mark_of, node, tenant, vif};
use weir_policy::{Direction, MacAddr, Policy, SmoothWindow, VifId};
use weir_sched::SmoothConfig;
use weir_sim::{DataPlane, Departure, in_order, most_in_window};
use weir_switch::{Reason, Tally, Transmit};
use weir_units::{BitRate, Nanos};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const RATE: BitRate = BitRate::from_mbps(2);
const A: VifId = VifId(0);
const B: VifId = VifId(1);

/// Two tenants; the first has a smooth window of 2 Mb/s in each direction. The second has 30 Mb/s.
fn policy() -> Policy {
    let mut policy = node(BitRate::from_mbps(100));
    for (station, name) in [(1, "a"), (2, "b")] {
        let (_, vif) = tenant(&mut policy, name);
        policy[vif].macs = vec![MacAddr(mac(station))];
    }
    let a = &mut policy[A];
    (a.send.rate, a.receive.rate) = (Some(RATE), Some(RATE));
    (a.send_shaper, a.receive_shaper) = (Some(window()), Some(window()));
    policy[B].send.min_rate = BitRate::from_mbps(30);
    policy
}

fn window() -> SmoothWindow {
    SmoothWindow::default()
}

/// The byte law: 2 Mb/s are 250 bytes a millisecond.
fn keeps_the_byte_law(departures: &[Departure]) {
    for millis in [1, 10, 100, 1000] {
        let most = most_in_window(departures, millis * MS);
        assert!(most <= 250 * (millis + 100) + 1500, "{most} in {millis} ms");
    }
}

/// Goal: the laws hold on the way out, and what is refused is refused at entry. Method: bursts of
/// ten packets at 1.5 times the rate.
#[test]
fn what_a_vif_sends_is_smooth() {
    let mut rig = common::start(&policy());
    let mut sender = source(rig.iface(A), mac(1), mac(9), 1000, 3_000_000);
    sender.burst = 10;
    let departures = run(&mut rig, &mut [sender], 20 * SECOND);
    keeps_the_byte_law(&departures);
    assert!(in_order(&departures));
    let late: Vec<_> = departures.iter().filter(|one| one.at.as_nanos() > 10 * SECOND).collect();
    let delays = late.iter().map(|one| one.at.saturating_since(one.offered));
    let (least, most) = (delays.clone().min().unwrap(), delays.max().unwrap());
    // Packets of one release wait for the link, some tens of microseconds each.
    assert!(least >= Nanos::from_millis(200) && most <= Nanos::from_millis(204), "{most}");
    let state = rig.switch.smooth_state(A, Direction::Send).unwrap();
    assert_eq!(state.position, Nanos::from_millis(200), "overload moves the window to its end");
    let counters = rig.vif_counters(A, Direction::Send);
    let refused = counters.dropped_for(Reason::Shaper).packets;
    assert_eq!((counters.dropped_total().packets, state.refused), (refused, refused));
    assert!(refused > 2000 && counters.dropped_after.packets == 0, "{refused}");
    let bytes: u64 = late.iter().map(|one| one.bytes).sum();
    assert!(bytes.abs_diff(2_500_000) < 26_000, "{bytes}");
}

/// Goal: a vif's window holds for what it receives, from the port and from a neighbour together.
#[test]
fn what_a_vif_receives_is_smooth_from_wherever_it_comes() {
    let mut policy = policy();
    let slice = policy[A].slice;
    let neighbour = vif(&mut policy, "n", slice);
    policy[neighbour].macs = vec![MacAddr(mac(3))];
    let mut rig = common::start(&policy);
    let mut sources = [
        source(UP, mac(9), mac(1), 1000, 1_500_000),
        source(rig.iface(neighbour), mac(3), mac(1), 500, 1_500_000),
    ];
    let departures = run(&mut rig, &mut sources, 20 * SECOND);
    let to_a = rig.iface(A);
    let received: Vec<_> = departures.into_iter().filter(|one| one.iface == to_a).collect();
    keeps_the_byte_law(&received);
    let late = received.iter().filter(|one| one.at.as_nanos() > 10 * SECOND);
    let bytes: u64 = late.map(|one| one.bytes).sum();
    assert!(bytes.abs_diff(2_500_000) < 26_000, "{bytes}");
    let counters = rig.vif_counters(A, Direction::Receive);
    assert_eq!(counters.dropped_after.packets, 0);
    assert!(counters.dropped_for(Reason::Shaper).packets > 1000, "{counters:?}");
    rig.check();
}

/// Goal: the neighbour's guarantee is exact beside a vif that is smoothed and floods.
#[test]
fn a_flood_before_a_window_takes_nothing_from_others() {
    let mut rig = common::start(&policy());
    let mut sources = [
        source(rig.iface(A), mac(1), mac(9), 1500, 200_000_000),
        source(rig.iface(B), mac(2), mac(9), 1500, 30_000_000),
    ];
    let departures = run(&mut rig, &mut sources, 3 * SECOND);
    let of_b: Vec<_> = departures.iter().filter(|one| one.source == 1).collect();
    assert_eq!(of_b.len(), 7500, "it loses nothing");
    let most = of_b.iter().map(|one| one.at.saturating_since(one.offered)).max().unwrap();
    assert!(most <= Nanos::from_micros(300), "{most}");
}

/// Goal: credit is what the window takes, so that a caller can hold back what would be refused.
#[test]
fn credit_tells_what_the_window_takes() {
    let mut rig = common::start(&policy());
    let credit = rig.switch.credit(rig.now, A, Direction::Send);
    assert!((40..60).contains(&credit), "300 ms of 1518 bytes: {credit}");
    for mark in 0..credit {
        rig.put_vif(A, &ether(mac(9), mac(1), 1518, mark));
    }
    assert_eq!(rig.vif_counters(A, Direction::Send).dropped_total().packets, 0);
    assert_eq!(rig.switch.credit(rig.now, A, Direction::Send), 0);
    rig.put_vif(A, &ether(mac(9), mac(1), 1518, 0));
    let dropped = rig.vif_counters(A, Direction::Send).dropped_for(Reason::Shaper);
    assert_eq!(dropped.packets, 1);
}

/// Goal: overload moves the window though a gate drops what exceeds the credit, and with a window
/// that lends nothing. Method: 2.5 times the rate; what has no credit is dropped before the switch.
#[test]
fn early_drops_move_the_window() {
    let mut policy = policy();
    policy[A].send_shaper = Some(SmoothWindow { credit: Nanos::ZERO, ..window() });
    let mut rig = common::start(&policy);
    for mark in 0..3000 {
        while rig.take(UP).is_some() {}
        match rig.switch.credit(rig.now, A, Direction::Send) {
            0 => {
                let frames = Tally { packets: 1, bytes: 1250 };
                let (now, reason) = (rig.now, Reason::NoCredit);
                rig.switch.account_early_drop(now, A, Direction::Send, reason, frames);
            }
            _ => rig.put_vif(A, &ether(mac(9), mac(1), 1250, mark)),
        }
        rig.wait(2 * MS);
    }
    let state = rig.switch.smooth_state(A, Direction::Send).unwrap();
    assert_eq!((state.position, state.refused), (Nanos::from_millis(200), 0));
    let counters = rig.vif_counters(A, Direction::Send);
    assert!(counters.dropped_for(Reason::NoCredit).packets > 1000);
    assert_eq!(counters.dropped_after.packets, 0);
}

/// Goal: overload moves the window though the bounds of the queue refuse what exceeds them, before
/// the window sees it. Method: four frames of queue, 2.5 times the rate.
#[test]
fn what_a_full_queue_refuses_moves_the_window() {
    let mut policy = policy();
    policy[A].send_shaper = Some(SmoothWindow { credit: Nanos::ZERO, ..window() });
    policy[A].send_queue.packets = 4;
    let mut rig = common::start(&policy);
    for mark in 0..3000 {
        while rig.take(UP).is_some() {}
        rig.put_vif(A, &ether(mac(9), mac(1), 1250, mark));
        rig.wait(2 * MS);
    }
    let counters = rig.vif_counters(A, Direction::Send);
    assert!(counters.dropped_for(Reason::QueuePackets).packets > 1000, "{counters:?}");
    assert_eq!(counters.dropped_for(Reason::Shaper).packets, 0);
    let state = rig.switch.smooth_state(A, Direction::Send).unwrap();
    assert_eq!(state.position, Nanos::from_millis(200), "its end");
}

/// Goal: the policy and the shaper agree on the defaults of a window and on what it holds.
#[test]
fn the_policy_and_the_shaper_have_the_same_defaults() {
    for mbps in [1, 2, 10, 100, 1000, 10_000] {
        let rate = BitRate::from_mbps(mbps);
        let (policy, shaper) = (SmoothWindow::default(), SmoothConfig::new(rate));
        let SmoothConfig { rate: _, credit, width, interval, delay_max } = shaper;
        assert_eq!(policy, SmoothWindow { credit, width, interval, delay_max });
        assert_eq!(policy.backlog_max(rate), shaper.backlog_max());
        let other = SmoothWindow { credit: Nanos::new(7), width: Nanos::new(1_000_003), ..policy };
        let SmoothWindow { credit, width, interval, delay_max } = other;
        let shaper = SmoothConfig { rate, credit, width, interval, delay_max };
        assert_eq!(other.backlog_max(rate), shaper.backlog_max());
    }
}

/// Goal: a port and a vif say when a frame before the trees is due, and give it then.
#[test]
fn the_answer_of_a_transmit_names_the_next_release() {
    let mut policy = policy();
    let lends_nothing = SmoothWindow { credit: Nanos::ZERO, ..window() };
    policy[A].send_shaper = Some(lends_nothing);
    policy[A].receive_shaper = Some(lends_nothing);
    let mut rig = common::start(&policy);
    for (from, frame) in
        [(rig.iface(A), ether(mac(9), mac(1), 1000, 1)), (UP, ether(mac(1), mac(9), 1000, 1))]
    {
        let to = if from == UP { rig.iface(A) } else { UP };
        rig.put(from, &frame);
        rig.put(from, &frame);
        assert!(rig.take(to).is_some());
        let answer = rig.switch.transmit(rig.now, to, &mut rig.pool);
        let Transmit::Wait { until, .. } = answer else { panic!("{answer:?}") };
        assert!(until > rig.now && until <= rig.now + Nanos::from_millis(4), "{until}");
        while rig.take(to).is_none() {
            let answer = rig.switch.transmit(rig.now, to, &mut rig.pool);
            let Transmit::Wait { until, .. } = answer else { panic!("{answer:?}") };
            rig.now = until;
        }
    }
}

/// Goal: a window comes, moves and goes with frames in it, and each leaves, in order.
#[test]
fn a_window_goes_without_losing_a_frame() {
    let mut policy = policy();
    let mut rig = common::start(&policy);
    let mut mark = 0;
    let mut put = |rig: &mut Rig| {
        for _ in 0..15 {
            rig.put_vif(A, &ether(mac(9), mac(1), 1000, mark));
            mark += 1;
        }
    };
    put(&mut rig);
    policy[A].send_shaper = Some(SmoothWindow { width: Nanos::from_millis(9), ..window() });
    rig.apply(&policy).unwrap();
    put(&mut rig);
    policy[A].send_shaper = None;
    rig.apply(&policy).unwrap();
    assert_eq!(rig.switch.smooth_state(A, Direction::Send), None);
    put(&mut rig);
    rig.check();
    policy[A].send_shaper = Some(window());
    rig.apply(&policy).unwrap();
    put(&mut rig);
    let left: Vec<u32> = rig.drain().iter().map(|(_, _, bytes)| mark_of(bytes)).collect();
    assert_eq!(left, (0..60).collect::<Vec<_>>());
    assert_eq!((rig.switch.removed(), rig.pool.taken()), (0, 0));
    rig.check();
}

/// Goal: a vif that goes takes its frames with it, counted.
#[test]
fn a_vif_that_goes_frees_what_waits() {
    let mut policy = policy();
    let mut rig = common::start(&policy);
    for mark in 0..30 {
        rig.put_vif(A, &ether(mac(9), mac(1), 1000, mark));
        rig.put(UP, &ether(mac(1), mac(9), 1000, mark));
    }
    policy.vifs.remove(0);
    policy.slices.remove(0);
    policy.vifs[0].slice = weir_policy::SliceId(0);
    rig.apply(&policy).unwrap();
    assert_eq!(rig.switch.removed(), 60);
    assert_eq!(rig.drain().len(), 0);
    assert_eq!(rig.pool.taken(), 0);
    assert_eq!(policy[VifId(0)].port, PORT);
}
