// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans: which nodes are told what, in which order, to make, move or remove a connection.
//!
//! A new connection carries nothing yet, and one that is removed nothing any more, so all their
//! nodes are told at once. A change is make-before-break: far ends and routes of the new paths
//! first, then one replacement at each entry, and when the old paths have run empty their routes
//! and far ends are removed. A change of rates alone is the replacement alone.

use core::net::Ipv6Addr;
use std::collections::BTreeMap;

use weir_units::Nanos;

use crate::connection::{ByDirection, ConnectionRequest, FlowDirection, RoutedPath};
use crate::ids::{ArcId, ConnectionId, NodeId};
use crate::intent::{
    ConnectionPlan, ConnectionStep, EntryTarget, NodeInstruction, NodeIntent, TunnelEntry,
    TunnelFarEnd, TunnelId, TunnelTransit,
};
use crate::lifecycle::PathChangeStep;
use crate::state::AdmittedFlows;
use crate::topology::NetworkTopology;

/// A connection's tunnels: all that its nodes are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionTunnels {
    /// The connection.
    pub id: ConnectionId,
    /// Its request.
    pub request: ConnectionRequest,
    /// Its paths and rates.
    pub flows: AdmittedFlows,
    /// Generation of its tunnels: another one for other paths.
    pub generation: u32,
    /// The outer address of each direction, which differs between generations.
    pub outer: ByDirection<Ipv6Addr>,
}

type Instructions = BTreeMap<NodeId, Vec<NodeInstruction>>;

impl ConnectionPlan {
    /// Makes a connection. A direction whose path has no arcs needs no node.
    #[must_use]
    pub fn creation(topology: &NetworkTopology, tunnels: &ConnectionTunnels) -> Self {
        let mut all = tunnels.routes(topology);
        for (direction, _) in tunnels.flows.present() {
            if let Some((node, entry)) = tunnels.entry(topology, direction) {
                all.entry(node).or_default().push(NodeInstruction::AddEntry(entry));
            }
        }
        Self { steps: vec![step(PathChangeStep::ReplaceEntry, all, 0)] }
    }

    /// Removes a connection.
    #[must_use]
    pub fn removal(topology: &NetworkTopology, tunnels: &ConnectionTunnels) -> Self {
        let mut plan = Self::creation(topology, tunnels);
        for step in &mut plan.steps {
            step.step = PathChangeStep::Remove;
            step.intents = step.intents.iter().map(NodeIntent::undo).collect();
        }
        plan
    }

    /// Moves a connection from old tunnels to new ones. Packets under way have the delay of the old
    /// ones, and `margin` more, to leave them. An entry holds packets that could overtake others;
    /// once the old path is empty, the entry is told to hold none any more.
    #[must_use]
    pub fn change(
        topology: &NetworkTopology,
        old: &ConnectionTunnels,
        new: &ConnectionTunnels,
        margin: Nanos,
    ) -> Self {
        let mut entries = Instructions::new();
        let (mut drain, mut held) = (0, Instructions::new());
        for (direction, flow) in old.flows.present() {
            let before = old.entry(topology, direction);
            let (Some((node, from)), Some((_, to))) = (before, new.entry(topology, direction))
            else {
                continue;
            };
            drain = drain.max(flow.path.delay);
            let is_moved = from.target != to.target;
            let path = new.flows.of(direction).as_ref().filter(|_| is_moved);
            let hold = path.map_or(0, |new| hold(topology, &flow.path, &new.path));
            if hold > 0 {
                let usual = NodeInstruction::ChangeEntry { from: to, to, hold: 0 };
                held.entry(node).or_default().push(usual);
            }
            let change = NodeInstruction::ChangeEntry { from, to, hold };
            entries.entry(node).or_default().push(change);
        }
        if old.generation == new.generation {
            return Self { steps: vec![step(PathChangeStep::ReplaceEntry, entries, 0)] };
        }
        let mut removed = old.routes(topology);
        for commands in removed.values_mut() {
            *commands = commands.iter().rev().map(NodeInstruction::undo).collect();
        }
        for (node, usual) in held {
            removed.entry(node).or_default().extend(usual);
        }
        let drain = drain.saturating_add(margin.as_nanos());
        Self {
            steps: vec![
                step(PathChangeStep::Transit, new.routes(topology), 0),
                step(PathChangeStep::ReplaceEntry, entries, drain),
                step(PathChangeStep::Remove, removed, 0),
            ],
        }
    }

    /// The commands of a step; `None` if it needs none.
    #[must_use]
    pub fn step(&self, step: PathChangeStep) -> Option<&ConnectionStep> {
        self.steps.iter().find(|known| known.step == step)
    }
}

impl ConnectionTunnels {
    fn tunnel(&self, direction: FlowDirection) -> TunnelId {
        TunnelId { connection: self.id, direction, generation: self.generation }
    }

    /// Far ends, and the routes of the nodes between.
    fn routes(&self, topology: &NetworkTopology) -> Instructions {
        let mut all = Instructions::new();
        for (direction, flow) in self.flows.present() {
            let (tunnel, outer) = (self.tunnel(direction), *self.outer.of(direction));
            let network = self.request.network;
            let mut arcs = flow.path.arcs.iter().filter_map(|id| Some((*id, topology.arc(*id)?)));
            for (next, arc) in arcs.clone().skip(1) {
                let transit = TunnelTransit { tunnel, network, outer, next };
                all.entry(arc.from).or_default().push(NodeInstruction::AddTransit(transit));
            }
            if let Some((_, arc)) = arcs.next_back() {
                let end = TunnelFarEnd { tunnel, network, outer };
                all.entry(arc.to).or_default().push(NodeInstruction::AddFarEnd(end));
            }
        }
        all
    }

    /// The entry of a direction, and the node that it is at.
    fn entry(
        &self,
        topology: &NetworkTopology,
        direction: FlowDirection,
    ) -> Option<(NodeId, TunnelEntry)> {
        let flow = self.flows.of(direction).as_ref()?;
        let next = flow.path.arcs.first().copied();
        let (tunnel, outer) = (self.tunnel(direction), *self.outer.of(direction));
        let entry = TunnelEntry {
            connection: self.id,
            direction,
            network: self.request.network,
            selector: self.request.selector_of(direction),
            limit: flow.limit,
            target: EntryTarget { tunnel, outer, next },
        };
        Some((topology.arc(next?)?.from, entry))
    }
}

/// Returns the nanoseconds for which packets are held so that none on the new path overtakes one on
/// the old path: the difference of the delays plus [`HOLD_MARGIN`], at most [`HOLD_MAX`]. It is 0
/// if a link of the old path is down, since nothing is under way there.
fn hold(topology: &NetworkTopology, old: &RoutedPath, new: &RoutedPath) -> u64 {
    let is_up = |id: &ArcId| topology.arc(*id).is_some_and(|arc| arc.is_up);
    let hold = old.delay.saturating_add(HOLD_MARGIN.as_nanos()).saturating_sub(new.delay);
    if old.arcs.iter().all(is_up) { hold.min(HOLD_MAX.as_nanos()) } else { 0 }
}

/// Time for queues on the old path, and for what links do not declare. Paths of equal delay need
/// it, too: a packet can wait behind another connection's burst, and the next one finds no queue.
const HOLD_MARGIN: Nanos = Nanos::from_millis(2);

/// Longest time for which packets are held: with a greater difference some may be overtaken.
const HOLD_MAX: Nanos = Nanos::from_millis(500);

fn step(step: PathChangeStep, all: Instructions, wait: u64) -> ConnectionStep {
    let intents = all.into_iter().map(|(node, commands)| NodeIntent { node, commands });
    ConnectionStep { step, intents: intents.collect(), wait }
}

#[cfg(test)]
mod tests {
    use weir_units::BitRate;

    use super::*;
    use crate::connection::{AdmittedFlow, FlowSelector, RateBasis, RequestedRate, TimeWindow};
    use crate::ids::{EndNodeId, LinkId, NetworkId};
    use crate::topology::{LinkArc, NetworkNode};

    /// Two paths from node 0 to node 3: by node 1, and by node 2.
    fn topology() -> NetworkTopology {
        let node = NetworkNode { name: String::new(), is_up: true };
        let arc = |link, from, to| LinkArc {
            link: LinkId(link),
            from: NodeId(from),
            to: NodeId(to),
            capacity: BitRate::from_mbps(100),
            room: BitRate::ZERO,
            delay: Nanos::new(10),
            cost: 1,
            affinity: 0,
            is_up: true,
        };
        let arcs = vec![arc(0, 0, 1), arc(1, 1, 3), arc(2, 0, 2), arc(3, 2, 3)];
        NetworkTopology { nodes: vec![node; 4], arcs }
    }

    fn tunnels(arcs: [u32; 2], generation: u32) -> ConnectionTunnels {
        let addresses = [1, 2].map(|last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last));
        let rate = BitRate::from_mbps(1);
        let path = RoutedPath { arcs: arcs.map(ArcId).to_vec(), cost: 2, delay: 20 };
        ConnectionTunnels {
            id: ConnectionId(7),
            request: ConnectionRequest {
                network: NetworkId(0),
                source: EndNodeId(0),
                destination: EndNodeId(1),
                selector: FlowSelector {
                    source: addresses[0],
                    destination: addresses[1],
                    protocol: None,
                    source_port: None,
                    destination_port: None,
                },
                rate: ByDirection { forward: RequestedRate(rate), ..ByDirection::default() },
                basis: RateBasis::Outer,
                limits: ByDirection::default(),
                window: TimeWindow::ALWAYS,
                priority: 0,
            },
            flows: ByDirection {
                forward: Some(AdmittedFlow { path, limit: rate, reserved: rate }),
                backward: None,
            },
            generation,
            outer: ByDirection {
                forward: Ipv6Addr::from_bits(u128::from(generation)),
                backward: Ipv6Addr::UNSPECIFIED,
            },
        }
    }

    fn nodes(step: &ConnectionStep) -> Vec<u32> {
        step.intents.iter().map(|intent| intent.node.0).collect()
    }

    #[test]
    fn a_new_connection_tells_all_nodes_at_once() {
        let (topology, tunnels) = (topology(), tunnels([0, 1], 1));
        let plan = ConnectionPlan::creation(&topology, &tunnels);
        let step = plan.step(PathChangeStep::ReplaceEntry).unwrap();
        assert_eq!(nodes(step), [0, 1, 3]);
        let commands = |place: usize| &step.intents[place].commands[..];
        assert!(matches!(commands(0), [NodeInstruction::AddEntry(entry)]
            if entry.target.next == Some(ArcId(0))));
        assert!(matches!(commands(1), [NodeInstruction::AddTransit(route)]
            if route.next == ArcId(1)));
        assert!(matches!(commands(2), [NodeInstruction::AddFarEnd(_)]));
        let removal = ConnectionPlan::removal(&topology, &tunnels);
        assert_eq!(removal.steps[0].intents[2].undo(), step.intents[2]);
    }

    #[test]
    fn a_change_makes_before_it_breaks() {
        let (old, new) = (tunnels([0, 1], 1), tunnels([2, 3], 2));
        let plan = ConnectionPlan::change(&topology(), &old, &new, Nanos::new(5));
        let steps: Vec<_> = plan.steps.iter().map(|step| (step.step, nodes(step))).collect();
        assert_eq!(
            steps,
            [
                (PathChangeStep::Transit, vec![2, 3]),
                (PathChangeStep::ReplaceEntry, vec![0]),
                // The entry, too: it no longer holds packets.
                (PathChangeStep::Remove, vec![0, 1, 3]),
            ]
        );
        // The old path's delay and the margin.
        assert_eq!(plan.steps[1].wait, 25);
    }

    /// Goal: packets are held for the difference of the delays plus the margin, until the old path
    /// is empty; onto a path that is longer by more than the margin, or off one that failed, they
    /// are not.
    #[test]
    fn packets_are_held_until_none_can_be_overtaken() {
        let (mut long, short) = (tunnels([0, 1], 1), tunnels([2, 3], 2));
        long.flows.forward.as_mut().unwrap().path.delay = 5_000_020;
        let hold = |from: &ConnectionTunnels, to: &ConnectionTunnels, step| {
            let plan = ConnectionPlan::change(&topology(), from, to, Nanos::ZERO);
            let step = plan.step(step).unwrap().clone();
            step.intents.iter().find_map(|intent| match intent.commands.as_slice() {
                [NodeInstruction::ChangeEntry { hold, .. }] => Some(*hold),
                _ => None,
            })
        };
        assert_eq!(hold(&long, &short, PathChangeStep::ReplaceEntry), Some(7_000_000));
        assert_eq!(hold(&long, &short, PathChangeStep::Remove), Some(0));
        assert_eq!(hold(&short, &long, PathChangeStep::ReplaceEntry), Some(0));
        assert_eq!(hold(&short, &long, PathChangeStep::Remove), None);
        let equal = tunnels([0, 1], 1);
        assert_eq!(hold(&equal, &short, PathChangeStep::ReplaceEntry), Some(2_000_000));
        long.flows.forward.as_mut().unwrap().path.delay = 5_000_000_000;
        assert_eq!(hold(&long, &short, PathChangeStep::ReplaceEntry), Some(500_000_000));
        let mut failed = topology();
        failed.arcs[1].is_up = false;
        let plan = ConnectionPlan::change(&failed, &equal, &short, Nanos::ZERO);
        let entry = &plan.step(PathChangeStep::ReplaceEntry).unwrap().intents[0];
        let [NodeInstruction::ChangeEntry { hold, .. }] = entry.commands.as_slice() else {
            unreachable!("an entry is changed once");
        };
        assert_eq!(*hold, 0);
    }

    #[test]
    fn a_change_of_rate_touches_the_entry_alone() {
        let (old, new) = (tunnels([0, 1], 1), tunnels([0, 1], 1));
        let plan = ConnectionPlan::change(&topology(), &old, &new, Nanos::ZERO);
        assert_eq!(plan.steps.len(), 1);
        assert_eq!(nodes(&plan.steps[0]), [0]);
    }
}
