// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random cycles in virtual time, each frame compared with a timetable, without a guard before the
//! end of a phase and with a node's.

use weir_experiment::prelude::*;
use weir_policy::PortCycle;
use weir_sim::{CycleAudit, audit_cycle};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let cycles = if rec.quick { 40 } else { 300 };
    let audit = sum(cycles, Nanos::ZERO)?;
    rec.count(
        "cycles",
        "cycles that were drawn",
        audit.cycles,
        Bound::at_least(float(2 * cycles)),
    )?;
    rec.count("frames", "frames in them", audit.frames, Bound::at_least(float(cycles * 1000)))?;
    let text = "bytes on the wire outside a phase of their owner, before and after changes";
    rec.count("outside", text, audit.outside_bytes, Bound::at_most(0.0))?;
    let text = "frames later than the longest closed gap, the end of a phase that they may not \
                begin in, and their transmission time";
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
    let each = (0..cycles).flat_map(|seed| GUARDS.map(|guard| (seed, guard)));
    each.into_iter().try_fold(CycleAudit::default(), |sum, (seed, guard)| {
        let audit = audit_cycle(seed, skew, guard);
        audit.map(|audit| sum.and(audit)).map_err(|error| ExperimentError::Node(error.to_string()))
    })
}

/// None, and a node's.
const GUARDS: [Nanos; 2] = [Nanos::ZERO, PortCycle::GUARD];
