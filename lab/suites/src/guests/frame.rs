// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parts of an Ethernet frame with IPv6 and UDP that guests read and write (RFC 8200, RFC 768).

/// A complete packet of IPv6 in an Ethernet frame.
#[derive(Debug)]
pub(super) struct PacketView<'f> {
    pub(super) ethernet: &'f mut [u8; ETHERNET_BYTES],
    pub(super) header: &'f mut [u8; IPV6_BYTES],
    /// All behind the header, as far as its length says.
    pub(super) payload: &'f mut [u8],
}

/// Ports of a UDP datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UdpPorts {
    pub(super) source: u16,
    pub(super) destination: u16,
}

impl<'f> PacketView<'f> {
    /// Finds its parts; `None` if it is not IPv6 or its length says more than is there.
    pub(super) fn of(frame: &'f mut [u8]) -> Option<Self> {
        let (ethernet, packet) = frame.split_first_chunk_mut::<ETHERNET_BYTES>()?;
        let (header, rest) = packet.split_first_chunk_mut::<IPV6_BYTES>()?;
        if ethernet[12..] != ETHERTYPE_IPV6 || header[0] >> 4 != 6 {
            return None;
        }
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let payload = rest.get_mut(..length)?;
        Some(Self { ethernet, header, payload })
    }

    /// The ports; `None` if the packet is not UDP.
    pub(super) fn ports(&self) -> Option<UdpPorts> {
        let [a, b, c, d] = *self.payload.first_chunk::<4>()?;
        let (source, destination) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        (self.header[6] == UDP).then_some(UdpPorts { source, destination })
    }

    /// Writes the code point of the class of service (RFC 2474) and keeps the two bits of ECN.
    pub(super) const fn mark(&mut self, dscp: u8) {
        self.header[0] = self.header[0] & 0xf0 | dscp >> 2 & 0x0f;
        self.header[1] = self.header[1] & 0x3f | dscp << 6;
    }

    /// The flow label (RFC 6437), 20 bits.
    pub(super) const fn label(&self) -> u32 {
        let [_, high, middle, low, ..] = *self.header;
        u32::from_be_bytes([0, high & 0x0f, middle, low])
    }

    pub(super) const fn set_label(&mut self, label: u32) {
        let [_, high, middle, low] = label.to_be_bytes();
        self.header[1] = self.header[1] & 0xf0 | high & 0x0f;
        (self.header[2], self.header[3]) = (middle, low);
    }
}

/// The checksum after one word of what it covers changed (RFC 1624, equation 3).
pub(super) fn mended(checksum: u16, from: u16, to: u16) -> u16 {
    let sum = u32::from(!checksum) + u32::from(!from) + u32::from(to);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    !u16::try_from(sum).unwrap_or(u16::MAX)
}

const ETHERNET_BYTES: usize = 14;
const IPV6_BYTES: usize = 40;
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];
/// Protocol number of UDP.
pub(super) const UDP: u8 = 17;
/// Its header.
pub(super) const UDP_BYTES: usize = 8;

#[cfg(test)]
mod tests {
    use super::super::fixture::{checksum, packet};
    use super::*;

    #[test]
    fn fields_are_written_where_they_are() {
        let mut frame = packet(5, b"content");
        frame[15] = 0x30;
        let mut view = PacketView::of(&mut frame).unwrap();
        assert_eq!(view.ports(), Some(UdpPorts { source: 5, destination: 9_000 }));
        assert_eq!(view.label(), 1);
        view.set_label(0xf_1234);
        view.mark(46);
        assert_eq!(view.label(), 0xf_1234);
        // Expedited forwarding is 101110; the lower two bits of the class are ECN's.
        assert_eq!(frame[14..18], [0x6b, 0xbf, 0x12, 0x34]);
    }

    #[test]
    fn other_frames_are_none() {
        let good = packet(5, b"");
        for (at, value) in [(12, 0x08), (14, 0x45), (19, 200)] {
            let mut frame = good.clone();
            frame[at] = value;
            assert!(PacketView::of(&mut frame).is_none(), "byte {at}");
        }
        let mut padded = good;
        padded.push(0);
        assert_eq!(PacketView::of(&mut padded).unwrap().payload.len(), UDP_BYTES);
    }

    #[test]
    fn a_mended_checksum_is_that_of_the_new_words() {
        for port in (0..=u16::MAX).step_by(97) {
            let mut frame = packet(5, b"some payload");
            let old = u16::from_be_bytes([frame[60], frame[61]]);
            frame[54..56].copy_from_slice(&port.to_be_bytes());
            frame[60..62].copy_from_slice(&mended(old, 5, port).to_be_bytes());
            assert_eq!(checksum(&frame), 0, "port {port}");
        }
    }
}
