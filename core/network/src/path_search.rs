// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Constrained shortest paths, exact, by label setting (Martins 1984; Dumitrescu & Boland 2003).
//!
//! A path must have room on each arc and keep limits of delay and of arcs; of all such paths the
//! cheapest is wanted, and of those the fastest. A limit on a sum makes this NP-hard in general,
//! but on real networks it is easy: most questions are answered before labels are needed.
//!
//! 1. The cheapest path without limits, by A* under the bounds to the target. If it keeps the
//!    limits, it is the answer.
//! 2. The fastest path and the one of fewest arcs. If one of them breaks its limit, there is none.
//! 3. Labels: partial paths, of which a node keeps those that no other beats in cost, delay and
//!    arcs. A label that cannot keep the limits by its bounds is not made. The first to reach the
//!    target is the answer, since labels leave the heap in the order of their least total cost.
//!
//! The number of labels of a search has a bound, and several searches can be given one bound of
//! steps: arcs and labels that are looked at. Reaching a bound is an outcome of its own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::bounds::{NodeBound, TargetBounds};
use crate::connection::RoutedPath;
use crate::graph::{GraphArc, NetworkGraph};
use crate::ids::{ArcId, NodeId, dense};

const NONE: u32 = u32::MAX;

/// The sum that a path minimizes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum PathObjective {
    /// Cost, then delay.
    #[default]
    Cost,
    /// Delay.
    Delay,
    /// Arcs, then delay.
    Hops,
}

/// A question for a path.
#[derive(Clone, Copy, Debug)]
pub struct PathQuery {
    /// Its start.
    pub from: NodeId,
    /// Its end.
    pub to: NodeId,
    /// The sum that it minimizes.
    pub objective: PathObjective,
    /// Most delay in nanoseconds; `u64::MAX` for no limit.
    pub delay: u64,
    /// Most arcs; `u32::MAX` for no limit.
    pub hops: u32,
}

/// The answer of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathOutcome {
    /// The best path.
    Found(RoutedPath),
    /// There is no path.
    NoPath,
    /// A bound was reached before the answer was known.
    Exhausted,
}

/// A partial path from the start.
#[derive(Clone, Copy, Debug)]
struct PathLabel {
    primary: u64,
    delay: u64,
    hops: u32,
    node: NodeId,
    /// The arc that led here.
    arc: ArcId,
    /// The label that it continues; [`NONE`] at the start.
    parent: u32,
    /// Another label of the node; [`NONE`] after the last.
    sibling: u32,
    is_beaten: bool,
}

/// A label's least primary and delay at the target, then its place among the labels.
type OpenLabel = Reverse<(u64, u64, u32)>;

/// The memory of searches, used again and again.
#[derive(Debug)]
pub(crate) struct PathSearch {
    labels_max: usize,
    /// Arcs and labels that were looked at by all searches so far.
    pub(crate) steps: u64,
    /// The number of steps at which searches end.
    pub(crate) steps_max: u64,
    labels: Vec<PathLabel>,
    /// A node's first label, if its stamp is this search's.
    first: Vec<(u32, u32)>,
    stamp: u32,
    open: BinaryHeap<OpenLabel>,
}

/// The way in which labels of a node are compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dominance {
    /// One label a node: the least primary, then the least delay. Limits are ignored.
    Scalar,
    /// All labels that no other beats; limits are kept. The number of arcs is compared only if it
    /// has a limit.
    Pareto { by_hops: bool },
}

/// One run over the graph.
struct SearchRun<'a, F> {
    graph: &'a NetworkGraph,
    bounds: &'a TargetBounds,
    query: PathQuery,
    dominance: Dominance,
    usable: &'a F,
}

impl PathSearch {
    pub(crate) fn new(nodes: usize, labels_max: usize) -> Self {
        Self {
            labels_max,
            steps: 0,
            steps_max: u64::MAX,
            labels: Vec::new(),
            first: vec![(0, NONE); nodes],
            stamp: 0,
            open: BinaryHeap::new(),
        }
    }

    /// Finds the best path over arcs that are `usable`.
    pub(crate) fn find(
        &mut self,
        graph: &NetworkGraph,
        bounds: &TargetBounds,
        query: PathQuery,
        usable: &impl Fn(ArcId) -> bool,
    ) -> PathOutcome {
        let scalar = |objective| SearchRun {
            graph,
            bounds,
            query: PathQuery { objective, ..query },
            dominance: Dominance::Scalar,
            usable,
        };
        let is_late = |path: &RoutedPath| path.delay > query.delay;
        let is_long = |path: &RoutedPath| path.arcs.len() as u64 > u64::from(query.hops);
        match self.run(&scalar(query.objective)) {
            PathOutcome::Found(path) if is_late(&path) || is_long(&path) => {}
            outcome => return outcome,
        }
        if query.delay < u64::MAX
            && let PathOutcome::Found(fastest) = self.run(&scalar(PathObjective::Delay))
            && is_late(&fastest)
        {
            return PathOutcome::NoPath;
        }
        if query.hops < u32::MAX
            && let PathOutcome::Found(shortest) = self.run(&scalar(PathObjective::Hops))
            && is_long(&shortest)
        {
            return PathOutcome::NoPath;
        }
        let dominance = Dominance::Pareto { by_hops: query.hops < u32::MAX };
        self.run(&SearchRun { graph, bounds, query, dominance, usable })
    }

    fn run<F: Fn(ArcId) -> bool>(&mut self, run: &SearchRun<'_, F>) -> PathOutcome {
        self.clear();
        let start = PathLabel {
            primary: 0,
            delay: 0,
            hops: 0,
            node: run.query.from,
            arc: ArcId(NONE),
            parent: NONE,
            sibling: NONE,
            is_beaten: false,
        };
        let Some(bound) = run.bounds.from(start.node) else { return PathOutcome::NoPath };
        self.add(run, start, bound);
        while let Some(Reverse((.., place))) = self.open.pop() {
            let label = self.labels[place as usize];
            if label.is_beaten {
                continue;
            }
            if label.node == run.query.to {
                return PathOutcome::Found(self.trace(run.graph, place));
            }
            if self.steps >= self.steps_max {
                return PathOutcome::Exhausted;
            }
            for arc in run.graph.leaving(label.node) {
                self.steps += 1;
                let Some((next, bound)) = run.extend(&label, place, arc) else { continue };
                if !self.is_dominated(run.dominance, &next) && (run.usable)(arc.arc) {
                    if self.labels.len() >= self.labels_max {
                        return PathOutcome::Exhausted;
                    }
                    self.beat(run.dominance, &next);
                    self.add(run, next, bound);
                }
            }
        }
        PathOutcome::NoPath
    }

    fn clear(&mut self) {
        self.labels.clear();
        self.open.clear();
        self.stamp = self.stamp.wrapping_add(1);
        if self.stamp == 0 {
            self.first.fill((0, NONE));
            self.stamp = 1;
        }
    }

    fn first_label(&self, node: NodeId) -> u32 {
        match self.first[node.index()] {
            (stamp, place) if stamp == self.stamp => place,
            _ => NONE,
        }
    }

    fn is_dominated(&mut self, dominance: Dominance, next: &PathLabel) -> bool {
        let mut place = self.first_label(next.node);
        while place != NONE {
            self.steps += 1;
            let label = &self.labels[place as usize];
            if dominance.beats(label, next) {
                return true;
            }
            place = label.sibling;
        }
        false
    }

    /// Marks labels that a new one beats, so that they are not continued.
    fn beat(&mut self, dominance: Dominance, next: &PathLabel) {
        let mut place = self.first_label(next.node);
        while place != NONE {
            self.steps += 1;
            let label = &mut self.labels[place as usize];
            label.is_beaten |= dominance.beats(next, label);
            place = label.sibling;
        }
    }

    fn add<F>(&mut self, run: &SearchRun<'_, F>, mut label: PathLabel, bound: NodeBound) {
        let place = dense(self.labels.len());
        label.sibling = match run.dominance {
            Dominance::Scalar => NONE,
            Dominance::Pareto { .. } => self.first_label(label.node),
        };
        let primary = label.primary.saturating_add(run.query.objective.bound(bound));
        let delay = label.delay.saturating_add(u64::from(bound.delay));
        self.first[label.node.index()] = (self.stamp, place);
        self.labels.push(label);
        self.open.push(Reverse((primary, delay, place)));
    }

    fn trace(&self, graph: &NetworkGraph, place: u32) -> RoutedPath {
        let mut path = RoutedPath { delay: self.labels[place as usize].delay, ..<_>::default() };
        let mut label = &self.labels[place as usize];
        while label.parent != NONE {
            let parent = &self.labels[label.parent as usize];
            let leaving = graph.leaving(parent.node);
            let arc = leaving.iter().find(|arc| arc.arc == label.arc);
            path.cost += arc.map_or(0, |arc| u64::from(arc.cost));
            path.arcs.push(label.arc);
            label = parent;
        }
        path.arcs.reverse();
        path
    }
}

impl<F> SearchRun<'_, F> {
    /// Continues a label along an arc, unless its bounds say that the limits would be broken.
    fn extend(
        &self,
        label: &PathLabel,
        place: u32,
        arc: &GraphArc,
    ) -> Option<(PathLabel, NodeBound)> {
        let bound = self.bounds.from(arc.node)?;
        let delay = label.delay.saturating_add(arc.delay);
        let hops = label.hops + 1;
        if self.dominance != Dominance::Scalar {
            let late = delay.saturating_add(u64::from(bound.delay)) > self.query.delay;
            if late || hops.saturating_add(bound.hops) > self.query.hops {
                return None;
            }
        }
        let step = match self.query.objective {
            PathObjective::Cost => u64::from(arc.cost),
            PathObjective::Delay => arc.delay,
            PathObjective::Hops => 1,
        };
        let primary = label.primary.saturating_add(step);
        let next = PathLabel {
            primary,
            delay,
            hops,
            node: arc.node,
            arc: arc.arc,
            parent: place,
            sibling: NONE,
            is_beaten: false,
        };
        Some((next, bound))
    }
}

impl PathObjective {
    fn bound(self, bound: NodeBound) -> u64 {
        u64::from(match self {
            Self::Cost => bound.cost,
            Self::Delay => bound.delay,
            Self::Hops => bound.hops,
        })
    }
}

impl Dominance {
    /// Tells whether `a` makes `b` superfluous. Equal labels beat each other, so the first one
    /// stays.
    fn beats(self, a: &PathLabel, b: &PathLabel) -> bool {
        match self {
            Self::Scalar => (a.primary, a.delay) <= (b.primary, b.delay),
            Self::Pareto { by_hops } => {
                a.primary <= b.primary && a.delay <= b.delay && (!by_hops || a.hops <= b.hops)
            }
        }
    }
}
