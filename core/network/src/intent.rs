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

/// The end of a tunnel, where packets to its outer address are unwrapped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelFarEnd {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// Its network, whose virtual router unwraps.
    pub network: NetworkId,
    /// Its outer address.
    pub outer: Ipv6Addr,
}

/// The route of a tunnel at a node between its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelTransit {
    /// The tunnel.
    pub tunnel: TunnelId,
    /// Its network.
    pub network: NetworkId,
    /// Its outer address, a /128.
    pub outer: Ipv6Addr,
    /// The arc by which packets to it leave.
    pub next: ArcId,
}

/// The entry of a direction, where its packets are selected, limited and sent into a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TunnelEntry {
    /// The connection.
    pub connection: ConnectionId,
    /// The direction.
    pub direction: FlowDirection,
    /// Its network.
    pub network: NetworkId,
    /// The packets, as this direction carries them.
    pub selector: FlowSelector,
    /// The limiter's rate.
    #[serde(with = "bps")]
    pub limit: BitRate,
    /// The tunnel that they enter.
    pub target: EntryTarget,
}

/// One thing that is to hold on a node. A removal has the whole value, since its undo needs it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeInstruction {
    /// The tunnel ends here.
    AddFarEnd(TunnelFarEnd),
    /// The tunnel no longer ends here.
    RemoveFarEnd(TunnelFarEnd),
    /// Packets to the outer address leave by this arc.
    AddTransit(TunnelTransit),
    /// There is no such route.
    RemoveTransit(TunnelTransit),
    /// The direction's packets are selected and limited here, and sent into a tunnel.
    AddEntry(TunnelEntry),
    /// The direction's packets are no longer selected here.
    RemoveEntry(TunnelEntry),
    /// The entry has another rate or sends into another tunnel: one replacement, without a moment
    /// between.
    ChangeEntry {
        /// The entry before.
        from: TunnelEntry,
        /// The entry after.
        to: TunnelEntry,
        /// Nanoseconds for which the entry holds packets before the replacement, and again after
        /// it, so that packets on a shorter path do not overtake those on a longer one.
        hold: u64,
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
            Self::AddFarEnd(end) => Self::RemoveFarEnd(end),
            Self::RemoveFarEnd(end) => Self::AddFarEnd(end),
            Self::AddTransit(route) => Self::RemoveTransit(route),
            Self::RemoveTransit(route) => Self::AddTransit(route),
            Self::AddEntry(entry) => Self::RemoveEntry(entry),
            Self::RemoveEntry(entry) => Self::AddEntry(entry),
            // On the way back to the old path nothing is held: a failure is repaired at once.
            Self::ChangeEntry { from, to, .. } => Self::ChangeEntry { from: to, to: from, hold: 0 },
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
