// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The header that every measured packet carries at the start of its payload.
//!
//! 18 bytes in network byte order, so that the smallest Ethernet frame (60 bytes without FCS:
//! 14 Ethernet + 20 IPv4 + 8 UDP + 18) carries it:
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic, `WEIR` |
//! | 4 | 1 | version, 1 |
//! | 5 | 5 | sequence number of the stream, from 0 |
//! | 10 | 2 | stream |
//! | 12 | 6 | low 48 bits of `CLOCK_MONOTONIC` in ns when it was sent |
//!
//! `bpf/traffic.h` holds the same layout for the generator and the sink.

/// The header that a packet carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The stream that it belongs to.
    pub stream: u16,
    /// Its number in the stream; the low 40 bits count (30 hours at 10 Mpps).
    pub sequence: u64,
    /// When it was sent, ns of `CLOCK_MONOTONIC`; the low 48 bits count (78 hours).
    pub time_ns: u64,
}

impl Header {
    /// Reads the header at the start of `payload`; `None` if there is none of this version.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; HEADER_BYTES] = payload.first_chunk()?;
        let (magic, rest) = bytes.split_first_chunk::<4>()?;
        let (order, time) = rest.split_first_chunk::<8>()?;
        let order = u64::from_be_bytes(*order);
        if *magic != MAGIC || order >> 56 != VERSION {
            return None;
        }
        let time_ns = time.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
        let [.., high, low] = order.to_be_bytes();
        let stream = u16::from_be_bytes([high, low]);
        Some(Self { stream, sequence: order >> 16 & SEQUENCE_MASK, time_ns })
    }

    /// Returns the bytes on the wire.
    pub fn build(&self) -> [u8; HEADER_BYTES] {
        let order = VERSION << 56 | (self.sequence & SEQUENCE_MASK) << 16 | u64::from(self.stream);
        let mut bytes = [0; HEADER_BYTES];
        // The time first: its two upper bytes lie where the stream goes.
        bytes[10..18].copy_from_slice(&self.time_ns.to_be_bytes());
        bytes[4..12].copy_from_slice(&order.to_be_bytes());
        bytes[..4].copy_from_slice(&MAGIC);
        bytes
    }

    /// Returns the delay of a packet that arrives at `now_ns` on the same clock, also across a wrap
    /// of the 48 bits; `None` if its time stamp is later than `now_ns`.
    pub fn delay_ns(&self, now_ns: u64) -> Option<u64> {
        let delay = now_ns.wrapping_sub(self.time_ns) & TIME_MASK;
        (delay <= TIME_MASK / 2).then_some(delay)
    }
}

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 18;
const MAGIC: [u8; 4] = *b"WEIR";
const VERSION: u64 = 1;
const SEQUENCE_MASK: u64 = (1 << 40) - 1;
const TIME_MASK: u64 = (1 << 48) - 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bytes_are_those_of_the_table() {
        let header = Header { stream: 0x0a0b, sequence: 0x01_0203_0405, time_ns: 0x1112_1314_1516 };
        let bytes = header.build();
        assert_eq!(
            bytes,
            [
                b'W', b'E', b'I', b'R', 1, 1, 2, 3, 4, 5, 0x0a, 0x0b, 0x11, 0x12, 0x13, 0x14, 0x15,
                0x16
            ]
        );
        assert_eq!(Header::parse(&bytes), Some(header));
    }

    #[test]
    fn only_the_low_bits_travel() {
        let header = Header { stream: 1, sequence: u64::MAX, time_ns: u64::MAX };
        let read = Header::parse(&header.build()).unwrap();
        assert_eq!((read.sequence, read.time_ns), ((1 << 40) - 1, (1 << 48) - 1));
    }

    #[test]
    fn what_is_not_a_header_is_none() {
        let good = Header { stream: 1, sequence: 2, time_ns: 3 }.build();
        for length in 0..HEADER_BYTES {
            assert_eq!(Header::parse(&good[..length]), None, "{length} bytes");
        }
        for (at, value) in [(0, b'w'), (3, 0), (4, 0), (4, 2)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(Header::parse(&bad), None, "byte {at} = {value}");
        }
    }

    #[test]
    fn delays_hold_across_the_wrap_of_the_clock() {
        let sent = |time_ns| Header { stream: 0, sequence: 0, time_ns };
        assert_eq!(sent(100).delay_ns(350), Some(250));
        assert_eq!(sent(TIME_MASK).delay_ns((1 << 48) + 9), Some(10));
        assert_eq!(sent(350).delay_ns(100), None);
    }
}
