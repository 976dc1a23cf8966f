// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of the audit of headers ([`crate::audit_headers`]) that is about five-tuples: packets
//! to draw, and an oracle that reads them byte by byte. It shares no code with the switch.

use weir_policy::FiveTuple;

use crate::Seed;

/// The slices of the audit that a frame without a header is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AuditedTuple {
    /// That of the five-tuples with this index in [`audit_tuples`].
    Told(usize),
    /// The one that is told by nothing.
    Plain,
    /// All of them: it is ARP or neighbour discovery.
    All,
}

/// The five-tuples of the two slices of the audit that are told by them.
#[must_use]
pub fn audit_tuples() -> [Vec<FiveTuple>; 2] {
    let any = FiveTuple::default();
    let prefix = |text: &str| text.parse().ok();
    let first = vec![
        FiveTuple { protocol: Some(UDP), dst_port: Some(53), ..any },
        FiveTuple { src: prefix("10.0.0.0/8"), dst: prefix("10.1.2.3"), ..any },
        FiveTuple { protocol: Some(TCP), src_port: Some(443), dst: prefix("fd00::/9"), ..any },
    ];
    let second = vec![
        FiveTuple { protocol: Some(SCTP), ..any },
        FiveTuple { protocol: Some(UDP), src: prefix("10.0.0.0/8"), ..any },
        FiveTuple { protocol: Some(0), ..any },
        FiveTuple { src: prefix("2001:db8::7"), ..any },
    ];
    [first, second]
}

/// Draws the type and the packet of a frame: IP mostly sound and often one of [`audit_tuples`], or
/// with options, extension headers, fragments and lengths that do not fit.
pub(crate) fn audit_packet(draw: &mut Seed) -> Vec<u8> {
    let transport = transport(draw);
    if draw.one_in(2) { ipv4(draw, &transport) } else { ipv6(draw, &transport) }
}

/// Draws a packet, with its type, that is told by the five-tuples of that index.
pub(crate) fn packet_told(draw: &mut Seed, index: usize) -> Vec<u8> {
    loop {
        let packet = audit_packet(draw);
        if tell(&packet) == AuditedTuple::Told(index) {
            return packet;
        }
    }
}

/// A protocol and what follows the IP header.
fn transport(draw: &mut Seed) -> (u8, Vec<u8>) {
    let protocol = pick(draw, &[UDP, UDP, TCP, TCP, SCTP, ICMPV6, 1, 0, 136, 50]);
    let mut bytes = Vec::new();
    if protocol == ICMPV6 {
        bytes.push(pick(draw, &[128, 132, 133, 135, 136, 137, 138]));
    }
    for _ in 0..2 {
        bytes.extend(pick(draw, &[53_u16, 443, 80, 0]).to_be_bytes());
    }
    let rest = draw.between(0, 40);
    bytes.extend((0..rest).map(|_| byte(draw)));
    if draw.one_in(12) {
        bytes.truncate(usize::from(byte(draw) % 5));
    }
    (protocol, bytes)
}

fn ipv4(draw: &mut Seed, (protocol, transport): &(u8, Vec<u8>)) -> Vec<u8> {
    let options = if draw.one_in(12) { 4 } else { 0 };
    let length = 20 + options + transport.len();
    let off = if draw.one_in(20) { usize::from(byte(draw) % 8) } else { 0 };
    let stated = u16::try_from(length + off).unwrap_or(u16::MAX);
    let mut packet = vec![0x08, 0x00];
    packet.push(0x40 | u8::try_from(5 + options / 4).unwrap_or(5));
    packet.push(0);
    packet.extend(stated.to_be_bytes());
    let fragment =
        if draw.one_in(12) { pick(draw, &[[0x20, 0], [0x20, 9], [0, 9]]) } else { [0; 2] };
    packet.extend([0, 0, fragment[0], fragment[1], 64, *protocol, 0, 0]);
    packet.extend(pick(draw, &[[10, 0, 0, 1], [192, 168, 0, 1], [10, 9, 8, 7]]));
    packet.extend(pick(draw, &[[10, 1, 2, 3], [10, 1, 2, 4], [224, 0, 0, 5]]));
    packet.extend((0..options).map(|_| 0));
    packet.extend(transport);
    packet
}

fn ipv6(draw: &mut Seed, (protocol, transport): &(u8, Vec<u8>)) -> Vec<u8> {
    let mut next = *protocol;
    let mut before = Vec::new();
    if draw.one_in(8) {
        let kind = pick(draw, &[0, 43, 44, 51, 60]);
        let later = if draw.one_in(2) { 8 } else { 0 };
        before.extend(if kind == 44 { [next, 0, 0, later] } else { [next, 0, 0, 0] });
        before.extend([0; 4]);
        next = kind;
    }
    let length = before.len() + transport.len();
    let off = if draw.one_in(20) { usize::from(byte(draw) % 8) } else { 0 };
    let stated = u16::try_from(length + off).unwrap_or(u16::MAX);
    let mut packet = vec![0x86, 0xdd, 0x60, 0, 0, 0];
    packet.extend(stated.to_be_bytes());
    packet.extend([next, pick(draw, &[255, 255, 64])]);
    for addresses in [[0xfd, 0x20, 0xfd], [0xfd, 0x20, 0x20]] {
        match pick(draw, &addresses) {
            0x20 => packet.extend([0x20, 0x01, 0x0d, 0xb8]),
            first => packet.extend([first, if draw.one_in(2) { 0x7f } else { 0x80 }, 0, 0]),
        }
        packet.extend([0; 11]);
        packet.push(pick(draw, &[7, 8]));
    }
    packet.extend(before);
    packet.extend(transport);
    packet
}

/// Says for whom a frame without a header is, from its type on.
pub(crate) fn tell(rest: &[u8]) -> AuditedTuple {
    let Some((kind, packet)) = rest.split_first_chunk::<2>() else { return AuditedTuple::Plain };
    let read = match kind {
        [0x08, 0x06] => return AuditedTuple::All,
        [0x08, 0x00] => read_ipv4(packet),
        [0x86, 0xdd] => read_ipv6(packet),
        _ => None,
    };
    let Some(read) = read else { return AuditedTuple::Plain };
    let discovers = |kind: &u8| {
        read.protocol == ICMPV6 && read.hop_limit == Some(255) && (133..=137).contains(kind)
    };
    if read.transport.first().is_some_and(discovers) {
        return AuditedTuple::All;
    }
    let told = audit_tuples().iter().position(|tuples| tuples.iter().any(|one| read.is(one)));
    told.map_or(AuditedTuple::Plain, AuditedTuple::Told)
}

/// A packet as the oracle reads it; later fragments have an empty transport header.
struct ReadPacket<'p> {
    source: Vec<u8>,
    destination: Vec<u8>,
    protocol: u8,
    /// The hop limit of an IPv6 packet; none for IPv4.
    hop_limit: Option<u8>,
    transport: &'p [u8],
}

impl ReadPacket<'_> {
    fn is(&self, tuple: &FiveTuple) -> bool {
        let has_ports = [TCP, UDP, SCTP, 136].contains(&self.protocol);
        let ports = self.transport.first_chunk::<4>().filter(|_| has_ports);
        let port =
            |at: usize| ports.map(|ports| u16::from(ports[at]) << 8 | u16::from(ports[at + 1]));
        tuple.protocol.is_none_or(|protocol| protocol == self.protocol)
            && tuple.src_port.is_none_or(|wanted| port(0) == Some(wanted))
            && tuple.dst_port.is_none_or(|wanted| port(2) == Some(wanted))
            && tuple.src.is_none_or(|prefix| lies_in(&self.source, prefix))
            && tuple.dst.is_none_or(|prefix| lies_in(&self.destination, prefix))
    }
}

fn lies_in(address: &[u8], prefix: weir_policy::Prefix) -> bool {
    let wanted = match prefix.address() {
        core::net::IpAddr::V4(v4) => v4.octets().to_vec(),
        core::net::IpAddr::V6(v6) => v6.octets().to_vec(),
    };
    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
    address.len() == wanted.len()
        && (0..usize::from(prefix.length())).all(|at| bit(address, at) == bit(&wanted, at))
}

fn read_ipv4(packet: &[u8]) -> Option<ReadPacket<'_>> {
    let header = usize::from(packet.first()? & 15) * 4;
    let total = usize::from(*packet.get(2)?) << 8 | usize::from(*packet.get(3)?);
    if packet[0] >> 4 != 4 || header < 20 || packet.len() < 20 || total < header {
        return None;
    }
    let whole = packet.get(..total)?;
    let is_later = packet[6] & 0x1f != 0 || packet[7] != 0;
    Some(ReadPacket {
        source: packet[12..16].to_vec(),
        destination: packet[16..20].to_vec(),
        protocol: packet[9],
        hop_limit: None,
        transport: if is_later { &[] } else { &whole[header..] },
    })
}

fn read_ipv6(packet: &[u8]) -> Option<ReadPacket<'_>> {
    let length = usize::from(*packet.get(4)?) << 8 | usize::from(*packet.get(5)?);
    let mut rest = packet.get(40..40 + length)?;
    let mut protocol = packet[6];
    if packet[0] >> 4 != 6 {
        return None;
    }
    let (mut headers, mut is_later) = (0, false);
    while [0, 43, 44, 51, 60].contains(&protocol) && !is_later {
        headers += 1;
        // The switch reads fewer than eight.
        if headers == 8 {
            return None;
        }
        let size = match protocol {
            44 => 8,
            51 => 8 + 4 * usize::from(*rest.get(1)?),
            _ => 8 + 8 * usize::from(*rest.get(1)?),
        };
        let header = rest.get(..size)?;
        is_later = protocol == 44 && (header[2] != 0 || header[3] & 0xf8 != 0);
        (protocol, rest) = (header[0], &rest[size..]);
    }
    Some(ReadPacket {
        source: packet[8..24].to_vec(),
        destination: packet[24..40].to_vec(),
        protocol,
        hop_limit: Some(packet[7]),
        transport: if is_later { &[] } else { rest },
    })
}

fn pick<T: Copy>(draw: &mut Seed, from: &[T]) -> T {
    from[usize::from(byte(draw)) % from.len()]
}

fn byte(draw: &mut Seed) -> u8 {
    draw.draw().to_be_bytes()[0]
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
