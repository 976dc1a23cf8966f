// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The packing problem of the master program: classes of slices, kinds of node, and what each node
//! may hold together.

use std::collections::BTreeSet;

use crate::classes::SliceClass;
use crate::knapsack::KnapsackItem;
use crate::shapes::{DemandShape, KindNumbers};

/// Items to pack, each several times, and nodes to pack them into.
#[derive(Clone, Debug)]
pub(crate) struct PackingProblem {
    pub(crate) kinds: Vec<KindNumbers>,
    pub(crate) items: Vec<PackedItem>,
}

/// An item of which there are several.
#[derive(Clone, Debug)]
pub(crate) struct PackedItem {
    pub(crate) demand: DemandShape,
    pub(crate) count: u32,
}

/// The content of one node: a column of the master program.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodePattern {
    pub(crate) kind: usize,
    /// Items, each with how often; in the order of items.
    pub(crate) items: Vec<(usize, u32)>,
}

/// All patterns that were thought of, each once.
#[derive(Clone, Debug, Default)]
pub(crate) struct PatternPool {
    pub(crate) patterns: Vec<NodePattern>,
    seen: BTreeSet<NodePattern>,
}

impl PackingProblem {
    /// Returns the problem in which each class is an item.
    pub(crate) fn of(kinds: &[KindNumbers], classes: &[SliceClass]) -> Self {
        let count = |class: &SliceClass| u32::try_from(class.members.len()).unwrap_or(u32::MAX);
        let item =
            |class: &SliceClass| PackedItem { demand: class.mean.clone(), count: count(class) };
        Self { kinds: kinds.to_vec(), items: classes.iter().map(item).collect() }
    }

    /// Returns the items that a node of `kind` may hold, at these values.
    pub(crate) fn priced(&self, kind: usize, values: &[u64]) -> Vec<KnapsackItem> {
        let items = self.items.iter().zip(values).enumerate();
        let of = |(id, (item, value)): (usize, (&PackedItem, &u64))| {
            let demand = item.demand[kind]?;
            Some(KnapsackItem { id, value: *value, demand, most: item.count })
        };
        items.filter_map(of).collect()
    }

    /// Tells whether nothing is left to pack.
    pub(crate) fn is_done(&self) -> bool {
        self.items.iter().all(|item| item.count == 0)
    }

    /// Takes one node with `pattern` out of the problem, as far as items are left; returns what it
    /// holds, `None` if that is nothing or no such node is left.
    pub(crate) fn take(&mut self, pattern: &NodePattern) -> Option<NodePattern> {
        let kind = &mut self.kinds[pattern.kind];
        let left = pattern.items.iter().map(|(item, times)| {
            let times = (*times).min(self.items[*item].count);
            (*item, times)
        });
        let items: Vec<_> = left.filter(|(_, times)| *times > 0).collect();
        if kind.count == 0 || items.is_empty() {
            return None;
        }
        kind.count -= 1;
        items.iter().for_each(|(item, times)| self.items[*item].count -= times);
        Some(NodePattern { kind: pattern.kind, items })
    }
}

impl PatternPool {
    /// Adds a pattern; returns whether it is new.
    pub(crate) fn add(&mut self, mut pattern: NodePattern) -> bool {
        pattern.items.sort_unstable();
        let is_new = self.seen.insert(pattern.clone());
        if is_new {
            self.patterns.push(pattern);
        }
        is_new
    }
}
