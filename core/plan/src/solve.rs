// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From shapes to a placement and a proven bound: classes, columns, rounding, filling, repair.

use crate::classes::{SliceClass, classify};
use crate::columns::{ColumnLimits, PackingGoal, generate};
use crate::effort::PlanEffort;
use crate::filling::fill;
use crate::first_fit::first_fit;
use crate::fluid::fluid_bound;
use crate::knapsack::{KnapsackLimits, pack_node};
use crate::packing::{NodePattern, PackingProblem, PatternPool};
use crate::placement::SlicePlacement;
use crate::proof::VALUE;
use crate::repair::{improve, insert};
use crate::rounding::whole_nodes;
use crate::shapes::ShapedRequest;

/// A placement and what was proven.
pub(crate) struct SolvedPlacement<'r> {
    pub(crate) placement: SlicePlacement<'r>,
    /// No placement of all slices costs less.
    pub(crate) cost_bound: u64,
}

/// Places slices at the least cost that the effort finds.
pub(crate) fn solve<'r>(
    request: &'r ShapedRequest,
    slices: &[usize],
    effort: &PlanEffort,
) -> SolvedPlacement<'r> {
    let simple = first_fit(request, slices);
    let (placement, mix_bound) = place(request, slices, simple, effort);
    let fluid = fluid_bound(request, &request.counts(slices));
    let bound = mix_bound.map_or(fluid, |bound| fluid.max(bound));
    let step = request.kinds.iter().map(|kind| kind.cost).fold(0, gcd).max(1);
    let cost = bound.div_ceil(u128::from(VALUE)).div_ceil(u128::from(step)) * u128::from(step);
    SolvedPlacement { placement, cost_bound: u64::try_from(cost).unwrap_or(u64::MAX) }
}

/// Tells whether [`solve`] would place all slices; at whatever cost, so first fit may be enough.
pub(crate) fn places_all(request: &ShapedRequest, slices: &[usize], effort: &PlanEffort) -> bool {
    let simple = first_fit(request, slices);
    simple.unplaced.is_empty() || place(request, slices, simple, effort).0.unplaced.is_empty()
}

/// Returns the better one of `simple` and a placement by patterns, both improved; and the master
/// program's bound where it is one on the real slices.
fn place<'r>(
    request: &'r ShapedRequest,
    slices: &[usize],
    mut simple: SlicePlacement<'r>,
    effort: &PlanEffort,
) -> (SlicePlacement<'r>, Option<u128>) {
    let classes = classify(request, slices, effort.classes);
    let problem = PackingProblem::of(&request.kinds, &classes);
    let mut pool = first_patterns(&problem, &classes, &simple);
    let limits = ColumnLimits { rounds: effort.rounds, steps: effort.steps };
    let mix = generate(&problem, &mut pool, PackingGoal::Cost, limits);
    // The master program's bound is one on means, unless each class is of one shape.
    let bound = is_exact(request, &classes).then_some(mix.bound);
    let limits = ColumnLimits { rounds: effort.rounds / 10, steps: effort.steps / 10 };
    let patterns = whole_nodes(&problem, &mut pool, &mix, limits);
    let (mut placement, left) = fill(request, &classes, &patterns);
    insert(&mut placement, &left);
    improve(&mut placement);
    improve(&mut simple);
    let rank = |placement: &SlicePlacement<'_>| (placement.unplaced.len(), placement.cost());
    (if rank(&simple) < rank(&placement) { simple } else { placement }, bound)
}

/// Tells whether the slices provably do not all fit, by the patterns of their nodes. Only where
/// each shape is a class of its own; elsewhere nothing is proven.
pub(crate) fn patterns_fall_short(
    request: &ShapedRequest,
    slices: &[usize],
    effort: &PlanEffort,
) -> bool {
    let classes = classify(request, slices, effort.classes);
    if !is_exact(request, &classes) {
        return false;
    }
    let problem = PackingProblem::of(&request.kinds, &classes);
    let simple = first_fit(request, slices);
    if simple.unplaced.is_empty() {
        return false;
    }
    let mut pool = first_patterns(&problem, &classes, &simple);
    let limits = ColumnLimits { rounds: effort.rounds, steps: effort.steps };
    generate(&problem, &mut pool, PackingGoal::Placement, limits).bound > 0
}

fn is_exact(request: &ShapedRequest, classes: &[SliceClass]) -> bool {
    let shape = |slice: &usize| request.shape_of[*slice];
    classes.iter().all(|class| {
        let first = class.members.first().map(shape);
        class.members.iter().all(|slice| Some(shape(slice)) == first)
    })
}

/// Patterns to begin with: nodes full of one class, and the nodes of a first placement, as far as
/// the means of their classes fit.
fn first_patterns(
    problem: &PackingProblem,
    classes: &[SliceClass],
    placement: &SlicePlacement<'_>,
) -> PatternPool {
    let mut pool = PatternPool::default();
    for kind in 0..problem.kinds.len() {
        for item in 0..problem.items.len() {
            let mut values = vec![0; problem.items.len()];
            values[item] = 1;
            let limits = KnapsackLimits { floor: 0, steps: 1 };
            let room = &problem.kinds[kind].capacity;
            let full = pack_node(room, &problem.priced(kind, &values), limits);
            for items in full.packings {
                pool.add(NodePattern { kind, items });
            }
        }
    }
    let mut class_of = vec![None; placement.request.shape_of.len()];
    for (at, class) in classes.iter().enumerate() {
        class.members.iter().for_each(|slice| class_of[*slice] = Some(at));
    }
    for node in &placement.nodes {
        let mut counts = vec![0_u32; classes.len()];
        let of = node.slices.iter().filter_map(|slice| class_of[*slice]);
        of.for_each(|class| counts[class] += 1);
        let mut room = problem.kinds[node.kind].capacity;
        let mut items = vec![];
        for (class, times) in counts.into_iter().enumerate() {
            let Some(demand) = problem.items[class].demand[node.kind] else { continue };
            let fit = (0..times).take_while(|_| {
                let fits = demand.fits(&room);
                room = if fits { room.minus(&demand) } else { room };
                fits
            });
            let fit = u32::try_from(fit.count()).unwrap_or(0);
            if fit > 0 {
                items.push((class, fit));
            }
        }
        pool.add(NodePattern { kind: node.kind, items });
    }
    pool
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
