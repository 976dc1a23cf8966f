// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The linear bound: slices may be divided among all nodes of a kind, and even so not fit.
//!
//! Let t be the highest load of any resource of any kind, and share the slices out so that t is as
//! low as it can be. Above 1 nothing places them all. By duality t is at least Σ n · min_k Σ_r
//! w_kr · d_kr / C_kr for any weights w ≥ 0 that add up to 1, with d the demand on kind k and C
//! what all its nodes have. Such weights are a proof, checked in integers; where they are positive,
//! the resource is scarce.
//!
//! The program has a row for each resource of each kind, and a column for each way to share the
//! slices out; a new way gives each slice to the kind where it is cheapest at the weights (Dantzig
//! and Wolfe 1960). It has few rows however many slices there are.

use crate::lp::{LinearProgram, LinearRow};
use crate::request::PlanRequest;
use crate::resource::{Resource, float, whole};
use crate::shapes::ShapedRequest;

/// The linear bound of some slices.
#[derive(Clone, Debug)]
pub(crate) struct CapacityBound {
    /// It is proven that the slices do not fit.
    pub(crate) falls_short: bool,
    /// The weight of each resource of each kind; positive where it is scarce.
    pub(crate) weights: Vec<KindWeights>,
}

/// When to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundDepth {
    /// When it is known whether the slices fit.
    Answer,
    /// When the load is the lowest, so that the weights are those of the scarcest resources.
    Weights,
}

/// Tells whether the linear bound proves that some slices of a request, given by number, do not fit
/// on its nodes, even if they were divided.
#[must_use]
pub fn falls_short(request: &PlanRequest, slices: &[usize]) -> bool {
    let request = ShapedRequest::of(request);
    capacity_bound(&request, &request.counts(slices), BoundDepth::Answer).falls_short
}

/// Bounds slices by shape: `counts` says how many there are of each.
pub(crate) fn capacity_bound(
    request: &ShapedRequest,
    counts: &[u32],
    depth: BoundDepth,
) -> CapacityBound {
    let mut program = LoadProgram::new(request, counts);
    let mut bound = CapacityBound { falls_short: false, weights: program.even_weights() };
    let mut weights = bound.weights.clone();
    for _ in 0..ROUNDS_MAX {
        let Some(way) = cheapest_kinds(request, counts, &program.of_a_node(&weights)) else {
            // A slice that fits nowhere.
            bound.falls_short = true;
            return bound;
        };
        if program.proves(&weights) {
            bound.falls_short = true;
            bound.weights.clone_from(&weights);
            if depth == BoundDepth::Answer {
                return bound;
            }
        }
        if !program.add(&way) {
            break;
        }
        program.linear.solve(PIVOTS_MAX);
        if depth == BoundDepth::Answer && program.linear.objective() <= 1.0 {
            return bound;
        }
        weights = program.weights();
    }
    if depth == BoundDepth::Weights {
        bound.weights = weights;
    }
    bound
}

/// The kind that each shape is given to; `None` where there are no slices of it.
pub(crate) type SharedOut = Vec<Option<usize>>;

/// The weight of each resource of a kind of node.
pub(crate) type KindWeights = [f64; Resource::ALL.len()];

/// Gives each slice to the kind where what it takes of a node weighs least; `None` if one fits
/// nowhere.
pub(crate) fn cheapest_kinds(
    request: &ShapedRequest,
    counts: &[u32],
    weights: &[KindWeights],
) -> Option<SharedOut> {
    let kind_of = |shape: usize| {
        if counts[shape] == 0 {
            return Some(None);
        }
        let price = |kind: usize| {
            let numbers = &request.kinds[kind];
            let demand = request.shapes[shape][kind]?;
            if numbers.count == 0 || !demand.fits(&numbers.capacity) {
                return None;
            }
            let shares = demand.shares(&numbers.capacity);
            let price: f64 = shares.iter().zip(&weights[kind]).map(|(share, w)| share * w).sum();
            Some((kind, price))
        };
        let kinds = (0..request.kinds.len()).filter_map(price);
        Some(Some(kinds.min_by(|a, b| a.1.total_cmp(&b.1))?.0))
    };
    (0..counts.len()).map(kind_of).collect()
}

struct LoadProgram<'r> {
    request: &'r ShapedRequest,
    counts: &'r [u32],
    linear: LinearProgram,
    /// The row of each resource of each kind; `None` where the kind has none of it.
    rows: Vec<[Option<usize>; Resource::ALL.len()]>,
}

impl<'r> LoadProgram<'r> {
    fn new(request: &'r ShapedRequest, counts: &'r [u32]) -> Self {
        // Row 0: the ways add up to one.
        let mut rows = vec![];
        let mut next = 1;
        for kind in &request.kinds {
            rows.push(kind.capacity.0.map(|amount| {
                let has = amount > 0 && kind.count > 0;
                next += usize::from(has);
                has.then(|| next - 1)
            }));
        }
        let mut bounds = vec![LinearRow::AtMost { bound: 0.0 }; next];
        bounds[0] = LinearRow::AtLeast { bound: 1.0, penalty: SHORT };
        let mut linear = LinearProgram::new(&bounds);
        linear.add_column(1.0, (1..next).map(|row| (row, -1.0)).collect());
        Self { request, counts, linear, rows }
    }

    /// The weights of a node's resources, by those of all nodes' of its kind.
    fn of_a_node(&self, weights: &[KindWeights]) -> Vec<KindWeights> {
        let each = self.request.kinds.iter().zip(weights);
        each.map(|(kind, of)| of.map(|w| w / f64::from(kind.count.max(1)))).collect()
    }

    fn even_weights(&self) -> Vec<KindWeights> {
        let each = 1.0 / float(self.rows.iter().flatten().flatten().count().max(1) as u64);
        let row =
            |row: &[Option<usize>; Resource::ALL.len()]| row.map(|row| row.map_or(0.0, |_| each));
        self.rows.iter().map(row).collect()
    }

    fn weights(&self) -> Vec<KindWeights> {
        let prices = self.linear.prices();
        let weight = |row: Option<usize>| row.map_or(0.0, |row| (-prices[row]).max(0.0));
        self.rows.iter().map(|rows| rows.map(weight)).collect()
    }

    /// The share of all nodes of a kind that `count` slices of a shape take of each resource;
    /// `None` where one does not fit.
    fn load(&self, shape: usize, kind: usize) -> Option<KindWeights> {
        let numbers = &self.request.kinds[kind];
        let demand = self.request.shapes[shape][kind]?;
        if numbers.count == 0 || !demand.fits(&numbers.capacity) {
            return None;
        }
        let times = f64::from(self.counts[shape]) / f64::from(numbers.count);
        Some(demand.shares(&numbers.capacity).map(|share| share * times))
    }

    /// Adds a way to share the slices out; returns whether it improves the program.
    fn add(&mut self, way: &SharedOut) -> bool {
        let mut loads: Vec<_> = self.rows.iter().map(|_| [0.0; Resource::ALL.len()]).collect();
        for (shape, kind) in way.iter().enumerate() {
            let Some(kind) = *kind else { continue };
            let load = self.load(shape, kind).unwrap_or_default();
            loads[kind].iter_mut().zip(load).for_each(|(sum, load)| *sum += load);
        }
        let mut entries = vec![(0, 1.0)];
        for (rows, loads) in self.rows.iter().zip(&loads) {
            let each = rows.iter().zip(loads);
            entries.extend(each.filter_map(|(row, load)| Some(((*row)?, *load))));
        }
        let prices = self.linear.prices();
        let gain: f64 = entries.iter().map(|(row, load)| prices[*row] * load).sum();
        self.linear.add_column(0.0, entries);
        gain > GAIN_MIN
    }

    /// Tells whether the weights prove, in integers, that the slices do not fit. Demands are
    /// rounded down, weights are exact.
    fn proves(&self, weights: &[KindWeights]) -> bool {
        let exact: Vec<_> =
            weights.iter().map(|of| of.map(|w| u128::from(whole(w * WEIGHT)))).collect();
        let all: u128 = exact.iter().flatten().sum::<u128>() << PROOF_BITS;
        let mut need = 0_u128;
        for (shape, count) in self.counts.iter().enumerate().filter(|(_, count)| **count > 0) {
            let price = |kind: usize| {
                let numbers = &self.request.kinds[kind];
                let demand = self.request.shapes[shape][kind]?;
                if numbers.count == 0 || !demand.fits(&numbers.capacity) {
                    return None;
                }
                let each = demand.0.iter().zip(numbers.capacity.0).zip(exact[kind]);
                Some(
                    each.map(|((demand, has), weight)| {
                        let has = u128::from(has) * u128::from(numbers.count);
                        ((weight * u128::from(*demand)) << PROOF_BITS).checked_div(has).unwrap_or(0)
                    })
                    .sum::<u128>(),
                )
            };
            let least = (0..self.request.kinds.len()).filter_map(price).min();
            need += least.unwrap_or(0) * u128::from(*count);
        }
        need > all
    }
}

/// Ways to share out that are tried; some tens suffice.
const ROUNDS_MAX: u32 = 400;
/// Steps of the simplex method a round.
const PIVOTS_MAX: usize = 10_000;
/// The load of no way at all: above that of any.
const SHORT: f64 = 1e6;
/// A way that lowers the load by less is no improvement.
const GAIN_MIN: f64 = 1e-9;
/// Weights of one become integers of 30 bits, demands below 2⁵³ have 30 bits behind the point: the
/// product stays below 2¹¹⁴.
const WEIGHT: f64 = (1_u64 << 30) as f64;
const PROOF_BITS: u32 = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceAmounts;
    use crate::shapes::KindNumbers;

    fn random_request(state: &mut u64) -> ShapedRequest {
        let mut draw = |least: u64, most: u64| {
            *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            least + (*state >> 33) % (most - least + 1)
        };
        let kind = |draw: &mut dyn FnMut(u64, u64) -> u64| KindNumbers {
            count: u32::try_from(draw(1, 9)).unwrap(),
            cost: 1,
            capacity: ResourceAmounts([draw(80, 200), draw(80, 200), draw(80, 200), 0, 0]),
        };
        let kinds: Vec<_> = (0..3).map(|_| kind(&mut draw)).collect();
        let shapes = (0..12)
            .map(|_| {
                let each = (0..3).map(|_| {
                    let demand = [draw(1, 40), draw(1, 40), draw(1, 40), 0, 0];
                    (draw(0, 4) > 0).then_some(ResourceAmounts(demand))
                });
                let mut shape: Vec<_> = each.collect();
                shape[0] = shape[0].or(Some(ResourceAmounts([5, 5, 5, 0, 0])));
                shape
            })
            .collect();
        ShapedRequest { kinds, shapes, shape_of: vec![] }
    }

    /// The lowest load by a program with a row for each shape.
    fn load_by_rows(request: &ShapedRequest, counts: &[u32]) -> f64 {
        let resource_rows = request.kinds.len() * Resource::ALL.len();
        let at_least =
            |count: &u32| LinearRow::AtLeast { bound: f64::from(*count), penalty: 1000.0 };
        let rows = counts.iter().map(at_least);
        let none = LinearRow::AtMost { bound: 0.0 };
        let rows: Vec<_> = rows.chain(vec![none; resource_rows]).collect();
        let mut program = LinearProgram::new(&rows);
        let first = counts.len();
        program.add_column(1.0, (0..resource_rows).map(|row| (first + row, -1.0)).collect());
        for (at, shape) in request.shapes.iter().enumerate() {
            for (kind, demand) in shape.iter().enumerate() {
                let Some(demand) = demand else { continue };
                let numbers = &request.kinds[kind];
                let shares = demand.shares(&numbers.capacity).into_iter().enumerate();
                let loads = shares.map(|(of, share)| {
                    (first + kind * Resource::ALL.len() + of, share / f64::from(numbers.count))
                });
                program.add_column(0.0, std::iter::once((at, 1.0)).chain(loads).collect());
            }
        }
        assert!(program.solve(100_000));
        program.objective()
    }

    /// Goal: the answer is that of the plain program, and a proof is never wrong. Loads within
    /// 10⁻⁵ of one are too close to call.
    #[test]
    fn the_bound_agrees_with_a_program_of_all_shapes() {
        let mut state = 11;
        let (mut short, mut fits) = (0, 0);
        for round in 0..300_u32 {
            let request = random_request(&mut state);
            let counts = vec![1 + round % 12; request.shapes.len()];
            let load = load_by_rows(&request, &counts);
            let depth = if round % 2 == 0 { BoundDepth::Answer } else { BoundDepth::Weights };
            let bound = capacity_bound(&request, &counts, depth);
            if (load - 1.0).abs() > 1e-5 {
                assert_eq!(bound.falls_short, load > 1.0, "round {round}: load {load}");
            }
            short += u32::from(load > 1.0);
            fits += u32::from(load < 1.0);
        }
        assert!(short > 50 && fits > 50, "{short} {fits}");
    }
}
