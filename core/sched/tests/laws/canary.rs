// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schedulers broken on purpose: a battery that passes them would prove nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_sched::{
    AnyScheduler, Backlog, ClassConfig, ClassCounters, ClassId, ConfigError, Dequeue, DropReason,
    FlowCounters, LinkConfig, Packet, Scheduler, SchedulerAlgorithm,
};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::subject::{self, Subject};
use crate::{fluid, in_phases, limits, shares, storm};

/// The fault of a canary.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// Every 40th packet is taken and forgotten.
    LosesPackets,
    /// Says that a packet is another class's.
    MixesClasses,
    /// Counts sent bytes as one too many.
    Miscounts,
    /// Names an instant 1 ns too late.
    WaitsTooLong,
    /// Names an instant 1 ns too early.
    WaitsTooShort,
    /// Forgets upper limits.
    IgnoresLimits,
    /// Gives out an eighth more than the limit.
    LimitsTooHigh,
    /// Stays an eighth below the limit.
    LimitsTooLow,
    /// Treats all weights as one.
    IgnoresWeights,
    /// Treats all minimums as none.
    IgnoresMinimums,
    /// Resets the queue on a change.
    ForgetsOnChange,
    /// Believes a clock that goes back.
    BelievesTheClock,
    /// Answers every 7th call with a wait.
    Hesitates,
}

struct Broken {
    inner: AnyScheduler,
    fault: Fault,
    calls: u64,
}

/// Goal: each fault is caught by the law that is there for it. Method: the law alone, on a
/// scheduler that is sound but for the fault; and on the same without it, which must pass.
#[test]
fn every_fault_is_caught() {
    type Law = fn(&Subject);
    let cases: &[(Fault, SchedulerAlgorithm, Law)] = &[
        (Fault::LosesPackets, SchedulerAlgorithm::Drr, storm::conservation),
        (Fault::MixesClasses, SchedulerAlgorithm::Drr, storm::conservation),
        (Fault::Miscounts, SchedulerAlgorithm::Fifo, storm::conservation),
        (Fault::ForgetsOnChange, SchedulerAlgorithm::Wrr, storm::conservation),
        (Fault::WaitsTooLong, SchedulerAlgorithm::Wfq, limits::waits_are_exact),
        (Fault::WaitsTooShort, SchedulerAlgorithm::Drr, limits::waits_are_exact),
        (Fault::IgnoresLimits, SchedulerAlgorithm::Drr, limits::no_window_exceeds_the_limit),
        (Fault::LimitsTooHigh, SchedulerAlgorithm::Wfq, limits::no_window_exceeds_the_limit),
        (Fault::LimitsTooLow, SchedulerAlgorithm::Wfq, limits::the_limit_is_reached),
        (Fault::IgnoresWeights, SchedulerAlgorithm::Drr, shares::fair_in_every_window),
        (Fault::IgnoresWeights, SchedulerAlgorithm::Wfq, shares::fair_in_every_window),
        (
            Fault::IgnoresWeights,
            SchedulerAlgorithm::Wrr,
            shares::a_new_weight_holds_from_the_next_round,
        ),
        (
            Fault::IgnoresWeights,
            SchedulerAlgorithm::Hfsc,
            shares::behind_its_rate_by_no_more_than_the_bound,
        ),
        (Fault::IgnoresWeights, SchedulerAlgorithm::Strict, shares::served_in_the_promised_order),
        (Fault::IgnoresWeights, SchedulerAlgorithm::Wfq, fluid::near_the_fluid_at_any_time),
        (Fault::IgnoresWeights, SchedulerAlgorithm::Drr, fluid::near_the_fluid_at_any_time),
        (Fault::IgnoresMinimums, SchedulerAlgorithm::Wrr, shares::minimums_hold),
        (
            Fault::BelievesTheClock,
            SchedulerAlgorithm::Drr,
            storm::time_that_goes_back_counts_as_the_latest,
        ),
        (Fault::Hesitates, SchedulerAlgorithm::Fifo, limits::work_is_conserved),
        (Fault::Hesitates, SchedulerAlgorithm::Wrr, limits::a_turn_idles_for_one_packet_at_most),
    ];
    for (fault, kind, law) in cases {
        assert!(passes(Fault::None, *kind, *law), "{kind} is sound, yet caught for {fault:?}");
        assert!(!passes(*fault, *kind, *law), "{kind} with {fault:?} passes");
    }
}

/// Goal: the laws see through phases. Method: an owner's scheduler that loses packets, and one that
/// forgets limits; the same ones sound pass.
#[test]
fn a_fault_inside_phases_is_caught() {
    type Maker = fn(&LinkConfig) -> Broken;
    type Law = fn(&Subject);
    fn broken(link: &LinkConfig, fault: Fault) -> Broken {
        Broken { inner: AnyScheduler::new(SchedulerAlgorithm::Drr, link), fault, calls: 0 }
    }
    let cases: [(Maker, Law, bool); 4] = [
        (|link| broken(link, Fault::None), storm::conservation, true),
        (|link| broken(link, Fault::LosesPackets), storm::conservation, false),
        (|link| broken(link, Fault::None), limits::no_window_exceeds_the_limit, true),
        (|link| broken(link, Fault::IgnoresLimits), limits::no_window_exceeds_the_limit, false),
    ];
    for (make, law, is_sound) in cases {
        for borrow in [false, true] {
            let make = in_phases::maker_of(in_phases::OWNERS, borrow, false, make);
            let subject = Subject { phased: true, make, ..subject::drr() };
            let passes = catch_unwind(AssertUnwindSafe(|| law(&subject))).is_ok();
            assert_eq!(passes, is_sound, "borrow: {borrow}");
        }
    }
}

/// Goal: a law tells one scheduler from another. Method: FIFO in the place of a fair one.
#[test]
fn fifo_passes_for_no_fair_scheduler() {
    for sound in [subject::drr(), subject::wfq(), subject::wrr(), subject::hfsc()] {
        let posed = Subject { make: subject::fifo().make, ..sound };
        let quiet = || shares::fair_in_every_window(&posed);
        assert!(catch_unwind(AssertUnwindSafe(quiet)).is_err());
    }
}

fn passes(fault: Fault, kind: SchedulerAlgorithm, law: fn(&Subject)) -> bool {
    let make = move |link: &LinkConfig| -> Box<dyn Scheduler> {
        Box::new(Broken { inner: AnyScheduler::new(kind, link), fault, calls: 0 })
    };
    let subject = Subject { make: Box::new(make), ..subject::of(kind) };
    catch_unwind(AssertUnwindSafe(|| law(&subject))).is_ok()
}

impl Broken {
    fn spoil(&self, config: &ClassConfig) -> ClassConfig {
        let mut config = config.clone();
        let scale = |rate: BitRate, num: u64| BitRate::from_bps(rate.as_bps() / 8 * num);
        match self.fault {
            Fault::IgnoresLimits => config.max_rate = None,
            Fault::LimitsTooHigh => config.max_rate = config.max_rate.map(|rate| scale(rate, 9)),
            Fault::LimitsTooLow => config.max_rate = config.max_rate.map(|rate| scale(rate, 7)),
            Fault::IgnoresWeights => config.weight = 1,
            Fault::IgnoresMinimums => config.min_rate = BitRate::ZERO,
            _ => {}
        }
        config
    }
}

impl Scheduler for Broken {
    fn add_class(
        &mut self,
        now: Instant,
        parent: Option<ClassId>,
        config: &ClassConfig,
    ) -> Result<ClassId, ConfigError> {
        self.inner.add_class(now, parent, &self.spoil(config))
    }

    fn change_class(
        &mut self,
        now: Instant,
        class: ClassId,
        config: &ClassConfig,
    ) -> Result<(), ConfigError> {
        if self.fault == Fault::ForgetsOnChange {
            self.inner.remove_class(now, class, &mut |_| ())?;
            return self.inner.add_class(now, None, config).map(|_| ());
        }
        self.inner.change_class(now, class, &self.spoil(config))
    }

    fn remove_class(
        &mut self,
        now: Instant,
        class: ClassId,
        orphan: &mut dyn FnMut(Packet),
    ) -> Result<(), ConfigError> {
        self.inner.remove_class(now, class, orphan)
    }

    fn enqueue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        self.calls += 1;
        if self.fault == Fault::LosesPackets && self.calls.is_multiple_of(40) {
            return Ok(());
        }
        self.inner.enqueue(now, class, packet)
    }

    fn requeue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        self.inner.requeue(now, class, packet)
    }

    fn touch(&self, class: ClassId) {
        self.inner.touch(class);
    }

    fn dequeue(&mut self, now: Instant) -> Dequeue {
        self.calls += 1;
        let nanosecond = Nanos::new(1);
        match (self.fault, self.inner.dequeue(now)) {
            (Fault::MixesClasses, Dequeue::Send { class, packet, mark })
                if self.inner.class_backlog(ClassId(class.0 ^ 1)).packets > 0 =>
            {
                Dequeue::Send { class: ClassId(class.0 ^ 1), packet, mark }
            }
            (Fault::WaitsTooLong, Dequeue::Wait { until, why }) => {
                Dequeue::Wait { until: until + nanosecond, why }
            }
            (Fault::WaitsTooShort, Dequeue::Wait { until, why }) => {
                Dequeue::Wait { until: until.saturating_sub(nanosecond), why }
            }
            // The instant that the caller gave, taken for the present one.
            (Fault::BelievesTheClock, Dequeue::Wait { why, .. }) => {
                Dequeue::Wait { until: now + Nanos::from_secs(1), why }
            }
            (Fault::Hesitates, Dequeue::Send { packet, class, .. })
                if self.calls.is_multiple_of(7) =>
            {
                // Back to the queue, and a lame excuse.
                let _ = self.inner.enqueue(now, class, packet);
                let why = weir_sched::WaitReason::LinkBusy;
                Dequeue::Wait { until: now + nanosecond, why }
            }
            (_, answer) => answer,
        }
    }

    fn charge(&mut self, now: Instant, class: ClassId, bytes: ByteCount) {
        self.inner.charge(now, class, bytes);
    }

    fn pause(&mut self, class: ClassId) {
        self.inner.pause(class);
    }

    fn resume(&mut self, now: Instant, class: ClassId) {
        self.inner.resume(now, class);
    }

    fn set_link_rate(&mut self, now: Instant, rate: Option<BitRate>) {
        self.inner.set_link_rate(now, rate);
    }

    fn flow_counters(&self, class: ClassId) -> FlowCounters {
        self.inner.flow_counters(class)
    }

    fn backlog(&self) -> Backlog {
        self.inner.backlog()
    }

    fn class_backlog(&self, class: ClassId) -> Backlog {
        self.inner.class_backlog(class)
    }

    fn head_arrived(&self, class: ClassId) -> Option<Instant> {
        self.inner.head_arrived(class)
    }

    fn room(&self, class: ClassId) -> u32 {
        self.inner.room(class)
    }

    fn counters(&self, class: ClassId) -> ClassCounters {
        let mut counters = self.inner.counters(class);
        if self.fault == Fault::Miscounts && counters.sent.packets > 3 {
            counters.sent.bytes += 1;
        }
        counters
    }
}
