// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a frame where it lies: Ethernet, one VLAN tag, IPv4 or IPv6, ARP, ports, ECN.
//!
//! Nothing is copied and nothing panics. Ethernet is read for every frame and refused with a
//! [`Reason`]. What lies above is read when something needs it. A header that does not fit the
//! frame reads as `None`; the caller decides whether that is a fault.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::reason::Reason;

/// The Ethernet header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination address, as a 48-bit number (the first byte on the wire is the highest).
    pub destination: u64,
    /// Source address, likewise.
    pub source: u64,
    /// VLAN identifier of its 802.1Q tag (0: a priority tag), if it has one.
    pub vlan: Option<u16>,
    /// Type of the payload, behind the tag.
    pub ethertype: u16,
    /// Offset of the payload: 14, or 18 behind a tag.
    pub payload: usize,
}

/// The network and transport header behind an Ethernet header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ip {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// The transport protocol, behind any extension headers.
    pub protocol: u8,
    /// The two ECN bits (RFC 3168 §5).
    pub ecn: u8,
    /// Offset of the transport header in the frame.
    pub transport: usize,
    /// Offset of the datagram's end in the frame; Ethernet's padding follows.
    pub end: usize,
    /// Set for a fragment: only the first has a transport header, and no checksum can be completed.
    pub fragment: Option<Fragment>,
    /// Set by a routing header with segments left (RFC 8200 §4.4): the final destination is
    /// elsewhere.
    pub routed: bool,
}

/// The part of a datagram that a fragment is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragment {
    /// The first, which holds the transport header.
    First,
    /// Any other.
    Later,
}

/// The sender's half of an ARP packet (RFC 826).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArpSender {
    /// Hardware address, as a 48-bit number.
    pub mac: u64,
    /// Protocol address.
    pub address: Ipv4Addr,
}

impl Ethernet {
    /// Reads the header.
    ///
    /// # Errors
    /// [`Reason::Truncated`] if it does not fit, [`Reason::NestedTag`] if a second tag, or a
    /// service tag, follows.
    #[inline]
    pub fn read(frame: &[u8]) -> Result<Self, Reason> {
        let head = frame.first_chunk::<14>().ok_or(Reason::Truncated)?;
        let [d0, d1, d2, d3, d4, d5, s0, s1, s2, s3, s4, s5, t0, t1] = *head;
        let destination = u64::from_be_bytes([0, 0, d0, d1, d2, d3, d4, d5]);
        let source = u64::from_be_bytes([0, 0, s0, s1, s2, s3, s4, s5]);
        let ethertype = u16::from_be_bytes([t0, t1]);
        match ethertype {
            TPID_CUSTOMER => {
                let (tag, inner) = (word(frame, 14), word(frame, 16));
                let (Some(tag), Some(ethertype)) = (tag, inner) else {
                    return Err(Reason::Truncated);
                };
                if ethertype == TPID_CUSTOMER || ethertype == TPID_SERVICE {
                    return Err(Reason::NestedTag);
                }
                let vlan = Some(tag & 0x0fff);
                Ok(Self { destination, source, vlan, ethertype, payload: 18 })
            }
            TPID_SERVICE => Err(Reason::NestedTag),
            _ => Ok(Self { destination, source, vlan: None, ethertype, payload: 14 }),
        }
    }

    /// Tells whether the destination is a group (multicast or broadcast).
    #[must_use]
    pub const fn is_group(&self) -> bool {
        is_group(self.destination)
    }

    /// Tells whether the destination is reserved for the link and never forwarded (802.1Q table
    /// 8-1).
    #[must_use]
    pub const fn is_reserved(&self) -> bool {
        self.destination & !0xf == 0x0180_c200_0000
    }

    /// Returns the two ECN bits of an IP packet, without reading more of it; 0 for anything else.
    #[inline]
    #[must_use]
    pub fn ecn(&self, frame: &[u8]) -> u8 {
        match (self.ethertype, frame.get(self.payload), frame.get(self.payload + 1)) {
            (ETHERTYPE_IPV4, _, Some(tos)) => tos & 3,
            (ETHERTYPE_IPV6, _, Some(low)) => (low >> 4) & 3,
            _ => 0,
        }
    }
}

impl Ip {
    /// Reads the IP packet of a frame; `None` if the frame has none, or the packet does not fit it.
    #[must_use]
    pub fn read(frame: &[u8], ethernet: &Ethernet) -> Option<Self> {
        match ethernet.ethertype {
            ETHERTYPE_IPV4 => Self::read_v4(frame, ethernet.payload),
            ETHERTYPE_IPV6 => Self::read_v6(frame, ethernet.payload),
            _ => None,
        }
    }

    /// Returns source and destination port of TCP, UDP, SCTP or UDP-Lite; `None` for others and for
    /// later fragments.
    #[must_use]
    pub fn ports(&self, frame: &[u8]) -> Option<(u16, u16)> {
        if self.fragment == Some(Fragment::Later) || self.transport + 4 > self.end {
            return None;
        }
        match self.protocol {
            PROTOCOL_TCP | PROTOCOL_UDP | PROTOCOL_SCTP | PROTOCOL_UDP_LITE => {
                Some((word(frame, self.transport)?, word(frame, self.transport + 2)?))
            }
            _ => None,
        }
    }

    fn read_v4(frame: &[u8], start: usize) -> Option<Self> {
        let head = frame.get(start..)?.first_chunk::<20>()?;
        let header = usize::from(head[0] & 0x0f) * 4;
        let total = usize::from(u16::from_be_bytes([head[2], head[3]]));
        let end = start + total;
        if head[0] >> 4 != 4 || header < 20 || total < header || end > frame.len() {
            return None;
        }
        let position = u16::from_be_bytes([head[6], head[7]]);
        let fragment = match (position & 0x1fff, position & 0x2000) {
            (0, 0) => None,
            (0, _) => Some(Fragment::First),
            _ => Some(Fragment::Later),
        };
        Some(Self {
            source: IpAddr::V4(Ipv4Addr::new(head[12], head[13], head[14], head[15])),
            destination: IpAddr::V4(Ipv4Addr::new(head[16], head[17], head[18], head[19])),
            protocol: head[9],
            ecn: head[1] & 3,
            transport: start + header,
            end,
            fragment,
            routed: false,
        })
    }

    fn read_v6(frame: &[u8], start: usize) -> Option<Self> {
        let head = frame.get(start..)?.first_chunk::<40>()?;
        let end = start + 40 + usize::from(u16::from_be_bytes([head[4], head[5]]));
        if head[0] >> 4 != 6 || end > frame.len() {
            return None;
        }
        let (source, rest) = head[8..].split_first_chunk::<16>()?;
        let destination = rest.first_chunk::<16>()?;
        let mut ip = Self {
            source: IpAddr::V6(Ipv6Addr::from(*source)),
            destination: IpAddr::V6(Ipv6Addr::from(*destination)),
            protocol: head[6],
            ecn: (head[1] >> 4) & 3,
            transport: start + 40,
            end,
            fragment: None,
            routed: false,
        };
        for _ in 0..EXTENSIONS_MAX {
            if !ip.skip_extension(frame)? {
                return Some(ip);
            }
        }
        None
    }

    /// Steps over one extension header (RFC 8200 §4). Returns `false` if there is none, `None` if
    /// it does not fit the frame. The bytes of a later fragment are no header, whatever the
    /// fragment's own header names.
    fn skip_extension(&mut self, frame: &[u8]) -> Option<bool> {
        if self.fragment == Some(Fragment::Later) {
            return Some(false);
        }
        let length = match self.protocol {
            EXTENSION_HOP_BY_HOP | EXTENSION_DESTINATION | EXTENSION_ROUTING => {
                8 + 8 * usize::from(*frame.get(self.transport + 1)?)
            }
            EXTENSION_FRAGMENT => 8,
            EXTENSION_AUTHENTICATION => 8 + 4 * usize::from(*frame.get(self.transport + 1)?),
            _ => return Some(false),
        };
        if self.transport + length > self.end {
            return None;
        }
        if self.protocol == EXTENSION_ROUTING {
            self.routed |= *frame.get(self.transport + 3)? > 0;
        } else if self.protocol == EXTENSION_FRAGMENT {
            let position = word(frame, self.transport + 2)?;
            self.fragment = match (position & 0xfff8, position & 1) {
                (0, 0) => self.fragment,
                (0, _) => Some(Fragment::First),
                _ => Some(Fragment::Later),
            };
        }
        self.protocol = *frame.get(self.transport)?;
        self.transport += length;
        Some(true)
    }
}

impl ArpSender {
    /// Returns the sender of an ARP packet for IPv4 over Ethernet; `None` if the frame is something
    /// else.
    #[must_use]
    pub fn read(frame: &[u8], ethernet: &Ethernet) -> Option<Self> {
        let arp = frame.get(ethernet.payload..)?.first_chunk::<28>()?;
        if ethernet.ethertype != ETHERTYPE_ARP || arp[..6] != [0, 1, 8, 0, 6, 4] {
            return None;
        }
        let mac = u64::from_be_bytes([0, 0, arp[8], arp[9], arp[10], arp[11], arp[12], arp[13]]);
        Some(Self { mac, address: Ipv4Addr::new(arp[14], arp[15], arp[16], arp[17]) })
    }
}

/// Sets "congestion experienced" in an IP packet that can carry it, and updates the IPv4 header
/// checksum (RFC 1624 eqn 3). Returns whether it was set.
pub fn mark_congestion(frame: &mut [u8]) -> bool {
    let Ok(ethernet) = Ethernet::read(frame) else { return false };
    let at = ethernet.payload;
    match ethernet.ethertype {
        ETHERTYPE_IPV4 => {
            let Some(head) = frame.get_mut(at..).and_then(|rest| rest.first_chunk_mut::<20>())
            else {
                return false;
            };
            if head[1] & 3 == 0 {
                return false;
            }
            let before = u16::from_be_bytes([head[0], head[1]]);
            head[1] |= 3;
            let after = u16::from_be_bytes([head[0], head[1]]);
            let checksum = u16::from_be_bytes([head[10], head[11]]);
            let sum = u32::from(!checksum) + u32::from(!before) + u32::from(after);
            [head[10], head[11]] = (!fold(u64::from(sum))).to_be_bytes();
            true
        }
        ETHERTYPE_IPV6 => match frame.get_mut(at + 1) {
            Some(low) if *low & 0x30 != 0 => {
                *low |= 0x30;
                true
            }
            _ => false,
        },
        _ => false,
    }
}

/// Tells whether an address is a group address.
pub(crate) const fn is_group(mac: u64) -> bool {
    mac & 0x0100_0000_0000 != 0
}

/// Folds a sum of 16-bit words to one's complement 16 bits (RFC 1071 §4.1).
pub(crate) const fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    #[expect(clippy::cast_possible_truncation, reason = "folded to 16 bits just above")]
    return sum as u16;
}

/// Returns the 16-bit number at `at`, in network order.
pub(crate) fn word(frame: &[u8], at: usize) -> Option<u16> {
    frame.get(at..)?.first_chunk::<2>().map(|bytes| u16::from_be_bytes(*bytes))
}

/// IEEE 802.1Q customer tag.
pub(crate) const TPID_CUSTOMER: u16 = 0x8100;
/// IEEE 802.1ad service tag.
pub(crate) const TPID_SERVICE: u16 = 0x88a8;
pub(crate) const ETHERTYPE_IPV4: u16 = 0x0800;
pub(crate) const ETHERTYPE_ARP: u16 = 0x0806;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;
pub(crate) const PROTOCOL_TCP: u8 = 6;
pub(crate) const PROTOCOL_UDP: u8 = 17;
pub(crate) const PROTOCOL_ICMPV6: u8 = 58;
/// Encapsulating security payload.
pub(crate) const PROTOCOL_ESP: u8 = 50;
/// Authentication header, where nothing follows it that is looked at.
pub(crate) const PROTOCOL_AH: u8 = 51;
const PROTOCOL_SCTP: u8 = 132;
const PROTOCOL_UDP_LITE: u8 = 136;
const EXTENSION_HOP_BY_HOP: u8 = 0;
const EXTENSION_ROUTING: u8 = 43;
const EXTENSION_FRAGMENT: u8 = 44;
const EXTENSION_AUTHENTICATION: u8 = 51;
const EXTENSION_DESTINATION: u8 = 60;
/// RFC 8200 §4.1 names six, each at most once but destination options: 8 leaves room.
const EXTENSIONS_MAX: usize = 8;
