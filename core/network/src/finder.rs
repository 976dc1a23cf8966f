// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Answers path queries: a graph with its cached bounds and the memory of searches.

use crate::alternatives::{AlternativePaths, alternatives};
use crate::bounds::BoundCache;
use crate::error::NetworkError;
use crate::graph::NetworkGraph;
use crate::ids::{ArcId, NodeId};
use crate::path_search::{PathOutcome, PathQuery, PathSearch};
use crate::topology::NetworkTopology;

/// Bounds of the work and memory of searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFinderLimits {
    /// Targets whose bounds are kept, at 12 bytes a node each.
    pub cached_targets: usize,
    /// Most labels of a search, at 64 bytes each. Reaching it ends the search.
    pub labels: usize,
    /// Most steps (arcs and labels that are looked at, some ten nanoseconds each) of all searches
    /// together that explain a refusal, or that find who gives room to a request.
    pub steps: u64,
}

impl Default for PathFinderLimits {
    fn default() -> Self {
        Self { cached_targets: 512, labels: 1 << 20, steps: 1 << 23 }
    }
}

/// Finds constrained paths in one topology.
#[derive(Debug)]
pub struct PathFinder {
    graph: NetworkGraph,
    cache: BoundCache,
    search: PathSearch,
}

impl PathFinder {
    /// A finder for a topology. It must be made again when nodes or arcs are added, or when an
    /// arc's cost or delay changes; not when arcs fail or fill up.
    ///
    /// # Errors
    ///
    /// Names what is wrong with the topology.
    pub fn new(topology: &NetworkTopology, limits: PathFinderLimits) -> Result<Self, NetworkError> {
        let graph = NetworkGraph::new(topology)?;
        let search = PathSearch::new(graph.nodes(), limits.labels);
        Ok(Self { graph, cache: BoundCache::new(limits.cached_targets), search })
    }

    /// Finds the best path over arcs that are `usable`, exactly.
    pub fn find(&mut self, query: PathQuery, usable: impl Fn(ArcId) -> bool) -> PathOutcome {
        if query.from.index() >= self.graph.nodes() || query.to.index() >= self.graph.nodes() {
            return PathOutcome::NoPath;
        }
        let bounds = self.cache.get(&self.graph, query.to);
        self.search.find(&self.graph, &bounds, query, &usable)
    }

    /// Bounds the steps of all searches from now on together; `None` removes the bound.
    pub(crate) fn set_budget(&mut self, steps: Option<u64>) {
        let most = steps.map(|steps| self.search.steps.saturating_add(steps));
        self.search.steps_max = most.unwrap_or(u64::MAX);
    }

    /// Tells whether searches have used up the steps that they were given.
    pub(crate) const fn is_spent(&self) -> bool {
        self.search.steps >= self.search.steps_max
    }

    /// The number of steps of all searches so far.
    pub(crate) const fn steps(&self) -> u64 {
        self.search.steps
    }

    /// Lists paths over arcs that are `usable`, the cheapest first, at most `most`.
    pub(crate) fn alternatives(
        &mut self,
        query: PathQuery,
        most: usize,
        usable: impl Fn(ArcId) -> bool,
    ) -> AlternativePaths {
        let bounds = self.cache.get(&self.graph, query.to);
        alternatives(&self.graph, &bounds, query, most, usable)
    }

    /// Computes the bounds to a target, unless they are kept.
    pub fn warm(&mut self, target: NodeId) {
        if target.index() < self.graph.nodes() {
            self.cache.get(&self.graph, target);
        }
    }

    /// Number of targets whose bounds are kept, and how often bounds were computed.
    #[must_use]
    pub fn cache_usage(&self) -> (u32, u64) {
        self.cache.usage()
    }
}
