// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The headers of a generated frame: Ethernet, an optional VLAN tag, IPv4, UDP. What depends on the
//! frame's size is left zero, for the program to fill in.

use super::spec::{Mac, XdpStream};

/// Ethernet, VLAN tag or not, IPv4 and UDP headers of a stream, padded with zeros.
pub(super) fn headers(stream: &XdpStream, source_mac: Mac) -> [u8; HEADERS_BYTES] {
    let mut bytes = Vec::with_capacity(HEADERS_BYTES);
    bytes.extend(stream.destination_mac.0);
    bytes.extend(source_mac.0);
    if let Some(vlan) = stream.vlan {
        bytes.extend(ETHERTYPE_VLAN.to_be_bytes());
        bytes.extend(vlan.to_be_bytes());
    }
    bytes.extend(ETHERTYPE_IPV4.to_be_bytes());
    bytes.extend(ip_header(stream));
    bytes.extend(stream.source_port.to_be_bytes());
    bytes.extend(stream.destination_port.to_be_bytes());
    // Length later; checksum zero means none (RFC 768).
    bytes.extend([0; 4]);
    let mut padded = [0; HEADERS_BYTES];
    padded[..bytes.len()].copy_from_slice(&bytes);
    padded
}

/// The sum of the IPv4 header's 16-bit words without total length and checksum: what the program
/// adds the length to.
pub(super) fn partial_sum(stream: &XdpStream) -> u64 {
    let header = ip_header(stream);
    let (words, _) = header.as_chunks::<2>();
    words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum()
}

/// Don't fragment, TTL 64, UDP; total length and checksum zero.
fn ip_header(stream: &XdpStream) -> [u8; 20] {
    let mut header = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    header[12..16].copy_from_slice(&stream.source.octets());
    header[16..20].copy_from_slice(&stream.destination.octets());
    header
}

/// Room for the headers of a tagged frame (46 bytes), in whole words.
pub(super) const HEADERS_BYTES: usize = 48;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_VLAN: u16 = 0x8100;

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
    fn the_partial_sum_is_that_of_the_words() {
        // 4500 + 4000 + 4011 + c000 + 0201 + c000 + 0202
        let expected = 0x4500 + 0x4000 + 0x4011 + 0xc000 + 0x0201 + 0xc000 + 0x0202;
        assert_eq!(partial_sum(&stream("")), expected);
    }
}
