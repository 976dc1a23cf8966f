// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The promises to a tenant, in virtual time: exact, on any machine. Row numbers are those of
//! `weir-lab verify first-light`.
#![allow(clippy::unwrap_used, reason = "a test stops at a surprise")]

mod common;

use common::sim::{Departure, WhenFull, by_second, in_order, most_in_window, run, source};
use common::{PORT, Rig, Steps, UP, bytes, mac, node, tenant};
use weir_policy::{Policy, SchedulerKind, Slice, Vif, VifId};
use weir_sim::SimSource;
use weir_switch::{Direction, IfaceId, Reason};
use weir_units::{BitRate, Nanos};

const SECOND: u64 = 1_000_000_000;
const GATEWAY: u32 = 0xff_ffff;

/// A switch that knows where the gateway is.
fn rig(policy: &Policy) -> Rig {
    let mut rig = common::start(policy);
    for slice in &policy.slices {
        let hello = common::ether(mac(0xff_fffe), mac(GATEWAY), 60, 0);
        match slice.vlan {
            Some(vlan) => rig.put(UP, &common::tagged(&hello, vlan)),
            None => rig.put(UP, &hello),
        }
    }
    rig.drain();
    rig
}

/// A source at a vif, towards the gateway.
fn out(rig: &Rig, vif: VifId, length: usize, rate: u64) -> SimSource {
    source(rig.iface(vif), mac(vif.0 + 1), mac(GATEWAY), length, rate)
}

/// Row 3: one vif three times as active as the other.
#[test]
fn equal_priorities_share_equally_whatever_is_offered() {
    for (mbps, seconds) in [(100, 6), (1000, 4)] {
        let mut policy = node(BitRate::from_mbps(mbps));
        let (_, a) = tenant(&mut policy, "a");
        let (_, b) = tenant(&mut policy, "b");
        let mut rig = rig(&policy);
        let rate = mbps * 1_000_000;
        let mut sources = [out(&rig, a, 1500, 3 * rate), out(&rig, b, 1500, rate)];
        let departures = run(&mut rig, &mut sources, seconds * SECOND);
        let (a, b) = (by_second(&departures, 0, 1, seconds), by_second(&departures, 1, 1, seconds));
        for (a, b) in a.iter().zip(&b) {
            assert!(*a.min(b) * 100 >= *a.max(b) * 99, "{a} against {b} at {mbps} Mb/s");
            assert!((a + b) * 8 * 100 >= rate * 98, "the link is full: {a} + {b}");
        }
        assert!(in_order(&departures));
        rig.check();
    }
}

/// Row 4, on a small number of tenants.
#[test]
fn a_tenth_of_the_link_is_held_against_ten_floods() {
    for (mbps, length) in [(100, 64), (1000, 1500)] {
        let mut policy = node(BitRate::from_mbps(mbps));
        let (_, held) = tenant(&mut policy, "held");
        policy[held].send.min_rate = BitRate::from_mbps(mbps / 10);
        let floods: Vec<VifId> =
            (0..10).map(|n| tenant(&mut policy, &format!("flood{n}")).1).collect();
        let mut rig = rig(&policy);
        let rate = mbps * 1_000_000;
        let mut sources = vec![out(&rig, held, length, rate / 9)];
        sources.extend(floods.iter().map(|vif| out(&rig, *vif, length, rate / 4)));
        let departures = run(&mut rig, &mut sources, 3 * SECOND);
        for got in by_second(&departures, 0, 0, 3) {
            assert!(got * 8 * 1000 >= rate / 10 * 990, "{got} bytes of {mbps} Mb/s");
        }
        rig.check();
    }
}

/// Row 4 with 1000 classes.
#[test]
fn a_tenth_of_the_link_is_held_against_999_floods() {
    let mut policy = node(BitRate::from_mbps(1000));
    let (_, held) = tenant(&mut policy, "held");
    policy[held].send.min_rate = BitRate::from_mbps(100);
    let floods: Vec<VifId> =
        (0..999).map(|n| tenant(&mut policy, &format!("flood{n}")).1).collect();
    let mut rig = rig(&policy);
    let mut sources = vec![out(&rig, held, 1500, 100_000_000)];
    sources.extend(floods.iter().map(|vif| out(&rig, *vif, 1500, 3_000_000)));
    let departures = run(&mut rig, &mut sources, 2 * SECOND);
    for got in by_second(&departures, 0, 0, 2) {
        assert!(got * 8 >= 99_000_000, "{got} bytes");
    }
    let counters = rig.vif_counters(held, Direction::Send);
    assert_eq!(counters.dropped_total().packets, 0, "{counters:?}");
    let refused = |vif: &VifId| {
        rig.vif_counters(*vif, Direction::Send).dropped_for(Reason::PoolShare).packets
    };
    assert!(floods.iter().map(refused).sum::<u64>() > 0, "the pool was short");
    rig.check();
}

/// Row 6: a limit is reached, and never passed.
#[test]
fn a_rate_is_reached_and_in_no_window_exceeded() {
    for mbps in [1, 10, 100, 500, 1000] {
        let mut policy = node(BitRate::from_mbps(10_000));
        let (_, vif) = tenant(&mut policy, "limited");
        policy[vif].send.rate = Some(BitRate::from_mbps(mbps));
        let burst = 3000.max(mbps * 125);
        policy[vif].send.burst = bytes(burst);
        let mut rig = rig(&policy);
        let rate = mbps * 1_000_000;
        let mut sources = [out(&rig, vif, 1500, rate * 11 / 10)];
        let seconds = if mbps >= 500 { 3 } else { 10 };
        let departures = run(&mut rig, &mut sources, seconds * SECOND);
        let sent: u64 = departures.iter().map(|departure| departure.bytes).sum();
        let expected = rate / 8 * seconds;
        let slack = (expected / 1000).max(1500) + burst;
        assert!(sent.abs_diff(expected) <= slack, "{sent} of {expected} bytes at {mbps} Mb/s");
        let most = most_in_window(&departures, SECOND / 10);
        assert!(most <= rate / 80 + burst, "{most} bytes in 100 ms at {mbps} Mb/s");
    }
}

/// Returns the largest delay of source 0's frames, in nanoseconds.
fn worst_delay(departures: &[Departure]) -> u64 {
    let own = departures.iter().filter(|departure| departure.source == 0);
    own.map(|departure| departure.at.as_nanos() - departure.offered.as_nanos()).max().unwrap()
}

/// Row 8: 95 % load at 1 Gb/s, the flood in bursts; and the same against a flood without end.
#[test]
fn a_well_behaved_vif_waits_for_two_frames_at_most() {
    let two_frames = 2 * 1518 * 8;
    for flood in [750_000_000, 3_000_000_000] {
        let mut policy = node(BitRate::from_mbps(1000));
        let (_, calm) = tenant(&mut policy, "calm");
        policy[calm].send.min_rate = BitRate::from_mbps(200);
        policy[calm].delay = Some(Nanos::new(1518 * 8));
        let (_, wild) = tenant(&mut policy, "wild");
        let mut rig = rig(&policy);
        let mut sources = [out(&rig, calm, 1518, 200_000_000), out(&rig, wild, 1518, flood)];
        sources[0].start = weir_units::Instant::from_nanos(1_000_007);
        sources[1].burst = 64;
        let departures = run(&mut rig, &mut sources, SECOND);
        let worst = worst_delay(&departures);
        assert!(worst <= two_frames, "{worst} ns of {two_frames} at a flood of {flood}");
        let sent = rig.vif_counters(calm, Direction::Send);
        assert_eq!(sent.dropped_total().packets, 0);
        assert!(sent.sent.packets > 16_000, "{:?}", sent.sent);
        rig.check();
    }
}

/// A slice's minimum holds although its vifs have none, whichever of them are active.
#[test]
fn a_slices_minimum_is_its_vifs_whoever_of_them_sends() {
    for active in [1, 2, 4] {
        let mut policy = node(BitRate::from_mbps(100));
        let gold = policy.add_slice(Slice::new("gold"));
        policy[gold].send.min_rate = BitRate::from_mbps(40);
        policy[gold].vlan = Some(7);
        let vifs: Vec<VifId> =
            (0..4).map(|n| common::vif(&mut policy, &format!("gold.{n}"), gold)).collect();
        let floods: Vec<VifId> =
            (0..9).map(|n| tenant(&mut policy, &format!("flood{n}")).1).collect();
        let mut rig = rig(&policy);
        let senders = vifs.iter().take(active).chain(&floods);
        let mut sources: Vec<SimSource> =
            senders.map(|vif| out(&rig, *vif, 1000, 50_000_000)).collect();
        let departures = run(&mut rig, &mut sources, 3 * SECOND);
        let of = |source| by_second(&departures, source, 1, 3);
        for second in 0..2 {
            let got: u64 = (0..active).map(|source| of(source)[second]).sum();
            // On the wire each frame is four bytes longer.
            assert!(got * 8 * 100 >= 40_000_000 * 99, "{got} bytes by {active} vifs");
        }
        rig.check();
    }
}

/// Traffic between two vifs of one node is limited like any other, and with it.
#[test]
fn one_limit_holds_over_the_port_and_the_neighbour() {
    let mut policy = node(BitRate::from_mbps(100));
    let gold = policy.add_slice(Slice::new("gold"));
    let (a, b) = (common::vif(&mut policy, "a", gold), common::vif(&mut policy, "b", gold));
    policy[a].send.rate = Some(BitRate::from_mbps(20));
    let mut rig = rig(&policy);
    rig.put_vif(b, &common::ether(mac(GATEWAY), mac(b.0 + 1), 60, 9));
    rig.drain();
    let local = source(rig.iface(a), mac(a.0 + 1), mac(b.0 + 1), 1000, 30_000_000);
    let mut sources = [out(&rig, a, 1000, 30_000_000), local];
    let departures = run(&mut rig, &mut sources, 4 * SECOND);
    let (port, neighbour) = (by_second(&departures, 0, 1, 4), by_second(&departures, 1, 1, 4));
    for (port, neighbour) in port.iter().zip(&neighbour) {
        let bits = (port + neighbour) * 8;
        assert!((19_800_000..=20_030_000).contains(&bits), "{port} + {neighbour} bytes");
        assert!(*port > 0 && *neighbour > 0);
    }
    rig.check();
}

/// Active queue management works between neighbours too, and forgets no frame.
#[test]
fn local_frames_given_up_by_codel_are_accounted_for() {
    let mut policy = node(BitRate::from_mbps(100));
    let gold = policy.add_slice(Slice::new("gold"));
    let (a, b) = (common::vif(&mut policy, "a", gold), common::vif(&mut policy, "b", gold));
    policy[a].send.rate = Some(BitRate::from_mbps(10));
    policy[a].send_queue.codel = Some(weir_policy::Codel::default());
    let mut rig = rig(&policy);
    rig.put_vif(b, &common::ether(mac(GATEWAY), mac(b.0 + 1), 60, 9));
    rig.drain();
    let mut sources = [source(rig.iface(a), mac(a.0 + 1), mac(b.0 + 1), 1000, 12_000_000)];
    run(&mut rig, &mut sources, 2 * SECOND);
    let sent = rig.vif_counters(a, Direction::Send);
    assert!(sent.dropped_after.packets > 5, "{:?}", sent.dropped_after);
    rig.drain();
    rig.check();
    assert_eq!(rig.switch.waiting(b, Direction::Receive), 0);
    assert_eq!(rig.pool.taken(), 0);
}

/// Goal: a frame that waits for its sender's turn takes no room of the vif that it is for.
#[test]
fn a_limited_neighbours_backlog_takes_nothing_from_the_wire() {
    let mut policy = node(BitRate::from_mbps(100));
    let gold = policy.add_slice(Slice::new("gold"));
    let (a, b) = (common::vif(&mut policy, "a", gold), common::vif(&mut policy, "b", gold));
    policy[a].send.rate = Some(BitRate::from_mbps(10));
    let mut rig = rig(&policy);
    rig.put_vif(b, &common::ether(mac(GATEWAY), mac(b.0 + 1), 60, 9));
    rig.drain();
    let mut sources = [
        source(UP, mac(GATEWAY), mac(b.0 + 1), 1000, 20_000_000),
        source(rig.iface(a), mac(a.0 + 1), mac(b.0 + 1), 1000, 30_000_000),
    ];
    let departures = run(&mut rig, &mut sources, 4 * SECOND);
    for (port, neighbour) in
        by_second(&departures, 0, 1, 4).iter().zip(&by_second(&departures, 1, 1, 4))
    {
        assert!((19_900_000..=20_100_000).contains(&(port * 8)), "{port} bytes from the wire");
        assert!((9_800_000..=10_100_000).contains(&(neighbour * 8)), "{neighbour} bytes");
    }
    let received = rig.vif_counters(b, Direction::Receive);
    assert_eq!(received.dropped_for(Reason::QueuePackets).packets, 0);
    assert!(rig.vif_counters(a, Direction::Send).dropped_for(Reason::QueuePackets).packets > 0);
    rig.check();
}

/// Goal: a frame that finds no room at its receiver takes none of its receiver's packets either.
#[test]
fn a_flood_into_a_full_queue_takes_nothing_from_the_receivers_rate() {
    let mut policy = node(BitRate::from_mbps(100));
    let gold = policy.add_slice(Slice::new("gold"));
    let (a, b) = (common::vif(&mut policy, "a", gold), common::vif(&mut policy, "b", gold));
    policy[b].receive_queue.packets = 4;
    policy[b].receive.max_pps = Some(weir_units::PacketRate::from_pps(1_000));
    let mut rig = rig(&policy);
    rig.put_vif(b, &common::ether(mac(GATEWAY), mac(b.0 + 1), 60, 9));
    rig.drain();
    for number in 0..1_000 {
        rig.put_vif(a, &common::ether(mac(b.0 + 1), mac(a.0 + 1), 60, number));
        rig.switch.advance(rig.now, &mut rig.pool);
    }
    let got = rig.vif_counters(b, Direction::Receive);
    assert_eq!(got.dropped_for(Reason::QueuePackets).packets, 996);
    assert_eq!(got.dropped_for(Reason::VifPackets).packets, 0, "{got:?}");
    rig.drain();
    rig.check();
}

/// A neighbour's frame that finds no room is counted at both.
#[test]
fn a_local_frame_that_finds_no_room_is_refused_when_it_crosses() {
    let mut policy = node(BitRate::from_mbps(100));
    let gold = policy.add_slice(Slice::new("gold"));
    let (a, b) = (common::vif(&mut policy, "a", gold), common::vif(&mut policy, "b", gold));
    policy[b].receive_queue.packets = 4;
    let mut rig = rig(&policy);
    rig.put_vif(b, &common::ether(mac(GATEWAY), mac(b.0 + 1), 60, 9));
    rig.drain();
    for number in 0..6 {
        rig.put_vif(a, &common::ether(mac(b.0 + 1), mac(a.0 + 1), 60, number));
    }
    rig.switch.advance(rig.now, &mut rig.pool);
    rig.check();
    let (sent, got) =
        (rig.vif_counters(a, Direction::Send), rig.vif_counters(b, Direction::Receive));
    assert_eq!(sent.dropped_after_for(Reason::RefusedByReceiver).packets, 2);
    assert_eq!(got.dropped_for(Reason::QueuePackets).packets, 2);
    rig.drain();
    rig.check();
    assert_eq!(rig.pool.taken(), 0);
}

/// Goal: a vif's limit of what it receives holds over its neighbour and the port together.
#[test]
fn a_receivers_limit_holds_over_the_port_and_the_neighbour() {
    let mut policy = node(BitRate::from_mbps(100));
    let gold = policy.add_slice(Slice::new("gold"));
    let (a, b) = (common::vif(&mut policy, "a", gold), common::vif(&mut policy, "b", gold));
    policy[b].receive.rate = Some(BitRate::from_mbps(20));
    let mut rig = rig(&policy);
    rig.put_vif(b, &common::ether(mac(GATEWAY), mac(b.0 + 1), 60, 9));
    rig.drain();
    let mut sources = [
        source(UP, mac(GATEWAY), mac(b.0 + 1), 1000, 15_000_000),
        source(rig.iface(a), mac(a.0 + 1), mac(b.0 + 1), 1000, 30_000_000),
    ];
    let departures = run(&mut rig, &mut sources, 4 * SECOND);
    let (port, neighbour) = (by_second(&departures, 0, 1, 4), by_second(&departures, 1, 1, 4));
    for (port, neighbour) in port.iter().zip(&neighbour) {
        let bits = (port + neighbour) * 8;
        assert!((19_600_000..=20_030_000).contains(&bits), "{port} + {neighbour} bytes");
    }
    rig.check();
}

/// Row 5, the second half: a flood towards one tenant takes nothing from the others.
#[test]
fn a_flood_towards_one_tenant_leaves_the_others_their_minimum() {
    let mut policy = node(BitRate::from_mbps(100));
    let (_, held) = tenant(&mut policy, "held");
    policy[held].receive.min_rate = BitRate::from_mbps(30);
    let (_, victim) = tenant(&mut policy, "victim");
    let mut rig = rig(&policy);
    for vif in [held, victim] {
        rig.put_vif(vif, &common::ether(mac(GATEWAY), mac(vif.0 + 1), 60, 9));
    }
    rig.drain();
    let mut sources = [
        source(UP, mac(GATEWAY), mac(held.0 + 1), 1000, 30_000_000),
        source(UP, mac(GATEWAY), mac(victim.0 + 1), 64, 400_000_000),
    ];
    let departures = run(&mut rig, &mut sources, 3 * SECOND);
    for got in by_second(&departures, 0, 1, 3) {
        assert!(got * 8 * 100 >= 30_000_000 * 99, "{got} bytes");
    }
    let held = rig.vif_counters(held, Direction::Receive);
    assert_eq!(held.dropped_total().packets, 0);
    let victim = rig.vif_counters(victim, Direction::Receive);
    assert!(victim.dropped_for(Reason::QueuePackets).packets > 100_000, "charged to the receiver");
    rig.check();
}

/// Row 7: senders that can wait are held back; nothing is lost, before or after scheduling.
#[test]
fn polite_senders_lose_nothing() {
    let mut policy = node(BitRate::from_mbps(100));
    let vifs: Vec<VifId> = (0..8).map(|n| tenant(&mut policy, &format!("t{n}")).1).collect();
    policy[vifs[3]].send.max_pps = Some(weir_units::PacketRate::from_pps(1000));
    let mut rig = rig(&policy);
    let mut sources: Vec<SimSource> =
        vifs.iter().map(|vif| out(&rig, *vif, 1000, 100_000_000)).collect();
    for source in &mut sources {
        source.when_full = WhenFull::Skip;
    }
    let departures = run(&mut rig, &mut sources, 2 * SECOND);
    for vif in vifs {
        let counters = rig.vif_counters(vif, Direction::Send);
        assert_eq!(counters.dropped_total().packets, 0);
        assert_eq!(counters.received, counters.enqueued);
    }
    assert!(departures.len() > 24_000, "the link is full: {}", departures.len());
    rig.check();
}

/// A packet rate holds for vif, router and slice, whichever is least.
#[test]
fn packet_rates_are_policed_before_the_queue() {
    let mut policy = node(BitRate::from_mbps(100));
    let (slice, a) = tenant(&mut policy, "a");
    let b = common::vif(&mut policy, "b", slice);
    policy[slice].send.max_pps = Some(weir_units::PacketRate::from_pps(1000));
    policy[a].send.max_pps = Some(weir_units::PacketRate::from_pps(300));
    let mut rig = rig(&policy);
    let mut sources = [out(&rig, a, 64, 1_024_000), out(&rig, b, 64, 1_024_000)];
    run(&mut rig, &mut sources, 5 * SECOND);
    let sent = [a, b].map(|vif| rig.vif_counters(vif, Direction::Send).enqueued.packets);
    let bound = 5 * 1000 + Vif::new("", slice, PORT).send.packets_at_once();
    assert!(sent[0] <= 5 * 300 + 64 && sent[0] >= 5 * 290, "{sent:?}");
    assert!(sent[0] + sent[1] <= bound && sent[0] + sent[1] >= 4990, "{sent:?}");
    let slice_drops =
        [a, b].map(|vif| rig.vif_counters(vif, Direction::Send).dropped_for(Reason::SlicePackets));
    assert!(slice_drops[1].packets > 1000);
    rig.check();
}

/// A vif's own limit is shaped by every scheduler that has limits: a sender at nine tenths of it,
/// in batches of ten frames, loses none although the burst is two.
#[test]
fn a_flat_scheduler_shapes_a_vifs_rate() {
    for kind in [SchedulerKind::Drr, SchedulerKind::Wfq, SchedulerKind::Wrr, SchedulerKind::Strict]
    {
        let mut policy = node(BitRate::from_mbps(100));
        policy.ports[0].scheduler = kind;
        let (_, a) = tenant(&mut policy, "a");
        policy[a].send.rate = Some(BitRate::from_mbps(20));
        policy[a].send.burst = bytes(2000);
        let mut rig = rig(&policy);
        let mut sent = 0;
        for batch in 0..100 {
            for _ in 0..10 {
                rig.put_vif(a, &common::ether(mac(GATEWAY), mac(1), 1000, batch));
            }
            // Ten frames of 8000 bits at 18 Mb/s.
            let end = rig.now + Nanos::new(80_000 * 1000 / 18);
            while let Some(next) = rig.switch.next_event().filter(|next| *next <= end) {
                rig.now = rig.now.max(next);
                sent += u32::from(rig.take(UP).is_some());
            }
            rig.now = end;
        }
        sent += u32::try_from(rig.drain().len()).unwrap();
        let counters = rig.vif_counters(a, Direction::Send);
        assert_eq!((sent, counters.dropped_total().packets), (1000, 0), "{kind:?}");
    }
}

/// Flat schedulers hold limits of routers and slices by policing.
#[test]
fn a_flat_scheduler_still_holds_a_slices_rate() {
    for kind in [SchedulerKind::Drr, SchedulerKind::Wfq, SchedulerKind::Wrr, SchedulerKind::Fifo] {
        let mut policy = node(BitRate::from_mbps(100));
        policy.ports[0].scheduler = kind;
        let (slice, a) = tenant(&mut policy, "a");
        let b = common::vif(&mut policy, "b", slice);
        policy[slice].send.rate = Some(BitRate::from_mbps(20));
        policy[slice].send.burst = bytes(20_000);
        let mut rig = rig(&policy);
        let mut sources = [out(&rig, a, 1000, 30_000_000), out(&rig, b, 1000, 30_000_000)];
        let departures = run(&mut rig, &mut sources, 3 * SECOND);
        let sent: u64 = departures.iter().map(|departure| departure.bytes * 8).sum();
        assert!((59_000_000..=60_300_000).contains(&sent), "{kind:?}: {sent}");
        let iface: Vec<IfaceId> = departures.iter().map(|d| d.iface).collect();
        assert!(iface.iter().all(|iface| *iface == UP));
        rig.check();
    }
}
