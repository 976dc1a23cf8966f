// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Captured frames as pcapng, the format of Wireshark and tcpdump (draft-ietf-opsawg-pcapng).
//!
//! Blocks are appended to a buffer of bytes; the caller writes the buffer to its place. One
//! section, any number of interfaces, little-endian, times in nanoseconds.

use alloc::vec::Vec;

use weir_policy::Direction;

use crate::capture::{CaptureCounters, Captured};

/// Begins a file: the section header, naming the program that writes it.
pub fn section(out: &mut Vec<u8>, application: &str) {
    block(out, SECTION, |out| {
        word(out, 0x1a2b_3c4d);
        half(out, 1);
        half(out, 0);
        // Length of the section: not known.
        word(out, u32::MAX);
        word(out, u32::MAX);
        option(out, OPTION_USER_APPLICATION, application.as_bytes());
        option(out, OPTION_END, &[]);
    });
}

/// Describes the next interface: its name, and how many bytes of a frame are kept. Interfaces are
/// numbered from 0 in the order in which they are described.
pub fn interface(out: &mut Vec<u8>, name: &str, snaplen: u16) {
    block(out, INTERFACE, |out| {
        half(out, LINK_ETHERNET);
        half(out, 0);
        word(out, u32::from(snaplen));
        option(out, OPTION_NAME, name.as_bytes());
        option(out, OPTION_TIME_RESOLUTION, &[9]);
        option(out, OPTION_END, &[]);
    });
}

/// Adds a frame that passed at an interface. `origin_ns`: nanoseconds from 1970 to the origin of
/// the switch's time.
pub fn packet(out: &mut Vec<u8>, interface: u32, origin_ns: u64, frame: &Captured<'_>) {
    let at = origin_ns.saturating_add(frame.at.as_nanos());
    block(out, PACKET, |out| {
        word(out, interface);
        time(out, at);
        word(out, u32::try_from(frame.bytes.len()).unwrap_or(u32::MAX));
        word(out, u32::from(frame.length));
        padded(out, frame.bytes);
        let inbound: u32 = match frame.direction {
            // The flag is relative to the host's side of the vif, where tcpdump would run.
            Direction::Send => 1,
            Direction::Receive => 2,
        };
        option(out, OPTION_FLAGS, &inbound.to_le_bytes());
        option(out, OPTION_END, &[]);
    });
}

/// Ends an interface with the frames that its tap has seen and lost, at `at_ns` nanoseconds after
/// 1970.
pub fn statistics(out: &mut Vec<u8>, interface: u32, at_ns: u64, counters: CaptureCounters) {
    block(out, STATISTICS, |out| {
        word(out, interface);
        time(out, at_ns);
        option(out, OPTION_RECEIVED, &counters.seen.to_le_bytes());
        option(out, OPTION_DROPPED, &counters.lost.to_le_bytes());
        option(out, OPTION_END, &[]);
    });
}

/// Writes a block: its type, then its body between two copies of its length.
fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    word(out, kind);
    word(out, 0);
    body(out);
    let length = u32::try_from(out.len() - start + 4).unwrap_or(u32::MAX);
    word(out, length);
    if let Some(place) = out.get_mut(start + 4..start + 8) {
        place.copy_from_slice(&length.to_le_bytes());
    }
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let length = value.len().min(OPTION_BYTES_MAX);
    half(out, code);
    half(out, u16::try_from(length).unwrap_or(0));
    padded(out, &value[..length]);
}

fn padded(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
    out.resize(out.len().next_multiple_of(4), 0);
}

fn time(out: &mut Vec<u8>, nanos: u64) {
    let [a, b, c, d, e, f, g, h] = nanos.to_le_bytes();
    out.extend_from_slice(&[e, f, g, h, a, b, c, d]);
}

fn word(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn half(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
const LINK_ETHERNET: u16 = 1;
const OPTION_END: u16 = 0;
const OPTION_NAME: u16 = 2;
const OPTION_FLAGS: u16 = 2;
const OPTION_USER_APPLICATION: u16 = 4;
const OPTION_RECEIVED: u16 = 4;
const OPTION_DROPPED: u16 = 5;
const OPTION_TIME_RESOLUTION: u16 = 9;
/// Longer names are cut.
const OPTION_BYTES_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::Instant;

    /// Checked by hand against the draft, and read back by tcpdump.
    #[test]
    fn a_packet_block_is_as_the_draft_says() {
        let frame = Captured {
            at: Instant::from_nanos(5),
            direction: Direction::Receive,
            length: 60,
            bytes: &[1, 2, 3],
        };
        let mut out = Vec::new();
        packet(&mut out, 0, 1 << 32, &frame);
        #[rustfmt::skip]
        let expected = [
            6, 0, 0, 0, 48, 0, 0, 0, 0, 0, 0, 0,
            1, 0, 0, 0, 5, 0, 0, 0,
            3, 0, 0, 0, 60, 0, 0, 0, 1, 2, 3, 0,
            2, 0, 4, 0, 2, 0, 0, 0, 0, 0, 0, 0,
            48, 0, 0, 0,
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn blocks_chain_by_their_lengths() {
        let mut out = Vec::new();
        section(&mut out, "weir");
        interface(&mut out, "gold.0", 1522);
        statistics(&mut out, 0, 7, CaptureCounters { seen: 3, lost: 1 });
        let (mut at, mut kinds) = (0, Vec::new());
        while at < out.len() {
            let word = |at: usize| u32::from_le_bytes(out[at..at + 4].try_into().unwrap());
            let length = word(at + 4) as usize;
            assert_eq!(length % 4, 0);
            assert_eq!(word(at + length - 4) as usize, length);
            kinds.push(word(at));
            at += length;
        }
        assert_eq!(kinds, [SECTION, INTERFACE, STATISTICS]);
    }
}
