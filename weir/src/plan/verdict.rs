// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges what planned slices got, by the counters of their nodes.
//!
//! A guarantee is a promise for who asks. So a slice that offered less than it was planned is
//! judged by what it offered: all of that must have passed. Only a slice that offered its rate
//! shows that the rate is held.

use serde::Serialize;
use weir_api_types::policy::PolicyView;
use weir_api_types::status::{Amount, DirectionStatus, IfaceStatus, NodeStatus};

/// The verdict on one direction of one slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PlanVerdict {
    /// It got 99 % of its rate.
    Held,
    /// It offered less than its rate, and 99 % of that passed.
    AskedLess,
    /// It offered nothing.
    Idle,
    /// It got less than it asked for and was planned.
    Below,
}

/// The traffic of one direction of one slice over the measured time.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct SideView {
    pub(super) planned_bps: u64,
    pub(super) offered_bps: u64,
    pub(super) got_bps: u64,
    pub(super) verdict: PlanVerdict,
}

/// The directions of a vif.
pub(super) type SideOf = fn(&IfaceStatus) -> &DirectionStatus;

/// Judges one direction of a slice between two readings of its node.
pub(super) fn side(
    slice: &str,
    planned_bps: u64,
    policy: &PolicyView,
    [then, now]: [&NodeStatus; 2],
    side: SideOf,
) -> SideView {
    let sum = |status: &NodeStatus, of: fn(&DirectionStatus) -> Amount| -> u64 {
        let vifs = policy.vifs.iter().filter(|vif| vif.slice == slice);
        let found = vifs.filter_map(|vif| status.vif(&vif.name));
        found.map(|vif| of(side(vif)).bytes).sum()
    };
    let span = u128::from(now.now_ns.saturating_sub(then.now_ns).max(1));
    let rate = |of: fn(&DirectionStatus) -> Amount| {
        let bytes = sum(now, of).saturating_sub(sum(then, of));
        u64::try_from(u128::from(bytes) * 8_000_000_000 / span).unwrap_or(u64::MAX)
    };
    let offered_bps = rate(|of| of.received.plus(of.copies));
    let got_bps = rate(|of| of.sent);
    let dropped_bps = rate(|of| {
        of.dropped.values().fold(of.dropped_after, |sum, of_reason| sum.plus(*of_reason))
    });
    // Frames that came shortly before the end are still on their way.
    let kept_bps = dropped_bps + rate(|of| of.backlog);
    SideView {
        planned_bps,
        offered_bps,
        got_bps,
        verdict: verdict(planned_bps, offered_bps, got_bps, kept_bps),
    }
}

/// Judges rates: the planned, the offered, the forwarded, and what was dropped or waits.
fn verdict(planned: u64, offered: u64, got: u64, kept: u64) -> PlanVerdict {
    let reaches =
        |part: u64, whole: u64| u128::from(part) * 100 >= u128::from(whole) * HELD_PERCENT;
    if offered == 0 && got == 0 {
        PlanVerdict::Idle
    } else if reaches(got, planned) {
        PlanVerdict::Held
    } else if !reaches(offered, planned) && reaches(offered.saturating_sub(kept), offered) {
        PlanVerdict::AskedLess
    } else {
        PlanVerdict::Below
    }
}

/// The processor time of the worker between two readings, in millionths of a processor. A worker
/// that spins takes time while nothing moves, and one that was preempted looks busy: the lesser of
/// processor time and time in busy turns is neither.
pub(super) fn worker_ppm(then: &NodeStatus, now: &NodeStatus) -> u64 {
    let (Some(old), Some(new)) = (then.worker, now.worker) else { return 0 };
    let cpu = new.cpu_ns.saturating_sub(old.cpu_ns);
    let busy = new.busy_ns.saturating_sub(old.busy_ns);
    let span = u128::from(now.now_ns.saturating_sub(then.now_ns).max(1));
    u64::try_from(u128::from(cpu.min(busy)) * 1_000_000 / span).unwrap_or(u64::MAX)
}

/// A slice holds at this part of its rate.
const HELD_PERCENT: u128 = 99;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_asked_for_its_rate_is_judged_by_it() {
        assert_eq!(verdict(1000, 0, 0, 0), PlanVerdict::Idle);
        assert_eq!(verdict(1000, 1000, 990, 0), PlanVerdict::Held);
        assert_eq!(verdict(1000, 5000, 1200, 3800), PlanVerdict::Held, "it offered more than that");
        assert_eq!(verdict(1000, 1000, 989, 11), PlanVerdict::Below);
        assert_eq!(verdict(1000, 500, 490, 0), PlanVerdict::AskedLess, "the rest is on its way");
        assert_eq!(verdict(1000, 500, 400, 100), PlanVerdict::Below, "it lost of what it asked");
        assert_eq!(verdict(1000, 5000, 500, 4500), PlanVerdict::Below);
    }

    #[test]
    fn a_worker_that_spins_is_not_busy_and_one_that_waits_takes_no_time() {
        let at = |now_ns, cpu_ns, busy_ns| {
            let mut status = NodeStatus { now_ns, ..NodeStatus::default() };
            let mut worker = weir_api_types::status::WorkerStatus::default();
            (worker.cpu_ns, worker.busy_ns) = (cpu_ns, busy_ns);
            status.worker = Some(worker);
            status
        };
        let then = at(1000, 500, 10);
        assert_eq!(worker_ppm(&then, &at(2000, 1500, 110)), 100_000);
        assert_eq!(worker_ppm(&then, &at(2000, 600, 1010)), 100_000);
    }
}
