// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lower bounds from each node to a target, and a bounded cache of them.
//!
//! The least cost, delay and number of arcs to a target, with all arcs up and empty, never exceed
//! what a search finds with some of them down or full. So they guide every search to that target,
//! and stay valid while connections come and go. Delays and costs that exceed 32 bits are kept as
//! `u32::MAX`, which is a lower bound still.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::sync::Arc;

use crate::graph::{GraphArc, NetworkGraph};
use crate::ids::{NodeId, dense};

/// Hops to the target from where it cannot be reached.
const UNREACHABLE: u32 = u32::MAX;

/// Lower bounds to one target.
#[derive(Debug)]
pub(crate) struct TargetBounds {
    nodes: Box<[NodeBound]>,
}

/// Lower bounds from one node, side by side since a search reads all of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeBound {
    pub(crate) cost: u32,
    pub(crate) delay: u32,
    pub(crate) hops: u32,
}

impl TargetBounds {
    pub(crate) fn compute(graph: &NetworkGraph, target: NodeId) -> Self {
        let hops = hops_to(graph, target);
        let cost = distances_to(graph, target, |arc| u64::from(arc.cost));
        let delay = distances_to(graph, target, |arc| arc.delay);
        let short = |long: u64| u32::try_from(long).unwrap_or(u32::MAX);
        let all = hops.iter().zip(cost).zip(delay);
        let nodes = all.map(|((&hops, cost), delay)| NodeBound {
            cost: short(cost),
            delay: short(delay),
            hops,
        });
        Self { nodes: nodes.collect() }
    }

    /// The bounds from a node; `None` if no arcs lead to the target.
    pub(crate) fn from(&self, node: NodeId) -> Option<NodeBound> {
        let bound = self.nodes[node.index()];
        (bound.hops != UNREACHABLE).then_some(bound)
    }
}

fn hops_to(graph: &NetworkGraph, target: NodeId) -> Vec<u32> {
    let mut hops = vec![UNREACHABLE; graph.nodes()];
    hops[target.index()] = 0;
    let mut queue = VecDeque::from([target]);
    while let Some(node) = queue.pop_front() {
        for arc in graph.entering(node) {
            if hops[arc.node.index()] == UNREACHABLE {
                hops[arc.node.index()] = hops[node.index()] + 1;
                queue.push_back(arc.node);
            }
        }
    }
    hops
}

/// Dijkstra's algorithm from the target backwards.
fn distances_to(
    graph: &NetworkGraph,
    target: NodeId,
    length: impl Fn(&GraphArc) -> u64,
) -> Vec<u64> {
    let mut distances = vec![u64::MAX; graph.nodes()];
    distances[target.index()] = 0;
    let mut heap = BinaryHeap::from([Reverse((0, target.0))]);
    while let Some(Reverse((distance, node))) = heap.pop() {
        if distance > distances[node as usize] {
            continue;
        }
        for arc in graph.entering(NodeId(node)) {
            let through = distance.saturating_add(length(arc));
            let known = &mut distances[arc.node.index()];
            if through < *known {
                *known = through;
                heap.push(Reverse((through, arc.node.0)));
            }
        }
    }
    distances
}

/// The bounds to the targets that were searched for last.
#[derive(Debug)]
pub(crate) struct BoundCache {
    most: usize,
    kept: BTreeMap<NodeId, CachedBounds>,
    uses: u64,
    misses: u64,
}

#[derive(Debug)]
struct CachedBounds {
    bounds: Arc<TargetBounds>,
    last_use: u64,
}

impl BoundCache {
    /// Keeps at most this many targets, and at least one.
    pub(crate) fn new(most: usize) -> Self {
        Self { most: most.max(1), kept: BTreeMap::new(), uses: 0, misses: 0 }
    }

    pub(crate) fn get(&mut self, graph: &NetworkGraph, target: NodeId) -> Arc<TargetBounds> {
        self.uses += 1;
        let last_use = self.uses;
        if let Some(cached) = self.kept.get_mut(&target) {
            cached.last_use = last_use;
            return Arc::clone(&cached.bounds);
        }
        self.misses += 1;
        if self.kept.len() >= self.most {
            let oldest = self.kept.iter().min_by_key(|(_, cached)| cached.last_use);
            if let Some(node) = oldest.map(|(node, _)| *node) {
                self.kept.remove(&node);
            }
        }
        let bounds = Arc::new(TargetBounds::compute(graph, target));
        self.kept.insert(target, CachedBounds { bounds: Arc::clone(&bounds), last_use });
        debug_assert!(self.kept.len() <= self.most, "the cache is bounded");
        bounds
    }

    /// Number of targets kept, and how many were computed so far.
    pub(crate) fn usage(&self) -> (u32, u64) {
        (dense(self.kept.len()), self.misses)
    }
}
