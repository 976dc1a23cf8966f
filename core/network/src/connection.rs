// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections: the request, and the flows that were admitted for it.
//!
//! A connection has a rate and a path for each direction. The requester says what the rate counts
//! ([`RateBasis`]), which paths it accepts ([`PathLimits`]) and when it is needed ([`TimeWindow`]).

use core::net::Ipv6Addr;

use serde::{Deserialize, Serialize};
use weir_units::{BitRate, Instant, Nanos};

use crate::ids::{ArcId, ConnectionId, EndNodeId, LinkId, NetworkId, NodeId};
use crate::lifecycle::ConnectionState;
use crate::serde_units::{bps, instant, optional_nanos};

/// A direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FlowDirection {
    /// From the source to the destination.
    Forward,
    /// From the destination to the source.
    Backward,
}

impl FlowDirection {
    /// Both, forward first.
    pub const BOTH: [Self; 2] = [Self::Forward, Self::Backward];
}

/// A pair of values, one for each direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ByDirection<T> {
    /// From the source to the destination.
    pub forward: T,
    /// From the destination to the source.
    pub backward: T,
}

impl<T> ByDirection<T> {
    /// The value for a direction.
    pub const fn of(&self, direction: FlowDirection) -> &T {
        match direction {
            FlowDirection::Forward => &self.forward,
            FlowDirection::Backward => &self.backward,
        }
    }

    /// The value for a direction, mutable.
    pub const fn of_mut(&mut self, direction: FlowDirection) -> &mut T {
        match direction {
            FlowDirection::Forward => &mut self.forward,
            FlowDirection::Backward => &mut self.backward,
        }
    }
}

impl<T> ByDirection<Option<T>> {
    /// The values that are `Some`, with their directions.
    pub fn present(&self) -> impl Iterator<Item = (FlowDirection, &T)> {
        let part = |direction| Some((direction, self.of(direction).as_ref()?));
        FlowDirection::BOTH.into_iter().filter_map(part)
    }
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransportProtocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// Header fields that tell a connection's packets from others at the edge, forward.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FlowSelector {
    /// The source's address.
    pub source: Ipv6Addr,
    /// The destination's address.
    pub destination: Ipv6Addr,
    /// The protocol; `None`: all packets between the addresses.
    pub protocol: Option<TransportProtocol>,
    /// The source's port, with a protocol only.
    pub source_port: Option<u16>,
    /// The destination's port, with a protocol only.
    pub destination_port: Option<u16>,
}

/// Specificity of a selector: the fields that it names beside the addresses. A packet that matches
/// two selectors belongs to the one that names more fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SelectorSpecificity {
    /// Nothing more: all packets between the addresses.
    Addresses,
    /// The protocol.
    Protocol,
    /// The protocol and one port, of either end.
    OnePort,
    /// The protocol and both ports.
    BothPorts,
}

impl FlowSelector {
    /// Returns how specific it is.
    #[must_use]
    pub const fn specificity(&self) -> SelectorSpecificity {
        match (self.protocol, self.source_port, self.destination_port) {
            (None, ..) => SelectorSpecificity::Addresses,
            (_, None, None) => SelectorSpecificity::Protocol,
            (_, Some(_), Some(_)) => SelectorSpecificity::BothPorts,
            _ => SelectorSpecificity::OnePort,
        }
    }

    /// The selector of packets in the other direction.
    #[must_use]
    pub const fn reversed(self) -> Self {
        Self {
            source: self.destination,
            destination: self.source,
            protocol: self.protocol,
            source_port: self.destination_port,
            destination_port: self.source_port,
        }
    }
}

/// Says what a requested rate counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RateBasis {
    /// Outer packets: the rate includes the encapsulation.
    #[default]
    Outer,
    /// The application's packets, none of them smaller than this many bytes with its IP header.
    Inner {
        /// The smallest packet. Smaller packets are carried, but with them the rate is not reached.
        smallest_packet: u16,
    },
}

/// Limits of a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathLimits {
    /// Most delay, summed exactly over the arcs.
    #[serde(with = "optional_nanos", default)]
    pub delay: Option<Nanos>,
    /// Most arcs.
    pub hops: Option<u16>,
    /// Affinity bits of which an arc must have all.
    #[serde(default)]
    pub include_all: u32,
    /// Affinity bits of which an arc may have none.
    #[serde(default)]
    pub exclude_any: u32,
    /// Links to avoid, sorted.
    #[serde(default)]
    pub avoid_links: Vec<LinkId>,
    /// Nodes to avoid, sorted.
    #[serde(default)]
    pub avoid_nodes: Vec<NodeId>,
    /// A connection of the same network with which the path may share no link, nor any physical
    /// link under several links ([`crate::NetworkState::add_shared_risk_group`]).
    #[serde(default)]
    pub disjoint_from: Option<ConnectionId>,
}

/// The time for which a connection is admitted, its end excluded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TimeWindow {
    /// Its start.
    #[serde(with = "instant")]
    pub start: Instant,
    /// Its end; [`Instant::FAR_FUTURE`] for none.
    #[serde(with = "instant")]
    pub end: Instant,
}

impl TimeWindow {
    /// All time.
    pub const ALWAYS: Self = Self { start: Instant::ZERO, end: Instant::FAR_FUTURE };

    /// Tells whether two windows have an instant in common.
    #[must_use]
    pub fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Tells whether the window contains no instant.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.start >= self.end
    }
}

/// A request for a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionRequest {
    /// The virtual network of the connection.
    pub network: NetworkId,
    /// The end node that sends forward.
    pub source: EndNodeId,
    /// The end node that receives forward.
    pub destination: EndNodeId,
    /// Selects the packets of the connection.
    pub selector: FlowSelector,
    /// The rate of each direction, counted as `basis` says.
    pub rate: ByDirection<RequestedRate>,
    /// The bytes that the rates count.
    pub basis: RateBasis,
    /// Limits of each direction's path.
    pub limits: ByDirection<PathLimits>,
    /// The time for which the connection is needed.
    pub window: TimeWindow,
    /// The priority: after a failure, 0 is restored first.
    pub priority: u8,
}

impl ConnectionRequest {
    /// The selector of a direction's packets.
    #[must_use]
    pub const fn selector_of(&self, direction: FlowDirection) -> FlowSelector {
        match direction {
            FlowDirection::Forward => self.selector,
            FlowDirection::Backward => self.selector.reversed(),
        }
    }

    /// The requested rate of a direction.
    #[must_use]
    pub const fn rate_of(&self, direction: FlowDirection) -> BitRate {
        self.rate.of(direction).0
    }
}

/// A requested rate; zero asks for no tunnel in that direction.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct RequestedRate(#[serde(with = "bps")] pub BitRate);

/// A path, by its arcs in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RoutedPath {
    /// The arcs. Empty if source and destination have the same gateway.
    pub arcs: Vec<ArcId>,
    /// The sum of their costs.
    pub cost: u64,
    /// The sum of their delays in nanoseconds.
    pub delay: u64,
}

/// A direction of an admitted connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdmittedFlow {
    /// Its path.
    pub path: RoutedPath,
    /// The rate of the limiter where the flow enters.
    #[serde(with = "bps")]
    pub limit: BitRate,
    /// The rate that is charged to each arc of the path.
    #[serde(with = "bps")]
    pub reserved: BitRate,
}

/// A connection that was admitted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkConnection {
    /// Its id.
    pub id: ConnectionId,
    /// The request.
    pub request: ConnectionRequest,
    /// The path and rates of each direction; `None` where no rate was asked for.
    pub flows: ByDirection<Option<AdmittedFlow>>,
    /// The state of its life cycle.
    pub state: ConnectionState,
}
