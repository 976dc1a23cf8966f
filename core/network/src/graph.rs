// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The topology as compressed sparse rows: arcs of a node lie side by side, both ways.
//!
//! A search reads a node's arcs in one run of memory. Rows into a node serve the bounds, which are
//! computed from the target backwards. What is down or full is not left out here but skipped by
//! each search: so one graph, and its bounds, serve all searches until the topology changes.

use crate::error::NetworkError;
use crate::ids::{ArcId, NodeId, dense};
use crate::topology::NetworkTopology;

/// An arc as a search reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GraphArc {
    pub(crate) arc: ArcId,
    /// The node at its other end.
    pub(crate) node: NodeId,
    pub(crate) cost: u32,
    pub(crate) delay: u64,
}

/// The topology's graph.
#[derive(Clone, Debug)]
pub struct NetworkGraph {
    leaving: SparseRows,
    entering: SparseRows,
}

#[derive(Clone, Debug)]
struct SparseRows {
    /// Row of node `n`: `arcs[start[n]..start[n + 1]]`.
    start: Vec<u32>,
    arcs: Vec<GraphArc>,
}

impl NetworkGraph {
    /// Builds the graph of a topology.
    ///
    /// # Errors
    ///
    /// Names what is wrong with the topology.
    pub fn new(topology: &NetworkTopology) -> Result<Self, NetworkError> {
        topology.validate()?;
        Ok(Self { leaving: rows(topology, true), entering: rows(topology, false) })
    }

    /// Number of nodes.
    #[must_use]
    pub const fn nodes(&self) -> usize {
        self.leaving.start.len() - 1
    }

    pub(crate) fn leaving(&self, node: NodeId) -> &[GraphArc] {
        self.leaving.row(node)
    }

    pub(crate) fn entering(&self, node: NodeId) -> &[GraphArc] {
        self.entering.row(node)
    }
}

impl SparseRows {
    fn row(&self, node: NodeId) -> &[GraphArc] {
        let place = node.index();
        &self.arcs[self.start[place] as usize..self.start[place + 1] as usize]
    }
}

fn rows(topology: &NetworkTopology, leaving: bool) -> SparseRows {
    let ends = |arc: &crate::topology::LinkArc| {
        if leaving { (arc.from, arc.to) } else { (arc.to, arc.from) }
    };
    let mut start = vec![0; topology.nodes.len() + 1];
    for arc in &topology.arcs {
        start[ends(arc).0.index() + 1] += 1;
    }
    for node in 0..topology.nodes.len() {
        start[node + 1] += start[node];
    }
    let mut order: Vec<usize> = (0..topology.arcs.len()).collect();
    order.sort_by_key(|&place| ends(&topology.arcs[place]).0);
    let arcs = order.into_iter().map(|place| {
        let arc = &topology.arcs[place];
        GraphArc {
            arc: ArcId(dense(place)),
            node: ends(arc).1,
            cost: arc.cost,
            delay: arc.delay.as_nanos(),
        }
    });
    SparseRows { start, arcs: arcs.collect() }
}
