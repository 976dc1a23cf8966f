// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The planner: 5000 slices on a thousand nodes (row 13), and requests that do not fit (row 14).

use weir_experiment::clock::cpu_time;
use weir_experiment::prelude::*;
use weir_plan::{PlanAnswer, PlanEffort, PlanRefusal, PlanRequest, RefusalGround};

use super::plan_requests::{SliceVariety, four_kinds, too_much};

/// Shows a part of row 13.
pub(super) fn places(rec: &mut Recording<'_>, part: usize) -> Result<(), ExperimentError> {
    let LargeRequest { name, variety, scarcity, gap, saved } = LARGE[part];
    let slices = if rec.quick { 1000 } else { 5000 };
    let request = four_kinds(SEED, slices, variety, scarcity);
    let (answer, time) = cpu_time(|| weir_plan::plan(&request, &PlanEffort::default()));
    let seconds = time.as_secs_f64();
    let id = |part: &str| format!("{name}/{part}");
    let text = format!("{name}: processor time");
    let time = Series::unordered("s", vec![seconds]);
    rec.claim_samples(id("time"), &text, time, Rule::Max, Bound::at_most(60.0))?;
    let placed = match &answer {
        PlanAnswer::Placed(plan) => plan.nodes.iter().map(|node| node.slices.len()).sum(),
        PlanAnswer::Refused(_) => 0,
    };
    let text = format!("{name}: slices without a place");
    let left = request.slices.len() - placed;
    rec.count(id("unplaced"), &text, left as u64, Bound::equal(0.0))?;
    let PlanAnswer::Placed(plan) = answer else { return Ok(()) };
    rec.say(&format!(
        "{name}: {} nodes, cost {}, at least {}, first fit {:?}, {seconds:.1} s",
        plan.nodes.len(),
        plan.cost,
        plan.cost_bound,
        plan.first_fit
    ));
    let wrong = weir_plan::audit(&request, &plan);
    wrong.iter().take(5).for_each(|line| rec.say(line));
    let text = format!("{name}: promises of the plan that an audit finds broken");
    rec.count(id("audit"), &text, wrong.len() as u64, Bound::equal(0.0))?;
    if scarcity > 0 {
        let least = if rec.quick { 60.0 } else { 300.0 };
        let text = format!("{name}: slices that first fit decreasing leaves without a place");
        let left = plan.first_fit.unplaced as u64;
        return rec.count(id("first-fit"), &text, left, Bound::at_least(least));
    }
    let text = format!("{name}: cost above the proven bound");
    let over = Series::unordered("%", vec![float(plan.gap_ppm()) / 1e4]);
    // A node of two hundred is half a percent: fewer nodes, a wider gap.
    let gap = if rec.quick { gap + 1.0 } else { gap };
    rec.claim_samples(id("gap"), &text, over, Rule::Max, Bound::at_most(gap))?;
    let text = format!("{name}: cost, of first fit decreasing");
    let ratio = Series::unordered("1", vec![float(plan.cost) / float(plan.first_fit.cost)]);
    rec.claim_samples(id("saved"), &text, ratio, Rule::Max, Bound::at_most(saved))
}

/// Plans a request twice: the same plan.
pub(super) fn repeats(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let request = four_kinds(SEED, 500, SliceVariety::AllDifferent, 0);
    let plans = [(); 2].map(|()| weir_plan::plan(&request, &PlanEffort::default()));
    let differ = u64::from(plans[0] != plans[1]);
    rec.count("repeat", "plans of one request that differ", differ, Bound::equal(0.0))
}

/// Shows row 14.
pub(super) fn refuses(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let requests = if rec.quick { 10 } else { 100 };
    let mut counts = RefusalCounts::default();
    for seed in 0..requests {
        let request = too_much(seed);
        match weir_plan::plan(&request, &PlanEffort::default()) {
            PlanAnswer::Refused(refusal) if refusal.ground == RefusalGround::Capacity => {
                counts.refused += 1;
                judge(&request, &refusal, &mut counts);
            }
            other => rec.say(&format!("request {seed} is not refused by its sums: {other:?}")),
        }
    }
    let all = Bound::equal(float(requests));
    let none = Bound::equal(0.0);
    rec.say(&format!("{counts:?}"));
    rec.count("refused", "requests refused by their sums", counts.refused, all)?;
    let text = "conflicts that fit after all";
    rec.count("conflict/fits", text, counts.conflicts_that_fit, none)?;
    let text = "slices of conflicts without which the rest still does not fit";
    rec.count("conflict/superfluous", text, counts.superfluous, none)?;
    let text = "slices in all conflicts";
    rec.count("conflict/slices", text, counts.slices, Bound::at_least(float(2 * requests)))?;
    let text = "relaxations with which all slices have a place";
    rec.count("relaxation/suffices", text, counts.sufficient, all)?;
    let text = "relaxations less 1 % with which all slices have a place after all";
    rec.count("relaxation/too-much", text, counts.excessive, none)?;
    // Between the bound and the plan lies what whole slices cost, and not all of it is proven.
    let text = "relaxations less 1 % that are proven not to suffice";
    let most = Bound::at_least(float(requests) * 0.95);
    rec.count("relaxation/proven", text, counts.proven, most)
}

#[derive(Debug, Default)]
struct RefusalCounts {
    refused: u64,
    conflicts_that_fit: u64,
    slices: u64,
    superfluous: u64,
    sufficient: u64,
    excessive: u64,
    proven: u64,
}

fn judge(request: &PlanRequest, refusal: &PlanRefusal, counts: &mut RefusalCounts) {
    let conflict = &refusal.conflict.slices;
    counts.slices += conflict.len() as u64;
    counts.conflicts_that_fit += u64::from(!weir_plan::falls_short(request, conflict));
    for without in 0..conflict.len() {
        let mut rest = conflict.clone();
        rest.remove(without);
        counts.superfluous += u64::from(weir_plan::falls_short(request, &rest));
    }
    let Some(relaxation) = &refusal.relaxation else { return };
    let effort = PlanEffort::default();
    let at = |permille| weir_plan::try_relaxed(request, &relaxation.resources, permille, &effort);
    counts.sufficient += u64::from(at(relaxation.permille).unplaced == 0);
    let less = at(relaxation.permille * 99 / 100);
    counts.excessive += u64::from(less.unplaced == 0);
    counts.proven += u64::from(less.is_refused);
}

#[derive(Clone, Copy)]
struct LargeRequest {
    name: &'static str,
    variety: SliceVariety,
    /// Percent of the nodes that are taken away.
    scarcity: u32,
    /// Percent above the bound.
    gap: f64,
    /// Part of first fit's cost.
    saved: f64,
}

const fn large(
    name: &'static str,
    variety: SliceVariety,
    scarcity: u32,
    gap: f64,
    saved: f64,
) -> LargeRequest {
    LargeRequest { name, variety, scarcity, gap, saved }
}

/// A slice that names the length of its phase gains nothing on a fast link, so there is less to
/// choose, and less to save.
const LARGE: [LargeRequest; 4] = [
    large("catalogue", SliceVariety::Catalogue, 0, 2.0, 0.92),
    large("free-phases", SliceVariety::FreePhases, 0, 5.0, 0.95),
    large("different", SliceVariety::AllDifferent, 0, 8.0, 0.92),
    large("scarce", SliceVariety::Catalogue, 12, 2.0, 1.0),
];

const SEED: u64 = 28;
