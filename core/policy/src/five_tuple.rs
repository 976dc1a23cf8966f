// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A five-tuple: packets told by their addresses, protocol and ports.

use alloc::string::{String, ToString};

use crate::address::Prefix;
use crate::format::Protocol;

/// A pattern of packets that a port receives. It matches if all of its conditions hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FiveTuple {
    /// IP protocol number; `None`: any.
    pub protocol: Option<u8>,
    /// Source address; `None`: any.
    pub src: Option<Prefix>,
    /// Destination address, of the same family as `src`; `None`: any.
    pub dst: Option<Prefix>,
    /// Source port of TCP, UDP or SCTP; `None`: any.
    pub src_port: Option<u16>,
    /// Destination port of TCP, UDP or SCTP; `None`: any.
    pub dst_port: Option<u16>,
}

impl FiveTuple {
    /// The most of a node: each packet without a header may be compared with all of them.
    pub const MOST: u16 = 64;

    /// Returns the protocol as a policy writes it: its name if it has one, else its number.
    #[must_use]
    pub fn protocol_text(&self) -> Option<String> {
        self.protocol.map(|number| Protocol(number).to_string())
    }

    /// Returns true if each packet that matches `other` matches this one too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let Self { protocol, src, dst, src_port, dst_port } = *self;
        let prefix = |wide: Option<Prefix>, narrow: Option<Prefix>| {
            wide.is_none_or(|wide| narrow.is_some_and(|narrow| wide.covers(narrow)))
        };
        (protocol.is_none() || protocol == other.protocol)
            && prefix(src, other.src)
            && prefix(dst, other.dst)
            && (src_port.is_none() || src_port == other.src_port)
            && (dst_port.is_none() || dst_port == other.dst_port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a five-tuple covers another if each of its conditions is absent, or as wide at least.
    #[test]
    fn a_wider_five_tuple_covers_a_narrower_one() {
        let any = FiveTuple::default();
        let dns = FiveTuple { protocol: Some(17), dst_port: Some(53), ..any };
        let to = |text: &str| FiveTuple { dst: text.parse().ok(), ..dns };
        assert!(any.covers(&dns) && dns.covers(&dns) && dns.covers(&to("10.0.0.0/8")));
        assert!(to("10.0.0.0/8").covers(&to("10.1.0.0/16")));
        assert!(!to("10.1.0.0/16").covers(&to("10.0.0.0/8")));
        assert!(!to("0.0.0.0/0").covers(&to("::/0")) && !to("0.0.0.0/0").covers(&dns));
        assert!(!dns.covers(&FiveTuple { protocol: Some(17), ..any }));
        assert!(!dns.covers(&FiveTuple { src_port: Some(53), dst_port: None, ..dns }));
    }
}
