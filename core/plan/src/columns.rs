// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Column generation: the best mixture of node contents, of which there are too many to list.
//!
//! The master program chooses how often to use each known pattern, so that every item is packed and
//! no more nodes are used than there are. Its prices say what packing an item is worth. A knapsack
//! for each kind of node looks for a pattern that is worth more than it costs; what it finds joins
//! the program. When nothing is found, the mixture is the best one, and the prices prove a lower
//! bound (`proof.rs`) all along, long before that. Prices are drawn towards those of the best bound
//! so far, since the master's own jump about (Wentges 1997). Read: Lübbecke and Desrosiers,
//! *Selected topics in column generation*, Operations Research 53 (2005).

use crate::knapsack::{KnapsackLimits, pack_node};
use crate::lp::{LinearProgram, LinearRow};
use crate::packing::{NodePattern, PackingProblem, PatternPool};
use crate::proof::{BoundedKind, VALUE, lower_bound};
use crate::resource::{float, whole};

/// The aim of the master program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PackingGoal {
    /// Least cost; an item that is left out costs more than any node.
    Cost,
    /// The fewest items left out, at any cost.
    Placement,
}

/// The bounds of generating columns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ColumnLimits {
    /// Rounds of master and knapsacks.
    pub(crate) rounds: u32,
    /// Steps of each knapsack.
    pub(crate) steps: u32,
}

/// A mixture of patterns, and what was proven about all mixtures.
#[derive(Debug)]
pub(crate) struct PatternMix {
    /// Patterns of the pool by index, and how often each is used.
    pub(crate) uses: Vec<(usize, f64)>,
    /// The lower bound, in units of [`VALUE`].
    pub(crate) bound: u128,
}

/// Finds the best mixture. New patterns are added to the pool.
pub(crate) fn generate(
    problem: &PackingProblem,
    pool: &mut PatternPool,
    goal: PackingGoal,
    limits: ColumnLimits,
) -> PatternMix {
    let mut master = MasterProgram::new(problem, pool, goal);
    let mut best = PricePoint::zero(problem);
    let mut bound = 0;
    let mut smoothing = SMOOTHING;
    for _ in 0..limits.rounds {
        master.program.solve(PIVOTS_MAX);
        let point = master.prices();
        if master.is_proven(bound) {
            break;
        }
        let asked = point.towards(&best, smoothing);
        let (added, proven) = master.price(pool, &asked, &point, limits.steps);
        if proven > bound {
            (best, bound) = (asked, proven);
        }
        match (added, smoothing > 0.0) {
            (0, false) => break,
            // Drawn prices found nothing: the master's own decide.
            (0, true) => smoothing = 0.0,
            _ => smoothing = SMOOTHING,
        }
    }
    master.program.solve(PIVOTS_MAX);
    PatternMix { uses: master.uses(), bound }
}

struct MasterProgram<'p> {
    problem: &'p PackingProblem,
    goal: PackingGoal,
    program: LinearProgram,
    /// The number of the first pattern's column.
    first: usize,
    /// Costs in the program are of the order of one; one is this many units of [`VALUE`].
    unit: f64,
}

impl<'p> MasterProgram<'p> {
    fn new(problem: &'p PackingProblem, pool: &PatternPool, goal: PackingGoal) -> Self {
        let penalty = if goal == PackingGoal::Cost { LEFT_OUT } else { 1.0 };
        let items = problem.items.iter();
        let items = items.map(|item| LinearRow::AtLeast { bound: f64::from(item.count), penalty });
        let kinds = problem.kinds.iter();
        let kinds = kinds.map(|kind| LinearRow::AtMost { bound: f64::from(kind.count) });
        let program = LinearProgram::new(&items.chain(kinds).collect::<Vec<_>>());
        let dearest = problem.kinds.iter().map(|kind| kind.cost).max().unwrap_or(1).max(1);
        let unit = match goal {
            PackingGoal::Cost => float(dearest * VALUE),
            PackingGoal::Placement => float(VALUE),
        };
        let first = 2 * problem.items.len() + problem.kinds.len();
        let mut master = Self { problem, goal, program, first, unit };
        pool.patterns.iter().for_each(|pattern| master.add(pattern));
        master
    }

    fn add(&mut self, pattern: &NodePattern) {
        let rows = pattern.items.iter().map(|(item, times)| (*item, f64::from(*times)));
        let node = (self.problem.items.len() + pattern.kind, 1.0);
        let cost = float(self.cost(pattern.kind)) / self.unit;
        self.program.add_column(cost, rows.chain([node]).collect());
    }

    /// Returns the cost of a node, in units of [`VALUE`].
    fn cost(&self, kind: usize) -> u64 {
        match self.goal {
            PackingGoal::Cost => self.problem.kinds[kind].cost * VALUE,
            PackingGoal::Placement => 0,
        }
    }

    fn prices(&self) -> PricePoint {
        let prices = self.program.prices();
        let (items, kinds) = prices.split_at(self.problem.items.len());
        let scaled = |price: f64| whole((price * self.unit).max(0.0));
        PricePoint {
            values: items.iter().map(|price| scaled(*price)).collect(),
            rents: kinds.iter().map(|price| scaled(-price)).collect(),
        }
    }

    /// Tells whether the mixture is as good as proven, within a thousandth.
    fn is_proven(&self, bound: u128) -> bool {
        let value = u128::from(whole(self.program.objective() * self.unit));
        match self.goal {
            PackingGoal::Cost => value <= bound + bound / PROVEN,
            // One slice without a place is enough, and so is none.
            PackingGoal::Placement => bound > 0 || value < u128::from(VALUE / 1000),
        }
    }

    /// Looks for patterns at the prices `asked`, keeps those that pay at the master's own `point`,
    /// and returns how many are new and what the prices prove.
    fn price(
        &mut self,
        pool: &mut PatternPool,
        asked: &PricePoint,
        point: &PricePoint,
        steps: u32,
    ) -> (usize, u128) {
        let (mut added, mut kinds) = (0, vec![]);
        for (kind, numbers) in self.problem.kinds.iter().enumerate() {
            let cost = self.cost(kind);
            if numbers.count == 0 {
                continue;
            }
            let items = self.problem.priced(kind, &asked.values);
            let limits = KnapsackLimits { floor: cost + asked.rents[kind], steps };
            let answer = pack_node(&numbers.capacity, &items, limits);
            for items in answer.packings.into_iter().rev().take(PATTERNS_A_KIND) {
                let each = items.iter();
                let worth: u64 =
                    each.map(|(at, times)| point.values[*at] * u64::from(*times)).sum();
                let pattern = NodePattern { kind, items };
                if worth > cost + point.rents[kind] && pool.add(pattern.clone()) {
                    self.add(&pattern);
                    added += 1;
                }
            }
            kinds.push(BoundedKind { count: numbers.count, cost, upper: answer.upper });
        }
        let items = self.problem.items.iter().zip(&asked.values);
        let value = items.map(|(item, value)| u128::from(item.count) * u128::from(*value)).sum();
        (added, lower_bound(value, &kinds))
    }

    fn uses(&self) -> Vec<(usize, f64)> {
        let used = self.program.values().filter(|(at, value)| *at >= self.first && *value > USED);
        let mut uses: Vec<_> = used.map(|(at, value)| (at - self.first, value)).collect();
        uses.sort_by_key(|(at, _)| *at);
        uses
    }
}

/// The prices of a master program, in units of [`VALUE`].
#[derive(Clone, Debug)]
struct PricePoint {
    /// The value of packing an item.
    values: Vec<u64>,
    /// The value of one node more of a kind.
    rents: Vec<u64>,
}

impl PricePoint {
    fn zero(problem: &PackingProblem) -> Self {
        Self { values: vec![0; problem.items.len()], rents: vec![0; problem.kinds.len()] }
    }

    /// Returns the point between `self` and `other`, by the share that is `other`'s.
    fn towards(&self, other: &Self, share: f64) -> Self {
        let mix = |own: &[u64], other: &[u64]| -> Vec<u64> {
            let pairs = own.iter().zip(other);
            pairs.map(|(a, b)| whole(float(*a) * (1.0 - share) + float(*b) * share)).collect()
        };
        Self { values: mix(&self.values, &other.values), rents: mix(&self.rents, &other.rents) }
    }
}

/// An item that is left out costs as much as this many of the dearest nodes.
const LEFT_OUT: f64 = 10.0;
/// A mixture within this part of the bound is good enough.
const PROVEN: u128 = 1000;
/// The share of the best bound's prices; Wentges' experiments are flat around it.
const SMOOTHING: f64 = 0.6;
/// Patterns that a knapsack adds a round.
const PATTERNS_A_KIND: usize = 4;
/// A pattern that is used less is not used.
const USED: f64 = 1e-6;
/// Steps of the simplex method a round: a few hundred rows need some thousand.
const PIVOTS_MAX: usize = 20_000;
