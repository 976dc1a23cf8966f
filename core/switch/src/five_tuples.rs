// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells slices apart by five-tuples, where frames from a port have no header that names their
//! slice.
//!
//! ARP and neighbour discovery (RFC 4861) have no ports, and every slice needs its neighbours: they
//! are for all slices that have no header. Any other frame is for the slice of the first five-tuple
//! that it matches, whatever its destination address, or else for the slices that have neither
//! header nor five-tuples. A later fragment has no ports, and matches by the other fields alone.
//!
//! Each five-tuple is kept as bits and a mask, so that a frame is read once and then compared with
//! one after another in a few instructions each.

use alloc::vec::Vec;
use core::net::IpAddr;

use weir_policy::{FiveTuple, Policy, Prefix};

use crate::frame::{ETHERTYPE_ARP, Ethernet, Fragment, Ip, PROTOCOL_ICMPV6};
use crate::spoof::{REDIRECT, ROUTER_SOLICITATION};

/// The five-tuples of a policy, in order, each with the number of its slice's bridge.
#[derive(Debug, Default)]
pub(crate) struct FiveTuples(Vec<(u16, Pattern)>);

/// The bits of a packet that a five-tuple asks for.
#[derive(Debug)]
struct Pattern {
    bits: PacketBits,
    mask: PacketBits,
}

/// The fields of a packet that five-tuples name, side by side as bits.
#[derive(Debug, Default)]
struct PacketBits {
    /// Its family, its protocol, whether it has ports, and its ports.
    head: u64,
    /// An IPv4 address has the upper 32 bits.
    source: u128,
    destination: u128,
}

/// The bridges that a frame without a header is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UntaggedBridges {
    /// The bridge of the slice whose five-tuple the frame matches.
    Matched(u16),
    /// The bridge of slices that have neither header nor five-tuples.
    Plain,
    /// All of them.
    All,
}

impl FiveTuples {
    pub(crate) fn of(policy: &Policy) -> Self {
        Self(policy.five_tuples().map(|(bridge, tuple)| (bridge, Pattern::of(tuple))).collect())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds the bridges of a frame without a header. `here` gives the port's bridge of a number;
    /// five-tuples of slices without a bridge there do not count.
    pub(crate) fn bridges_of(
        &self,
        frame: &[u8],
        ethernet: &Ethernet,
        here: impl Fn(u16) -> Option<u16>,
    ) -> UntaggedBridges {
        if ethernet.ethertype == ETHERTYPE_ARP {
            return UntaggedBridges::All;
        }
        let Some(ip) = Ip::read(frame, ethernet) else { return UntaggedBridges::Plain };
        if is_neighbour_discovery(&ip, frame, ethernet) {
            return UntaggedBridges::All;
        }
        let packet = PacketBits::of(&ip, ip.ports(frame));
        let mut matched = self.0.iter().filter(|(_, pattern)| pattern.matches(&packet));
        let first = matched.find_map(|(number, _)| here(*number));
        first.map_or(UntaggedBridges::Plain, UntaggedBridges::Matched)
    }
}

impl Pattern {
    fn of(tuple: &FiveTuple) -> Self {
        let FiveTuple { protocol, src, dst, src_port, dst_port } = tuple;
        let family = src.or(*dst).map(|prefix| family(prefix.address()));
        let ports = src_port.or(*dst_port).map(|_| HAS_PORTS);
        let address = |asked: &Option<Prefix>| asked.map_or(0, |prefix| bits(prefix.address()));
        let bits = PacketBits {
            head: head(
                [family, *protocol, ports].map(Option::unwrap_or_default),
                [*src_port, *dst_port].map(Option::unwrap_or_default),
            ),
            source: address(src),
            destination: address(dst),
        };
        let mask = PacketBits {
            head: head(
                [family, *protocol, ports].map(|asked| asked.map_or(0, |_| u8::MAX)),
                [*src_port, *dst_port].map(|asked| asked.map_or(0, |_| u16::MAX)),
            ),
            source: prefix_mask(*src),
            destination: prefix_mask(*dst),
        };
        Self { bits, mask }
    }

    fn matches(&self, packet: &PacketBits) -> bool {
        let Self { bits, mask } = self;
        (packet.head ^ bits.head) & mask.head == 0
            && (packet.source ^ bits.source) & mask.source == 0
            && (packet.destination ^ bits.destination) & mask.destination == 0
    }
}

impl PacketBits {
    fn of(ip: &Ip, ports: Option<(u16, u16)>) -> Self {
        let has_ports = ports.map_or(0, |_| HAS_PORTS);
        Self {
            head: head(
                [family(ip.source), ip.protocol, has_ports],
                ports.unwrap_or_default().into(),
            ),
            source: bits(ip.source),
            destination: bits(ip.destination),
        }
    }
}

fn head([family, protocol, has_ports]: [u8; 3], [source, destination]: [u16; 2]) -> u64 {
    let [s0, s1] = source.to_be_bytes();
    let [d0, d1] = destination.to_be_bytes();
    u64::from_be_bytes([0, family, protocol, has_ports, s0, s1, d0, d1])
}

const fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { 4 } else { 6 }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

/// Returns the bits of an address that a prefix asks for.
fn prefix_mask(prefix: Option<Prefix>) -> u128 {
    let length = prefix.map_or(0, Prefix::length);
    u128::MAX.checked_shl(u128::BITS - u32::from(length)).unwrap_or(0)
}

/// Tells whether a packet is neighbour discovery. Its hop limit is 255, so no router has forwarded
/// it (RFC 4861 §7.1).
fn is_neighbour_discovery(ip: &Ip, frame: &[u8], ethernet: &Ethernet) -> bool {
    let kind = frame.get(ip.transport).filter(|_| ip.transport < ip.end);
    ip.protocol == PROTOCOL_ICMPV6
        && ip.source.is_ipv6()
        && frame.get(ethernet.payload + HOP_LIMIT) == Some(&255)
        && ip.fragment != Some(Fragment::Later)
        && kind.is_some_and(|kind| (ROUTER_SOLICITATION..=REDIRECT).contains(kind))
}

/// A packet has ports.
const HAS_PORTS: u8 = 1;
/// Offset of the hop limit in the header of IPv6.
const HOP_LIMIT: usize = 7;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use weir_policy::{Port, PortId, Slice, SliceId, Vif};
    use weir_units::BitRate;

    use super::*;

    fn policy() -> Policy {
        let mut policy = Policy::new("node");
        let port = policy.add_port(Port::new("up", BitRate::from_mbps(100)));
        let any = FiveTuple::default();
        for tuple in [
            FiveTuple { protocol: Some(17), dst_port: Some(53), ..any },
            FiveTuple { dst: "10.0.0.0/8".parse().ok(), ..any },
            FiveTuple { src: "fd00::/8".parse().ok(), ..any },
        ] {
            let name = alloc::format!("s{}", policy.slices.len());
            let slice = policy.add_slice(Slice { five_tuples: vec![tuple], ..Slice::new(&name) });
            policy.add_vif(Vif::new(&name, slice, port));
        }
        assert_eq!(policy.check(), Ok(()));
        policy
    }

    fn told(rest: &[u8]) -> UntaggedBridges {
        let frame = [&[2; 12], rest].concat();
        let ethernet = Ethernet::read(&frame).unwrap();
        FiveTuples::of(&policy()).bridges_of(&frame, &ethernet, Some)
    }

    fn ipv4(protocol: u8, fragment: [u8; 2], destination: [u8; 4], port: u8) -> Vec<u8> {
        let mut rest = vec![0x08, 0x00, 0x45, 0, 0, 28, 0, 0, fragment[0], fragment[1]];
        rest.extend([64, protocol, 0, 0, 192, 168, 0, 1]);
        rest.extend(destination);
        rest.extend([0, 9, 0, port, 0, 8, 0, 0]);
        rest
    }

    /// Goal: a prefix asks for its bits only, and for its family even where it asks for no bit; a
    /// port asks for a packet that has ports.
    #[test]
    fn a_pattern_asks_for_the_bits_of_its_conditions_only() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let packet = |source: &str, protocol, ports: Option<(u16, u16)>| PacketBits {
            head: head(
                [family(address(source)), protocol, ports.map_or(0, |_| HAS_PORTS)],
                ports.unwrap_or_default().into(),
            ),
            source: bits(address(source)),
            destination: 0,
        };
        let any = FiveTuple::default();
        let from = |text: &str| Pattern::of(&FiveTuple { src: text.parse().ok(), ..any });
        for (prefix, inside, outside) in [
            ("10.0.0.0/9", "10.127.255.255", "10.128.0.0"),
            ("10.1.2.3", "10.1.2.3", "10.1.2.2"),
            ("0.0.0.0/0", "255.0.0.1", "::"),
            ("::/0", "::1", "0.0.0.0"),
            ("fd00::/9", "fd7f::", "fd80::"),
            ("fd00::1", "fd00::1", "fd00::"),
        ] {
            assert!(from(prefix).matches(&packet(inside, 6, None)), "{prefix} {inside}");
            assert!(!from(prefix).matches(&packet(outside, 6, None)), "{prefix} {outside}");
        }
        let to_zero = Pattern::of(&FiveTuple { dst_port: Some(0), ..any });
        assert!(to_zero.matches(&packet("::", 17, Some((9, 0)))));
        assert!(!to_zero.matches(&packet("::", 1, None)), "it has no port at all");
        assert!(Pattern::of(&any).matches(&packet("::", 0, None)));
    }

    /// Goal: the first five-tuple that matches decides; what has no ports matches none that asks
    /// for one; ARP and neighbour discovery are for all.
    #[test]
    fn a_slice_is_told_by_its_five_tuples() {
        let policy = policy();
        let number = |index| policy.bridge_of(PortId(0), SliceId(index));
        let slice = |index| UntaggedBridges::Matched(number(index));
        assert_eq!(told(&ipv4(17, [0; 2], [10, 0, 0, 1], 53)), slice(0));
        assert_eq!(told(&ipv4(17, [0; 2], [10, 0, 0, 1], 54)), slice(1));
        assert_eq!(told(&ipv4(17, [0, 1], [10, 0, 0, 1], 53)), slice(1));
        assert_eq!(told(&ipv4(6, [0; 2], [11, 0, 0, 1], 53)), UntaggedBridges::Plain);
        assert_eq!(told(&[0x08, 0x06, 0, 1]), UntaggedBridges::All);
        assert_eq!(told(&[0x90, 0x00, 0, 1]), UntaggedBridges::Plain);
        let icmp = |kind: u8, hops: u8| {
            let mut rest = vec![0x86, 0xdd, 0x60, 0, 0, 0, 0, 8, 58, hops, 0xfd];
            rest.extend([1; 31]);
            rest.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
            rest
        };
        assert_eq!(told(&icmp(135, 255)), UntaggedBridges::All);
        assert_eq!(told(&icmp(135, 254)), slice(2), "from beyond a router");
        assert_eq!(told(&icmp(128, 255)), slice(2));
        // A later fragment has no extension header to read, even if its first one named some.
        let fragment = |left: &[u8]| {
            let length = u8::try_from(8 + left.len()).unwrap();
            let head = [0x86, 0xdd, 0x60, 0, 0, 0, 0, length, 44, 64, 0xfd];
            [&head[..], &[1; 31], &[0, 0, 0, 8, 0, 0, 0, 0], left].concat()
        };
        assert_eq!(told(&fragment(&[])), slice(2));
        assert_eq!(told(&fragment(&[0])), slice(2));
        // A five-tuple of a slice that is not on the port takes nothing from others.
        let frame = [&[2; 12], &ipv4(17, [0; 2], [10, 0, 0, 1], 53)[..]].concat();
        let ethernet = Ethernet::read(&frame).unwrap();
        let here = |bridge| (bridge != number(0)).then_some(bridge);
        assert_eq!(FiveTuples::of(&policy).bridges_of(&frame, &ethernet, here), slice(1));
    }
}
