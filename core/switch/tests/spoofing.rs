// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Claims that a vif with given addresses may make, in IPv4, ARP, IPv6 and ND, and those that it
//! may not.
#![allow(clippy::unwrap_used, reason = "a test stops at a surprise")]

mod common;

use common::{BROADCAST, Steps, ether, mac, node, tenant};
use etherparse::PacketBuilder;
use weir_switch::{Direction, Reason};
use weir_units::BitRate;

const OWN4: [u8; 4] = [10, 0, 0, 1];
const OTHER4: [u8; 4] = [10, 0, 0, 2];
const OWN6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const OTHER6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];

/// Tells whether a vif with one address of each family may send the frame.
fn passes(frame: &[u8]) -> bool {
    let mut policy = node(BitRate::from_mbps(1000));
    let (_, vif) = tenant(&mut policy, "a");
    policy[vif].addresses = vec![OWN4.into(), OWN6.into()];
    let mut rig = common::start(&policy);
    rig.put_vif(vif, frame);
    let dropped = rig.vif_counters(vif, Direction::Send).dropped_for(Reason::SpoofedAddress);
    rig.check();
    dropped.packets == 0
}

fn udp4(from: [u8; 4], ports: (u16, u16)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packet = PacketBuilder::ethernet2(mac(1), mac(9)).ipv4(from, OTHER4, 64);
    packet.udp(ports.0, ports.1).write(&mut bytes, &[0; 20]).unwrap();
    bytes
}

fn udp6(from: [u8; 16]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let packet = PacketBuilder::ethernet2(mac(1), mac(9)).ipv6(from, OTHER6, 64);
    packet.udp(1, 2).write(&mut bytes, &[0; 20]).unwrap();
    bytes
}

fn arp(hardware: [u8; 6], sender: [u8; 4]) -> Vec<u8> {
    let mut bytes = ether(BROADCAST, mac(1), 60, 0);
    bytes[12..14].copy_from_slice(&[8, 6]);
    bytes[14..22].copy_from_slice(&[0, 1, 8, 0, 6, 4, 0, 1]);
    bytes[22..28].copy_from_slice(&hardware);
    bytes[28..32].copy_from_slice(&sender);
    bytes
}

/// A neighbour message: kind, source, target, and one option with a MAC.
fn neighbour(kind: u8, from: [u8; 16], target: [u8; 16], option: u8, station: [u8; 6]) -> Vec<u8> {
    let mut body = vec![kind, 0, 0, 0, 0, 0, 0, 0];
    body.extend(target);
    body.extend([option, 1]);
    body.extend(station);
    let mut bytes = ether(mac(9), mac(1), 54, 0);
    bytes[12..14].copy_from_slice(&[0x86, 0xdd]);
    bytes[14..22].copy_from_slice(&[0x60, 0, 0, 0, 0, 32, 58, 255]);
    bytes[22..38].copy_from_slice(&from);
    bytes[38..54].copy_from_slice(&OTHER6);
    bytes.extend(body);
    bytes
}

fn link_local() -> [u8; 16] {
    let [a, b, c, d, e, f] = mac(1);
    [0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f]
}

#[test]
fn ipv4_sources_are_the_given_ones() {
    assert!(passes(&udp4(OWN4, (5, 6))));
    assert!(!passes(&udp4(OTHER4, (5, 6))));
    assert!(passes(&udp4([0; 4], (68, 67))), "a guest asks for its address");
    assert!(!passes(&udp4([0; 4], (69, 67))));
    let cut = &udp4(OWN4, (5, 6))[..30];
    assert!(!passes(cut), "what cannot be read is not vouched for");
}

#[test]
fn arp_senders_are_the_given_ones() {
    assert!(passes(&arp(mac(1), OWN4)));
    assert!(passes(&arp(mac(1), [0; 4])), "a probe");
    assert!(!passes(&arp(mac(1), OTHER4)));
    assert!(!passes(&arp(mac(2), OWN4)), "another's hardware address");
    assert!(!passes(&arp(mac(1), OWN4)[..30]));
}

#[test]
fn ipv6_sources_and_neighbours_are_the_given_ones() {
    assert!(passes(&udp6(OWN6)));
    assert!(passes(&udp6(link_local())));
    assert!(!passes(&udp6(OTHER6)));
    assert!(!passes(&udp6([0; 16])));
    let (solicit, advertise, redirect) = (135, 136, 137);
    assert!(passes(&neighbour(solicit, [0; 16], OWN6, 14, [0; 6])), "duplicate detection");
    assert!(passes(&neighbour(solicit, OWN6, OTHER6, 1, mac(1))));
    assert!(!passes(&neighbour(solicit, OWN6, OTHER6, 1, mac(2))));
    assert!(passes(&neighbour(advertise, OWN6, OWN6, 2, mac(1))));
    assert!(!passes(&neighbour(advertise, OWN6, OTHER6, 2, mac(1))), "another's address");
    assert!(!passes(&neighbour(advertise, OWN6, OWN6, 2, mac(2))));
    assert!(!passes(&neighbour(redirect, OWN6, OTHER6, 2, mac(1))));
    let cut = neighbour(advertise, OWN6, OWN6, 2, mac(1));
    assert!(!passes(&cut[..cut.len() - 4]));
}

#[test]
fn what_carries_no_address_passes() {
    assert!(passes(&ether(mac(9), mac(1), 60, 0)));
}
