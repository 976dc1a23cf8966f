// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A five-tuple: packets told by their addresses, protocol and ports.

use crate::address::Prefix;

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
}
