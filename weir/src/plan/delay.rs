// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges how long the frames of planned slices wait in their nodes, by samples.
//!
//! A node tells how long the first frame of each queue has waited (`send.wait_ns`). That is read at
//! irregular instants, so that no cycle and no sender is in step with the reading. A wait within
//! the bound is what was planned. A longer one is not yet a broken plan: a plan's delay is for a
//! frame that finds its queue empty, and a slice that sends in bursts waits for itself.
//!
//! The slice's traffic meanwhile tells them apart. A queue whose first frame has waited for *w* was
//! never empty in that time, and a slice with frames waiting is planned at least rate · (*w* −
//! delay) in it: a service curve of rate and latency (Le Boudec, Thiran, *Network Calculus*,
//! chapter 1). If the slice sent less than that, and one frame more, since a reading before the
//! frame came, then the plan is broken, however the slice sends. Otherwise its own frames may be
//! the reason, and nothing is proven. A slice that sends little and evenly leaves no such doubt.

use std::collections::VecDeque;

use serde::Serialize;
use weir_api_types::policy::PolicyView;
use weir_api_types::status::NodeStatus;
use weir_plan::{NodeKind, PlannedSlice, SliceRequest};
use weir_units::{BIT_NANOS_PER_BYTE_SECOND, BitRate, Nanos};

use super::verdict::{PlanVerdict, UnprovenReason, UnprovenView};

/// The time that frames of a slice may spend in a node, and the rate that the plan gives it.
#[derive(Clone, Copy, Debug)]
pub(super) struct DelayPromise {
    /// The longest that a frame may take: what the slice asked for, else what the plan predicts.
    bound: Nanos,
    /// The longest time that a frame takes that finds its queue empty, by the plan.
    predicted: Nanos,
    /// True if the slice asked for a delay.
    is_asked: bool,
    rate: BitRate,
    /// Its longest frame, in bytes on the wire.
    longest_frame: u64,
}

/// The delay of a slice in its node, by samples.
#[derive(Clone, Debug, Serialize)]
pub(super) struct DelayView {
    /// The bound by which it is judged: what the slice asked for, else `predicted_ns`.
    pub(super) bound_ns: u64,
    /// The longest time that a frame takes that finds its queue empty, by the plan.
    pub(super) predicted_ns: u64,
    /// True if the slice asked for a delay.
    pub(super) asked: bool,
    /// The longest wait in any sample.
    pub(super) longest_ns: u64,
    /// Samples in all.
    pub(super) samples: u64,
    /// Samples before which frames entered the slice's queues, or in which a frame waited.
    pub(super) moving: u64,
    /// Samples in which a frame waited.
    pub(super) waiting: u64,
    pub(super) verdict: PlanVerdict,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) unproven: Option<UnprovenView>,
}

/// The samples of one slice on one node.
#[derive(Clone, Debug)]
pub(super) struct WaitSamples {
    promise: DelayPromise,
    first: Option<WaitSample>,
    /// The latest ones, the newest at the end.
    recent: VecDeque<WaitSample>,
    samples: u64,
    moving: u64,
    waiting: u64,
    longest_ns: u64,
    /// True if a frame waited for longer than the slice's own frames explain.
    is_late: bool,
    is_metered: bool,
}

/// One reading of a slice: its vifs together.
#[derive(Clone, Copy, Debug, Default)]
struct WaitSample {
    now_ns: u64,
    /// The longest that a first frame has waited.
    wait_ns: u64,
    /// Bytes that entered queues so far.
    entered: u64,
    /// Bytes that left them for the link so far.
    sent: u64,
}

impl DelayPromise {
    /// Returns the promise of a placed slice on its node, whose policy is in force; `None` if the
    /// plan says nothing of its delay.
    pub(super) fn of(
        slice: &SliceRequest,
        kind: &NodeKind,
        planned: &PlannedSlice,
        policy: &PolicyView,
    ) -> Option<Self> {
        let is_own =
            |port: &str| policy.vifs.iter().any(|vif| vif.slice == slice.name && vif.port == port);
        let mut cycles = policy.ports.iter().filter(|port| is_own(&port.name));
        let borrows = cycles.any(|port| port.cycle.is_some_and(|cycle| cycle.borrow));
        let predicted = slice.node_delay(kind, planned.demand.phase, borrows)?;
        Some(Self {
            bound: slice.delay.unwrap_or(predicted),
            predicted,
            is_asked: slice.delay.is_some(),
            rate: slice.send,
            longest_frame: slice.frames.longest_on_wire(),
        })
    }
}

impl WaitSamples {
    pub(super) fn new(promise: DelayPromise) -> Self {
        Self {
            promise,
            first: None,
            recent: VecDeque::new(),
            samples: 0,
            moving: 0,
            waiting: 0,
            longest_ns: 0,
            is_late: false,
            is_metered: true,
        }
    }

    /// Adds a reading of the node.
    pub(super) fn read(&mut self, slice: &str, policy: &PolicyView, status: &NodeStatus) {
        // The kernel's data plane has no worker, and does not tell how long a frame has waited.
        self.is_metered &= status.worker.is_some();
        let own = policy.vifs.iter().filter(|vif| vif.slice == slice);
        let sides = own.filter_map(|vif| Some(&status.vif(&vif.name)?.send));
        let start = WaitSample { now_ns: status.now_ns, ..WaitSample::default() };
        self.add(sides.fold(start, |sum, side| WaitSample {
            wait_ns: sum.wait_ns.max(side.wait_ns),
            entered: sum.entered + side.enqueued.bytes,
            sent: sum.sent + side.sent.bytes,
            ..sum
        }));
    }

    fn add(&mut self, sample: WaitSample) {
        let last = self.recent.back().copied();
        // A node answers requests that come together with the same reading.
        if last.is_some_and(|last| sample.now_ns <= last.now_ns) {
            return;
        }
        self.samples += 1;
        let is_moving = last.is_some_and(|last| sample.entered > last.entered);
        self.moving += u64::from(is_moving || sample.wait_ns > 0);
        self.waiting += u64::from(sample.wait_ns > 0);
        self.longest_ns = self.longest_ns.max(sample.wait_ns);
        self.is_late |= self.starves(&sample);
        self.first.get_or_insert(sample);
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(sample);
    }

    /// Returns true if the slice got less than was planned while its first frame waited. Counts
    /// what it got since a reading before that frame came, which is at least as much.
    fn starves(&self, sample: &WaitSample) -> bool {
        let Some(over) = sample.wait_ns.checked_sub(self.promise.bound.as_nanos()) else {
            return false;
        };
        let came = sample.now_ns.saturating_sub(sample.wait_ns);
        let mut before = self.recent.iter().rev().chain(&self.first);
        let Some(before) = before.find(|before| before.now_ns <= came) else { return false };
        let got = u128::from(sample.sent.saturating_sub(before.sent) + self.promise.longest_frame);
        let got = got * u128::from(BIT_NANOS_PER_BYTE_SECOND);
        got < u128::from(self.promise.rate.as_bps()) * u128::from(over)
    }

    /// Judges the samples.
    pub(super) fn view(&self, slice: &SliceRequest) -> DelayView {
        let reason = if !self.is_metered {
            Some(UnprovenReason::NotMetered)
        } else if self.longest_ns > self.promise.bound.as_nanos() {
            Some(UnprovenReason::OwnQueue)
        } else if self.moving < MOVING_MIN {
            Some(UnprovenReason::FewSamples)
        } else {
            None
        };
        let (verdict, reason) = match reason {
            _ if self.is_late => (PlanVerdict::Broken, None),
            Some(_) => (PlanVerdict::Unproven, reason),
            None => (PlanVerdict::Held, None),
        };
        DelayView {
            bound_ns: self.promise.bound.as_nanos(),
            predicted_ns: self.promise.predicted.as_nanos(),
            asked: self.promise.is_asked,
            longest_ns: self.longest_ns,
            samples: self.samples,
            moving: self.moving,
            waiting: self.waiting,
            verdict,
            unproven: reason.map(|reason| self.unproven(slice, reason)),
        }
    }

    /// Returns what was missing, and the load that would prove the promise.
    fn unproven(&self, slice: &SliceRequest, reason: UnprovenReason) -> UnprovenView {
        let offer = match reason {
            UnprovenReason::OwnQueue => self.rate_without_doubt(),
            _ => self.promise.rate,
        };
        let pps = slice.frames.packets(offer).as_pps();
        let evenly = format!(
            "offer at most {offer} ({pps} packets a second) from the slice, evenly, all the time"
        );
        let (text, load) = match reason {
            UnprovenReason::NotMetered => {
                let text = "the node's data plane does not tell how long frames wait";
                (text.to_owned(), "measure the slice from outside, by weir measure".to_owned())
            }
            UnprovenReason::OwnQueue => {
                let text = "frames waited for longer, perhaps behind frames of their own slice";
                (text.to_owned(), evenly)
            }
            _ => (format!("too few samples met its traffic, {MOVING_MIN} are needed"), evenly),
        };
        UnprovenView { reason, text, load, offer_bps: offer.as_bps(), offer_pps: pps }
    }

    /// Returns the rate at which a wait as long as the longest would prove the plan broken. Over
    /// that wait and one interval between samples, the slice then offers less than the plan gives
    /// it in the part of the wait beyond the bound.
    fn rate_without_doubt(&self) -> BitRate {
        let ends = self.first.zip(self.recent.back());
        let span = ends.map_or(0, |(first, last)| last.now_ns.saturating_sub(first.now_ns));
        let gap = span / self.samples.saturating_sub(1).max(1);
        let over = self.longest_ns.saturating_sub(self.promise.bound.as_nanos());
        let whole = u128::from(self.longest_ns.saturating_add(gap).max(1));
        let rate = u128::from(self.promise.rate.as_bps()) * u128::from(over) / whole;
        let rate = u64::try_from(rate).unwrap_or(u64::MAX);
        // Nobody sets a sender to the bit.
        BitRate::from_bps((rate - rate % 1000).max(1000))
    }
}

/// Samples that are kept to find what was sent since a frame came.
const RECENT: usize = 256;
/// Samples that have to meet traffic.
const MOVING_MIN: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "[[node]]\nname = \"n\"\nlink = \"1Gbit\"\ncpu = \"100%\"\n[[slice]]\n\
                        name = \"gold\"\nsend = \"8Mbit\"\ndelay = \"2ms\"\nframes = \"1004B\"\n\
                        cpu = \"1%\"\n";
    const MS: u64 = 1_000_000;

    fn promise() -> DelayPromise {
        let bound = Nanos::from_millis(2);
        DelayPromise {
            bound,
            predicted: bound,
            is_asked: true,
            rate: BitRate::from_mbps(8),
            longest_frame: 1000,
        }
    }

    /// Judges samples that are 50 ms apart: the wait in ms and the bytes sent since the one before.
    fn judged(samples: impl IntoIterator<Item = (u64, u64)>) -> DelayView {
        let mut waits = WaitSamples::new(promise());
        let (mut now_ns, mut sent) = (1000 * MS, 0);
        for (wait, more) in samples {
            (now_ns, sent) = (now_ns + 50 * MS, sent + more);
            waits.add(WaitSample { now_ns, wait_ns: wait * MS, entered: sent, sent });
        }
        waits.view(&weir_plan::read_request(PLAN).unwrap().slices[0])
    }

    #[test]
    fn waits_within_the_bound_hold_it_once_enough_samples_met_traffic() {
        // 8 Mb/s are 50 000 bytes in 50 ms.
        let view = judged((0..30).map(|n| (n % 3, 50_000)));
        assert_eq!((view.verdict, view.unproven.clone()), (PlanVerdict::Held, None));
        assert_eq!((view.samples, view.longest_ns, view.waiting), (30, 2 * MS, 20));
        assert_eq!(view.moving, 29, "nothing is known before the first");
        let few = judged((0..30).map(|n| (0, if n < 6 { 50_000 } else { 0 })));
        let unproven = few.unproven.unwrap();
        assert_eq!(few.verdict, PlanVerdict::Unproven);
        assert_eq!(unproven.reason, UnprovenReason::FewSamples);
        assert_eq!(unproven.text, "too few samples met its traffic, 20 are needed");
        let load = "offer at most 8Mbit (1000 packets a second) from the slice, evenly, all the \
                    time";
        assert_eq!(unproven.load, load);
    }

    /// A wait of 12 ms leaves 10 ms beyond the bound, in which 10 000 bytes are planned.
    #[test]
    fn who_sends_little_and_waits_long_was_not_given_what_was_planned() {
        let with = |sent| judged((0..30).map(|n| (if n == 20 { 12 } else { 0 }, sent)));
        assert_eq!(with(8_900).verdict, PlanVerdict::Broken);
        // A frame may be on its way.
        let doubt = with(9_000);
        assert_eq!((doubt.verdict, doubt.longest_ns), (PlanVerdict::Unproven, 12 * MS));
        let unproven = doubt.unproven.unwrap();
        assert_eq!(unproven.reason, UnprovenReason::OwnQueue);
        // 10 of 62 ms.
        assert_eq!(unproven.offer_bps, 1_290_000);
        // A reading after the frame came does not show what was sent since.
        assert_eq!(judged([(0, 0), (60, 0), (0, 0)]).verdict, PlanVerdict::Unproven);
        let long = judged((0..30).map(|n| (if n > 2 { n * 50 - 100 } else { 0 }, 50_000)));
        assert_eq!(long.verdict, PlanVerdict::Unproven, "at its rate it may wait for itself");
        let starved = judged((0..30).map(|n| (if n > 2 { n * 50 - 100 } else { 0 }, 40_000)));
        assert_eq!(starved.verdict, PlanVerdict::Broken);
    }

    #[test]
    fn a_reading_that_is_given_twice_counts_once() {
        let mut waits = WaitSamples::new(promise());
        let sample = WaitSample { now_ns: 5, wait_ns: 1, entered: 9, sent: 9 };
        (0..3).for_each(|_| waits.add(sample));
        assert_eq!((waits.samples, waits.waiting), (1, 1));
    }

    /// Goal: a data plane that does not tell how long frames wait proves nothing by telling zero.
    #[test]
    fn a_node_without_a_worker_proves_no_delay() {
        let request = weir_plan::read_request(PLAN).unwrap();
        let mut waits = WaitSamples::new(promise());
        for now_ns in 1..100 {
            waits.read(
                "gold",
                &PolicyView::default(),
                &NodeStatus { now_ns, ..NodeStatus::default() },
            );
        }
        let view = waits.view(&request.slices[0]);
        assert_eq!(view.unproven.unwrap().reason, UnprovenReason::NotMetered);
    }
}
