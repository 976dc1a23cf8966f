// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Oracles for paths, which share nothing with the search: Dijkstra's algorithm, and dynamic
//! programming over whole delays and numbers of arcs.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use weir_network::{ArcId, LinkArc, NetworkTopology, NodeId};

/// A topology's arcs by the node that they leave.
pub(super) struct AdjacencyList<'a> {
    leaving: Vec<Vec<(ArcId, &'a LinkArc)>>,
}

impl<'a> AdjacencyList<'a> {
    pub(super) fn new(topology: &'a NetworkTopology) -> Self {
        let mut leaving = vec![Vec::new(); topology.nodes.len()];
        for (number, arc) in (0..).zip(&topology.arcs) {
            leaving[arc.from.0 as usize].push((ArcId(number), arc));
        }
        Self { leaving }
    }

    /// The least sum of lengths (in pairs, the first first) from a node to another.
    pub(super) fn dijkstra(
        &self,
        [from, to]: [NodeId; 2],
        usable: impl Fn(ArcId) -> bool,
        length: impl Fn(&LinkArc) -> (u64, u64),
    ) -> Option<(u64, u64)> {
        let mut least = vec![(u64::MAX, u64::MAX); self.leaving.len()];
        least[from.0 as usize] = (0, 0);
        let mut heap = BinaryHeap::from([Reverse(((0, 0), from.0))]);
        while let Some(Reverse((sum, node))) = heap.pop() {
            if node == to.0 {
                return Some(sum);
            }
            if sum > least[node as usize] {
                continue;
            }
            for (id, arc) in &self.leaving[node as usize] {
                let more = length(arc);
                let next = (sum.0 + more.0, sum.1 + more.1);
                if next < least[arc.to.0 as usize] && usable(*id) {
                    least[arc.to.0 as usize] = next;
                    heap.push(Reverse((next, arc.to.0)));
                }
            }
        }
        None
    }

    /// The least cost, and of that the least delay, of a walk of at most so many arcs and so much
    /// delay. Delays are small whole numbers above zero.
    pub(super) fn by_tables(
        &self,
        [from, to]: [NodeId; 2],
        usable: impl Fn(ArcId) -> bool,
        delay_max: u64,
        hops_max: u32,
    ) -> Option<(u64, u64)> {
        let width = usize::try_from(delay_max).ok()? + 1;
        let none = u64::MAX;
        // By node and exact delay: the least cost with exactly `hops` arcs.
        let mut now = vec![none; self.leaving.len() * width];
        now[from.0 as usize * width] = 0;
        let mut best: Option<(u64, u64)> = None;
        for hops in 0..=hops_max {
            let at_end = &now[to.0 as usize * width..][..width];
            let costs = (0..).zip(at_end).filter(|(_, cost)| **cost != none);
            best = costs.map(|(delay, cost)| (*cost, delay)).chain(best).min();
            if hops == hops_max || now.iter().all(|cost| *cost == none) {
                break;
            }
            let mut next = vec![none; now.len()];
            for (node, leaving) in self.leaving.iter().enumerate() {
                for (_, arc) in leaving.iter().filter(|(id, _)| usable(*id)) {
                    let step = usize::try_from(arc.delay.as_nanos()).unwrap_or(width);
                    for delay in 0..width.saturating_sub(step) {
                        let cost = now[node * width + delay];
                        if cost != none {
                            let known = &mut next[arc.to.0 as usize * width + delay + step];
                            *known = (*known).min(cost + u64::from(arc.cost));
                        }
                    }
                }
            }
            now = next;
        }
        best
    }

    /// The least cost within a limit of delay: all labels that no other beats, in order of cost,
    /// without bounds to the target.
    pub(super) fn by_labels(
        &self,
        [from, to]: [NodeId; 2],
        usable: impl Fn(ArcId) -> bool,
        delay_max: u64,
    ) -> Option<(u64, u64)> {
        // Labels leave in order of cost, so a node's later labels must have less delay.
        let mut fastest = vec![u64::MAX; self.leaving.len()];
        let mut heap = BinaryHeap::from([Reverse((0, 0, from.0))]);
        while let Some(Reverse((cost, delay, node))) = heap.pop() {
            if delay >= fastest[node as usize] {
                continue;
            }
            fastest[node as usize] = delay;
            if node == to.0 {
                return Some((cost, delay));
            }
            for (id, arc) in &self.leaving[node as usize] {
                let later = delay + arc.delay.as_nanos();
                if later <= delay_max && later < fastest[arc.to.0 as usize] && usable(*id) {
                    heap.push(Reverse((cost + u64::from(arc.cost), later, arc.to.0)));
                }
            }
        }
        None
    }
}
