// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Refused frames and the names of their reasons: malformed frames, spoofs, loops, storms, filters.

mod common;

use common::{BROADCAST, Rig, Steps, UP, ether, mac, node, tagged, tenant};
use weir_policy::{Filter, FilterAction, FiveTuple, MacAddr, Policy, VifId};
use weir_switch::{Direction, Frame, IfaceId, Reason, Tally};
use weir_units::{BitRate, PacketRate};

fn one() -> (Policy, VifId) {
    let mut policy = node(BitRate::from_mbps(1000));
    let (_, vif) = tenant(&mut policy, "a");
    (policy, vif)
}

/// Hands in frames at a vif, and says under which reasons they were dropped.
fn refused(policy: &Policy, vif: VifId, frames: &[Vec<u8>]) -> Vec<(Reason, u64)> {
    let mut rig = common::start(policy);
    for frame in frames {
        rig.put_vif(vif, frame);
    }
    rig.check();
    reasons(&rig, vif, Direction::Send)
}

fn reasons(rig: &Rig, vif: VifId, direction: Direction) -> Vec<(Reason, u64)> {
    let counters = rig.vif_counters(vif, direction);
    let count = |reason: &Reason| (*reason, counters.dropped_for(*reason).packets);
    Reason::ALL.iter().map(count).filter(|(_, packets)| *packets > 0).collect()
}

#[test]
fn malformed_frames_are_named() {
    let (policy, vif) = one();
    let good = ether(mac(9), mac(1), 60, 0);
    let cut = |length: usize| good[..length].to_vec();
    for length in [0, 1, 13] {
        assert_eq!(refused(&policy, vif, &[cut(length)]), [(Reason::Truncated, 1)]);
    }
    assert_eq!(refused(&policy, vif, &[cut(14)]), []);
    let half_tag = tagged(&good, 0)[..16].to_vec();
    assert_eq!(refused(&policy, vif, &[half_tag]), [(Reason::Truncated, 1)]);
    let cases = [
        (ether(mac(9), mac(1), 1519, 0), Reason::Oversize),
        (ether(mac(9), BROADCAST, 60, 0), Reason::BadSource),
        (ether(mac(9), [0; 6], 60, 0), Reason::BadSource),
        (ether([1, 0x80, 0xc2, 0, 0, 3], mac(1), 60, 0), Reason::ReservedGroup),
        (tagged(&good, 1), Reason::UnexpectedTag),
        (tagged(&good, 4095), Reason::UnexpectedTag),
        (tagged(&tagged(&good, 0), 0), Reason::NestedTag),
        (ether(mac(1), mac(1), 60, 0), Reason::NoDestination),
    ];
    for (frame, reason) in cases {
        assert_eq!(refused(&policy, vif, &[frame]), [(reason, 1)], "{reason}");
    }
    assert_eq!(refused(&policy, vif, &[ether(mac(9), mac(1), 1518, 0)]), []);
    assert_eq!(refused(&policy, vif, &[tagged(&good, 0)]), [], "a priority tag is no VLAN");
}

#[test]
fn a_service_tag_is_refused_everywhere() {
    let (policy, vif) = one();
    let mut frame = tagged(&ether(mac(9), mac(1), 60, 0), 5);
    frame[12..14].copy_from_slice(&[0x88, 0xa8]);
    assert_eq!(refused(&policy, vif, std::slice::from_ref(&frame)), [(Reason::NestedTag, 1)]);
    let mut rig = common::start(&policy);
    rig.put(UP, &frame);
    let dropped = rig.counters(UP, Direction::Receive).dropped_for(Reason::NestedTag);
    assert_eq!(dropped.packets, 1);
    rig.check();
}

#[test]
fn frames_that_cannot_be_are_survived() {
    let (policy, vif) = one();
    let mut rig = common::start(&policy);
    let iface = rig.iface(vif);
    let mut pool = weir_sim::MemoryPool::new(64);
    for frame in [
        Frame { id: 1, offset: 2000, len: 100 },
        Frame { id: 1, offset: u16::MAX, len: u16::MAX },
        Frame { id: 1, offset: 0, len: 0 },
    ] {
        let id = weir_switch::FramePool::alloc(&mut pool).unwrap();
        rig.switch.receive(rig.now, iface, Frame { id, ..frame }, &mut pool);
        assert_eq!(pool.taken(), 0);
    }
    assert_eq!(reasons(&rig, vif, Direction::Send), [(Reason::Truncated, 3)]);
    let id = weir_switch::FramePool::alloc(&mut pool).unwrap();
    let frame = Frame { id, offset: 0, len: 60 };
    rig.switch.receive(rig.now, weir_switch::IfaceId(77), frame, &mut pool);
    assert_eq!(pool.taken(), 0);
}

#[test]
fn given_addresses_admit_no_other() {
    let (mut policy, vif) = one();
    policy[vif].macs = vec![MacAddr(mac(1)), MacAddr(mac(2))];
    let frames = [1, 2, 3].map(|station| ether(mac(9), mac(station), 60, 0));
    assert_eq!(refused(&policy, vif, &frames), [(Reason::SpoofedMac, 1)]);
}

#[test]
fn learned_addresses_are_bounded() {
    let (mut policy, vif) = one();
    policy[vif].macs_max = 2;
    let frames: Vec<_> = (1..=5).map(|station| ether(mac(9), mac(station), 60, 0)).collect();
    assert_eq!(refused(&policy, vif, &frames), [(Reason::MacsFull, 3)]);
}

fn known(rig: &Rig, station: u32) -> Vec<IfaceId> {
    let [a, b, c, d, e, f] = mac(station);
    let wanted = u64::from_be_bytes([0, 0, a, b, c, d, e, f]);
    let all = rig.switch.addresses();
    all.filter(|(_, _, mac, ..)| *mac == wanted).map(|(_, _, _, iface, _)| iface).collect()
}

/// Goal: a guest that sends from many addresses fills its own bound, and the addresses of its
/// neighbour in the slice and of a station beyond the port are still learned.
#[test]
fn a_flood_of_addresses_from_a_vif_takes_no_room_from_others() {
    let (mut policy, a) = one();
    let slice = policy[a].slice;
    let b = common::vif(&mut policy, "b", slice);
    policy[a].macs_max = 1024;
    let mut rig = common::start(&policy);
    for station in 100..6000 {
        rig.put_vif(a, &ether(mac(1), mac(station), 60, 0));
    }
    let full = rig.vif_counters(a, Direction::Send).dropped_for(Reason::MacsFull);
    assert_eq!(full.packets, 5900 - 1024);
    rig.put_vif(b, &ether(mac(1), mac(2), 60, 0));
    rig.put(UP, &ether(mac(2), mac(3), 60, 0));
    assert_eq!((known(&rig, 2), known(&rig, 3)), (vec![rig.iface(b)], vec![UP]));
    rig.check();
}

/// Goal: a flood of addresses in one slice's network fills that slice's part of the port's room, is
/// counted, and a station of another slice is still learned.
#[test]
fn a_flood_of_addresses_behind_a_port_takes_no_room_from_other_slices() {
    let (mut policy, a) = one();
    let slice = policy[a].slice;
    policy[slice].vlan = Some(7);
    let (_, _b) = tenant(&mut policy, "b");
    let mut rig = common::start(&policy);
    for station in 100..6000 {
        rig.put(UP, &tagged(&ether(mac(1), mac(station), 60, 0), 7));
    }
    assert_eq!(rig.counters(UP, Direction::Receive).unlearned, 5900 - 4096);
    assert_eq!((known(&rig, 100), known(&rig, 5999)), (vec![UP], vec![]));
    rig.put(UP, &ether(mac(2), mac(3), 60, 0));
    assert_eq!(known(&rig, 3), [UP]);
    rig.check();
}

/// Goal: 250 stations are learned by each of 64 slices that have five-tuples, though an ARP frame
/// of one takes a place in each slice's bridge.
#[test]
fn stations_that_all_slices_hear_are_learned_by_each() {
    let mut policy = node(BitRate::from_mbps(1000));
    for port in 1..=64 {
        let (slice, _) = tenant(&mut policy, &format!("s{port}"));
        let own = FiveTuple { protocol: Some(17), dst_port: Some(port), ..FiveTuple::default() };
        policy[slice].five_tuples = vec![own];
    }
    let mut rig = common::start(&policy);
    for station in 1000..1250 {
        let mut arp = ether(BROADCAST, mac(station), 60, 0);
        arp[12..14].copy_from_slice(&[8, 6]);
        rig.put(UP, &arp);
    }
    assert_eq!(rig.counters(UP, Direction::Receive).unlearned, 0);
    assert!((1000..1250).all(|station| known(&rig, station).len() == 64));
    rig.check();
}

#[test]
fn an_address_stays_where_it_is_alive() {
    let (mut policy, a) = one();
    let (_, b) = tenant(&mut policy, "b");
    let mut rig = common::start(&policy);
    rig.put_vif(a, &ether(mac(9), mac(1), 60, 0));
    rig.put_vif(b, &ether(mac(9), mac(1), 60, 0));
    assert_eq!(reasons(&rig, b, Direction::Send), [(Reason::Moved, 1)]);
    // The wire brings it back: a loop.
    for frame in rig.drain() {
        rig.put(UP, &frame.2);
    }
    let dropped = rig.counters(UP, Direction::Receive).dropped_for(Reason::Moved);
    assert_eq!(dropped.packets, 1);
    rig.check();
}

/// A cable between two ports of the world behind the port: each broadcast comes back.
#[test]
fn a_loop_dies_at_the_port() {
    let (mut policy, a) = one();
    let (_, _b) = tenant(&mut policy, "b");
    let mut rig = common::start(&policy);
    rig.put_vif(a, &ether(BROADCAST, mac(1), 60, 0));
    let mut turns = 0;
    while let Some((_, _, frame)) = rig.drain().into_iter().find(|(iface, ..)| *iface == UP) {
        rig.put(UP, &frame);
        turns += 1;
        assert!(turns < 10, "it goes round for ever");
    }
    assert_eq!(turns, 1);
    rig.check();
}

#[test]
fn storms_are_limited_at_the_vif_and_at_the_port() {
    let (mut policy, a) = one();
    policy[a].storm = Some(PacketRate::from_pps(100));
    let mut rig = common::start(&policy);
    for _ in 0..1000 {
        rig.put_vif(a, &ether(BROADCAST, mac(1), 60, 0));
        rig.wait(common::millis(1));
        rig.take(UP);
    }
    let [(Reason::Storm, dropped)] = reasons(&rig, a, Direction::Send)[..] else {
        panic!("{:?}", reasons(&rig, a, Direction::Send));
    };
    assert!((870..=900).contains(&dropped), "{dropped} of 1000 in a second, 100 a second and 16");
    for _ in 0..10_000 {
        rig.put(UP, &ether(BROADCAST, mac(9), 60, 0));
    }
    let dropped = rig.counters(UP, Direction::Receive).dropped_for(Reason::Storm);
    assert!(dropped.packets >= 7_000, "{dropped:?}");
    rig.check();
}

#[test]
fn filters_decide_by_the_first_rule_that_matches() {
    let (mut policy, vif) = one();
    let rule = |action, station: Option<u32>| Filter {
        mac: station.map(|station| MacAddr(mac(station))),
        direction: Some(Direction::Send),
        ..Filter::new(action)
    };
    policy[vif].filter = vec![
        rule(FilterAction::Accept, Some(7)),
        rule(FilterAction::Drop, Some(1)),
        rule(FilterAction::Accept, None),
    ];
    let frames = [ether(mac(7), mac(1), 60, 0), ether(mac(9), mac(1), 60, 0)];
    assert_eq!(refused(&policy, vif, &frames), [(Reason::Filtered, 1)]);
    let mut rig = common::start(&policy);
    rig.put(UP, &ether(mac(1), mac(9), 60, 0));
    assert_eq!(rig.drain().len(), 1, "the rule is for the other direction");
}

#[test]
fn early_drops_are_counted_like_the_others() {
    let (policy, vif) = one();
    let mut rig = common::start(&policy);
    let frames = Tally { packets: 10, bytes: 640 };
    rig.switch.account_early_drop(
        weir_units::Instant::ZERO,
        vif,
        Direction::Send,
        Reason::NoCredit,
        frames,
    );
    assert_eq!(reasons(&rig, vif, Direction::Send), [(Reason::NoCredit, 10)]);
    rig.check();
}

#[test]
fn an_exhausted_pool_is_a_reason() {
    let mut policy = node(BitRate::from_mbps(1000));
    policy.node.frames = 8;
    let slice = policy.add_slice(weir_policy::Slice::new("s"));
    let vifs: Vec<_> = (0..16).map(|n| common::vif(&mut policy, &format!("v{n}"), slice)).collect();
    let mut rig = common::start(&policy);
    rig.put_vif(vifs[0], &ether(BROADCAST, mac(1), 60, 0));
    let counters = rig.vif_counters(vifs[0], Direction::Send);
    assert_eq!(counters.copies.packets, 15);
    let short = counters.dropped_for(Reason::PoolExhausted).packets
        + counters.dropped_for(Reason::PoolShare).packets
        + counters.dropped_for(Reason::RefusedByReceiver).packets;
    assert_eq!(short + counters.enqueued.packets, 16);
    assert!(short >= 8, "{short}");
    rig.check();
}
