// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The physical network: nodes, and links as two directed arcs each.
//!
//! A link's two directions are admitted, filled and measured apart, so each is an arc with its own
//! capacity and delay. Some of an arc's capacity is room that no virtual network may be promised:
//! it is for management and for the routing protocol, which must get through when all is full.

use serde::{Deserialize, Serialize};
use weir_units::{BitRate, Nanos};

use crate::error::{NetworkError, at_most};
use crate::ids::{ArcId, LinkId, NodeId};
use crate::serde_units::{bps, nanos};

/// Most nodes of a topology.
pub const TOPOLOGY_NODES_MAX: usize = 100_000;
/// Most arcs of a topology.
pub const TOPOLOGY_ARCS_MAX: usize = 1_000_000;

/// A managed node: a router or switch that the broker configures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkNode {
    /// A name that is unique in the topology.
    pub name: String,
    /// Set if commands can reach it now. Paths avoid nodes that are down.
    pub is_up: bool,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkArc {
    /// The link, shared by both directions.
    pub link: LinkId,
    /// The node at which packets enter the arc.
    pub from: NodeId,
    /// The node at which packets leave it.
    pub to: NodeId,
    /// All that passes, in layer-2 bits a second.
    #[serde(with = "bps")]
    pub capacity: BitRate,
    /// Room for management and OSPFv3: no virtual network is promised it.
    #[serde(with = "bps")]
    pub room: BitRate,
    /// Propagation and forwarding delay.
    #[serde(with = "nanos")]
    pub delay: Nanos,
    /// Administrative cost, which paths minimize.
    pub cost: u32,
    /// Affinity bits ("colours"), which requests include or exclude.
    pub affinity: u32,
    /// Set if it carries packets now. Paths avoid arcs that are down.
    pub is_up: bool,
}

impl LinkArc {
    /// Capacity that virtual networks may be promised.
    #[must_use]
    pub const fn sellable(&self) -> BitRate {
        BitRate::from_bps(self.capacity.as_bps().saturating_sub(self.room.as_bps()))
    }
}

/// The physical network, with its ids as places in the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkTopology {
    /// All nodes; [`NodeId`] is the place.
    pub nodes: Vec<NetworkNode>,
    /// All arcs; [`ArcId`] is the place.
    pub arcs: Vec<LinkArc>,
}

impl NetworkTopology {
    /// The arc, if there is one of that id.
    #[must_use]
    pub fn arc(&self, id: ArcId) -> Option<&LinkArc> {
        self.arcs.get(id.index())
    }

    /// Tells whether an arc and both its nodes are up.
    #[must_use]
    pub fn is_usable(&self, id: ArcId) -> bool {
        let node_up = |node: NodeId| self.nodes.get(node.index()).is_some_and(|node| node.is_up);
        self.arc(id).is_some_and(|arc| arc.is_up && node_up(arc.from) && node_up(arc.to))
    }

    /// Checks sizes, ends, and that the room fits into each arc's capacity.
    ///
    /// # Errors
    ///
    /// Names the first thing that is out of its bound.
    pub fn validate(&self) -> Result<(), NetworkError> {
        at_most("nodes of the topology", self.nodes.len(), TOPOLOGY_NODES_MAX)?;
        at_most("arcs of the topology", self.arcs.len(), TOPOLOGY_ARCS_MAX)?;
        for (place, arc) in self.arcs.iter().enumerate() {
            for end in [arc.from, arc.to] {
                if end.index() >= self.nodes.len() {
                    let most = self.nodes.len() as u64;
                    return Err(NetworkError::UnknownNode { arc: place as u64, node: end, most });
                }
            }
            if arc.room > arc.capacity {
                return Err(NetworkError::RoomAboveCapacity {
                    arc: place as u64,
                    room: arc.room.as_bps(),
                    capacity: arc.capacity.as_bps(),
                });
            }
        }
        Ok(())
    }
}
