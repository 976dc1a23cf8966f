// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cuts super-frames into frames of the wire, and finishes checksums. Pure.
//!
//! A kernel whose device offers offloads leaves segmentation and checksums to it. A packet socket
//! or a tap then reads frames of up to 64 KiB (TSO, GSO, GRO), whose checksum field has the sum of
//! the pseudo-header only. A header before each frame says so (virtio 1.2, §5.1.6). Segmentation
//! follows RFC 9293 for sequence numbers and flags, RFC 3168 §6.1.2 for CWR, RFC 768 for UDP.

/// The kernel's description of a frame: `struct virtio_net_hdr`, in the machine's byte order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VnetHeader {
    /// Bit 0: the checksum is unfinished.
    pub flags: u8,
    /// The kind of segmentation: 0 none, 1 TCP over IPv4, 4 TCP over IPv6, 5 UDP; bit 7: ECN.
    pub gso_type: u8,
    /// Bytes of headers, as a hint; not used.
    pub header_length: u16,
    /// Bytes of payload a segment.
    pub gso_size: u16,
    /// The start of the checksummed part.
    pub checksum_start: u16,
    /// The offset of the checksum in that part.
    pub checksum_offset: u16,
}

/// The error of a frame that contradicts its header or itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A super-frame, ready to be written out segment by segment.
#[derive(Clone, Copy, Debug)]
pub struct Segments<'a> {
    frame: &'a [u8],
    layout: Layout,
}

/// The offsets in a super-frame, and the number of its segments. It does not borrow the bytes, so
/// that a caller can write some segments now and the others later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The IP header's offset.
    ip: usize,
    version: u8,
    /// The TCP or UDP header's offset.
    transport: usize,
    tcp: bool,
    /// The payload's offset: all before it is repeated in each segment.
    payload: usize,
    /// The super-frame's length, without padding.
    end: usize,
    gso_size: usize,
}

impl VnetHeader {
    /// The header's length on a packet socket and a tap.
    pub const LENGTH: usize = 10;

    /// Reads the header's bytes.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        let word = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
        Self {
            flags: bytes[0],
            gso_type: bytes[1],
            header_length: word(2),
            gso_size: word(4),
            checksum_start: word(6),
            checksum_offset: word(8),
        }
    }

    /// Returns whether the frame is a super-frame.
    #[must_use]
    pub fn is_super_frame(&self) -> bool {
        self.gso_type != 0
    }

    /// Finishes the checksum of an ordinary frame, if it is unfinished.
    ///
    /// # Errors
    /// The checksum lies outside the frame; the frame is unchanged.
    pub fn complete(&self, frame: &mut [u8]) -> Result<(), Malformed> {
        if self.flags & NEEDS_CHECKSUM == 0 {
            return Ok(());
        }
        let start = usize::from(self.checksum_start);
        let field = start + usize::from(self.checksum_offset);
        let covered = frame.get(start..).ok_or(Malformed)?;
        let sum = not_zero(!fold(sum(covered)));
        let place = frame.get_mut(field..field + 2).ok_or(Malformed)?;
        place.copy_from_slice(&sum.to_be_bytes());
        Ok(())
    }
}

impl Layout {
    /// Reads a super-frame's headers.
    ///
    /// # Errors
    /// They are truncated, of a protocol other than the header says, or without a segment size.
    pub fn read(frame: &[u8], header: &VnetHeader) -> Result<Self, Malformed> {
        let (version, tcp) = match header.gso_type & !GSO_ECN {
            GSO_TCP4 => (4, true),
            GSO_TCP6 => (6, true),
            GSO_UDP => (ip_version(frame).ok_or(Malformed)?, false),
            _ => return Err(Malformed),
        };
        let ip = ip_offset(frame).ok_or(Malformed)?;
        let transport = usize::from(header.checksum_start);
        let gso_size = usize::from(header.gso_size);
        let ip_header = if version == 4 { 20 } else { 40 };
        if ip_version(frame) != Some(version) || transport < ip + ip_header || gso_size == 0 {
            return Err(Malformed);
        }
        // IPv4 counts its own header, IPv6 does not.
        let (length, before) = if version == 4 { (ip + 2, ip) } else { (ip + 4, ip + 40) };
        let end = match word(frame, length).ok_or(Malformed)? {
            // A super-frame above 64 KiB (BIG TCP) has the length 0: it ends with the frame.
            0 => frame.len(),
            length => before + usize::from(length),
        };
        let payload = if tcp {
            let offset = frame.get(transport + 12).ok_or(Malformed)?;
            transport + usize::from(offset >> 4).max(5) * 4
        } else {
            transport + 8
        };
        if payload >= end || end > frame.len() {
            return Err(Malformed);
        }
        Ok(Self { ip, version, transport, tcp, payload, end, gso_size })
    }

    /// Returns the number of segments, at least 1.
    #[must_use]
    pub fn count(&self) -> usize {
        (self.end - self.payload).div_ceil(self.gso_size)
    }

    /// Returns the length of the longest segment, as a frame.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.payload + self.gso_size.min(self.end - self.payload)
    }
}

impl<'a> Segments<'a> {
    /// Returns the segments of a super-frame whose layout was read from the same bytes; `None` if
    /// there are fewer bytes now.
    #[must_use]
    pub fn new(frame: &'a [u8], layout: Layout) -> Option<Self> {
        (frame.len() >= layout.end).then_some(Self { frame, layout })
    }

    /// Returns the length of segment `index` as a frame; 0 for one that does not exist.
    #[must_use]
    pub fn length(&self, index: usize) -> usize {
        let part = self.part(index);
        if part.is_empty() { 0 } else { self.layout.payload + part.len() }
    }

    /// Writes segment `index` into `out`, which has its [`Self::length`].
    pub fn write(&self, index: usize, out: &mut [u8]) {
        let Layout { ip, version, transport, tcp, payload, .. } = self.layout;
        let part = self.part(index);
        if part.is_empty() || out.len() != payload + part.len() {
            return;
        }
        out[..payload].copy_from_slice(&self.frame[..payload]);
        out[payload..].copy_from_slice(part);
        let transport_length = out.len() - transport;
        if version == 4 {
            let header_length = transport - ip;
            put(out, ip + 2, header_length + transport_length);
            let identification = word(self.frame, ip + 4).map_or(0, usize::from);
            put(out, ip + 4, identification + index);
            put(out, ip + 10, 0);
            let sum = !fold(sum(&out[ip..transport]));
            put(out, ip + 10, usize::from(sum));
        } else {
            put(out, ip + 4, out.len() - ip - 40);
        }
        if tcp {
            self.write_tcp(index, out);
        } else {
            put(out, transport + 4, transport_length);
        }
        self.finish(out);
    }

    fn write_tcp(&self, index: usize, out: &mut [u8]) {
        let at = self.layout.transport;
        let sequence = [at + 4, at + 5, at + 6, at + 7].map(|at| self.frame[at]);
        // Sequence numbers are modulo 2³² (RFC 9293 §3.4).
        let advance = (index * self.layout.gso_size) & 0xffff_ffff;
        let advance = u32::try_from(advance).unwrap_or(0);
        let sequence = u32::from_be_bytes(sequence).wrapping_add(advance);
        out[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
        if index > 0 {
            out[at + 13] &= !TCP_CWR;
        }
        if index + 1 < self.layout.count() {
            out[at + 13] &= !(TCP_FIN | TCP_PSH);
        }
    }

    /// Writes the checksum over pseudo-header, header and payload.
    fn finish(&self, out: &mut [u8]) {
        let Layout { ip, version, transport, tcp, .. } = self.layout;
        let addresses = if version == 4 { ip + 12..ip + 20 } else { ip + 8..ip + 40 };
        let field = transport + if tcp { 16 } else { 6 };
        let protocol: u64 = if tcp { 6 } else { 17 };
        put(out, field, 0);
        let length = (out.len() - transport) as u64;
        let total = sum(&out[addresses]) + protocol + length + sum(&out[transport..]);
        put(out, field, usize::from(not_zero(!fold(total))));
    }

    fn part(&self, index: usize) -> &'a [u8] {
        let Layout { payload, end, gso_size, .. } = self.layout;
        let start = payload.saturating_add(index.saturating_mul(gso_size)).min(end);
        &self.frame[start..end.min(start + gso_size)]
    }
}

/// Returns the offset of the IP header, behind one VLAN tag at most.
fn ip_offset(frame: &[u8]) -> Option<usize> {
    match word(frame, 12)? {
        ETHERTYPE_IP4 | ETHERTYPE_IP6 => Some(14),
        ETHERTYPE_VLAN => match word(frame, 16)? {
            ETHERTYPE_IP4 | ETHERTYPE_IP6 => Some(18),
            _ => None,
        },
        _ => None,
    }
}

fn ip_version(frame: &[u8]) -> Option<u8> {
    frame.get(ip_offset(frame)?).map(|byte| byte >> 4)
}

fn word(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

/// Writes the low 16 bits of `value`: lengths fit, and identifications wrap.
fn put(bytes: &mut [u8], at: usize, value: usize) {
    let [.., high, low] = value.to_be_bytes();
    bytes[at] = high;
    bytes[at + 1] = low;
}

/// Returns the sum of the bytes as 32-bit words in network order, padded with zeros. Folded, it
/// equals the sum of 16-bit words (RFC 1071 §2 and §4.1).
fn sum(bytes: &[u8]) -> u64 {
    let mut words = bytes.chunks_exact(4);
    let mut sum: u64 = 0;
    for word in &mut words {
        sum += u64::from(u32::from_be_bytes([word[0], word[1], word[2], word[3]]));
    }
    let mut last = [0; 4];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    sum + u64::from(u32::from_be_bytes(last))
}

/// Folds a one's-complement sum into 16 bits.
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    // The loop ends at 16 bits.
    u16::try_from(sum).unwrap_or(u16::MAX)
}

/// Replaces a checksum of zero, which means "no checksum" in UDP, by its equal 0xffff (RFC 768).
/// TCP allows that too.
fn not_zero(sum: u16) -> u16 {
    if sum == 0 { 0xffff } else { sum }
}

const NEEDS_CHECKSUM: u8 = 1;
const GSO_TCP4: u8 = 1;
const GSO_TCP6: u8 = 4;
const GSO_UDP: u8 = 5;
const GSO_ECN: u8 = 0x80;
const TCP_FIN: u8 = 0x01;
const TCP_PSH: u8 = 0x08;
const TCP_CWR: u8 = 0x80;
const ETHERTYPE_IP4: u16 = 0x0800;
const ETHERTYPE_IP6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;

#[cfg(test)]
// Lengths and patterns of test frames fit where they are put.
#[allow(clippy::cast_possible_truncation)]
mod tests {
    use super::*;

    /// Returns a super-frame with a payload of 0, 1, 2, … and the header that belongs to it.
    fn super_frame(version: u8, tcp: bool, tag: bool, payload: usize) -> (Vec<u8>, VnetHeader) {
        let mut frame = vec![2; 12];
        if tag {
            frame.extend([0x81, 0, 0, 100]);
        }
        let transport_header = if tcp { 32 } else { 8 };
        let length = transport_header + payload;
        if version == 4 {
            frame.extend([8, 0, 0x45, 0]);
            frame.extend((20 + length as u16).to_be_bytes());
            frame.extend([0xff, 0xff, 0x40, 0, 64, if tcp { 6 } else { 17 }, 0, 0]);
            frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        } else {
            frame.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
            frame.extend((length as u16).to_be_bytes());
            frame.extend([if tcp { 6 } else { 17 }, 64]);
            frame.extend([0xfd; 32]);
        }
        let start = frame.len() as u16;
        if tcp {
            frame.extend([0x12, 0x34, 0, 80, 0xff, 0xff, 0xff, 0x00, 0, 0, 0, 9]);
            frame.extend([0x80, TCP_FIN | TCP_PSH | TCP_CWR | 0x10, 1, 0, 0, 0, 0, 0]);
            frame.extend([1; 12]);
        } else {
            frame.extend([0x12, 0x34, 0, 53]);
            frame.extend((length as u16).to_be_bytes());
            frame.extend([0, 0]);
        }
        frame.extend((0..payload).map(|index| index as u8));
        let gso_type = match (version, tcp) {
            (4, true) => GSO_TCP4,
            (_, true) => GSO_TCP6,
            _ => GSO_UDP,
        };
        let checksum_offset = if tcp { 16 } else { 6 };
        let header = VnetHeader {
            flags: NEEDS_CHECKSUM,
            gso_type,
            gso_size: 1000,
            checksum_start: start,
            checksum_offset,
            header_length: 0,
        };
        (frame, header)
    }

    /// Does the receiver's check (RFC 1071 §1): all bytes with their checksum sum up to all ones.
    fn sums_up(frame: &[u8]) -> bool {
        let ip = ip_offset(frame).unwrap();
        let (addresses, transport, protocol) = if frame[ip] >> 4 == 4 {
            assert_eq!(fold(sum(&frame[ip..ip + 20])), 0xffff, "the IPv4 header");
            assert_eq!(usize::from(word(frame, ip + 2).unwrap()), frame.len() - ip);
            (ip + 12..ip + 20, ip + 20, frame[ip + 9])
        } else {
            assert_eq!(usize::from(word(frame, ip + 4).unwrap()), frame.len() - ip - 40);
            (ip + 8..ip + 40, ip + 40, frame[ip + 6])
        };
        let length = (frame.len() - transport) as u64;
        let pseudo = sum(&frame[addresses]) + u64::from(protocol) + length;
        fold(pseudo + sum(&frame[transport..])) == 0xffff
    }

    /// Goal: bytes beyond the length in the IP header are padding; only the length 0 means that the
    /// packet is the whole frame.
    #[test]
    fn the_length_that_means_the_whole_frame_is_zero() {
        let (mut frame, header) = super_frame(4, true, false, 3000);
        let ip = ip_offset(&frame).unwrap();
        let mut read = |length: u16| {
            frame[ip + 2..ip + 4].copy_from_slice(&length.to_be_bytes());
            Layout::read(&frame, &header).map(|layout| layout.count())
        };
        assert_eq!(read(0).unwrap(), 3);
        assert!(read(40).is_err(), "it ends within its own TCP header of 32 bytes");
        assert_eq!(read(20 + 32 + 1000).unwrap(), 1);
        let (mut frame, header) = super_frame(6, true, false, 3000);
        let ip = ip_offset(&frame).unwrap();
        frame[ip + 4..ip + 6].copy_from_slice(&[0, 0]);
        assert_eq!(Layout::read(&frame, &header).unwrap().count(), 3);
    }

    #[test]
    fn segments_carry_the_payload_once_in_order_and_sum_up() {
        for (version, tcp, tag) in [
            (4, true, false),
            (4, true, true),
            (6, true, false),
            (4, false, false),
            (6, false, true),
        ] {
            for payload in [1, 999, 1000, 1001, 20_001, 65_000] {
                let (frame, header) = super_frame(version, tcp, tag, payload);
                let layout = Layout::read(&frame, &header).unwrap();
                let segments = Segments::new(&frame, layout).unwrap();
                assert_eq!(layout.count(), payload.div_ceil(1000));
                let mut joined = Vec::new();
                for index in 0..layout.count() {
                    let mut out = vec![0xaa; segments.length(index)];
                    segments.write(index, &mut out);
                    assert!(out.len() <= layout.longest());
                    assert!(sums_up(&out), "IPv{version}, tcp {tcp}, segment {index}");
                    joined.extend_from_slice(&out[layout.payload..]);
                }
                assert_eq!(joined, frame[layout.payload..]);
                assert_eq!(segments.length(layout.count()), 0);
            }
        }
    }

    /// By hand: 2500 bytes at sequence 0xffffff00, identification 0xffff; both wrap.
    #[test]
    fn numbers_and_flags_of_tcp_segments() {
        let (frame, header) = super_frame(4, true, false, 2500);
        let segments = Segments::new(&frame, Layout::read(&frame, &header).unwrap()).unwrap();
        let expected = [
            (0xffff_u16, 0xffff_ff00_u32, TCP_CWR | 0x10),
            (0x0000, 0x0000_02e8, 0x10),
            (0x0001, 0x0000_06d0, TCP_FIN | TCP_PSH | 0x10),
        ];
        for (index, (identification, sequence, flags)) in expected.into_iter().enumerate() {
            let mut out = vec![0; segments.length(index)];
            segments.write(index, &mut out);
            assert_eq!(word(&out, 18), Some(identification));
            assert_eq!(out[38..42], sequence.to_be_bytes());
            assert_eq!(out[47], flags, "segment {index}");
        }
    }

    /// RFC 1071 §3's example: 00 01 f2 03 f4 f5 f6 f7 sums to ddf2.
    #[test]
    fn the_sum_is_the_one_of_rfc_1071() {
        assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
        assert_eq!(fold(sum(&[0x12, 0x34, 0x56])), 0x1234 + 0x5600, "an odd byte");
    }

    #[test]
    fn an_unfinished_checksum_is_finished() {
        let (mut frame, header) = super_frame(4, false, false, 333);
        let start = usize::from(header.checksum_start);
        let pseudo = fold(sum(&frame[26..34]) + 17 + (frame.len() - start) as u64);
        frame[start + 6..start + 8].copy_from_slice(&pseudo.to_be_bytes());
        let plain = VnetHeader { gso_type: 0, ..header };
        // The IPv4 header of the super-frame was left without a sum.
        let ip_sum = !fold(sum(&frame[14..34]));
        frame[24..26].copy_from_slice(&ip_sum.to_be_bytes());
        plain.complete(&mut frame).unwrap();
        assert!(sums_up(&frame));
        let finished = frame.clone();
        VnetHeader { flags: 0, ..plain }.complete(&mut frame).unwrap();
        assert_eq!(frame, finished, "a finished one is left alone");
        let outside = VnetHeader { checksum_start: 2000, ..plain };
        assert_eq!(outside.complete(&mut frame), Err(Malformed));
    }

    /// Goal: truncated super-frames and false headers are refused or segmented, without a panic.
    #[test]
    fn nonsense_is_refused() {
        let (frame, header) = super_frame(6, true, true, 3000);
        for length in 0..frame.len() {
            assert_eq!(Layout::read(&frame[..length], &header), Err(Malformed));
        }
        for changed in [
            VnetHeader { gso_size: 0, ..header },
            VnetHeader { gso_type: 77, ..header },
            VnetHeader { gso_type: GSO_TCP4, ..header },
            VnetHeader { checksum_start: 0, ..header },
            VnetHeader { checksum_start: u16::MAX, ..header },
        ] {
            assert_eq!(Layout::read(&frame, &changed), Err(Malformed), "{changed:?}");
        }
        for at in 0..80 {
            for value in [0, 0x0f, 0xff] {
                let mut frame = frame.clone();
                frame[at] = value;
                let Ok(layout) = Layout::read(&frame, &header) else { continue };
                let segments = Segments::new(&frame, layout).unwrap();
                for index in 0..layout.count() {
                    segments.write(index, &mut vec![0; segments.length(index)]);
                }
            }
        }
    }
}
