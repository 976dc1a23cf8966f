// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From shapes to a placement and a proven bound: classes, columns, rounding, filling, repair.

use crate::classes::{SliceClass, classify};
use crate::columns::{ColumnLimits, PackingGoal, PatternMix, generate};
use crate::effort::PlanEffort;
use crate::filling::fill;
use crate::first_fit::first_fit;
use crate::knapsack::{KnapsackItem, KnapsackLimits, pack_node, resource_prices, weighed};
use crate::packing::{NodePattern, PackingProblem, PatternPool};
use crate::placement::SlicePlacement;
use crate::proof::{BoundedKind, VALUE, lower_bound};
use crate::repair::{improve, insert};
use crate::resource::{float, whole};
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
    let mut simple = first_fit(request, slices);
    let classes = classify(request, slices, effort.classes);
    let problem = PackingProblem::of(&request.kinds, &classes);
    let mut pool = first_patterns(&problem, &classes, &simple);
    let limits = ColumnLimits { rounds: effort.rounds, steps: effort.steps };
    let mix = generate(&problem, &mut pool, PackingGoal::Cost, limits);
    let bound = match is_exact(request, &classes) {
        true => mix.bound,
        false => shape_bound(request, slices, &classes, &mix, effort),
    };
    let limits = ColumnLimits { rounds: effort.rounds / 10, steps: effort.steps / 10 };
    let patterns = whole_nodes(&problem, &mut pool, &mix, limits);
    let (mut placement, left) = fill(request, &classes, &patterns);
    insert(&mut placement, &left);
    improve(&mut placement);
    improve(&mut simple);
    let rank = |placement: &SlicePlacement<'_>| (placement.unplaced.len(), placement.cost());
    let placement = if rank(&simple) < rank(&placement) { simple } else { placement };
    let step = request.kinds.iter().map(|kind| kind.cost).fold(0, gcd).max(1);
    let cost = bound.div_ceil(u128::from(VALUE)).div_ceil(u128::from(step)) * u128::from(step);
    SolvedPlacement { placement, cost_bound: u64::try_from(cost).unwrap_or(u64::MAX) }
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

/// The bound for slices as they are, from the values of their classes. A slice is worth as much
/// more than its class's mean as it takes more at the prices of the kind where the class is packed
/// best.
fn shape_bound(
    request: &ShapedRequest,
    slices: &[usize],
    classes: &[SliceClass],
    mix: &PatternMix,
    effort: &PlanEffort,
) -> u128 {
    let problem = PackingProblem::of(&request.kinds, classes);
    let kinds = 0..request.kinds.len();
    let prices: Vec<_> = kinds
        .clone()
        .map(|kind| {
            let room = &request.kinds[kind].capacity;
            resource_prices(room, &problem.priced(kind, &mix.values))
        })
        .collect();
    let counts = request.counts(slices);
    let mut values = vec![0_u64; request.shapes.len()];
    for (class, value) in classes.iter().zip(&mix.values) {
        let worth = |kind: usize| {
            let takes = weighed(&prices[kind], &class.mean[kind]?);
            (takes > 0.0).then(|| (kind, float(*value) / takes))
        };
        let best = kinds.clone().filter_map(worth).max_by(|a, b| a.1.total_cmp(&b.1));
        let Some((kind, worth)) = best else { continue };
        for slice in &class.members {
            let shape = request.shape_of[*slice];
            let demand = request.shapes[shape][kind].unwrap_or_default();
            values[shape] = whole(weighed(&prices[kind], &demand) * worth);
        }
    }
    let upper = |kind: usize| {
        let numbers = &request.kinds[kind];
        let item = |shape: usize| {
            let demand = request.shapes[shape][kind]?;
            Some(KnapsackItem { id: shape, value: values[shape], demand, most: counts[shape] })
        };
        let items: Vec<_> = (0..counts.len()).filter_map(item).collect();
        let cost = numbers.cost * VALUE;
        let limits = KnapsackLimits { floor: cost, steps: effort.steps * 10 };
        let upper = pack_node(&numbers.capacity, &items, limits).upper;
        BoundedKind { count: numbers.count, cost, upper }
    };
    let kinds: Vec<_> = kinds.map(upper).collect();
    let value = values.iter().zip(&counts);
    let value = value.map(|(value, count)| u128::from(*value) * u128::from(*count)).sum();
    lower_bound(value, &kinds)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}
