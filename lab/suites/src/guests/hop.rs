// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ways in which a guest hands a packet on: as a bridge, which changes nothing of it, as a
//! router, or as one that translates addresses (NAT66 with ports, as RFC 4787 has it for IPv4).

use std::collections::HashMap;
use std::str::FromStr;

use weir_policy::MacAddr;

use super::counts::GuestDrop;
use super::frame::{PacketView, UDP_BYTES, mended};

/// The way in which a guest hands packets on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HopKind {
    /// Unchanged, as the text's guests did.
    #[default]
    Bridge,
    /// One hop older, to the next hop's address.
    Route,
    /// Routed, and with the guest's own address and a port of its own as the source.
    Nat,
}

/// The next hop of a guest, and the flows that it translates.
#[derive(Debug)]
pub(super) struct NextHop {
    kind: HopKind,
    own: MacAddr,
    next: MacAddr,
    /// Ports by address and port of the source.
    flows: HashMap<([u8; 16], u16), u16>,
}

impl HopKind {
    /// All of them; the text's own first.
    pub const ALL: [Self; 3] = [Self::Bridge, Self::Route, Self::Nat];

    /// The name on a command line and in series.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bridge => "bridge",
            Self::Route => "route",
            Self::Nat => "nat",
        }
    }
}

impl FromStr for HopKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == text);
        found.ok_or_else(|| format!("{text:?} is not bridge, route or nat"))
    }
}

impl NextHop {
    pub(super) fn new(kind: HopKind, own: MacAddr, next: MacAddr) -> Self {
        Self { kind, own, next, flows: HashMap::new() }
    }

    /// Makes a frame the one that leaves.
    pub(super) fn apply(&mut self, frame: &mut [u8]) -> Result<(), GuestDrop> {
        if self.kind == HopKind::Bridge {
            return Ok(());
        }
        let mut packet = PacketView::of(frame).ok_or(GuestDrop::NotIpv6)?;
        if packet.header[7] <= 1 {
            return Err(GuestDrop::HopLimit);
        }
        packet.header[7] -= 1;
        packet.ethernet[..6].copy_from_slice(&self.next.0);
        packet.ethernet[6..12].copy_from_slice(&self.own.0);
        match self.kind {
            HopKind::Nat => self.translate(&mut packet),
            HopKind::Bridge | HopKind::Route => Ok(()),
        }
    }

    /// Puts the guest's address and the flow's port in place of the source.
    fn translate(&mut self, packet: &mut PacketView<'_>) -> Result<(), GuestDrop> {
        let Some(ports) = packet.ports() else { return Ok(()) };
        let Some(old) = packet.header[8..].first_chunk::<16>().copied() else { return Ok(()) };
        let flow = (old, ports.source);
        let port = match self.flows.get(&flow) {
            Some(port) => *port,
            None => self.add_flow(flow)?,
        };
        let Some(udp) = packet.payload.first_chunk_mut::<UDP_BYTES>() else { return Ok(()) };
        let mut checksum = u16::from_be_bytes([udp[6], udp[7]]);
        let words = |bytes: [u8; 16]| {
            let (words, _) = bytes.as_chunks::<2>();
            words.iter().map(|word| u16::from_be_bytes(*word)).collect::<Vec<u16>>()
        };
        for (from, to) in words(old).into_iter().zip(words(OWN_ADDRESS)) {
            checksum = mended(checksum, from, to);
        }
        checksum = mended(checksum, ports.source, port);
        udp[..2].copy_from_slice(&port.to_be_bytes());
        // Zero would say that there is none (RFC 8200, section 8.1).
        let checksum = if checksum == 0 { u16::MAX } else { checksum };
        udp[6..].copy_from_slice(&checksum.to_be_bytes());
        packet.header[8..24].copy_from_slice(&OWN_ADDRESS);
        Ok(())
    }

    fn add_flow(&mut self, flow: ([u8; 16], u16)) -> Result<u16, GuestDrop> {
        let number = u16::try_from(self.flows.len()).unwrap_or(u16::MAX);
        if number >= FLOWS_MAX {
            return Err(GuestDrop::FlowsFull);
        }
        self.flows.insert(flow, FIRST_PORT + number);
        Ok(FIRST_PORT + number)
    }
}

/// 2001:2:0:4000::1, of the network for benchmarks (RFC 5180).
const OWN_ADDRESS: [u8; 16] = [0x20, 0x01, 0, 2, 0, 0, 0x40, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const FIRST_PORT: u16 = 20_000;
/// Flows that are translated at most.
const FLOWS_MAX: u16 = 4_096;

#[cfg(test)]
mod tests {
    use super::super::fixture::{checksum, packet};
    use super::*;

    fn hop(kind: HopKind) -> NextHop {
        NextHop::new(kind, MacAddr([2, 0, 0, 0, 0, 8]), MacAddr([2, 0, 0, 0, 0, 9]))
    }

    #[test]
    fn a_bridge_changes_nothing_and_a_router_the_hop() {
        let mut frame = packet(7, b"payload");
        let before = frame.clone();
        hop(HopKind::Bridge).apply(&mut frame).unwrap();
        assert_eq!(frame, before);
        hop(HopKind::Route).apply(&mut frame).unwrap();
        assert_eq!(frame[..12], [2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 8]);
        assert_eq!((frame[21], &frame[22..]), (63, &before[22..]));
        frame[21] = 1;
        assert_eq!(hop(HopKind::Route).apply(&mut frame), Err(GuestDrop::HopLimit));
    }

    /// Goal: a flow keeps its port, others get others, and checksums stay right.
    #[test]
    fn flows_are_translated_and_bounded() {
        let mut nat = hop(HopKind::Nat);
        let mut port_of = |source: u16| {
            let mut frame = packet(source, b"some payload");
            nat.apply(&mut frame).map(|()| {
                assert_eq!((checksum(&frame), &frame[22..38]), (0, &OWN_ADDRESS[..]));
                u16::from_be_bytes([frame[54], frame[55]])
            })
        };
        assert_eq!([port_of(7), port_of(8), port_of(7)], [Ok(20_000), Ok(20_001), Ok(20_000)]);
        for source in 10_000..10_000 + FLOWS_MAX - 2 {
            assert!(port_of(source).is_ok());
        }
        assert_eq!(port_of(9), Err(GuestDrop::FlowsFull));
        assert_eq!(port_of(8), Ok(20_001));
    }

    #[test]
    fn a_kind_reads_as_it_is_written() {
        assert!(HopKind::ALL.iter().all(|kind| kind.name().parse() == Ok(*kind)));
        assert!("hub".parse::<HopKind>().is_err());
    }
}
