// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Anti-spoofing of addresses: what a vif may claim to be, in IPv4, ARP, IPv6 and ND.
//!
//! It applies only to vifs whose addresses are given. MAC addresses are checked by the table of the
//! bridge.

use core::net::{IpAddr, Ipv6Addr};

use crate::frame::{
    ArpSender, ETHERTYPE_ARP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, Ethernet, Ip, PROTOCOL_ICMPV6,
    PROTOCOL_UDP,
};

/// Tells whether a frame from a vif with these addresses may pass.
///
/// Beside the given addresses a vif may use, as it must to start up: the unspecified address in an
/// ARP probe (RFC 5227), in DHCP from port 68, and in `ICMPv6` (RFC 4862 §5.4); and the link-local
/// address made from its MAC (RFC 4291, appendix A). A frame that cannot be read as its type says
/// does not pass, nor does RARP. Frames of any type but IPv4, ARP, RARP and IPv6 pass.
#[must_use]
pub(crate) fn passes(addresses: &[IpAddr], frame: &[u8], ethernet: &Ethernet) -> bool {
    match ethernet.ethertype {
        ETHERTYPE_ARP => ArpSender::read(frame, ethernet).is_some_and(|sender| {
            let own = addresses.contains(&IpAddr::V4(sender.address));
            sender.mac == ethernet.source && (own || sender.address.is_unspecified())
        }),
        ETHERTYPE_RARP => false,
        ETHERTYPE_IPV4 => Ip::read(frame, ethernet).is_some_and(|ip| {
            let dhcp = || {
                ip.source.is_unspecified()
                    && ip.protocol == PROTOCOL_UDP
                    && ip.ports(frame) == Some((68, 67))
            };
            addresses.contains(&ip.source) || dhcp()
        }),
        ETHERTYPE_IPV6 => {
            Ip::read(frame, ethernet).is_some_and(|ip| passes_v6(addresses, frame, ethernet, &ip))
        }
        _ => true,
    }
}

fn passes_v6(addresses: &[IpAddr], frame: &[u8], ethernet: &Ethernet, ip: &Ip) -> bool {
    let own = |address: IpAddr| {
        addresses.contains(&address) || address == IpAddr::V6(link_local(ethernet.source))
    };
    if ip.protocol != PROTOCOL_ICMPV6 {
        return own(ip.source);
    }
    (own(ip.source) || ip.source.is_unspecified())
        && neighbour_is_own(frame, ethernet, ip, own).unwrap_or(false)
}

/// Tells whether a neighbour message (RFC 4861 §4) speaks only of its sender; `None` if it is cut
/// short.
fn neighbour_is_own(
    frame: &[u8],
    ethernet: &Ethernet,
    ip: &Ip,
    own: impl Fn(IpAddr) -> bool,
) -> Option<bool> {
    let message = frame.get(ip.transport..ip.end)?;
    if ip.fragment.is_some() {
        // RFC 6980: neighbour messages must not be fragmented, so a fragment is no way around.
        return Some(!matches!(message.first(), Some(ROUTER_SOLICITATION..=REDIRECT)));
    }
    let options = match *message.first()? {
        ROUTER_SOLICITATION => 8,
        ROUTER_ADVERTISEMENT => 16,
        NEIGHBOUR_SOLICITATION => 24,
        NEIGHBOUR_ADVERTISEMENT => {
            let target: [u8; 16] = *message.get(8..)?.first_chunk()?;
            if !own(IpAddr::V6(Ipv6Addr::from(target))) {
                return Some(false);
            }
            24
        }
        REDIRECT => return Some(false),
        _ => return Some(true),
    };
    let mut rest = message.get(options..)?;
    while let [kind, length, body @ ..] = rest {
        if matches!(*kind, OPTION_SOURCE_MAC | OPTION_TARGET_MAC) {
            let mac = ethernet.source.to_be_bytes();
            if body.get(..6)? != mac.get(2..)? {
                return Some(false);
            }
        }
        let length = usize::from(*length) * 8;
        if length == 0 {
            return None;
        }
        rest = rest.get(length..)?;
    }
    Some(true)
}

/// Returns the link-local address that a MAC stands for: fe80::/64 and its modified EUI-64.
fn link_local(mac: u64) -> Ipv6Addr {
    let [_, _, a, b, c, d, e, f] = mac.to_be_bytes();
    Ipv6Addr::from([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

const ETHERTYPE_RARP: u16 = 0x8035;
pub(crate) const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
pub(crate) const REDIRECT: u8 = 137;
const OPTION_SOURCE_MAC: u8 = 1;
const OPTION_TARGET_MAC: u8 = 2;
