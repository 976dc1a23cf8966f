// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answer to a request: admitted with its paths, or refused with the reason and with the
//! smallest change of the request that would have been admitted.

use serde::{Deserialize, Serialize};
use weir_units::BitRate;

use crate::connection::{AdmittedFlow, ByDirection, FlowDirection, RequestedRate};
use crate::ids::{ArcId, ConnectionId, EndNodeId, NetworkId};
use crate::serde_units::bps;

/// An answer to a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AdmissionAnswer {
    /// The request is admitted, with these flows.
    Admitted(ByDirection<Option<AdmittedFlow>>),
    /// The request is refused.
    Refused(ConnectionRefusal),
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionRefusal {
    /// The reason.
    pub reason: RefusalReason,
    /// Each of these alone would have been enough, and nothing smaller of its kind.
    pub changes: Vec<SmallestChange>,
}

/// The reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum RefusalReason {
    /// The network is not known.
    #[error("{0} is not known")]
    UnknownNetwork(NetworkId),
    /// An end node is not known.
    #[error("{0} is not known")]
    UnknownEndNode(EndNodeId),
    /// An end node belongs to another network.
    #[error("{0} belongs to another network")]
    ForeignEndNode(EndNodeId),
    /// An end node does not have the address that the selector names.
    #[error("{0} does not have the address that the selector names")]
    ForeignAddress(EndNodeId),
    /// The connection that the path must be disjoint from is not known.
    #[error("{0}, from which the path must be disjoint, is not known")]
    UnknownConnection(ConnectionId),
    /// The connection that the path must be disjoint from is in another network.
    #[error("{0}, from which the path must be disjoint, is in another network")]
    ForeignConnection(ConnectionId),
    /// A connection already selects these packets at that time.
    #[error("{0} selects the same packets at that time")]
    SelectorTaken(ConnectionId),
    /// Packets may match this request and that connection, and neither is more specific: one names
    /// the port of the source alone, the other that of the destination.
    #[error("{0} selects some of the same packets at that time, by the other port alone")]
    SelectorAmbiguous(ConnectionId),
    /// Neither direction asks for a rate.
    #[error("neither direction asks for a rate")]
    NoRate,
    /// A rate is above what can be accounted.
    #[error("{asked} bit/s, at most {most} bit/s")]
    RateTooHigh {
        /// The rate.
        asked: u64,
        /// The most.
        most: u64,
    },
    /// The smallest packet is out of its bound.
    #[error("smallest packet of {asked} bytes, in {least} to {most}")]
    SmallestPacket {
        /// The size.
        asked: u16,
        /// The least: an IPv6 header.
        least: u16,
        /// The most: a tunnel's MTU.
        most: u16,
    },
    /// The window has no moment.
    #[error("the window has no moment")]
    EmptyWindow,
    /// The broker has as many connections as it may have.
    #[error("{most} connections exist, which is the bound")]
    TooManyConnections {
        /// The bound.
        most: u64,
    },
    /// The virtual network has as many connections as it may have.
    #[error("the network has {most} connections, which is its bound")]
    NetworkFull {
        /// The bound.
        most: u64,
    },
    /// No path exists, whatever the rate: failures, affinity, avoided parts, shares.
    #[error("{direction:?}: no path, whatever the rate")]
    NoRoute {
        /// The direction.
        direction: FlowDirection,
    },
    /// No path with room has a delay that small.
    #[error("{direction:?}: the least delay with room is {least} ns, the limit is {limit} ns")]
    Delay {
        /// The direction.
        direction: FlowDirection,
        /// The limit in nanoseconds.
        limit: u64,
        /// The least delay in nanoseconds.
        least: u64,
    },
    /// No path with room has so few arcs.
    #[error("{direction:?}: the fewest arcs with room are {least}, the limit is {limit}")]
    Hops {
        /// The direction.
        direction: FlowDirection,
        /// The limit.
        limit: u16,
        /// The fewest.
        least: u16,
    },
    /// There are paths with room and paths within limits, but none with both, or none with room.
    #[error("{direction:?}: {asked} bit/s needed, {free} bit/s free on the best path, at {arc}")]
    Bandwidth {
        /// The direction.
        direction: FlowDirection,
        /// The rate that would be reserved.
        asked: u64,
        /// The most that could be; maybe less, if the search for it reached its bound.
        free: u64,
        /// A full arc of the best path.
        arc: ArcId,
    },
    /// The search reached its bound before the answer was known.
    #[error("{direction:?}: the search stopped at its bound of {labels} labels")]
    SearchExhausted {
        /// The direction.
        direction: FlowDirection,
        /// The bound.
        labels: u64,
    },
}

/// A change of a request that would be admitted, while one that is smaller would not.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SmallestChange {
    /// Ask for these rates; only those differ that must.
    LowerRate(ByDirection<RequestedRate>),
    /// Allow this much delay in nanoseconds.
    RaiseDelay {
        /// The direction.
        direction: FlowDirection,
        /// The least limit that is admitted.
        limit: u64,
    },
    /// Allow this many arcs.
    RaiseHops {
        /// The direction.
        direction: FlowDirection,
        /// The least limit that is admitted.
        limit: u16,
    },
    /// Give this much more to each of these arcs, in the network's share.
    AddShare {
        /// The direction.
        direction: FlowDirection,
        /// The arcs with what each lacks.
        arcs: Vec<ArcShortage>,
    },
}

/// The rate that an arc lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArcShortage {
    /// The arc.
    pub arc: ArcId,
    /// The rate.
    #[serde(with = "bps")]
    pub rate: BitRate,
}
