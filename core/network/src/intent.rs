// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions for nodes: commands without a dialect, each idempotent, each with its undo.
//!
//! A driver turns a [`NodeInstruction`] into lines of `ip` and `tc` or into calls of an API. It is
//! stored in the transaction that admits the connection, before anything is sent; sent twice, it
//! has the effect of once.

use core::net::Ipv6Addr;

use serde::{Deserialize, Serialize};
use weir_units::BitRate;

use crate::connection::{FlowDirection, FlowSelector};
use crate::ids::{ArcId, ConnectionId, NetworkId, NodeId};
use crate::lifecycle::PathChangeStep;
use crate::serde_units::bps;

/// Tells one direction's tunnel of a connection from another, and a new path from an old one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct TunnelId {
    /// The connection.
    pub connection: ConnectionId,
    /// Its direction.
    pub direction: FlowDirection,
    /// Rises by one with each new path.
    pub generation: u32,
}

/// One thing that is to be so on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeInstruction {
    /// The tunnel ends here: packets to the outer address are unwrapped.
    AddFarEnd {
        /// The tunnel.
        tunnel: TunnelId,
        /// Its network, whose virtual router unwraps.
        network: NetworkId,
        /// Its outer address.
        outer: Ipv6Addr,
    },
    /// The tunnel no longer ends here.
    RemoveFarEnd {
        /// The tunnel.
        tunnel: TunnelId,
        /// Its network.
        network: NetworkId,
        /// Its outer address.
        outer: Ipv6Addr,
    },
    /// Packets to the outer address leave by this arc.
    AddTransit {
        /// The tunnel.
        tunnel: TunnelId,
        /// Its network.
        network: NetworkId,
        /// Its outer address, a /128.
        outer: Ipv6Addr,
        /// The arc.
        next: ArcId,
    },
    /// There is no such route.
    RemoveTransit {
        /// The tunnel.
        tunnel: TunnelId,
        /// Its network.
        network: NetworkId,
        /// Its outer address.
        outer: Ipv6Addr,
        /// The arc.
        next: ArcId,
    },
    /// The direction's packets are selected and limited here, and sent into a tunnel.
    AddEntry {
        /// The connection.
        connection: ConnectionId,
        /// The direction.
        direction: FlowDirection,
        /// Its network.
        network: NetworkId,
        /// The packets, as this direction carries them.
        selector: FlowSelector,
        /// The limiter's rate.
        #[serde(with = "bps")]
        limit: BitRate,
        /// The tunnel that they enter.
        target: EntryTarget,
    },
    /// The direction's packets are no longer selected here.
    RemoveEntry {
        /// The connection.
        connection: ConnectionId,
        /// The direction.
        direction: FlowDirection,
        /// Its network.
        network: NetworkId,
        /// The packets.
        selector: FlowSelector,
        /// The limiter's rate, which an undo needs.
        #[serde(with = "bps")]
        limit: BitRate,
        /// The tunnel that they entered.
        target: EntryTarget,
    },
    /// The entry sends into another tunnel: one replacement, without a moment between.
    ReplaceEntry {
        /// The connection.
        connection: ConnectionId,
        /// The direction.
        direction: FlowDirection,
        /// Its network.
        network: NetworkId,
        /// The tunnel before.
        from: EntryTarget,
        /// The tunnel after.
        to: EntryTarget,
        /// Nanoseconds for which the entry holds packets first, so that a shorter path does not
        /// overtake a longer one.
        hold: u64,
    },
    /// The limiter has another rate.
    SetLimit {
        /// The connection.
        connection: ConnectionId,
        /// The direction.
        direction: FlowDirection,
        /// Its network.
        network: NetworkId,
        /// The rate before.
        #[serde(with = "bps")]
        from: BitRate,
        /// The rate after.
        #[serde(with = "bps")]
        to: BitRate,
    },
}

/// The tunnel that an entry sends into.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct EntryTarget {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// Its outer address at the far end.
    pub outer: Ipv6Addr,
    /// The first arc; `None` if the far end is this node.
    pub next: Option<ArcId>,
}

impl NodeInstruction {
    /// The command that takes it back.
    #[must_use]
    pub fn undo(&self) -> Self {
        match self.clone() {
            Self::AddFarEnd { tunnel, network, outer } => {
                Self::RemoveFarEnd { tunnel, network, outer }
            }
            Self::RemoveFarEnd { tunnel, network, outer } => {
                Self::AddFarEnd { tunnel, network, outer }
            }
            Self::AddTransit { tunnel, network, outer, next } => {
                Self::RemoveTransit { tunnel, network, outer, next }
            }
            Self::RemoveTransit { tunnel, network, outer, next } => {
                Self::AddTransit { tunnel, network, outer, next }
            }
            Self::AddEntry { connection, direction, network, selector, limit, target } => {
                Self::RemoveEntry { connection, direction, network, selector, limit, target }
            }
            Self::RemoveEntry { connection, direction, network, selector, limit, target } => {
                Self::AddEntry { connection, direction, network, selector, limit, target }
            }
            // Back to the old path nothing is held: a failure is repaired at once.
            Self::ReplaceEntry { connection, direction, network, from, to, .. } => {
                let (from, to) = (to, from);
                Self::ReplaceEntry { connection, direction, network, from, to, hold: 0 }
            }
            Self::SetLimit { connection, direction, network, from, to } => {
                Self::SetLimit { connection, direction, network, from: to, to: from }
            }
        }
    }
}

/// The instructions of one node in one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeIntent {
    /// The node.
    pub node: NodeId,
    /// The commands in order.
    pub commands: Vec<NodeInstruction>,
}

impl NodeIntent {
    /// The commands that take it back, in reverse order.
    #[must_use]
    pub fn undo(&self) -> Self {
        let commands = self.commands.iter().rev().map(NodeInstruction::undo).collect();
        Self { node: self.node, commands }
    }
}

/// A step of a plan: its nodes can be told at once, and all must answer before the next step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionStep {
    /// The step.
    pub step: PathChangeStep,
    /// One intent a node, by node. Empty where the step needs no command.
    pub intents: Vec<NodeIntent>,
    /// Nanoseconds to wait after the last answer.
    pub wait: u64,
}

/// The steps of making, changing or removing a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionPlan {
    /// The steps in order.
    pub steps: Vec<ConnectionStep>,
}

impl ConnectionPlan {
    /// The commands that take back all steps up to one, which may have been done in part.
    #[must_use]
    pub fn roll_back(&self, reached: PathChangeStep) -> Self {
        let done = self.steps.iter().rev().filter(|step| step.step <= reached);
        let steps = done.map(|step| ConnectionStep {
            step: step.step,
            intents: step.intents.iter().map(NodeIntent::undo).collect(),
            wait: 0,
        });
        Self { steps: steps.collect() }
    }
}
