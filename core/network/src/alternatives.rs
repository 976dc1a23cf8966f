// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All simple paths within limits, the cheapest first, up to a bound.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::bounds::TargetBounds;
use crate::connection::RoutedPath;
use crate::graph::NetworkGraph;
use crate::ids::{ArcId, NodeId};
use crate::path_search::PathQuery;

/// Most partial paths that are looked at for each path that is wanted.
const PARTIAL_PER_PATH: usize = 256;

/// A partial path; ordered by the least cost of a whole path that begins with it.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct PartialPath {
    least: u64,
    cost: u64,
    delay: u64,
    arcs: Vec<ArcId>,
    nodes: Vec<NodeId>,
}

/// The paths that a search for alternatives has found.
#[derive(Debug, Default)]
pub(crate) struct AlternativePaths {
    pub(crate) paths: Vec<RoutedPath>,
    /// Set if there are no others.
    pub(crate) is_complete: bool,
    /// Partial paths that were looked at.
    pub(crate) partial: usize,
}

/// Lists at most `most` paths over arcs that are `usable`.
pub(crate) fn alternatives(
    graph: &NetworkGraph,
    bounds: &TargetBounds,
    query: PathQuery,
    most: usize,
    usable: impl Fn(ArcId) -> bool,
) -> AlternativePaths {
    let mut found = AlternativePaths::default();
    let start =
        PartialPath { least: 0, cost: 0, delay: 0, arcs: Vec::new(), nodes: vec![query.from] };
    let mut open = BinaryHeap::from([Reverse(start)]);
    let partial_most = most.saturating_mul(PARTIAL_PER_PATH);
    while let Some(Reverse(partial)) = open.pop() {
        if found.paths.len() == most || found.partial == partial_most {
            return found;
        }
        found.partial += 1;
        let PartialPath { cost, delay, arcs, nodes, .. } = partial;
        let Some(&end) = nodes.last() else { continue };
        if end == query.to {
            found.paths.push(RoutedPath { arcs, cost, delay });
            continue;
        }
        for arc in graph.leaving(end) {
            let Some(bound) = bounds.from(arc.node) else { continue };
            let delay = delay.saturating_add(arc.delay);
            let hops = arcs.len() as u64 + 1 + u64::from(bound.hops);
            let late = delay.saturating_add(u64::from(bound.delay)) > query.delay;
            let long = hops > u64::from(query.hops);
            if late || long || nodes.contains(&arc.node) || !usable(arc.arc) {
                continue;
            }
            let cost = cost + u64::from(arc.cost);
            let with = |arcs: &[ArcId]| [arcs, &[arc.arc]].concat();
            open.push(Reverse(PartialPath {
                least: cost + u64::from(bound.cost),
                cost,
                delay,
                arcs: with(&arcs),
                nodes: [nodes.as_slice(), &[arc.node]].concat(),
            }));
        }
    }
    found.is_complete = true;
    found
}
