// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An audit of a plan: everything that it promises, computed again from the request.
//!
//! It shares nothing with the planner but the demand of a slice on a kind of node.

use weir_policy::{PortCycle, phase_frames};
use weir_units::{ByteCount, Nanos};

use crate::plan::{NodePlan, PlannedSlice};
use crate::request::PlanRequest;
use crate::resource::{Resource, ResourceAmounts};

/// Returns everything that is wrong with a plan, a line for each; empty for a sound plan.
#[must_use]
pub fn audit(request: &PlanRequest, plan: &NodePlan) -> Vec<String> {
    let mut wrong = vec![];
    let mut places = vec![0_u32; request.slices.len()];
    let mut used_of_kind = vec![0_u32; request.kinds.len()];
    let mut cost = 0;
    for node in &plan.nodes {
        let Some(kind) = request.kinds.get(node.kind) else {
            wrong.push(format!("node of kind {}, which is not there", node.kind));
            continue;
        };
        let name = format!("{}-{}", kind.name, node.number);
        used_of_kind[node.kind] += 1;
        cost += u64::from(kind.cost);
        let mut sum = ResourceAmounts::default();
        let mut free_from = Nanos::ZERO;
        for planned in &node.slices {
            places[planned.slice] += 1;
            let demand = request.slices[planned.slice].demand(node.kind, kind);
            if demand != Ok(planned.demand) {
                wrong.push(format!("{name}: slice {} needs {demand:?}", planned.slice));
            }
            if let Some(frames) = too_few_frames(request, node.kind, planned) {
                wrong.push(format!("{name}: slice {}: {frames}", planned.slice));
            }
            sum = sum.plus(&planned.demand.amounts);
            if let (Some(start), Some(length)) = (planned.phase_start, planned.demand.phase) {
                if start < free_from {
                    wrong.push(format!("{name}: a phase at {start}, before {free_from}"));
                }
                free_from = start.saturating_add(length);
            }
        }
        let has = kind.capacity();
        for of in Resource::ALL.into_iter().filter(|of| sum.of(*of) > has.of(*of)) {
            wrong.push(format!("{name}: {of} is {}, there is {}", sum.of(of), has.of(of)));
        }
        if free_from > kind.cycle.map_or(Nanos::ZERO, |cycle| cycle.length) {
            wrong.push(format!("{name}: phases end at {free_from}, after the cycle"));
        }
    }
    for (kind, used) in request.kinds.iter().zip(used_of_kind) {
        if used > kind.count {
            wrong.push(format!("{}: {used} nodes used, {} there", kind.name, kind.count));
        }
    }
    for (slice, count) in places.iter().enumerate().filter(|(_, count)| **count != 1) {
        wrong.push(format!("slice {slice} has {count} places"));
    }
    if cost != plan.cost || plan.cost < plan.cost_bound {
        wrong.push(format!("cost {cost}, told {} at least {}", plan.cost, plan.cost_bound));
    }
    wrong
}

/// Says how many frames a phase carries, beside the guard of a node, if its slice needs more of
/// them. Frames of mixed sizes are not counted.
fn too_few_frames(request: &PlanRequest, kind: usize, planned: &PlannedSlice) -> Option<String> {
    let (kind, slice) = (&request.kinds[kind], &request.slices[planned.slice]);
    let (cycle, phase) = (kind.cycle?, planned.demand.phase?);
    let frame = ByteCount::new(slice.frames.longest_on_wire());
    if !slice.frames.is_one_size() {
        return None;
    }
    let has = phase_frames(phase, kind.link, frame, PortCycle::GUARD);
    let bits = u128::from(has) * u128::from(frame.get()) * 8;
    let needed = u128::from(slice.frames.on_wire(slice.send)) * u128::from(cycle.length.as_nanos());
    let is_short = bits * 1_000_000_000 < needed;
    is_short.then(|| format!("its phase of {phase} carries {has} frames a cycle, too few"))
}
