// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets for the tests of guests.
#![allow(clippy::unwrap_used)]

use super::frame::{UDP, UDP_BYTES};

/// A UDP datagram from a port to port 9000, with a right checksum.
pub(crate) fn packet(source: u16, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(UDP_BYTES + payload.len()).unwrap().to_be_bytes();
    let mut frame = vec![0x02; 12];
    frame.extend([0x86, 0xdd]);
    frame.extend([0x60, 0, 0, 1, length[0], length[1], UDP, 64]);
    frame.extend([0x20, 0x01, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    frame.extend([0x20, 0x01, 0, 2, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    frame.extend(source.to_be_bytes());
    frame.extend(9_000_u16.to_be_bytes());
    frame.extend(length);
    frame.extend([0, 0]);
    frame.extend(payload);
    let sum = checksum(&frame);
    frame[60..62].copy_from_slice(&sum.to_be_bytes());
    frame
}

/// The checksum of a datagram whose field holds 0, and 0 of one whose field is right.
pub(crate) fn checksum(frame: &[u8]) -> u16 {
    let udp = &frame[54..];
    let length = u64::try_from(udp.len()).unwrap();
    let words = |bytes: &[u8]| -> u64 {
        let words = bytes.chunks(2);
        words.map(|w| u64::from(w[0]) << 8 | u64::from(*w.get(1).unwrap_or(&0))).sum()
    };
    let mut sum = words(&frame[22..54]) + length + u64::from(UDP) + words(udp);
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap()
}
