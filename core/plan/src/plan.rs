// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The answer: where each slice goes, or why they do not all fit.

use crate::capacity::capacity_bound;
use crate::conflict::{SliceConflict, find_conflict};
use crate::demand::{KindMismatch, SliceDemand};
use crate::effort::PlanEffort;
use crate::first_fit::first_fit;
use crate::loads::BoundDepth;
use crate::placement::SlicePlacement;
use crate::relaxation::{ResourceRelaxation, ScarceResource, relax, scarce};
use crate::request::PlanRequest;
use crate::resource::ResourceAmounts;
use crate::shapes::ShapedRequest;
use crate::shrinking::shrink;
use crate::solve::{patterns_fall_short, solve};

use weir_units::Nanos;

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PlanAnswer {
    /// All slices have a place.
    Placed(NodePlan),
    /// Some slice has no place.
    Refused(PlanRefusal),
}

/// A place for each slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodePlan {
    /// Nodes that are used, by kind and number.
    pub nodes: Vec<PlannedNode>,
    /// The cost of all of them.
    pub cost: u64,
    /// No plan costs less: proven.
    pub cost_bound: u64,
    /// First fit decreasing on the same request, to compare with.
    pub first_fit: FirstFitSummary,
}

/// A node that is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlannedNode {
    /// Its kind, by number.
    pub kind: usize,
    /// Its number among the nodes of its kind, from 1.
    pub number: u32,
    /// Its slices, in the order of their phases.
    pub slices: Vec<PlannedSlice>,
    /// The sum of their demands.
    pub used: ResourceAmounts,
}

/// A slice on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedSlice {
    /// Its number in the request.
    pub slice: usize,
    /// The amounts that it takes there: its rates, the cap of its processor time, the length of its
    /// phase.
    pub demand: SliceDemand,
    /// The start of its phase in the cycle.
    pub phase_start: Option<Nanos>,
}

/// The result of first fit decreasing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FirstFitSummary {
    /// Nodes that it uses.
    pub nodes: usize,
    /// Their cost.
    pub cost: u64,
    /// Slices that it finds no place for.
    pub unplaced: usize,
}

/// The reasons why not all slices have a place, and what would help.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanRefusal {
    /// The ground on which it rests.
    pub ground: RefusalGround,
    /// Slices that do not fit together, though they fit without any one of them. Without proof:
    /// slices that no place was found for.
    pub conflict: SliceConflict,
    /// Resources of which there is too little, the scarcest first.
    pub scarce: Vec<ScarceResource>,
    /// The smallest factor on these with which all slices fit.
    pub relaxation: Option<ResourceRelaxation>,
}

/// The ground of a refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefusalGround {
    /// A slice fits on no node, however empty: the reason for each kind of node, in order.
    NoNode(Vec<KindMismatch>),
    /// The sums are too large, even if slices could be divided.
    Capacity,
    /// The sums would do, but whole slices do not fit together on nodes.
    WholeSlices,
    /// No place was found for some; it is not proven that there is none.
    NotFound,
}

/// Places all slices of a request, or finds why they do not fit.
#[must_use]
pub fn plan(request: &PlanRequest, effort: &PlanEffort) -> PlanAnswer {
    let shaped = ShapedRequest::of(request);
    let slices: Vec<usize> = (0..request.slices.len()).collect();
    if let Some(slice) = shaped.homeless().first() {
        return PlanAnswer::Refused(no_node(request, *slice));
    }
    let counts = shaped.counts(&slices);
    if capacity_bound(&shaped, &counts, BoundDepth::Answer).falls_short {
        return PlanAnswer::Refused(refuse(&shaped, &slices, effort, RefusalGround::Capacity));
    }
    let solved = solve(&shaped, &slices, effort);
    if !solved.placement.unplaced.is_empty() {
        let ground = match patterns_fall_short(&shaped, &slices, effort) {
            true => RefusalGround::WholeSlices,
            false => RefusalGround::NotFound,
        };
        let mut refusal = refuse(&shaped, &slices, effort, ground);
        if refusal.ground == RefusalGround::NotFound {
            refusal.conflict.slices = solved.placement.unplaced;
        }
        return PlanAnswer::Refused(refusal);
    }
    let simple = first_fit(&shaped, &slices);
    PlanAnswer::Placed(NodePlan {
        nodes: nodes(request, &solved.placement),
        cost: solved.placement.cost(),
        cost_bound: solved.cost_bound,
        first_fit: FirstFitSummary {
            nodes: simple.nodes.len(),
            cost: simple.cost(),
            unplaced: simple.unplaced.len(),
        },
    })
}

impl NodePlan {
    /// Returns the distance of the cost from the least possible, at most, in millionths of the
    /// bound.
    #[must_use]
    pub fn gap_ppm(&self) -> u64 {
        let over = u128::from(self.cost.saturating_sub(self.cost_bound)) * 1_000_000;
        let gap = over.checked_div(u128::from(self.cost_bound)).unwrap_or(0);
        u64::try_from(gap).unwrap_or(u64::MAX)
    }
}

fn no_node(request: &PlanRequest, slice: usize) -> PlanRefusal {
    let kinds = request.kinds.iter().enumerate();
    let reasons = kinds.filter_map(|(at, kind)| request.slices[slice].mismatch(at, kind));
    PlanRefusal {
        ground: RefusalGround::NoNode(reasons.collect()),
        conflict: SliceConflict { slices: vec![slice], is_irreducible: true, checks: 0 },
        scarce: vec![],
        relaxation: None,
    }
}

fn refuse(
    request: &ShapedRequest,
    slices: &[usize],
    effort: &PlanEffort,
    ground: RefusalGround,
) -> PlanRefusal {
    let counts = request.counts(slices);
    let bound = capacity_bound(request, &counts, BoundDepth::Weights);
    let taking = |slice: &usize| {
        let shape = request.shape_of[*slice];
        let price = |kind: usize| {
            let demand = request.shapes[shape][kind]?;
            let numbers = &request.kinds[kind];
            let shares = demand.shares(&numbers.capacity);
            let each = shares.iter().zip(&bound.weights[kind]);
            Some(each.map(|(share, weight)| share * weight).sum::<f64>() / f64::from(numbers.count))
        };
        (0..request.kinds.len()).filter_map(price).fold(f64::INFINITY, f64::min)
    };
    let mut order = slices.to_vec();
    let taken: Vec<f64> = slices.iter().map(taking).collect();
    // Slices that are alike stand side by side.
    let shape = |slice: &usize| request.shape_of[*slice];
    order.sort_by(|a, b| {
        let alike = shape(a).cmp(&shape(b)).then(a.cmp(b));
        taken[*b].total_cmp(&taken[*a]).then(alike)
    });
    let by_capacity = |set: &[usize]| {
        let depth = BoundDepth::Answer;
        capacity_bound(request, &request.counts(set), depth).falls_short
    };
    let by_patterns = |set: &[usize]| by_capacity(set) || patterns_fall_short(request, set, effort);
    let mut conflict = match ground {
        RefusalGround::Capacity => shrink(request, &order, effort.checks),
        RefusalGround::WholeSlices => {
            let alike: Vec<&[usize]> = order.chunk_by(|a, b| shape(a) == shape(b)).collect();
            find_conflict(&alike, effort.checks, &mut { by_patterns })
        }
        _ => SliceConflict { slices: vec![], is_irreducible: false, checks: 0 },
    };
    conflict.slices.sort_unstable();
    let relaxation = relax(request, slices, effort);
    PlanRefusal { ground, conflict, scarce: scarce(&bound), relaxation }
}

/// Returns the nodes of a placement, with phases one after the other.
fn nodes(request: &PlanRequest, placement: &SlicePlacement<'_>) -> Vec<PlannedNode> {
    let mut packed: Vec<_> = placement
        .nodes
        .iter()
        .map(|node| {
            let mut slices = node.slices.clone();
            slices.sort_unstable();
            (node.kind, slices)
        })
        .collect();
    packed.sort();
    let mut numbers = vec![0; request.kinds.len()];
    packed
        .into_iter()
        .map(|(kind, slices)| {
            numbers[kind] += 1;
            let mut used = ResourceAmounts::default();
            let mut start = Nanos::ZERO;
            let slices = slices
                .into_iter()
                .filter_map(|slice| {
                    let demand = request.slices[slice].demand(kind, &request.kinds[kind]).ok()?;
                    let phase_start = demand.phase.map(|_| start);
                    start = start.saturating_add(demand.phase.unwrap_or(Nanos::ZERO));
                    used = used.plus(&demand.amounts);
                    Some(PlannedSlice { slice, demand, phase_start })
                })
                .collect();
            PlannedNode { kind, number: numbers[kind], slices, used }
        })
        .collect()
}
