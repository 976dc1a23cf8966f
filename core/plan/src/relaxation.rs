// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The smallest relaxation: one factor on all scarce resources with which the slices fit.
//!
//! Resources are scarce where the linear bound's weights are positive. If no amount of these is
//! enough, others become scarce beside them and join. The factor is in thousandths. Below a first
//! one the linear bound proves that the slices do not fit; from there on placements are tried, in
//! steps that double, then between the last two, until the smallest one that works is known.

use crate::capacity::{CapacityBound, capacity_bound};
use crate::effort::PlanEffort;
use crate::loads::BoundDepth;
use crate::request::PlanRequest;
use crate::resource::Resource;
use crate::shapes::ShapedRequest;
use crate::solve::{patterns_fall_short, places_all, solve};

/// A resource of a kind of node of which there is too little.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScarceResource {
    /// The kind of node, by number.
    pub kind: usize,
    /// The resource.
    pub resource: Resource,
}

/// A factor on scarce resources with which the slices fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResourceRelaxation {
    /// The resources that it is on: those of the refusal, and what becomes scarce beside them.
    pub resources: Vec<ScarceResource>,
    /// With this many thousandths of them all slices have a place.
    pub permille: u32,
    /// With this many, proven, they have not; 0 where nothing is proven.
    pub refused_permille: u32,
}

/// The outcome of a request with more of some resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelaxedOutcome {
    /// Slices that no place was found for.
    pub unplaced: usize,
    /// It is proven that not all have a place: by the sums, or by what nodes can hold together.
    pub is_refused: bool,
}

/// Plans a request with `permille` thousandths of some resources.
#[must_use]
pub fn try_relaxed(
    request: &PlanRequest,
    resources: &[ScarceResource],
    permille: u32,
    effort: &PlanEffort,
) -> RelaxedOutcome {
    let request = relaxed(&ShapedRequest::of(request), resources, permille);
    let slices: Vec<usize> = (0..request.shape_of.len()).collect();
    let counts = request.counts(&slices);
    let short = capacity_bound(&request, &counts, BoundDepth::Answer).falls_short;
    let is_refused = short || patterns_fall_short(&request, &slices, effort);
    let unplaced = solve(&request, &slices, effort).placement.unplaced.len();
    RelaxedOutcome { unplaced, is_refused }
}

/// Returns the resources whose weight is positive, the scarcest first.
pub(crate) fn scarce(bound: &CapacityBound) -> Vec<ScarceResource> {
    let mut found = vec![];
    for (kind, weights) in bound.weights.iter().enumerate() {
        for (resource, weight) in Resource::ALL.into_iter().zip(weights) {
            if *weight > WEIGHT_MIN {
                found.push((*weight, ScarceResource { kind, resource }));
            }
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    found.into_iter().map(|(_, resource)| resource).collect()
}

/// Returns the request with more of some resources.
pub(crate) fn relaxed(
    request: &ShapedRequest,
    resources: &[ScarceResource],
    permille: u32,
) -> ShapedRequest {
    let mut request = request.clone();
    for ScarceResource { kind, resource } in resources {
        let amount = &mut request.kinds[*kind].capacity.0[*resource as usize];
        *amount = amount.saturating_mul(u64::from(permille)) / 1000;
    }
    request
}

/// Finds the smallest relaxation; `None` where no factor up to ten helps, or the tries are used up.
pub(crate) fn relax(
    request: &ShapedRequest,
    slices: &[usize],
    effort: &PlanEffort,
) -> Option<ResourceRelaxation> {
    let counts = request.counts(slices);
    let resources = enough(request, &counts)?;
    let short = |permille: u32| {
        let request = relaxed(request, &resources, permille);
        capacity_bound(&request, &counts, BoundDepth::Answer).falls_short
    };
    // Refused below, not refused at: by halves.
    let (mut refused, mut least, mut proven) = (FACTOR_ONE - 1, FACTOR_MAX, 0);
    while refused + 1 < least {
        let middle = refused.midpoint(least);
        match short(middle) {
            true => (refused, proven) = (middle, middle),
            false => least = middle,
        }
    }
    let mut tries = effort.tries;
    let mut works = |permille: u32| {
        tries = tries.checked_sub(1)?;
        let request = relaxed(request, &resources, permille);
        Some(places_all(&request, slices, effort))
    };
    let (mut failed, mut step, mut found) = (refused, 0, None);
    while let Some(worked) = works(least + step) {
        if worked {
            found = Some(least + step);
            break;
        }
        failed = least + step;
        step = step * 2 + 1;
    }
    let mut found = found?;
    while failed + 1 < found {
        let middle = failed.midpoint(found);
        let Some(worked) = works(middle) else { break };
        if worked { found = middle } else { failed = middle }
    }
    Some(ResourceRelaxation { resources, permille: found, refused_permille: proven })
}

/// Returns the scarce resources, and those that become so when there is plenty of the others.
fn enough(request: &ShapedRequest, counts: &[u32]) -> Option<Vec<ScarceResource>> {
    let mut resources = vec![];
    for _ in 0..=request.kinds.len() * Resource::ALL.len() {
        let plenty = relaxed(request, &resources, FACTOR_MAX);
        let depth = BoundDepth::Weights;
        let bound = capacity_bound(&plenty, counts, depth);
        if !bound.falls_short && !resources.is_empty() {
            return Some(resources);
        }
        let more = scarce(&bound);
        let before = resources.len();
        for one in more {
            if !resources.contains(&one) {
                resources.push(one);
            }
        }
        if resources.len() == before {
            return None;
        }
    }
    None
}

/// Thousandths in one.
const FACTOR_ONE: u32 = 1000;
/// The largest factor.
const FACTOR_MAX: u32 = 10_000;
/// A weight below this is rounding; all add up to one.
const WEIGHT_MIN: f64 = 1e-6;
