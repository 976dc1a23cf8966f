// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guaranteed connections inside virtual networks that share one physical network.
//!
//! A virtual network has a guaranteed share of arcs; inside it, a connection has a guaranteed rate
//! and a fixed path for each direction. This crate decides and plans; `weir broker` stores and
//! carries out. It is pure: no clock, no entropy, no files, and all work is bounded by counts.

mod accounting;
mod admission;
mod alternatives;
mod answer;
mod bounds;
mod connection;
mod disjointness;
mod error;
mod finder;
mod graph;
mod ids;
mod intent;
mod ledger;
mod lifecycle;
mod link_shares;
mod path_search;
mod plan;
mod preemptable_room;
mod preemption;
mod rearrangement;
mod refusal;
mod restoration;
mod selectors;
mod serde_units;
mod share_change;
mod state;
// The tests of the public interface share it, by this name.
#[cfg(test)]
extern crate self as weir_network;
#[cfg(test)]
mod test_network;
mod timers;
mod topology;
mod virtual_network;
#[cfg(test)]
mod work_tests;

pub use accounting::{
    AccountedRate, PACKET_MIN, REQUEST_RATE_MAX, TUNNEL_MTU, TUNNEL_OVERHEAD, TunnelAccounting,
};
pub use answer::{AdmissionAnswer, ArcShortage, ConnectionRefusal, RefusalReason, SmallestChange};
pub use connection::{
    AdmittedFlow, ByDirection, ConnectionRequest, FlowDirection, FlowSelector, NetworkConnection,
    PathLimits, RateBasis, RequestedRate, RoutedPath, SelectorSpecificity, TimeWindow,
    TransportProtocol,
};
pub use error::NetworkError;
pub use finder::{PathFinder, PathFinderLimits};
pub use graph::NetworkGraph;
pub use ids::{ArcId, ConnectionId, EndNodeId, LinkId, NetworkId, NodeId};
pub use intent::{
    ConnectionPlan, ConnectionStep, EntryTarget, NodeInstruction, NodeIntent, TunnelEntry,
    TunnelFarEnd, TunnelId, TunnelTransit,
};
pub use lifecycle::{
    ConnectionEvent, ConnectionState, IllegalTransition, PathChangeStep, RecoveryAction, recovery,
};
pub use link_shares::{LinkShares, ShareKey, ShareRefusal};
pub use path_search::{PathObjective, PathOutcome, PathQuery};
pub use plan::ConnectionTunnels;
pub use rearrangement::{PathMove, RearrangementLimits, RearrangementOutcome};
pub use restoration::{RestorationCursor, RestorationOutcome, RestorationTurn};
pub use state::{AdmittedFlows, NetworkLimits, NetworkState};
pub use timers::{ConnectionLease, ConnectionTimers};
pub use topology::{LinkArc, NetworkNode, NetworkTopology, TOPOLOGY_ARCS_MAX, TOPOLOGY_NODES_MAX};
pub use virtual_network::{ArcShare, EndNode, Ipv6Prefix, VirtualNetwork};
