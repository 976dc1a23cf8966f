// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hash of a frame's flow: addresses, protocol, ports.
//!
//! **Which frames are one flow.** IPv4 and IPv6 packets with the same addresses, transport protocol
//! and ports, whatever lies between (options, extension headers); for ESP and AH the security
//! parameters index stands for the ports (RFC 4303 §2.1, RFC 4302 §2.4). Only the first fragment
//! has ports, so a flow of fragments is one by addresses and protocol. Anything else is one by MAC
//! addresses and type. A VLAN tag is no part of it, since a vif is of one slice.
//!
//! **The hash** multiplies two words and folds the product, as wyhash does. Its seed is an
//! argument: a sender that does not know it cannot aim at another's queue.

use crate::frame::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Fragment, Ip, PROTOCOL_AH, PROTOCOL_ESP,
    PROTOCOL_TCP, PROTOCOL_UDP,
};

/// Returns the hash of a frame's flow. Frames of one flow have one hash; the low bits are as good
/// as any.
#[inline]
pub(crate) fn flow_hash(seed: u64, frame: &[u8], ethernet: &Ethernet) -> u32 {
    let hashed = match ethernet.ethertype {
        ETHERTYPE_IPV4 => plain_v4(seed, frame, ethernet.payload),
        _ => None,
    };
    hashed.unwrap_or_else(|| any(seed, frame, ethernet))
}

/// Returns the hash of a TCP or UDP packet over IPv4 without options, if it is no fragment. Nearly
/// all packets are of this kind.
#[inline]
fn plain_v4(seed: u64, frame: &[u8], start: usize) -> Option<u32> {
    let head = frame.get(start..)?.first_chunk::<24>()?;
    let [0x45, _, l0, l1, _, _, f0, f1, _, protocol, ..] = *head else { return None };
    let fits = usize::from(u16::from_be_bytes([l0, l1])) >= 24;
    let ported = matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP);
    if !fits || !ported || u16::from_be_bytes([f0, f1]) & 0x3fff != 0 {
        return None;
    }
    let addresses = u64::from_be_bytes(*head[12..].first_chunk()?);
    let ports = u32::from_be_bytes(*head[20..].first_chunk()?);
    Some(finish(seed, mix(seed, addresses, 0), protocol, ports))
}

#[inline(never)]
fn any(seed: u64, frame: &[u8], ethernet: &Ethernet) -> u32 {
    let is_ip = matches!(ethernet.ethertype, ETHERTYPE_IPV4 | ETHERTYPE_IPV6);
    let Some(ip) = is_ip.then(|| Ip::read(frame, ethernet)).flatten() else {
        let macs = mix(seed, ethernet.source, ethernet.destination);
        return finish(seed, macs, 0, ethernet.ethertype.into());
    };
    let addresses = match (ip.source, ip.destination) {
        (core::net::IpAddr::V4(source), core::net::IpAddr::V4(destination)) => {
            let (source, destination) = (source.to_bits(), destination.to_bits());
            mix(seed, u64::from(source) << 32 | u64::from(destination), 0)
        }
        (core::net::IpAddr::V6(source), core::net::IpAddr::V6(destination)) => {
            let [source, destination] = [source, destination].map(|address| {
                let bits = address.to_bits();
                let (high, low) = (bits >> 64, bits & u128::from(u64::MAX));
                let word = |half: u128| u64::try_from(half).unwrap_or(0);
                mix(seed, word(high), word(low))
            });
            mix(seed, source, destination)
        }
        _ => 0,
    };
    // The first fragment is of one flow with the later ones, which have no ports.
    let whole = !matches!(ip.fragment, Some(Fragment::First | Fragment::Later));
    let ports = match ip.protocol {
        PROTOCOL_ESP => index(frame, ip.transport, ip.end),
        PROTOCOL_AH => index(frame, ip.transport + 4, ip.end),
        _ => ip
            .ports(frame)
            .map(|(source, destination)| u32::from(source) << 16 | u32::from(destination)),
    };
    finish(seed, addresses, ip.protocol, ports.filter(|_| whole).unwrap_or(0))
}

/// Returns the security parameters index.
fn index(frame: &[u8], at: usize, end: usize) -> Option<u32> {
    let bytes = frame.get(at..end)?.first_chunk::<4>()?;
    Some(u32::from_be_bytes(*bytes))
}

#[inline]
fn finish(seed: u64, addresses: u64, protocol: u8, ports: u32) -> u32 {
    let hash = mix(seed, addresses, u64::from(protocol) << 32 | u64::from(ports));
    u32::try_from(hash >> 32).unwrap_or(0)
}

/// Folds the 128-bit product of two words, each mixed with the seed and a constant, since a zero
/// would erase the other.
#[inline]
fn mix(seed: u64, a: u64, b: u64) -> u64 {
    let (a, b) = (a ^ seed ^ ODD_A, b ^ seed.rotate_left(32) ^ ODD_B);
    let product = u128::from(a) * u128::from(b);
    let word = |half: u128| u64::try_from(half & u128::from(u64::MAX)).unwrap_or(0);
    word(product) ^ word(product >> 64)
}

/// Bits without a pattern: of the golden ratio and of the square root of 3.
const ODD_A: u64 = 0x9e37_79b9_7f4a_7c15;
const ODD_B: u64 = 0xbb67_ae85_84ca_a73b;

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    const SEED: u64 = 0x1234_5678_9abc_def0;

    fn v4(source: u8, protocol: u8, ports: (u16, u16), fragment: u16, tagged: bool) -> Vec<u8> {
        let mut frame = Vec::from([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2]);
        if tagged {
            frame.extend([0x81, 0, 0, 7]);
        }
        frame.extend([8, 0, 0x45, 0, 0, 28, 0, 0]);
        frame.extend(fragment.to_be_bytes());
        frame.extend([64, protocol, 0, 0, 10, 0, 0, source, 10, 0, 0, 99]);
        frame.extend(ports.0.to_be_bytes());
        frame.extend(ports.1.to_be_bytes());
        frame.extend([0; 4]);
        frame
    }

    /// Returns an IPv6 packet of UDP, with options before it or not, or a fragment of one.
    fn v6(extension: Option<u8>, ports: (u16, u16)) -> Vec<u8> {
        let mut frame =
            Vec::from([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0, 0]);
        frame.push(if extension.is_some() { 16 } else { 8 });
        frame.extend([extension.unwrap_or(PROTOCOL_UDP), 64]);
        frame.extend((0..32).map(|byte| byte * 7));
        if extension == Some(44) {
            frame.extend([PROTOCOL_UDP, 0, 0, 1, 0, 0, 0, 9]);
        } else if extension.is_some() {
            frame.extend([PROTOCOL_UDP, 0, 1, 4, 0, 0, 0, 0]);
        }
        frame.extend(ports.0.to_be_bytes());
        frame.extend(ports.1.to_be_bytes());
        frame.extend([0; 4]);
        frame
    }

    fn hash(frame: &[u8]) -> u32 {
        flow_hash(SEED, frame, &Ethernet::read(frame).unwrap())
    }

    #[test]
    fn what_names_a_flow_decides_and_nothing_else() {
        let base = hash(&v4(1, 6, (80, 4000), 0, false));
        assert_eq!(hash(&v4(1, 6, (80, 4000), 0, true)), base, "behind a tag");
        let mut marked = v4(1, 6, (80, 4000), 0, false);
        marked[15] = 0xb9;
        assert_eq!(hash(&marked), base, "another service and ECN");
        for other in [
            v4(2, 6, (80, 4000), 0, false),
            v4(1, 17, (80, 4000), 0, false),
            v4(1, 6, (81, 4000), 0, false),
            v4(1, 6, (4000, 80), 0, false),
        ] {
            assert_ne!(hash(&other), base);
        }
        assert_ne!(flow_hash(1, &marked, &Ethernet::read(&marked).unwrap()), base, "another seed");
    }

    /// The first fragment (more follow), a middle one and the last, whose bytes are no ports.
    #[test]
    fn fragments_of_a_datagram_are_one_flow() {
        let fragments = [(0x2000, 80), (0x2010, 9), (0x0020, 3)];
        let hashes =
            fragments.map(|(fragment, port)| hash(&v4(1, 17, (port, 53), fragment, false)));
        assert_eq!(hashes, [hashes[0]; 3]);
        assert_eq!(hash(&v6(Some(44), (1, 2))), hash(&v6(Some(44), (3, 4))));
    }

    #[test]
    fn extension_headers_do_not_matter() {
        assert_eq!(hash(&v6(None, (1, 2))), hash(&v6(Some(60), (1, 2))));
        assert_ne!(hash(&v6(None, (1, 2))), hash(&v6(None, (1, 3))));
    }

    #[test]
    fn an_index_of_ipsec_stands_for_ports() {
        let esp = |index| hash(&v4(1, PROTOCOL_ESP, (0, index), 0, false));
        assert_ne!(esp(1), esp(2));
        assert_eq!(esp(1), esp(1));
    }

    /// Goal: nothing that is cut short is out of bounds, and each cut of a frame has some hash.
    #[test]
    fn a_frame_cut_anywhere_has_a_hash() {
        for frame in [v4(1, 6, (80, 4000), 0, false), v6(Some(60), (1, 2))] {
            for length in 14..frame.len() {
                let _any = hash(&frame[..length]);
            }
        }
    }

    /// Goal: flows spread over all numbers, also such that differ in one bit. Method: 64 Ki flows
    /// of neighbouring ports into 1024 numbers of 64 each on average; χ² of 1023 degrees of freedom
    /// is below 1200 with 99.99 %, and each bit of the hash is as often set as not.
    #[test]
    fn neighbouring_flows_spread() {
        let (mut counts, mut ones) = ([0_u32; 1024], [0_u32; 32]);
        for port in 0..=u16::MAX {
            let hash = hash(&v4(1, 17, (port, 53), 0, false));
            counts[hash as usize % 1024] += 1;
            (0..32).for_each(|bit| ones[bit] += hash >> bit & 1);
        }
        let chi: f64 = counts.iter().map(|count| (f64::from(*count) - 64.0).powi(2) / 64.0).sum();
        assert!(chi < 1200.0, "{chi}");
        assert!(ones.iter().all(|count| (32_000..33_600).contains(count)), "{ones:?}");
    }
}
