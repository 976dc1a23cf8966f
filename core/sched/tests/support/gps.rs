// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Generalized processor sharing as a fluid (Parekh and Gallager 1993), of any depth: the oracle.
//!
//! At every instant the link's rate is divided among the children that have backlog below them, by
//! weight, from the root down. Solved event by event (an arrival, or a leaf running empty) in
//! floating point: an oracle needs no exact integers, only to be obviously right.

/// A fluid tree on a link.
pub(crate) struct Gps {
    nodes: Vec<Node>,
    /// Bytes a nanosecond.
    rate: f64,
    now: f64,
}

struct Node {
    parent: Option<usize>,
    weight: f64,
    backlog: f64,
    served: f64,
}

impl Gps {
    /// A link of `rate` bytes a nanosecond.
    pub(crate) fn new(rate: f64) -> Self {
        Self { nodes: Vec::new(), rate, now: 0.0 }
    }

    /// Adds a node below `parent`; indexes count up from 0.
    pub(crate) fn add(&mut self, parent: Option<usize>, weight: u32) -> usize {
        let node = Node { parent, weight: f64::from(weight), backlog: 0.0, served: 0.0 };
        self.nodes.push(node);
        self.nodes.len() - 1
    }

    /// `bytes` arrive at a leaf at `nanos`.
    pub(crate) fn arrive(&mut self, nanos: u64, leaf: usize, bytes: u32) {
        self.advance(nanos);
        self.nodes[leaf].backlog += f64::from(bytes);
    }

    /// Serves until `nanos`.
    pub(crate) fn advance(&mut self, nanos: u64) {
        let end = nanos as f64;
        while self.now < end {
            let rates: Vec<f64> = (0..self.nodes.len()).map(|leaf| self.leaf_rate(leaf)).collect();
            let mut step = end - self.now;
            for (node, rate) in self.nodes.iter().zip(&rates) {
                if *rate > 0.0 {
                    step = step.min(node.backlog / rate);
                }
            }
            for (node, rate) in self.nodes.iter_mut().zip(&rates) {
                let bytes = (rate * step).min(node.backlog);
                node.served += bytes;
                node.backlog -= bytes;
                // A millionth of a byte is rounding, not backlog.
                if node.backlog < 1e-6 {
                    node.backlog = 0.0;
                }
            }
            self.now += step.max(1e-6);
        }
        self.now = self.now.max(end);
    }

    /// Bytes that the leaf was served.
    pub(crate) fn served(&self, leaf: usize) -> f64 {
        self.nodes[leaf].served
    }

    /// Zero for a leaf without backlog, and for inner nodes.
    fn leaf_rate(&self, leaf: usize) -> f64 {
        if self.nodes[leaf].backlog <= 0.0 {
            return 0.0;
        }
        let (mut share, mut node) = (1.0, leaf);
        loop {
            let parent = self.nodes[node].parent;
            let siblings = self.nodes.iter().enumerate();
            let active = siblings
                .filter(|(index, other)| other.parent == parent && self.is_active(*index))
                .map(|(_, other)| other.weight)
                .sum::<f64>();
            share *= self.nodes[node].weight / active;
            match parent {
                Some(parent) => node = parent,
                None => return share * self.rate,
            }
        }
    }

    fn is_active(&self, node: usize) -> bool {
        self.nodes[node].backlog > 0.0
            || (0..self.nodes.len())
                .any(|child| self.nodes[child].parent == Some(node) && self.is_active(child))
    }
}
