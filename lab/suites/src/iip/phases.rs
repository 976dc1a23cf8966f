// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random cycles in virtual time, each frame compared with a timetable: without a guard before the
//! end of a phase and with a node's, time lent or not, each scheduler inside in turn.

use weir_experiment::prelude::*;
use weir_policy::PortCycle;
use weir_sim::{CycleAudit, CycleVariety, audit_cycle};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let cycles = if rec.quick { 40 } else { 300 };
    let audit = sum(cycles, Nanos::ZERO)?;
    rec.count(
        "cycles",
        "cycles that were drawn",
        audit.cycles,
        Bound::at_least(float(4 * cycles)),
    )?;
    rec.count("frames", "frames in them", audit.frames, Bound::at_least(float(cycles * 1000)))?;
    let text = "bytes on the wire outside a phase of their owner, or across the end of one that \
                is lent, before and after changes";
    rec.count("outside", text, audit.outside_bytes, Bound::at_most(0.0))?;
    let bound = Bound::at_least(float(cycles * 1000));
    rec.count("lent", "frames in phases that are lent", audit.lent, bound)?;
    let text = "frames of those before which the phase's owner had one that fitted";
    rec.count("usurped", text, audit.usurped, Bound::at_most(0.0))?;
    let text = "frames later than the longest closed gap, the end of a phase that they may not \
                begin in, a borrowed one's and their own transmission time";
    rec.count("late", text, audit.late, Bound::at_most(0.0))?;
    rec.count(
        "delays",
        "frames that were timed",
        audit.delays,
        Bound::at_least(float(cycles * 40)),
    )?;
    let series = Series::unordered("1", vec![audit.capacity_error]);
    rec.keep("capacity", series)?;
    let text = "worst difference of an owner's share from the formula, percentage points";
    rec.claim("capacity", text, Rule::Max, Bound::at_most(0.2), &["capacity".to_owned()])?;
    rec.count("changes", "changes under traffic", audit.changes, Bound::at_least(float(cycles)))?;
    let text = "packets neither sent, nor queued, nor handed back";
    rec.count("lost", text, audit.lost, Bound::at_most(0.0))?;
    let fault = sum(20, Nanos::from_micros(2))?;
    let text = "bytes outside that the audit sees if the phases are 2 µs off";
    rec.count("fault", text, fault.outside_bytes, Bound::at_least(1.0))
}

fn sum(cycles: u64, skew: Nanos) -> Result<CycleAudit> {
    let varieties = [false, true]
        .into_iter()
        .flat_map(|borrow| GUARDS.map(|guard| CycleVariety { skew, guard, borrow }));
    let mut each = (0..cycles).flat_map(|seed| varieties.clone().map(move |of| (seed, of)));
    each.try_fold(CycleAudit::default(), |sum, (seed, variety)| {
        let audit = audit_cycle(seed, variety);
        audit.map(|audit| sum.and(audit)).map_err(|error| ExperimentError::Node(error.to_string()))
    })
}

/// None, and a node's.
const GUARDS: [Nanos; 2] = [Nanos::ZERO, PortCycle::GUARD];
