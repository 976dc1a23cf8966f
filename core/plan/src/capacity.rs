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

use crate::loads::{BoundDepth, LoadProgram, PerResource, SliceLoads};
use crate::request::PlanRequest;
use crate::shapes::ShapedRequest;

/// The linear bound of some slices.
#[derive(Clone, Debug)]
pub(crate) struct CapacityBound {
    /// It is proven that the slices do not fit.
    pub(crate) falls_short: bool,
    /// The weight of each resource of each kind; positive where it is scarce.
    pub(crate) weights: Vec<PerResource>,
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
    let loads = SliceLoads::of(request, counts);
    let mut program = LoadProgram::new(&loads, loads.counts(counts));
    let proof = program.solve(depth);
    let weights = match (depth, &proof) {
        (BoundDepth::Answer, Some(proof)) => proof.weights.clone(),
        _ => program.weights().to_vec(),
    };
    CapacityBound { falls_short: proof.is_some(), weights }
}

/// The kind that each shape is given to; `None` where there are no slices of it.
pub(crate) type SharedOut = Vec<Option<usize>>;

/// Gives each slice to the kind where what it takes of a node weighs least; `None` if one fits
/// nowhere.
pub(crate) fn cheapest_kinds(
    request: &ShapedRequest,
    counts: &[u32],
    weights: &[PerResource],
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

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::lp::{LinearProgram, LinearRow};
    use crate::resource::{Resource, ResourceAmounts};
    use crate::shapes::KindNumbers;

    /// Returns three kinds of node and twelve shapes, some of which fit on one kind only; no slices
    /// yet.
    pub(crate) fn random_request(state: &mut u64) -> ShapedRequest {
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

    /// Returns the lowest load by a program with a row for each shape.
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
