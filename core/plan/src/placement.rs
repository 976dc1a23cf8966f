// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Slices on nodes, and the moves that every method is made of.

use crate::resource::{ResourceAmounts, float};
use crate::shapes::ShapedRequest;

/// A node and the slices on it.
#[derive(Clone, Debug)]
pub(crate) struct PackedNode {
    pub(crate) kind: usize,
    pub(crate) slices: Vec<usize>,
    /// The resources that are left.
    pub(crate) room: ResourceAmounts,
}

/// Slices on nodes, and those without a place.
#[derive(Clone, Debug)]
pub(crate) struct SlicePlacement<'r> {
    pub(crate) request: &'r ShapedRequest,
    pub(crate) nodes: Vec<PackedNode>,
    pub(crate) unplaced: Vec<usize>,
    /// Nodes of each kind that are not used.
    pub(crate) spare: Vec<u32>,
}

impl<'r> SlicePlacement<'r> {
    /// Returns a placement of nothing yet.
    pub(crate) fn new(request: &'r ShapedRequest) -> Self {
        let spare = request.kinds.iter().map(|kind| kind.count).collect();
        Self { request, nodes: vec![], unplaced: vec![], spare }
    }

    /// Returns the cost of all nodes that are used.
    pub(crate) fn cost(&self) -> u64 {
        self.nodes.iter().map(|node| self.request.kinds[node.kind].cost).sum()
    }

    /// Opens a node; `None` if no more of its kind is there.
    pub(crate) fn open(&mut self, kind: usize) -> Option<usize> {
        self.spare[kind] = self.spare[kind].checked_sub(1)?;
        let room = self.request.kinds[kind].capacity;
        self.nodes.push(PackedNode { kind, slices: vec![], room });
        Some(self.nodes.len() - 1)
    }

    /// Closes a node without slices. The last node takes its number.
    pub(crate) fn close(&mut self, node: usize) {
        let closed = self.nodes.swap_remove(node);
        debug_assert!(closed.slices.is_empty(), "a closed node has no slices");
        self.spare[closed.kind] += 1;
    }

    /// Tells whether a slice fits into the room of a node.
    pub(crate) fn fits(&self, slice: usize, node: usize) -> bool {
        let node = &self.nodes[node];
        self.request.demand(slice, node.kind).is_some_and(|demand| demand.fits(&node.room))
    }

    /// Puts a slice on a node where it fits.
    pub(crate) fn put(&mut self, slice: usize, node: usize) {
        let to = &mut self.nodes[node];
        let demand = self.request.demand(slice, to.kind).copied().unwrap_or_default();
        debug_assert!(demand.fits(&to.room), "a slice is put where it fits");
        to.room = to.room.minus(&demand);
        to.slices.push(slice);
    }

    /// Takes a slice off its node.
    pub(crate) fn lift(&mut self, slice: usize, node: usize) {
        let from = &mut self.nodes[node];
        let demand = self.request.demand(slice, from.kind).copied().unwrap_or_default();
        from.slices.retain(|other| *other != slice);
        from.room = from.room.plus(&demand);
    }

    /// Returns the node that a slice fills best among those that `may` take it: the least room is
    /// left.
    pub(crate) fn best_fit(&self, slice: usize, may: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for (at, node) in self.nodes.iter().enumerate() {
            let Some(demand) = self.request.demand(slice, node.kind) else { continue };
            if !demand.fits(&node.room) || !may(at) {
                continue;
            }
            let left = node.room.minus(demand).size(&self.request.kinds[node.kind].capacity);
            if best.is_none_or(|(_, least)| left < least) {
                best = Some((at, left));
            }
        }
        best.map(|(at, _)| at)
    }

    /// Returns the share of a node that is used, over the resources that it has, from 0 to 1.
    pub(crate) fn fill(&self, node: usize) -> f64 {
        let node = &self.nodes[node];
        let whole = &self.request.kinds[node.kind].capacity;
        let has = whole.0.iter().filter(|amount| **amount > 0).count();
        1.0 - node.room.size(whole) / float(has.max(1) as u64)
    }

    /// Returns slices in the order of their size, the largest first.
    pub(crate) fn by_size(request: &ShapedRequest, slices: &[usize]) -> Vec<usize> {
        let mut sized: Vec<_> = slices.iter().map(|at| (request.size(*at), *at)).collect();
        sized.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        sized.into_iter().map(|(_, slice)| slice).collect()
    }
}
