// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tells slices apart by five-tuples, where frames from a port have no header that says whose they
//! are.
//!
//! ARP and neighbour discovery (RFC 4861) have no ports, and every slice needs its neighbours: they
//! are for all slices that have no header. Any other frame is for the slice of the first five-tuple
//! that it matches, whatever its destination address, or else for the slices that have neither
//! header nor five-tuples. A fragment but the first has no ports, and matches by the rest alone.

use alloc::vec::Vec;

use weir_policy::{FiveTuple, Policy};

use crate::frame::{ETHERTYPE_ARP, Ethernet, Fragment, Ip, PROTOCOL_ICMPV6};
use crate::spoof::{REDIRECT, ROUTER_SOLICITATION};

/// The five-tuples of a policy, in order, each with the number of its slice's bridge.
#[derive(Debug, Default)]
pub(crate) struct FiveTuples(Vec<(u16, FiveTuple)>);

/// The bridges that a frame without a header is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UntaggedBridges {
    /// The one of the slice whose five-tuple the frame matches.
    Matched(u16),
    /// The one of slices that have neither header nor five-tuples.
    Plain,
    /// All of them.
    All,
}

impl FiveTuples {
    pub(crate) fn of(policy: &Policy) -> Self {
        Self(policy.five_tuples().map(|(bridge, tuple)| (bridge, *tuple)).collect())
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds the bridges of a frame without a header. `here` gives the port's bridge of a number;
    /// the five-tuples of slices without one do not count there.
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
        let ports = ip.ports(frame);
        let mut matched = self.0.iter().filter(|(_, tuple)| matches(tuple, &ip, ports));
        let first = matched.find_map(|(number, _)| here(*number));
        first.map_or(UntaggedBridges::Plain, UntaggedBridges::Matched)
    }
}

fn matches(tuple: &FiveTuple, ip: &Ip, ports: Option<(u16, u16)>) -> bool {
    let FiveTuple { protocol, src, dst, src_port, dst_port } = tuple;
    let is = |wanted: &Option<u16>, port: Option<u16>| wanted.is_none() || *wanted == port;
    protocol.is_none_or(|protocol| protocol == ip.protocol)
        && src.is_none_or(|prefix| prefix.contains(ip.source))
        && dst.is_none_or(|prefix| prefix.contains(ip.destination))
        && is(src_port, ports.map(|(source, _)| source))
        && is(dst_port, ports.map(|(_, destination)| destination))
}

/// Its hop limit is 255: no router has forwarded it (RFC 4861 §7.1).
fn is_neighbour_discovery(ip: &Ip, frame: &[u8], ethernet: &Ethernet) -> bool {
    let kind = frame.get(ip.transport).filter(|_| ip.transport < ip.end);
    ip.protocol == PROTOCOL_ICMPV6
        && ip.source.is_ipv6()
        && frame.get(ethernet.payload + HOP_LIMIT) == Some(&255)
        && ip.fragment != Some(Fragment::Later)
        && kind.is_some_and(|kind| (ROUTER_SOLICITATION..=REDIRECT).contains(kind))
}

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
        // A five-tuple of a slice that is not on the port takes nothing from others.
        let frame = [&[2; 12], &ipv4(17, [0; 2], [10, 0, 0, 1], 53)[..]].concat();
        let ethernet = Ethernet::read(&frame).unwrap();
        let here = |bridge| (bridge != number(0)).then_some(bridge);
        assert_eq!(FiveTuples::of(&policy).bridges_of(&frame, &ethernet, here), slice(1));
    }
}
