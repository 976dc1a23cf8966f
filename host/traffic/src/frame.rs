// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The headers of a generated frame: Ethernet, an optional VLAN tag or number of a parallel
//! internet, IPv4 or IPv6, UDP. Fields that depend on the frame's size or payload are left zero:
//! the program fills them in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weir_tester::FrameTag;

use super::spec::{Mac, XdpStream};

/// Ethernet, VLAN tag or number of a parallel internet, IP and UDP headers of a stream, padded with
/// zeros.
pub(super) fn headers(stream: &XdpStream, source_mac: Mac) -> [u8; HEADERS_BYTES] {
    let mut bytes = Vec::with_capacity(HEADERS_BYTES);
    bytes.extend(stream.destination_mac.0);
    bytes.extend(source_mac.0);
    bytes.extend(tag_of(stream.tag()));
    match (stream.source, stream.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            bytes.extend(ETHERTYPE_IPV4.to_be_bytes());
            bytes.extend(ipv4_header(source, destination));
        }
        (source, destination) => {
            bytes.extend(ETHERTYPE_IPV6.to_be_bytes());
            let header = ipv6_header(ipv6(source), ipv6(destination), stream.flow_label);
            bytes.extend(header);
        }
    }
    bytes.extend(stream.source_port.to_be_bytes());
    bytes.extend(stream.destination_port.to_be_bytes());
    // The program fills in length and checksum.
    bytes.extend([0; 4]);
    let mut padded = [0; HEADERS_BYTES];
    padded[..bytes.len()].copy_from_slice(&bytes);
    padded
}

impl XdpStream {
    /// The tag of each frame.
    pub(super) fn tag(&self) -> Option<FrameTag> {
        self.vlan.map(FrameTag::Vlan).or_else(|| self.pih.map(FrameTag::Pih))
    }

    /// Gives each frame this tag, or none.
    pub(super) fn with_tag(self, tag: Option<FrameTag>) -> Self {
        let (vlan, pih) = match tag {
            Some(FrameTag::Vlan(number)) => (Some(number), None),
            Some(FrameTag::Pih(number)) => (None, Some(number)),
            None => (None, None),
        };
        Self { vlan, pih, ..self }
    }
}

/// Returns the bytes of a tag; none without one.
pub(super) fn tag_of(tag: Option<FrameTag>) -> Vec<u8> {
    let with = |kind: u16, number: &[u8]| [&kind.to_be_bytes(), number].concat();
    match tag {
        Some(FrameTag::Vlan(vlan)) => with(ETHERTYPE_VLAN, &vlan.to_be_bytes()),
        Some(FrameTag::Pih(number)) => with(ETHERTYPE_PIH, &[number]),
        None => Vec::new(),
    }
}

/// The length of all headers before the IP header.
pub(super) const fn link_bytes(stream: &XdpStream) -> u16 {
    ETHERNET_BYTES + tag_bytes(stream)
}

/// The length of the VLAN tag or the number of a parallel internet; 0 without either.
pub(super) const fn tag_bytes(stream: &XdpStream) -> u16 {
    match (stream.pih, stream.vlan) {
        (Some(_), _) => PIH_BYTES,
        (None, Some(_)) => TAG_BYTES,
        (None, None) => 0,
    }
}

/// Returns the constant part of the checksum that the program completes: for IPv4 that of the IP
/// header without total length, for IPv6 that of UDP without lengths, source port and the payload
/// after the magic.
pub(super) fn partial_sum(stream: &XdpStream) -> u64 {
    match (stream.source, stream.destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => words(&ipv4_header(source, destination)),
        (source, destination) => {
            let addresses = words(&ipv6(source).octets()) + words(&ipv6(destination).octets());
            let ports = u64::from(stream.destination_port);
            addresses + u64::from(UDP) + ports + words(MAGIC)
        }
    }
}

/// Makes an IPv4 header: don't fragment, TTL 64, UDP; total length and checksum zero.
fn ipv4_header(source: Ipv4Addr, destination: Ipv4Addr) -> [u8; 20] {
    let mut header = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, UDP, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[12..16].copy_from_slice(&source.octets());
    header[16..20].copy_from_slice(&destination.octets());
    header
}

/// Makes an IPv6 header: hop limit 64, UDP; payload length zero. The flow label is not part of
/// UDP's checksum.
fn ipv6_header(source: Ipv6Addr, destination: Ipv6Addr, flow_label: u32) -> [u8; 40] {
    let mut header = [0; 40];
    header[..4].copy_from_slice(&(IPV6_VERSION | flow_label).to_be_bytes());
    header[4..8].copy_from_slice(&[0, 0, UDP, 64]);
    header[8..24].copy_from_slice(&source.octets());
    header[24..].copy_from_slice(&destination.octets());
    header
}

/// Returns an IPv6 address; an IPv4 address, which the checks refuse here, as a mapped one.
const fn ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V6(address) => address,
        IpAddr::V4(address) => address.to_ipv6_mapped(),
    }
}

/// Sums 16-bit words.
fn words(bytes: &[u8]) -> u64 {
    let (words, _) = bytes.as_chunks::<2>();
    words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum()
}

/// Room for the headers of a tagged frame of IPv6 (66 bytes), in whole words.
pub(super) const HEADERS_BYTES: usize = 72;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
/// An experimental type of IEEE's, followed by the number and the frame's own type.
const ETHERTYPE_PIH: u16 = 0x88b5;
const ETHERNET_BYTES: u16 = 14;
const TAG_BYTES: u16 = 4;
const PIH_BYTES: u16 = 3;
/// Version 6, traffic class 0.
const IPV6_VERSION: u32 = 6 << 28;
/// Protocol number of UDP.
const UDP: u8 = 17;
/// The first four bytes of the payload.
const MAGIC: &[u8] = b"WEIR";

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(vlan: &str) -> XdpStream {
        let text = format!(
            r#"{{"stream": 1, "device": "a", "destination_mac": "02:00:00:00:00:02",
            "sizes": {{"fixed": 100}}, "source": "192.0.2.1", "destination": "192.0.2.2",
            "source_port": 258, "destination_port": 772 {vlan}}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn the_tag_moves_all_that_follows_by_four_bytes() {
        let plain = headers(&stream(""), Mac([2, 0, 0, 0, 0, 1]));
        let tagged = headers(&stream(r#", "vlan": 100"#), Mac([2, 0, 0, 0, 0, 1]));
        assert_eq!(plain[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]);
        assert_eq!(tagged[12..16], [0x81, 0, 0, 100]);
        assert_eq!(plain[12..42], tagged[16..46]);
        assert_eq!(plain[34..38], [1, 2, 3, 4]);
    }

    #[test]
    fn a_parallel_internet_moves_all_that_follows_by_three_bytes() {
        let plain = headers(&stream(""), Mac([2, 0, 0, 0, 0, 1]));
        let numbered = stream(r#", "pih": 7"#);
        let own = headers(&numbered, Mac([2, 0, 0, 0, 0, 1]));
        assert_eq!(own[12..15], [0x88, 0xb5, 7]);
        assert_eq!(plain[12..42], own[15..45]);
        assert_eq!((link_bytes(&stream("")), link_bytes(&numbered)), (14, 17));
    }

    #[test]
    fn an_ipv6_header_has_its_places() {
        let mut v6 = stream("");
        v6.source = "2001:2::1".parse().unwrap();
        v6.destination = "2001:2::2".parse().unwrap();
        v6.flow_label = 0x1_2345;
        let bytes = headers(&v6, Mac([2, 0, 0, 0, 0, 1]));
        assert_eq!(bytes[12..22], [0x86, 0xdd, 0x60, 1, 0x23, 0x45, 0, 0, 17, 64]);
        assert_eq!((bytes[22..26].to_vec(), bytes[37]), (vec![0x20, 0x01, 0, 2], 1));
        assert_eq!((bytes[53], bytes[54..58].to_vec()), (2, vec![1, 2, 3, 4]));
        // Both addresses, the protocol, the destination port, the magic.
        let addresses = 2 * (0x2001 + 2) + 1 + 2;
        assert_eq!(partial_sum(&v6), addresses + 17 + 772 + 0x5745 + 0x4952);
    }

    #[test]
    fn the_partial_sum_is_that_of_the_words() {
        // 4500 + 4000 + 4011 + c000 + 0201 + c000 + 0202
        let expected = 0x4500 + 0x4000 + 0x4011 + 0xc000 + 0x0201 + 0xc000 + 0x0202;
        assert_eq!(partial_sum(&stream("")), expected);
    }
}
