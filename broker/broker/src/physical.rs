// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of the configuration below the virtual networks: Weir nodes, and physical links between
//! their ports.
//!
//! A physical host runs a Weir node, and a port of the node is its end of a physical link. The
//! virtual routers of all networks are guests there; a network's link on a physical link has a
//! vif at either node, in the network's VLAN, which is guaranteed the network's share.

use std::path::PathBuf;

use serde::Deserialize;
use weir_units::BitRate;

use crate::config_values::{rate, reservable, some_rate};

/// A Weir node that the broker configures over its interface, as an administrator.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WeirNodeConfig {
    /// Unique among nodes.
    pub name: String,
    /// `https://HOST:PORT`, or the path of its Unix socket.
    pub api: String,
    /// PEM file of the authorities that may sign its certificate; without it, the system's.
    pub ca: Option<PathBuf>,
    /// File of an administrator's token; not needed by root on a Unix socket.
    pub token_file: Option<PathBuf>,
}

/// A physical link between ports of two nodes, with the same rate in each direction.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PhysicalLinkConfig {
    /// Unique among physical links.
    pub name: String,
    /// One end.
    pub a: PortEnd,
    /// The other end.
    pub b: PortEnd,
    /// Its rate, at most that of both ports.
    #[serde(deserialize_with = "rate")]
    pub rate: BitRate,
    /// The part of it that networks may be promised together; without it nine tenths. What is left
    /// is room for management and routing.
    #[serde(default, deserialize_with = "some_rate")]
    pub reservable: Option<BitRate>,
}

/// One end of a physical link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PortEnd {
    /// The node.
    pub node: String,
    /// Its port, by its name in the node's policy.
    pub port: String,
}

impl PhysicalLinkConfig {
    /// Returns the rate that networks may be promised together.
    #[must_use]
    pub fn reservable(&self) -> BitRate {
        reservable(self.rate, self.reservable)
    }

    /// Returns both ends.
    pub(crate) const fn ends(&self) -> [&PortEnd; 2] {
        [&self.a, &self.b]
    }
}
