// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Completes TCP and UDP checksums that a sender left to its device.
//!
//! A kernel that leaves the checksum to the device writes the folded sum of the pseudo-header, not
//! inverted, into the field. That is how it is recognized here: no other mark travels with a raw
//! frame. A right checksum equals that sum by chance once in 65 536, and completing it then gives
//! the same value again, so nothing is spoilt. Fragments and packets with segments left to visit
//! are left alone: their sum covers bytes or an address that are not in the frame.

use core::net::IpAddr;

use crate::frame::{Ethernet, Ip, PROTOCOL_TCP, PROTOCOL_UDP, fold, word};

/// Completes the checksum of a frame if it is unfinished. Returns whether it was.
#[inline]
pub fn complete(frame: &mut [u8], ethernet: &Ethernet) -> bool {
    let Some(ip) = Ip::read(frame, ethernet) else { return false };
    let (field, least) = match ip.protocol {
        PROTOCOL_TCP => (ip.transport + 16, 20),
        PROTOCOL_UDP => (ip.transport + 6, 8),
        _ => return false,
    };
    let length = ip.end - ip.transport;
    if ip.fragment.is_some() || ip.routed || length < least {
        return false;
    }
    if ip.protocol == PROTOCOL_UDP && word(frame, ip.transport + 4).map(usize::from) != Some(length)
    {
        return false;
    }
    let unfinished = fold(pseudo_header(&ip, length));
    if word(frame, field) != Some(unfinished) {
        return false;
    }
    let Some(segment) = frame.get(ip.transport..ip.end) else { return false };
    // The field's own content stands for the pseudo-header in this sum.
    let sum = !fold(sum_words(segment));
    // RFC 768: zero would mean "none", its equal 0xffff is sent instead.
    let sum = if sum == 0 && ip.protocol == PROTOCOL_UDP { 0xffff } else { sum };
    if let Some(bytes) = frame.get_mut(field..field + 2) {
        bytes.copy_from_slice(&sum.to_be_bytes());
    }
    true
}

/// Returns the sum over the pseudo-header (RFC 9293 §3.1, RFC 8200 §8.1).
fn pseudo_header(ip: &Ip, length: usize) -> u64 {
    let addresses = match (ip.source, ip.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            sum_words(&source.octets()) + sum_words(&destination.octets())
        }
        (IpAddr::V6(source), IpAddr::V6(destination)) => {
            sum_words(&source.octets()) + sum_words(&destination.octets())
        }
        // `Ip` holds two addresses of one family.
        _ => 0,
    };
    addresses + u64::from(ip.protocol) + length as u64
}

/// Returns the sum of 16-bit words in network order, the last padded with zero; not yet folded.
/// Adding 32 bits at a time is the same sum modulo 2¹⁶ − 1.
pub(crate) fn sum_words(bytes: &[u8]) -> u64 {
    let mut quads = bytes.chunks_exact(4);
    let mut sum = 0u64;
    for quad in &mut quads {
        if let [a, b, c, d] = *quad {
            sum += u64::from(u32::from_be_bytes([a, b, c, d]));
        }
    }
    sum + match *quads.remainder() {
        [a] => u64::from(u16::from_be_bytes([a, 0])),
        [a, b] => u64::from(u16::from_be_bytes([a, b])),
        [a, b, c] => u64::from(u32::from_be_bytes([a, b, c, 0])),
        _ => 0,
    }
}
