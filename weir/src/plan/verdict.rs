// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges what planned slices got, by the counters of their nodes.
//!
//! A guarantee is a promise for who asks. So a slice that offered less than it was planned is
//! judged by what it offered: all of that must have passed. Only a slice that offered its rate
//! shows that the rate is held.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_api_types::policy::PolicyView;
use weir_api_types::status::{Amount, DirectionStatus, IfaceStatus, NodeStatus};
use weir_api_types::xtc::XtcView;

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
    } else if offered < planned && reaches(offered.saturating_sub(kept), offered) {
        PlanVerdict::AskedLess
    } else {
        PlanVerdict::Below
    }
}

/// The processor time of the worker between two readings, in millionths of a processor. A worker
/// that spins takes time while nothing moves, and one that was preempted looks busy: the lesser of
/// processor time and time in busy turns is neither. `None` of a node without a worker.
pub(super) fn worker_ppm(then: &NodeStatus, now: &NodeStatus) -> Option<u64> {
    let (old, new) = (then.worker?, now.worker?);
    let cpu = new.cpu_ns.saturating_sub(old.cpu_ns);
    let busy = new.busy_ns.saturating_sub(old.busy_ns);
    let span = u128::from(now.now_ns.saturating_sub(then.now_ns).max(1));
    u64::try_from(u128::from(cpu.min(busy)) * 1_000_000 / span).ok()
}

/// The processor time of held routers over some samples.
#[derive(Clone, Debug, Default)]
pub(super) struct RouterLoads(BTreeMap<String, RouterLoad>);

#[derive(Clone, Debug, Default)]
struct RouterLoad {
    slice: String,
    /// The number of the latest sample.
    newest: Option<u64>,
    sum_ppm: u64,
    count: u64,
}

impl RouterLoads {
    /// Adds the samples that are new.
    pub(super) fn add(&mut self, xtc: &XtcView) {
        for router in xtc.routers.iter().filter(|router| router.state != "off") {
            let load = self.0.entry(router.router.clone()).or_default();
            load.slice.clone_from(&router.slice);
            if load.newest.replace(router.samples) == Some(router.samples) {
                continue;
            }
            if let Some(ppm) = router.used_ppm {
                load.sum_ppm += u64::from(ppm);
                load.count += 1;
            }
        }
    }

    /// Returns the sum of the means of the routers of some slices; `None` if there is one without a
    /// sample.
    pub(super) fn ppm(&self, wanted: impl Fn(&str) -> bool) -> Option<u64> {
        let each = self.0.values().filter(|load| wanted(&load.slice));
        each.map(|load| load.sum_ppm.checked_div(load.count)).sum()
    }
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

    /// A sender of just the planned rate offers a little less in a short time, and a few of its
    /// frames wait at the end of it.
    #[test]
    fn a_slice_that_offered_almost_its_rate_is_judged_by_what_it_offered() {
        assert_eq!(verdict(1000, 991, 988, 3), PlanVerdict::AskedLess, "it lost nothing");
        assert_eq!(verdict(1000, 991, 980, 11), PlanVerdict::Below, "it lost of what it asked");
        assert_eq!(verdict(1000, 1000, 988, 3), PlanVerdict::Below, "it asked for all of it");
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
        assert_eq!(worker_ppm(&then, &at(2000, 1500, 110)), Some(100_000));
        assert_eq!(worker_ppm(&then, &at(2000, 600, 1010)), Some(100_000));
        assert_eq!(worker_ppm(&then, &NodeStatus::default()), None, "it has no worker");
    }

    #[test]
    fn routers_are_judged_by_the_mean_of_their_samples() {
        let view = |name: &str, samples: u64, ppm: &str| -> XtcView {
            let text = format!(
                r#"{{"routers":[{{"router":"{name}","slice":"gold","state":"active",
                    "controller":"pi","actuator":"x","period_ns":1,"dry_run":false,
                    "owes_release":false,"samples":{samples},"faults":0,"commands":0,"failures":0,
                    "late":0,"late_worst_ns":0,"lost":0{ppm}}}]}}"#
            );
            serde_json::from_str(&text).unwrap()
        };
        let mut loads = RouterLoads::default();
        assert_eq!(loads.ppm(|_| true), Some(0), "no router is held");
        for (samples, ppm) in [(1, 100_000), (2, 300_000), (2, 300_000), (3, 200_000)] {
            loads.add(&view("a", samples, &format!(r#","used_ppm":{ppm}"#)));
        }
        assert_eq!(loads.ppm(|_| true), Some(200_000), "the second is counted once");
        loads.add(&view("b", 1, ""));
        assert_eq!(loads.ppm(|_| true), None, "nobody meters it");
        assert_eq!(loads.ppm(|slice| slice == "lead"), Some(0));
    }
}
