// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges what planned slices got, by the counters of their nodes.
//!
//! A guarantee is a promise only for a slice that asks for it. A slice that offered less than its
//! rate shows nothing about that rate: it is unproven. It is broken all the same if a part of the
//! little that it offered did not pass.

use std::collections::BTreeMap;

use serde::Serialize;
use weir_api_types::policy::PolicyView;
use weir_api_types::status::{Amount, DirectionStatus, IfaceStatus, NodeStatus};
use weir_api_types::xtc::{ControlState, XtcView};
use weir_plan::SliceRequest;
use weir_report::interval::is_refusal;
use weir_units::{BIT_NANOS_PER_BYTE_SECOND, BitRate};

/// The verdict on a measured promise of a plan, or on all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PlanVerdict {
    /// The load asked for all of it, and it was kept.
    Held,
    /// The load did not ask for all of it, and nothing was broken.
    Unproven,
    /// It was not kept.
    Broken,
}

/// A reason why a measurement does not prove a promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum UnprovenReason {
    /// The slice offered nothing.
    OfferedNothing,
    /// The slice offered less than its rate.
    OfferedLess,
    /// Too few samples met traffic of the slice.
    FewSamples,
    /// Frames waited for longer than the bound, perhaps behind frames of their own slice.
    OwnQueue,
    /// The node does not tell how long frames wait.
    NotMetered,
}

/// The reason why a promise is not proven, and the load that would prove it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct UnprovenView {
    pub(super) reason: UnprovenReason,
    /// The reason in words.
    pub(super) text: String,
    /// The load in words.
    pub(super) load: String,
    /// The load: bytes of layer 2 without checksum.
    pub(super) offer_bps: u64,
    /// The load in packets, by the slice's frames.
    pub(super) offer_pps: u64,
}

/// The traffic of one direction of one slice over the measured time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SideView {
    pub(super) planned_bps: u64,
    pub(super) offered_bps: u64,
    pub(super) got_bps: u64,
    pub(super) verdict: PlanVerdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unproven: Option<UnprovenView>,
}

/// A direction of a slice: what the plan gives it, and where its counters are.
#[derive(Clone, Copy)]
pub(super) struct PlannedSide {
    pub(super) rate: BitRate,
    /// The end that has to offer its load.
    pub(super) from: &'static str,
    pub(super) of: fn(&IfaceStatus) -> &DirectionStatus,
}

impl PlannedSide {
    /// Returns the direction from the slice to the link.
    pub(super) fn send(slice: &SliceRequest) -> Self {
        Self { rate: slice.send, from: "from the slice", of: |vif| &vif.send }
    }

    /// Returns the direction from the link to the slice.
    pub(super) fn receive(slice: &SliceRequest) -> Self {
        Self { rate: slice.receive, from: "towards the slice", of: |vif| &vif.receive }
    }
}

/// Judges one direction of a slice between two readings of its node.
pub(super) fn side(
    slice: &SliceRequest,
    planned: PlannedSide,
    policy: &PolicyView,
    [then, now]: [&NodeStatus; 2],
) -> SideView {
    // The plan counts frames as they are on the link; counters leave out the slice's headers.
    let sum = |status: &NodeStatus, of: fn(&DirectionStatus) -> Amount| -> u64 {
        let vifs = policy.vifs.iter().filter(|vif| vif.slice == slice.name);
        let found = vifs.filter_map(|vif| Some((vif.header_bytes, status.vif(&vif.name)?)));
        let on_link = |(headers, vif): (u16, &IfaceStatus)| {
            let Amount { packets, bytes } = of((planned.of)(vif));
            bytes.saturating_add(packets.saturating_mul(headers.into()))
        };
        found.map(on_link).sum()
    };
    let span = u128::from(now.now_ns.saturating_sub(then.now_ns).max(1));
    let rate = |of: fn(&DirectionStatus) -> Amount| {
        let bytes = sum(now, of).saturating_sub(sum(then, of));
        let bit_nanos = u128::from(bytes) * u128::from(BIT_NANOS_PER_BYTE_SECOND);
        u64::try_from(bit_nanos / span).unwrap_or(u64::MAX)
    };
    let offered_bps = rate(offered);
    let got_bps = rate(|of| of.sent);
    // Frames that came shortly before the end are still on their way.
    let kept_bps = rate(|of| lost(of).plus(of.backlog));
    let planned_bps = planned.rate.as_bps();
    let verdict = verdict(planned_bps, offered_bps, got_bps, kept_bps);
    let is_unproven = verdict == PlanVerdict::Unproven;
    let unproven = is_unproven.then(|| too_little(slice, planned, offered_bps));
    SideView { planned_bps, offered_bps, got_bps, verdict, unproven }
}

/// Returns the load of a direction: what came to be forwarded.
fn offered(of: &DirectionStatus) -> Amount {
    of.received.plus(of.copies).minus(dropped(of, is_refusal))
}

/// Returns the part of the load that was dropped.
fn lost(of: &DirectionStatus) -> Amount {
    dropped(of, |reason| !is_refusal(reason)).plus(of.dropped_after)
}

/// Returns the sum of the drops before a queue for some reasons.
fn dropped(of: &DirectionStatus, wanted: impl Fn(&str) -> bool) -> Amount {
    let found = of.dropped.iter().filter(|(reason, _)| wanted(reason));
    found.fold(Amount::default(), |sum, (_, amount)| sum.plus(*amount))
}

/// Judges rates: the planned, the offered, the forwarded, and what was dropped or waits.
fn verdict(planned: u64, offered: u64, got: u64, kept: u64) -> PlanVerdict {
    let reaches =
        |part: u64, whole: u64| u128::from(part) * 100 >= u128::from(whole) * HELD_PERCENT;
    if reaches(got, planned) {
        PlanVerdict::Held
    } else if offered >= planned || !reaches(offered.saturating_sub(kept), offered) {
        PlanVerdict::Broken
    } else if reaches(offered, planned) {
        // A sender of just the rate may offer a little less within the measured time.
        PlanVerdict::Held
    } else {
        PlanVerdict::Unproven
    }
}

/// Says that a slice offered too little, and what it has to offer.
fn too_little(slice: &SliceRequest, planned: PlannedSide, offered_bps: u64) -> UnprovenView {
    let (reason, text) = match offered_bps {
        0 => (UnprovenReason::OfferedNothing, "it offered nothing"),
        _ => (UnprovenReason::OfferedLess, "it offered less than planned, and that passed"),
    };
    let pps = slice.frames.packets(planned.rate).as_pps();
    UnprovenView {
        reason,
        text: text.to_owned(),
        load: format!(
            "offer {} ({pps} packets a second) {} all the time",
            planned.rate, planned.from
        ),
        offer_bps: planned.rate.as_bps(),
        offer_pps: pps,
    }
}

/// Returns the processor time of the worker between two readings, in millionths of a processor;
/// `None` for a node without a worker. A worker that spins takes processor time while nothing
/// moves, and one that was preempted seems busy: the lesser of processor time and time in busy
/// turns avoids both errors.
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
        for router in xtc.routers.iter().filter(|router| router.state != ControlState::Off) {
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

/// A rate is held if this part of it is reached, in percent.
const HELD_PERCENT: u128 = 99;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_asked_for_its_rate_shows_that_it_is_held() {
        assert_eq!(verdict(1000, 0, 0, 0), PlanVerdict::Unproven);
        assert_eq!(verdict(1000, 1000, 990, 0), PlanVerdict::Held);
        assert_eq!(verdict(1000, 5000, 1200, 3800), PlanVerdict::Held, "it offered more than that");
        assert_eq!(verdict(1000, 1000, 989, 11), PlanVerdict::Broken);
        assert_eq!(verdict(1000, 500, 490, 0), PlanVerdict::Unproven, "the rest is on its way");
        assert_eq!(verdict(1000, 500, 400, 100), PlanVerdict::Broken, "it lost of what it asked");
        assert_eq!(verdict(1000, 5000, 500, 4500), PlanVerdict::Broken);
    }

    /// A sender of just the planned rate offers a little less in a short time, and a few of its
    /// frames wait at the end of it.
    #[test]
    fn a_slice_that_offered_almost_its_rate_is_judged_by_what_it_offered() {
        assert_eq!(verdict(1000, 991, 988, 3), PlanVerdict::Held, "it lost nothing");
        assert_eq!(verdict(1000, 989, 989, 0), PlanVerdict::Unproven, "that is not almost");
        assert_eq!(verdict(1000, 991, 980, 11), PlanVerdict::Broken, "it lost of what it asked");
        assert_eq!(verdict(1000, 1000, 988, 3), PlanVerdict::Broken, "it asked for all of it");
    }

    /// Goal: a tenant cannot break a plan by frames that no node forwards. Method: beside 100
    /// frames that passed, as many with a wrong source address, and then as many without room.
    #[test]
    fn frames_that_are_refused_for_what_they_are_are_no_load() {
        let some = Amount { packets: 100, bytes: 50_000 };
        let mut of = DirectionStatus { received: some.plus(some), ..DirectionStatus::default() };
        (of.enqueued, of.sent) = (some, some);
        of.dropped.insert("spoofed_mac".to_owned(), some);
        assert_eq!((offered(&of), lost(&of)), (some, Amount::default()));
        of.dropped = [("queue_packets".to_owned(), some)].into();
        assert_eq!((offered(&of), lost(&of)), (some.plus(some), some));
    }

    #[test]
    fn who_offered_too_little_is_told_what_to_offer() {
        let plan = "[[node]]\nname = \"n\"\nlink = \"1Gbit\"\ncpu = \"100%\"\n[[slice]]\n\
                    name = \"gold\"\nsend = \"10Mbit\"\nreceive = \"2Mbit\"\n\
                    frames = \"1004B\"\ncpu = \"1%\"\n";
        let request = weir_plan::read_request(plan).unwrap();
        let gold = &request.slices[0];
        let view = too_little(gold, PlannedSide::send(gold), 5_000_000);
        assert_eq!(view.reason, UnprovenReason::OfferedLess);
        let load = "offer 10Mbit (1250 packets a second) from the slice all the time";
        assert_eq!(view.load, load);
        let view = too_little(gold, PlannedSide::receive(gold), 0);
        assert_eq!(view.reason, UnprovenReason::OfferedNothing);
        assert_eq!((view.offer_bps, view.offer_pps), (2_000_000, 250));
        assert!(view.load.ends_with("towards the slice all the time"), "{}", view.load);
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
