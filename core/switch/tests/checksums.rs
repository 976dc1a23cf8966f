// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Unfinished checksums are completed as an independent implementation computes them; right ones
//! stay; and no bytes whatever make the parser stumble.
#![allow(clippy::unwrap_used, reason = "a test stops at a surprise")]

mod common;

use etherparse::PacketBuilder;
use proptest::prelude::*;
use weir_switch::{Ethernet, Ip, complete_checksum, mark_congestion};

/// An independently built packet.
fn build(v6: bool, tcp: bool, tag: bool, payload: &[u8]) -> Vec<u8> {
    let ethernet = PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let mut bytes = Vec::new();
    let (four, six) = ([10, 0, 0, 1], [0xfd; 16]);
    macro_rules! ip {
        ($link:expr) => {
            if v6 { $link.ipv6(six, [0xfc; 16], 64) } else { $link.ipv4(four, [10, 0, 9, 9], 64) }
        };
    }
    let ip = if tag {
        ip!(ethernet.single_vlan(etherparse::VlanId::try_new(7).unwrap()))
    } else {
        ip!(ethernet)
    };
    if tcp {
        ip.tcp(1234, 80, 99, 512).ack(5).write(&mut bytes, payload).unwrap();
    } else {
        ip.udp(1234, 80).write(&mut bytes, payload).unwrap();
    }
    bytes
}

fn field(tcp: bool, v6: bool, tag: bool) -> usize {
    let start = if tag { 18 } else { 14 } + if v6 { 40 } else { 20 };
    start + if tcp { 16 } else { 6 }
}

/// The folded sum of the pseudo-header, from first principles.
fn unfinished(frame: &[u8], v6: bool, tag: bool) -> u16 {
    let ip = &frame[if tag { 18 } else { 14 }..];
    let (addresses, protocol, length) = match v6 {
        true => (&ip[8..40], ip[6], ip.len() - 40),
        false => (&ip[12..20], ip[9], ip.len() - 20),
    };
    let words = addresses.chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let mut sum: u32 = words.sum::<u32>() + u32::from(protocol) + u32::try_from(length).unwrap();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum.try_into().unwrap()
}

proptest! {
    #[test]
    fn completed_is_what_another_implementation_computes(
        v6: bool, tcp: bool, tag: bool,
        payload in prop::collection::vec(any::<u8>(), 0..1400),
        padding in 0usize..20,
    ) {
        let right = build(v6, tcp, tag, &payload);
        let at = field(tcp, v6, tag);
        let mut frame = right.clone();
        frame[at..at + 2].copy_from_slice(&unfinished(&right, v6, tag).to_be_bytes());
        // Ethernet's padding is no part of the segment.
        frame.resize(frame.len() + padding, 0xee);
        let ethernet = Ethernet::read(&frame).unwrap();
        prop_assert!(complete_checksum(&mut frame, &ethernet));
        prop_assert_eq!(&frame[..right.len()], &right[..]);
        // Whatever it is now, a second pass changes nothing.
        complete_checksum(&mut frame, &ethernet);
        prop_assert_eq!(&frame[..right.len()], &right[..]);
    }

    #[test]
    fn right_and_wrong_checksums_stay(
        v6: bool, tcp: bool, wrong: u16,
        payload in prop::collection::vec(any::<u8>(), 0..100),
    ) {
        let mut frame = build(v6, tcp, false, &payload);
        let before = frame.clone();
        let ethernet = Ethernet::read(&frame).unwrap();
        complete_checksum(&mut frame, &ethernet);
        prop_assert_eq!(&frame, &before);
        let at = field(tcp, v6, false);
        prop_assume!(wrong != unfinished(&before, v6, false));
        frame[at..at + 2].copy_from_slice(&wrong.to_be_bytes());
        let before = frame.clone();
        prop_assert!(!complete_checksum(&mut frame, &ethernet));
        prop_assert_eq!(frame, before, "a wrong checksum is the sender's");
    }

    #[test]
    fn marking_keeps_the_header_checksum_right(
        v6: bool, tag: bool, ecn in 0u8..4, payload in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let mut frame = build(v6, false, tag, &payload);
        let ip = if tag { 18 } else { 14 };
        if v6 {
            frame[ip + 1] |= ecn << 4;
        } else {
            frame[ip + 1] |= ecn;
            let header = etherparse::Ipv4Header::from_slice(&frame[ip..]).unwrap().0;
            let checksum = header.calc_header_checksum();
            frame[ip + 10..ip + 12].copy_from_slice(&checksum.to_be_bytes());
        }
        let before = frame.clone();
        prop_assert_eq!(mark_congestion(&mut frame), ecn != 0);
        if ecn == 0 {
            prop_assert_eq!(frame, before);
        } else {
            let ethernet = Ethernet::read(&frame).unwrap();
            prop_assert_eq!(Ip::read(&frame, &ethernet).unwrap().ecn, 3);
            if !v6 {
                let header = etherparse::Ipv4Header::from_slice(&frame[ip..]).unwrap().0;
                prop_assert_eq!(header.header_checksum, header.calc_header_checksum());
            }
        }
    }

    #[test]
    fn no_bytes_make_the_parser_stumble(
        mut frame in prop::collection::vec(any::<u8>(), 0..200),
        kind in prop::sample::select(vec![0x0800u16, 0x86dd, 0x0806, 0x8100, 0x88a8, 0]),
        next in prop::sample::select(vec![0u8, 6, 17, 43, 44, 51, 58, 60]),
    ) {
        if frame.len() > 24 && kind != 0 {
            frame[12..14].copy_from_slice(&kind.to_be_bytes());
            frame[14] = if kind == 0x86dd { 0x60 } else { 0x45 };
            frame[20] = next;
            frame[23] = next;
            frame[16..19].copy_from_slice(&[0, 40, 0]);
        }
        if let Ok(ethernet) = Ethernet::read(&frame) {
            let _ = weir_switch::ArpSender::read(&frame, &ethernet);
            if let Some(ip) = Ip::read(&frame, &ethernet) {
                prop_assert!(ip.transport <= ip.end && ip.end <= frame.len());
                let _ = ip.ports(&frame);
            }
            complete_checksum(&mut frame, &ethernet);
        }
        mark_congestion(&mut frame);
    }
}

#[test]
fn extension_headers_are_stepped_over() {
    let payload = [7u8; 33];
    let plain = build(true, false, false, &payload);
    let mut frame = plain[..54].to_vec();
    frame[20] = 0;
    frame[18..20].copy_from_slice(&(8 + 8 + 8 + 33u16).to_be_bytes());
    frame.extend([60, 0, 1, 4, 0, 0, 0, 0]);
    frame.extend([17, 0, 1, 4, 0, 0, 0, 0]);
    frame.extend(&plain[54..]);
    let at = 54 + 16 + 6;
    let right = [frame[at], frame[at + 1]];
    frame[at..at + 2].copy_from_slice(&unfinished(&plain, true, false).to_be_bytes());
    let ethernet = Ethernet::read(&frame).unwrap();
    assert!(complete_checksum(&mut frame, &ethernet));
    assert_eq!([frame[at], frame[at + 1]], right);
}

#[test]
fn fragments_are_left_alone() {
    let mut frame = build(false, false, false, &[1; 40]);
    let at = field(false, false, false);
    let partial = unfinished(&frame, false, false).to_be_bytes();
    frame[at..at + 2].copy_from_slice(&partial);
    for flags in [[0x20, 0], [0, 1], [0x20, 9]] {
        frame[20..22].copy_from_slice(&flags);
        let ethernet = Ethernet::read(&frame).unwrap();
        assert!(!complete_checksum(&mut frame, &ethernet));
    }
}

/// A payload whose sum is zero: the field becomes all ones, since zero means "no checksum".
#[test]
fn udp_never_sends_a_zero_checksum() {
    let mut frame = build(false, false, false, &[0, 0]);
    let at = field(false, false, false);
    let right = u16::from_be_bytes([frame[at], frame[at + 1]]);
    // Adding the old checksum to the payload makes the sum all ones, and its inverse zero.
    let end = frame.len();
    frame[end - 2..].copy_from_slice(&right.to_be_bytes());
    let partial = unfinished(&frame, false, false).to_be_bytes();
    frame[at..at + 2].copy_from_slice(&partial);
    let ethernet = Ethernet::read(&frame).unwrap();
    assert!(complete_checksum(&mut frame, &ethernet));
    assert_eq!(frame[at..at + 2], [0xff, 0xff]);
}
