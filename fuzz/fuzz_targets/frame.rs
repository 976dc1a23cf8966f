// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Any bytes are read as a frame without a panic; what is read lies inside the frame; a completed
//! checksum is right, and a mark leaves a right IPv4 header right.
#![no_main]

use libfuzzer_sys::fuzz_target;
use weir_fuzz::ones_sum;
use weir_switch::{ArpSender, Ethernet, Ip, complete_checksum, mark_congestion};

fuzz_target!(|data: &[u8]| {
    let Ok(ethernet) = Ethernet::read(data) else { return };
    assert!(ethernet.payload <= data.len());
    let _ = ArpSender::read(data, &ethernet);
    let ip = Ip::read(data, &ethernet);
    if let Some(ip) = &ip {
        assert!(ip.transport <= ip.end && ip.end <= data.len(), "{ip:?}");
        assert_eq!(ip.source.is_ipv4(), ip.destination.is_ipv4());
        let _ = ip.ports(data);
    }
    let mut frame = data.to_vec();
    if complete_checksum(&mut frame, &ethernet) {
        let ip = ip.expect("only an IP packet has a checksum to complete");
        assert_eq!(transport_sum(&frame, &ip), 0xffff, "{ip:?}");
    }
    let before = header_sum(data, &ethernet);
    let mut frame = data.to_vec();
    if mark_congestion(&mut frame) {
        assert_eq!(ethernet.ecn(&frame), 3);
        assert_ne!(ethernet.ecn(data), 0);
        if before == Some(0xffff) {
            assert_eq!(header_sum(&frame, &ethernet), Some(0xffff));
        }
    } else {
        assert_eq!(frame, data);
    }
});

/// The sum that a receiver makes over pseudo-header and segment: 0xffff if it is right.
fn transport_sum(frame: &[u8], ip: &Ip) -> u16 {
    let mut bytes = Vec::new();
    for address in [ip.source, ip.destination] {
        match address {
            std::net::IpAddr::V4(address) => bytes.extend(address.octets()),
            std::net::IpAddr::V6(address) => bytes.extend(address.octets()),
        }
    }
    let length = u32::try_from(ip.end - ip.transport).expect("a frame is short");
    bytes.extend(length.to_be_bytes());
    bytes.extend([0, ip.protocol]);
    bytes.extend(&frame[ip.transport..ip.end]);
    ones_sum(&bytes)
}

/// The sum over an IPv4 header of 20 bytes; `None` if there is none.
fn header_sum(frame: &[u8], ethernet: &Ethernet) -> Option<u16> {
    let head = frame.get(ethernet.payload..ethernet.payload + 20)?;
    (ethernet.ethertype == 0x0800 && head[0] == 0x45).then(|| ones_sum(head))
}
