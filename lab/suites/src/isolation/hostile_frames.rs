// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames that no well-behaved sender sends, each with the reason under which it is to be dropped.
//! Pure.

use std::net::Ipv4Addr;

use weir_experiment::prelude::*;
use weir_sim::Seed;
use weir_switch::Reason;

/// Frames of one kind: the name for the case's identifier, the reason under which each of them is
/// to be counted, the frame without FCS.
pub(crate) type HostileFrame = (&'static str, Reason, Vec<u8>);

/// Frames that tenant `index`, whose MAC and IP address are given in the policy, may not send.
pub(crate) fn from_tenant(index: usize) -> Vec<HostileFrame> {
    let (own, wire) = (StarTopology::mac(index).0, StarTopology::wire_mac().0);
    let ip = StarTopology::address(index);
    let foreign = Ipv4Addr::new(203, 0, 113, 7);
    let sound = ethernet(wire, own, IPV4, &ipv4(ip));
    let spoof = |payload: &[u8]| ethernet(wire, own, IPV4, payload);
    vec![
        ("cut-in-tag", Reason::Truncated, ethernet(wire, own, TAG, &[0, 5, 8])),
        ("jumbo", Reason::Oversize, ethernet(wire, own, IPV4, &padded(ipv4(ip), 1506))),
        ("source-zero", Reason::BadSource, ethernet(wire, [0; 6], IPV4, &ipv4(ip))),
        ("source-group", Reason::BadSource, ethernet(wire, GROUP, IPV4, &ipv4(ip))),
        ("bridge-protocol", Reason::ReservedGroup, ethernet(RESERVED, own, 0x0026, &[0x42; 46])),
        ("tagged", Reason::UnexpectedTag, tagged(&sound, 5)),
        ("tagged-twice", Reason::NestedTag, tagged(&tagged(&sound, 5), 6)),
        ("service-tag", Reason::NestedTag, ethernet(wire, own, 0x88a8, &padded(vec![0, 5], 46))),
        ("foreign-mac", Reason::SpoofedMac, ethernet(wire, STRANGER, IPV4, &ipv4(ip))),
        (
            "neighbours-mac",
            Reason::SpoofedMac,
            ethernet(wire, StarTopology::mac(0).0, IPV4, &ipv4(ip)),
        ),
        ("foreign-ip", Reason::SpoofedAddress, spoof(&ipv4(foreign))),
        ("cut-in-ip", Reason::SpoofedAddress, spoof(&ipv4(ip)[..19])),
        ("header-length", Reason::SpoofedAddress, spoof(&changed(ipv4(ip), 0, 0x41))),
        ("total-length", Reason::SpoofedAddress, spoof(&changed(ipv4(ip), 2, 0xff))),
        ("ip-version", Reason::SpoofedAddress, spoof(&changed(ipv4(ip), 0, 0xf5))),
        ("foreign-arp", Reason::SpoofedAddress, ethernet([0xff; 6], own, ARP, &arp(own, foreign))),
        ("arp-mac", Reason::SpoofedAddress, ethernet([0xff; 6], own, ARP, &arp(STRANGER, ip))),
        ("cut-in-arp", Reason::SpoofedAddress, ethernet([0xff; 6], own, ARP, &arp(own, ip)[..20])),
        ("cut-in-ipv6", Reason::SpoofedAddress, ethernet(wire, own, 0x86dd, &[0x60; 39])),
    ]
}

/// Frames that the wire may not send. The tenants' addresses are given; one slice has VLAN `vlan`.
pub(super) fn from_wire(vlan: u16) -> Vec<HostileFrame> {
    let (wire, tenant) = (StarTopology::wire_mac().0, StarTopology::mac(0).0);
    let payload = ipv4(StarTopology::wire_address());
    let from = |destination, source| ethernet(destination, source, IPV4, &payload);
    vec![
        ("wire-cut-in-tag", Reason::Truncated, ethernet(tenant, wire, TAG, &[0, 5, 8])),
        ("wire-source-group", Reason::BadSource, from(tenant, GROUP)),
        ("wire-bridge-protocol", Reason::ReservedGroup, from(RESERVED, wire)),
        ("wire-unknown-vlan", Reason::UnknownVlan, tagged(&from(tenant, wire), vlan + 1)),
        ("wire-tagged-twice", Reason::NestedTag, tagged(&tagged(&from(tenant, wire), 1), vlan)),
        ("wire-tenants-mac", Reason::Moved, from(tenant, StarTopology::mac(1).0)),
        ("wire-to-nobody", Reason::NoDestination, from(STRANGER, wire)),
        ("wire-to-itself", Reason::NoDestination, from(wire, wire)),
    ]
}

/// Frames of random length, 14 to 1514 bytes, and random content. The same at each call.
pub(super) fn noise(count: usize) -> Vec<Vec<u8>> {
    let mut seed = Seed::new(1);
    let mut frame = |_| {
        let length = seed.between(14, 1514);
        (0..length).map(|_| seed.between(0, 255).to_be_bytes()[7]).collect()
    };
    (0..count).map(&mut frame).collect()
}

/// A broadcast of somebody whom the switch does not know.
pub(super) fn broadcast() -> Vec<u8> {
    ethernet([0xff; 6], STRANGER, 0x88b5, &[0; 46])
}

fn ethernet(destination: [u8; 6], source: [u8; 6], kind: u16, payload: &[u8]) -> Vec<u8> {
    [&destination[..], &source, &kind.to_be_bytes(), payload].concat()
}

fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    [&frame[..12], &TAG.to_be_bytes(), &vlan.to_be_bytes(), &frame[12..]].concat()
}

/// A UDP datagram of nothing in a frame of the least length. Checksums are left zero: the switch
/// does not look at them.
fn ipv4(source: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(source.octets());
    packet.extend(StarTopology::wire_address().octets());
    padded(packet, 46)
}

/// A request (RFC 826).
fn arp(mac: [u8; 6], sender: Ipv4Addr) -> Vec<u8> {
    let mut packet = vec![0, 1, 8, 0, 6, 4, 0, 1];
    packet.extend(mac);
    packet.extend(sender.octets());
    packet.extend([0; 6]);
    packet.extend(StarTopology::wire_address().octets());
    padded(packet, 46)
}

fn padded(mut bytes: Vec<u8>, length: usize) -> Vec<u8> {
    bytes.resize(length, 0);
    bytes
}

fn changed(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    bytes[at] = value;
    bytes
}

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const TAG: u16 = 0x8100;
const GROUP: [u8; 6] = [0x01, 0, 0x5e, 0, 0, 1];
const STRANGER: [u8; 6] = [0x02, 0, 0, 0xbe, 0xef, 1];
/// Address of the frames that bridges exchange (IEEE 802.1Q, table 8-1).
const RESERVED: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];
