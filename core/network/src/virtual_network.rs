// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual networks side by side on one physical network, and what is in each of them.
//!
//! A network is a VLAN with a guaranteed share of arcs, virtual routers on nodes, and end nodes
//! behind them. Part of each share is a class for packets outside of tunnels, for example OSPFv3
//! and requests. Connections are admitted against the rest.

use core::net::Ipv6Addr;

use serde::{Deserialize, Serialize};
use weir_units::BitRate;

use crate::ids::{ArcId, EndNodeId, NetworkId, NodeId};
use crate::serde_units::bps;

/// An IPv6 prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Ipv6Prefix {
    /// Its first address.
    pub address: Ipv6Addr,
    /// Its length in bits, at most 128.
    pub length: u8,
}

impl Ipv6Prefix {
    /// The address at a place in the prefix; `None` beyond its end.
    #[must_use]
    pub const fn at(self, place: u128) -> Option<Ipv6Addr> {
        let bits = 128u32.saturating_sub(self.length as u32);
        if bits < 128 && place >> bits != 0 {
            return None;
        }
        Some(Ipv6Addr::from_bits(self.address.to_bits() | place))
    }

    /// Tells whether it holds an address.
    #[must_use]
    pub const fn contains(self, address: Ipv6Addr) -> bool {
        let differ = self.address.to_bits() ^ address.to_bits();
        self.length == 0 || differ >> (128 - self.length as u32) == 0
    }
}

/// A network's guaranteed share of an arc.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArcShare {
    /// The arc.
    pub arc: ArcId,
    /// The share, in layer-2 bits a second.
    #[serde(with = "bps")]
    pub rate: BitRate,
    /// The part of it that is guaranteed to packets outside of tunnels.
    #[serde(with = "bps")]
    pub untunnelled: BitRate,
}

/// A virtual network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VirtualNetwork {
    /// Its id.
    pub id: NetworkId,
    /// Its unique name.
    pub name: String,
    /// Its VLAN id on all its arcs, 1 to 4094.
    pub vlan: u16,
    /// The pool of routed addresses that tunnels have as outer addresses.
    pub outer: Ipv6Prefix,
    /// Its shares. It does not pass arcs without one.
    pub shares: Vec<ArcShare>,
    /// Most connections of it, so that one network does not use up the bound of all.
    pub connections: usize,
}

/// An end node: a source and a destination of connections. Nothing is installed there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndNode {
    /// Its id.
    pub id: EndNodeId,
    /// Its unique name.
    pub name: String,
    /// The network that it belongs to.
    pub network: NetworkId,
    /// The node whose virtual router is its gateway. For an end node in an unmanaged network, it
    /// is the first managed router on the way.
    pub gateway: NodeId,
    /// Addresses it may name in requests.
    pub addresses: Vec<Ipv6Addr>,
}
