// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors in what describes a network. Each names the thing, the value and the bound.

use crate::ids::{ArcId, ConnectionId, NetworkId, NodeId};

/// An error in a description of a network, or a reference to what it does not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// A table is full.
    #[error("{thing}: {value}, at most {most}")]
    TooMany {
        /// The table.
        thing: &'static str,
        /// Its asked size.
        value: u64,
        /// Its bound.
        most: u64,
    },
    /// An arc ends at a node that the topology lacks.
    #[error("arc {arc} ends at {node}, and there are {most} nodes")]
    UnknownNode {
        /// Place of the arc.
        arc: u64,
        /// The node named.
        node: NodeId,
        /// Number of nodes.
        most: u64,
    },
    /// Room for management exceeds an arc's capacity.
    #[error("arc {arc} keeps {room} bit/s of room, and its capacity is {capacity} bit/s")]
    RoomAboveCapacity {
        /// Place of the arc.
        arc: u64,
        /// The room.
        room: u64,
        /// The capacity.
        capacity: u64,
    },
    /// A virtual network has a VLAN id out of range or one that another has.
    #[error("{network}: VLAN {vlan} is not in 1 to 4094, or belongs to another network")]
    Vlan {
        /// The network.
        network: NetworkId,
        /// The VLAN id.
        vlan: u16,
    },
    /// A share names an arc that the topology lacks.
    #[error("{network}: a share of {arc}, and there are {most} arcs")]
    UnknownArc {
        /// The network.
        network: NetworkId,
        /// The arc named.
        arc: ArcId,
        /// Number of arcs.
        most: u64,
    },
    /// The shares of virtual networks exceed what an arc may promise.
    #[error("{network} asks for {asked} bit/s of {arc}, and {free} bit/s are free")]
    ShareAboveFree {
        /// The network that does not fit.
        network: NetworkId,
        /// The arc.
        arc: ArcId,
        /// The share asked for.
        asked: u64,
        /// The rate that other shares and the room leave.
        free: u64,
    },
    /// A share would be smaller than what connections are promised of it.
    #[error("{network}: connections have {reserved} bit/s of {arc}, and would have {left} bit/s")]
    ShareBelowReserved {
        /// The network.
        network: NetworkId,
        /// The arc.
        arc: ArcId,
        /// The most that connections are promised at any time.
        reserved: u64,
        /// The rate that they could be promised.
        left: u64,
    },
    /// An arc would be smaller than the shares of it.
    #[error("{arc}: shares add up to {promised} bit/s, and it would have {left} bit/s for them")]
    CapacityBelowShares {
        /// The arc.
        arc: ArcId,
        /// The sum of the shares.
        promised: u64,
        /// The rate that could be promised.
        left: u64,
    },
    /// The guaranteed class for packets outside of tunnels exceeds a network's share.
    #[error("{network}: {untunnelled} bit/s outside of tunnels, of a share of {rate} bit/s")]
    UntunnelledAboveShare {
        /// The network.
        network: NetworkId,
        /// Rate of the class.
        untunnelled: u64,
        /// The share.
        rate: u64,
    },
    /// An id is already in use.
    #[error("{thing} {id} exists already")]
    Exists {
        /// Its kind.
        thing: &'static str,
        /// Its id.
        id: u64,
    },
    /// An id is not known.
    #[error("{thing} {id} is not known")]
    Unknown {
        /// Its kind.
        thing: &'static str,
        /// Its id.
        id: u64,
    },
    /// An accounting parameter is out of its bound.
    #[error("{thing}: {value}, in {least} to {most}")]
    OutOfRange {
        /// The parameter.
        thing: &'static str,
        /// Its value.
        value: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A reservation would exceed an arc. It can only follow from a stale decision.
    #[error("{connection} needs {asked} bit/s of {arc}, and {free} bit/s are free")]
    OverCapacity {
        /// The connection.
        connection: ConnectionId,
        /// The arc.
        arc: ArcId,
        /// The rate that it needs there.
        asked: u64,
        /// The rate that is free.
        free: u64,
    },
}

/// Checks the size of a table against its bound.
pub(crate) const fn at_most(
    thing: &'static str,
    value: usize,
    most: usize,
) -> Result<(), NetworkError> {
    if value <= most {
        return Ok(());
    }
    Err(NetworkError::TooMany { thing, value: value as u64, most: most as u64 })
}
