// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schedulers broken on purpose: a battery that passes them would prove nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_sched::{
    AnyScheduler, Backlog, ClassConfig, ClassCounters, ClassId, ConfigError, Dequeue, DropReason,
    FlowCounters, LinkConfig, Packet, Scheduler, SchedulerAlgorithm, WaitReason,
};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::subject::{self, Phases, Subject};
use crate::timetable::TimetableGate;
use crate::{fluid, in_phases, limits, rounds, shares, storm};

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
    /// Sleeps past the gate at which a packet may leave, to the next that is as good.
    Oversleeps,
    /// Takes another class's packet out of its queue, beside the one that the cycle may hold.
    HoldsOneMore,
    /// Opens the turn of a class anew after a gate that was closed.
    ForgetsTurns,
}

struct Broken {
    inner: Box<dyn Scheduler>,
    fault: Fault,
    calls: u64,
    /// The phases that it is around, for one that oversleeps, and the wait that it announced.
    phases: Option<Phases>,
    asleep: Option<(Instant, WaitReason)>,
    /// The packet that it holds.
    extra: Option<(ClassId, Packet)>,
    configs: Vec<ClassConfig>,
    last: Instant,
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

/// Goal: the laws see through phases. Method: an owner's scheduler that loses packets, one that
/// forgets limits, one that holds a packet beside the one that its owner may hold; a whole cycle
/// that sleeps past the gate at which it should send. The same ones sound pass.
#[test]
fn a_fault_inside_phases_is_caught() {
    type Law = fn(&Subject);
    const SOUND: Maker = |link| Broken::of(SchedulerAlgorithm::Drr, link, Fault::None);
    let cases: [(Maker, Law); 3] = [
        (
            |link| Broken::of(SchedulerAlgorithm::Drr, link, Fault::LosesPackets),
            storm::conservation,
        ),
        (
            |link| Broken::of(SchedulerAlgorithm::Drr, link, Fault::IgnoresLimits),
            limits::no_window_exceeds_the_limit,
        ),
        (
            |link| Broken::of(SchedulerAlgorithm::Drr, link, Fault::HoldsOneMore),
            in_phases::waits_end_at_the_first_gate,
        ),
    ];
    for borrow in [false, true] {
        let phases = in_phases::phases(in_phases::OWNERS, borrow);
        for (number, (broken, law)) in cases.into_iter().enumerate() {
            let of = |make| in_phases::within(phases.clone(), false, make, subject::drr());
            assert!(survives(&of(SOUND), law), "sound, yet caught by law {number}");
            assert!(!survives(&of(broken), law), "fault {number} passes, borrow: {borrow}");
        }
        for kind in SchedulerAlgorithm::ALL {
            let law = in_phases::waits_end_at_the_first_gate;
            let of = |fault| around(in_phases::of(kind, in_phases::OWNERS, borrow), fault);
            assert!(survives(&of(Fault::None), law), "{kind} is sound, yet caught");
            assert!(!survives(&of(Fault::Oversleeps), law), "{kind} oversleeps, {borrow}");
        }
    }
}

/// Goal: a turn that does not last over closed gates is caught by the shares of WRR in phases.
#[test]
fn a_turn_that_ends_with_its_gate_is_caught() {
    let keeps = |make: Maker| {
        let within = |phases| in_phases::within(phases, false, make, subject::wrr());
        catch_unwind(AssertUnwindSafe(|| rounds::turns_last_over_gates(within))).is_ok()
    };
    assert!(keeps(|link| Broken::of(SchedulerAlgorithm::Wrr, link, Fault::None)));
    assert!(!keeps(|link| Broken::of(SchedulerAlgorithm::Wrr, link, Fault::ForgetsTurns)));
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
    let make =
        move |link: &LinkConfig| -> Box<dyn Scheduler> { Box::new(Broken::of(kind, link, fault)) };
    survives(&Subject { make: Box::new(make), ..subject::of(kind) }, law)
}

fn survives(subject: &Subject, law: fn(&Subject)) -> bool {
    catch_unwind(AssertUnwindSafe(|| law(subject))).is_ok()
}

/// Puts a fault around all of a subject in phases.
fn around(subject: Subject, fault: Fault) -> Subject {
    let (phases, make) = (subject.phases.clone(), subject.make);
    let make = move |link: &LinkConfig| -> Box<dyn Scheduler> {
        Box::new(Broken { phases: phases.clone(), ..Broken::new(make(link), fault) })
    };
    Subject { make: Box::new(make), ..subject }
}

/// Makes a scheduler for an owner of phases.
type Maker = fn(&LinkConfig) -> Broken;

impl Broken {
    fn of(kind: SchedulerAlgorithm, link: &LinkConfig, fault: Fault) -> Self {
        Self::new(Box::new(AnyScheduler::new(kind, link)), fault)
    }

    fn new(inner: Box<dyn Scheduler>, fault: Fault) -> Self {
        Self {
            inner,
            fault,
            calls: 0,
            phases: None,
            asleep: None,
            extra: None,
            configs: Vec::new(),
            last: Instant::ZERO,
        }
    }

    /// The answer of one that oversleeps.
    fn oversleep(&mut self, now: Instant) -> Dequeue {
        self.last = self.last.max(now);
        let now = self.last;
        if let Some((until, why)) = self.asleep.filter(|(until, _)| now < *until) {
            return Dequeue::Wait { until, why };
        }
        let answer = self.inner.dequeue(now);
        let Dequeue::Wait { until, why: why @ WaitReason::PhaseClosed } = answer else {
            return answer;
        };
        let timetable = &self.phases.as_ref().unwrap().timetable;
        let missed = timetable.gate(until.as_nanos());
        let as_good = |gate: &TimetableGate| timetable.borrow || gate.owner == missed.owner;
        let later = timetable.after(until.as_nanos()).find(as_good).unwrap();
        let until = Instant::from_nanos(later.start);
        self.asleep = Some((until, why));
        Dequeue::Wait { until, why }
    }

    /// The answer of one that takes a packet of another class, too.
    fn take_two(&mut self, now: Instant) -> Dequeue {
        if let Some((class, packet)) = self.extra.take() {
            return Dequeue::Send { class, packet, mark: false };
        }
        let answer = self.inner.dequeue(now);
        if let Dequeue::Send { class, .. } = answer
            && self.inner.class_backlog(class).packets == 0
            && let Dequeue::Send { class, packet, .. } = self.inner.dequeue(now)
        {
            self.extra = Some((class, packet));
        }
        answer
    }

    /// The answer of one that begins turns anew when it was not asked for long.
    fn forget_turn(&mut self, now: Instant) -> Dequeue {
        if now.saturating_since(self.last) > Nanos::from_micros(2) {
            for (class, config) in (0..).map(ClassId).zip(&self.configs) {
                let other = ClassConfig { weight: config.weight + 1, ..config.clone() };
                self.inner.change_class(now, class, &other).unwrap();
                self.inner.change_class(now, class, config).unwrap();
            }
        }
        self.last = now;
        self.inner.dequeue(now)
    }

    /// The packets held of a class.
    fn extra(&self, class: ClassId) -> Backlog {
        let extra = self.extra.filter(|(of, _)| *of == class);
        extra.map_or_else(Backlog::default, |(_, packet)| Backlog {
            packets: 1,
            bytes: packet.bytes().into(),
        })
    }

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
        self.configs.push(config.clone());
        self.inner.add_class(now, parent, &self.spoil(config))
    }

    fn change_class(
        &mut self,
        now: Instant,
        class: ClassId,
        config: &ClassConfig,
    ) -> Result<(), ConfigError> {
        self.asleep = None;
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
        if let Some((_, packet)) = self.extra.take_if(|(of, _)| *of == class) {
            orphan(packet);
        }
        self.asleep = None;
        self.inner.remove_class(now, class, orphan)
    }

    fn enqueue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        self.calls += 1;
        self.asleep = None;
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
        match self.fault {
            Fault::Oversleeps => return self.oversleep(now),
            Fault::HoldsOneMore => return self.take_two(now),
            Fault::ForgetsTurns => return self.forget_turn(now),
            _ => {}
        }
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
                let why = WaitReason::LinkBusy;
                Dequeue::Wait { until: now + nanosecond, why }
            }
            (_, answer) => answer,
        }
    }

    fn charge(&mut self, now: Instant, class: ClassId, bytes: ByteCount) {
        self.asleep = None;
        self.last = self.last.max(now);
        self.inner.charge(now, class, bytes);
    }

    fn pause(&mut self, class: ClassId) {
        self.inner.pause(class);
    }

    fn resume(&mut self, now: Instant, class: ClassId) {
        self.inner.resume(now, class);
    }

    fn set_link_rate(&mut self, now: Instant, rate: Option<BitRate>) {
        self.last = self.last.max(now);
        self.inner.set_link_rate(now, rate);
    }

    fn flow_counters(&self, class: ClassId) -> FlowCounters {
        self.inner.flow_counters(class)
    }

    /// The backlog of all classes; the cycle counts for itself.
    fn backlog(&self) -> Backlog {
        self.inner.backlog()
    }

    fn class_backlog(&self, class: ClassId) -> Backlog {
        let (queued, extra) = (self.inner.class_backlog(class), self.extra(class));
        Backlog { packets: queued.packets + extra.packets, bytes: queued.bytes + extra.bytes }
    }

    fn head_arrived(&self, class: ClassId) -> Option<Instant> {
        let extra = self.extra.filter(|(of, _)| *of == class);
        extra.map(|(_, packet)| packet.arrived).or_else(|| self.inner.head_arrived(class))
    }

    fn room(&self, class: ClassId) -> u32 {
        self.inner.room(class)
    }

    fn counters(&self, class: ClassId) -> ClassCounters {
        let mut counters = self.inner.counters(class);
        let extra = self.extra(class);
        counters.sent.packets -= extra.packets;
        counters.sent.bytes -= extra.bytes;
        if self.fault == Fault::Miscounts && counters.sent.packets > 3 {
            counters.sent.bytes += 1;
        }
        counters
    }
}
