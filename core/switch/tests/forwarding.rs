// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forwarding between port and vifs, inside a slice, with tags, and nowhere else.

mod common;

use common::{BROADCAST, Steps, UP, ether, mac, mark_of, node, tagged, tenant, vif};
use weir_policy::{FiveTuple, Slice};
use weir_switch::{Direction, Reason};
use weir_units::BitRate;

#[test]
fn a_vif_and_its_port_exchange_frames() {
    let mut policy = node(BitRate::from_mbps(100));
    let (_, a) = tenant(&mut policy, "a");
    let mut rig = common::start(&policy);
    let out = ether(mac(9), mac(1), 60, 1);
    rig.put_vif(a, &out);
    assert_eq!(rig.take(UP), Some(out));
    let back = ether(mac(1), mac(9), 200, 2);
    rig.put(UP, &back);
    assert_eq!(rig.take_vif(a), Some(back));
    rig.check();
    assert_eq!(rig.pool.taken(), 0);
    let sent = rig.vif_counters(a, Direction::Send).sent;
    assert_eq!((sent.packets, sent.bytes), (1, 60));
}

#[test]
fn the_port_is_paced_exactly() {
    let mut policy = node(BitRate::from_mbps(100));
    let (_, a) = tenant(&mut policy, "a");
    let mut rig = common::start(&policy);
    for mark in 0..5 {
        rig.put_vif(a, &ether(mac(9), mac(1), 1250, mark));
    }
    let taken = rig.drain();
    let times: Vec<u64> = taken.iter().map(|(_, at, _)| at.as_nanos()).collect();
    // 1250 bytes at 100 Mb/s take 100 µs.
    assert_eq!(times, [0, 100_000, 200_000, 300_000, 400_000]);
    let marks: Vec<u32> = taken.iter().map(|(_, _, bytes)| mark_of(bytes)).collect();
    assert_eq!(marks, [0, 1, 2, 3, 4]);
    rig.check();
}

#[test]
fn tags_are_pushed_and_popped_for_the_slice() {
    let mut policy = node(BitRate::from_mbps(100));
    let (slice, a) = tenant(&mut policy, "a");
    policy[slice].vlan = Some(100);
    let mut rig = common::start(&policy);
    let out = ether(mac(9), mac(1), 60, 1);
    rig.put_vif(a, &out);
    assert_eq!(rig.take(UP), Some(tagged(&out, 100)));
    let back = ether(mac(1), mac(9), 60, 2);
    rig.put(UP, &tagged(&back, 100));
    assert_eq!(rig.take_vif(a), Some(back.clone()));
    for wrong in [back.clone(), tagged(&back, 101), tagged(&back, 0)] {
        rig.put(UP, &wrong);
    }
    rig.put_vif(a, &tagged(&out, 100));
    rig.check();
    let dropped = rig.counters(UP, Direction::Receive).dropped_for(Reason::UnknownVlan);
    assert_eq!(dropped.packets, 3);
    let dropped = rig.vif_counters(a, Direction::Send).dropped_for(Reason::UnexpectedTag);
    assert_eq!(dropped.packets, 1);
    assert!(rig.drain().is_empty());
}

/// Goal: a packet of no slice's five-tuple is dropped with its own reason where all slices have
/// five-tuples, and is for the plain slice where there is one.
#[test]
fn packets_of_nobody_are_counted() {
    let mut policy = node(BitRate::from_mbps(100));
    let (slice, a) = tenant(&mut policy, "a");
    let icmp = FiveTuple { protocol: Some(1), ..FiveTuple::default() };
    policy[slice].five_tuples = vec![icmp];
    let ipv4 = |protocol: u8| {
        let mut bytes = ether(mac(1), mac(9), 60, 7);
        bytes[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
        bytes[16..24].copy_from_slice(&[0, 46, 0, 0, 0, 0, 64, protocol]);
        bytes
    };
    let mut rig = common::start(&policy);
    for protocol in [1, 17] {
        rig.put(UP, &ipv4(protocol));
    }
    assert_eq!(rig.take_vif(a), Some(ipv4(1)));
    assert!(rig.drain().is_empty());
    let dropped = rig.counters(UP, Direction::Receive).dropped_for(Reason::FiveTupleUnknown);
    assert_eq!(dropped.packets, 1);
    rig.check();
    let (_, plain) = tenant(&mut policy, "plain");
    let mut rig = common::start(&policy);
    rig.put(UP, &ipv4(17));
    assert_eq!(rig.take_vif(plain), Some(ipv4(17)));
    rig.check();
}

#[test]
fn broadcasts_stay_inside_the_slice() {
    let mut policy = node(BitRate::from_mbps(100));
    let gold = policy.add_slice(Slice::new("gold"));
    let (a, b) = (vif(&mut policy, "a", gold), vif(&mut policy, "b", gold));
    let (_, stranger) = tenant(&mut policy, "stranger");
    let mut rig = common::start(&policy);
    let frame = ether(BROADCAST, mac(1), 60, 7);
    rig.put_vif(a, &frame);
    let taken = rig.drain();
    let reached: Vec<_> = taken.iter().map(|(iface, ..)| *iface).collect();
    assert_eq!(reached.len(), 2);
    assert!(reached.contains(&UP) && reached.contains(&rig.iface(b)));
    assert!(taken.iter().all(|(.., bytes)| *bytes == frame));
    rig.check();
    assert_eq!(rig.vif_counters(a, Direction::Send).copies.packets, 1);
    assert_eq!(rig.vif_counters(stranger, Direction::Receive).received.packets, 0);
}

#[test]
fn two_vifs_of_a_slice_exchange_frames_without_the_port() {
    let mut policy = node(BitRate::from_mbps(100));
    let gold = policy.add_slice(Slice::new("gold"));
    let (a, b) = (vif(&mut policy, "a", gold), vif(&mut policy, "b", gold));
    let mut rig = common::start(&policy);
    rig.put_vif(b, &ether(mac(9), mac(2), 60, 0));
    assert_eq!(rig.drain().len(), 2, "unknown: to the port and to the other vif");
    let frame = ether(mac(2), mac(1), 1514, 1);
    for _ in 0..10 {
        rig.put_vif(a, &frame);
    }
    let taken = rig.drain();
    assert_eq!(taken.len(), 10);
    assert!(taken.iter().all(|(iface, _, bytes)| *iface == rig.iface(b) && *bytes == frame));
    rig.check();
}

#[test]
fn another_slices_address_is_not_served_locally() {
    let mut policy = node(BitRate::from_mbps(100));
    let (_, a) = tenant(&mut policy, "a");
    let (_, b) = tenant(&mut policy, "b");
    let mut rig = common::start(&policy);
    rig.put_vif(b, &ether(mac(9), mac(2), 60, 0));
    rig.drain();
    rig.put_vif(a, &ether(mac(2), mac(1), 60, 1));
    let taken = rig.drain();
    assert_eq!(taken.len(), 1);
    assert_eq!(taken[0].0, UP);
    rig.check();
}
