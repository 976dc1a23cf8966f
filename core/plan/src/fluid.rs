// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A lower bound on cost if slices could be divided like a fluid.
//!
//! Use y_k nodes of kind k and share the slices out among the kinds, so that no resource of the
//! nodes of a kind is overfull and the cost is least. By duality any prices w ≥ 0 prove a bound: a
//! slice is worth what it takes of a node, at the prices of the kind where that is least, so a node
//! of kind k holds at most Σ_r w_kr (`proof.rs`). New ways to share the slices out come one by one,
//! as in `capacity.rs`.
//!
//! Where slices have many different sizes, nodes can be filled nearly to the brim, and this bound
//! is near the truth. Where they have few, the master program's is.

use crate::capacity::{SharedOut, cheapest_kinds};
use crate::loads::PerResource;
use crate::lp::{LinearProgram, LinearRow};
use crate::proof::{BoundedKind, VALUE, lower_bound};
use crate::resource::{Resource, float, whole};
use crate::shapes::ShapedRequest;

/// Returns the bound, in units of [`VALUE`]; `counts` says how many slices there are of each shape.
pub(crate) fn fluid_bound(request: &ShapedRequest, counts: &[u32]) -> u128 {
    let mut program = FluidProgram::new(request);
    let dearest = request.kinds.iter().map(|kind| kind.cost).max().unwrap_or(1).max(1);
    let mut weights: Vec<PerResource> = request
        .kinds
        .iter()
        .map(|kind| [float(kind.cost) / float(dearest) / 4.0; Resource::ALL.len()])
        .collect();
    let mut best = 0;
    for _ in 0..ROUNDS_MAX {
        let Some(way) = cheapest_kinds(request, counts, &weights) else { return best };
        best = best.max(proven(request, counts, &weights, dearest));
        if !program.add(counts, &way) {
            break;
        }
        program.linear.solve(PIVOTS_MAX);
        weights = program.weights();
    }
    best
}

struct FluidProgram<'r> {
    request: &'r ShapedRequest,
    linear: LinearProgram,
}

impl<'r> FluidProgram<'r> {
    /// Makes the program. Row 0: the ways add up to one. Then a row for each resource of each kind,
    /// in nodes; then a row for each kind, the nodes that there are.
    fn new(request: &'r ShapedRequest) -> Self {
        let resources = Resource::ALL.len();
        let kinds = request.kinds.len();
        let mut rows = vec![LinearRow::AtLeast { bound: 1.0, penalty: MISSING }];
        rows.extend(vec![LinearRow::AtMost { bound: 0.0 }; kinds * resources]);
        let count = |bound: u32| LinearRow::AtMost { bound: f64::from(bound) };
        rows.extend(request.kinds.iter().map(|kind| count(kind.count)));
        let mut linear = LinearProgram::new(&rows);
        let dearest = request.kinds.iter().map(|kind| kind.cost).max().unwrap_or(1).max(1);
        for (at, kind) in request.kinds.iter().enumerate() {
            let room = (0..resources).map(|of| (1 + at * resources + of, -1.0));
            let node = (1 + kinds * resources + at, 1.0);
            let cost = float(kind.cost) / float(dearest);
            linear.add_column(cost, room.chain([node]).collect());
        }
        Self { request, linear }
    }

    fn weights(&self) -> Vec<PerResource> {
        let prices = self.linear.prices();
        let weight = |kind: usize| {
            let mut weights = [0.0; Resource::ALL.len()];
            let rows = &prices[1 + kind * weights.len()..];
            weights.iter_mut().zip(rows).for_each(|(weight, price)| *weight = (-price).max(0.0));
            weights
        };
        (0..self.request.kinds.len()).map(weight).collect()
    }

    /// Adds a way to share the slices out; returns whether it improves the program.
    fn add(&mut self, counts: &[u32], way: &SharedOut) -> bool {
        let resources = Resource::ALL.len();
        let mut entries = vec![(0, 1.0)];
        entries.extend((0..self.request.kinds.len() * resources).map(|row| (1 + row, 0.0)));
        for (shape, kind) in way.iter().enumerate() {
            let Some(kind) = *kind else { continue };
            let capacity = &self.request.kinds[kind].capacity;
            let demand = self.request.shapes[shape][kind].unwrap_or_default();
            for (of, share) in demand.shares(capacity).into_iter().enumerate() {
                entries[1 + kind * resources + of].1 += share * f64::from(counts[shape]);
            }
        }
        let prices = self.linear.prices();
        let gain: f64 = entries.iter().map(|(row, load)| prices[*row] * load).sum();
        self.linear.add_column(0.0, entries);
        gain > GAIN_MIN
    }
}

/// Returns the bound that weights prove, in integers.
fn proven(request: &ShapedRequest, counts: &[u32], weights: &[PerResource], dearest: u64) -> u128 {
    let unit = float(dearest * VALUE);
    let exact: Vec<_> = weights.iter().map(|of| of.map(|weight| whole(weight * unit))).collect();
    let mut value = 0;
    for (shape, count) in counts.iter().enumerate().filter(|(_, count)| **count > 0) {
        let worth = |kind: usize| {
            let numbers = &request.kinds[kind];
            let demand = request.shapes[shape][kind]?;
            if numbers.count == 0 || !demand.fits(&numbers.capacity) {
                return None;
            }
            let each = demand.0.iter().zip(numbers.capacity.0).zip(exact[kind]);
            let each = each.map(|((demand, has), weight)| {
                (u128::from(*demand) * u128::from(weight)).checked_div(u128::from(has)).unwrap_or(0)
            });
            Some(each.sum::<u128>())
        };
        let least = (0..request.kinds.len()).filter_map(worth).min().unwrap_or(0);
        value += least * u128::from(*count);
    }
    let kinds = request.kinds.iter().zip(&exact);
    let kinds = kinds.map(|(kind, weights)| {
        let has = kind.capacity.0.iter().zip(weights).filter(|(amount, _)| **amount > 0);
        let upper = has.map(|(_, weight)| weight).sum();
        BoundedKind { count: kind.count, cost: kind.cost * VALUE, upper }
    });
    lower_bound(value, &kinds.collect::<Vec<_>>())
}

/// Ways to share out that are tried; some tens suffice.
const ROUNDS_MAX: u32 = 400;
/// Steps of the simplex method a round.
const PIVOTS_MAX: usize = 10_000;
/// The cost of slices that are not shared out, in the dearest nodes: above that of all nodes.
const MISSING: f64 = 1e6;
/// A way that lowers the cost by less, in the dearest nodes, is no improvement.
const GAIN_MIN: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::ResourceAmounts;
    use crate::shapes::KindNumbers;

    /// 25 slices of 30 on nodes of 100 are 7.5 nodes; with five nodes of the cheaper kind, five at
    /// 10 and 2.5 at 12.
    #[test]
    fn divided_slices_cost_what_a_hand_computes() {
        let kind =
            |count, cost| KindNumbers { count, cost, capacity: ResourceAmounts([0, 0, 100, 0, 0]) };
        let shape = vec![Some(ResourceAmounts([0, 0, 30, 0, 0])); 2];
        let bound = |cheap: u32| {
            let kinds = vec![kind(cheap, 10), kind(50, 12)];
            let request = ShapedRequest { kinds, shapes: vec![shape.clone()], shape_of: vec![] };
            fluid_bound(&request, &[25])
        };
        let is_near = |bound: u128, cost: f64| {
            let least = u128::from(whole((cost - 0.01) * float(VALUE)));
            least <= bound && bound <= u128::from(whole(cost * float(VALUE)))
        };
        assert!(is_near(bound(50), 75.0), "{}", bound(50));
        assert!(is_near(bound(5), 80.0), "{}", bound(5));
    }
}
