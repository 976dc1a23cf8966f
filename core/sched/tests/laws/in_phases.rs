// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schedulers inside the phases of a cycle keep the laws, whether unused time is lent or not.
//!
//! The classes of a law are spread over the owners of a cycle, whose gates close again and again
//! while the law runs. What a scheduler promises of its classes must hold inside phases, too: none
//! is lost, an order is kept, a limit holds, shares are fair. Waits are compared with a timetable
//! here; how exactly frames keep the gates is audited in `weir-sim`.

use weir_sched::{
    AnyScheduler, Backlog, ClassConfig, ClassCounters, ClassId, ConfigError, CycleConfig, Cyclic,
    Dequeue, DropReason, FlowCounters, LinkConfig, Packet, Phase, Scheduler, SchedulerAlgorithm,
    WaitReason,
};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::storm::{ANY, Answer, Climate, Manner, Seed};
use crate::subject::{self, Phases, Subject};
use crate::timetable::{Timetable, TimetablePhase};
use crate::{limits, shares, storm};

/// Goal: nothing is lost at the gates; packets stay in order, and counters with the packet that an
/// owner holds add up. Method: the storms, over three owners.
#[test]
fn conservation() {
    subjects(OWNERS).for_each(|subject| storm::conservation(&subject));
}

#[test]
fn time_that_goes_back_counts_as_the_latest() {
    subjects(OWNERS).for_each(|subject| storm::time_that_goes_back_counts_as_the_latest(&subject));
}

#[test]
fn a_change_to_the_same_changes_nothing() {
    subjects(OWNERS).for_each(|subject| storm::a_change_to_the_same_changes_nothing(&subject));
}

/// Goal: an upper limit holds over phases, but for the packet that an owner holds.
#[test]
fn no_window_exceeds_the_limit() {
    subjects(OWNERS).for_each(|subject| limits::no_window_exceeds_the_limit(&subject));
}

/// Goal: the classes of one owner share its phases as they would share a link of their own.
#[test]
fn classes_of_an_owner_share_its_phases() {
    subjects(1).for_each(|subject| shares::fair_in_every_window(&subject));
}

/// Goal: a wait ends at the first gate in which a frame may leave, as far as the scheduler knows
/// its length, and at its end one does, or the limits of all hold. An owner holds one packet at
/// most, and sends it first. Method: storms in which each wait is waited for, compared with a
/// timetable by `Audit::pull`.
#[test]
fn each_wait_ends_at_the_first_gate() {
    subjects(OWNERS).for_each(|subject| waits_end_at_the_first_gate(&subject));
}

/// The law of one subject.
pub(crate) fn waits_end_at_the_first_gate(subject: &Subject) {
    let (mut closed, mut limited) = (0, 0);
    for seed in 0..SEEDS {
        let _seed = Seed(seed, subject.name);
        let climate = Climate { clock_goes_back: false, drops: false, ..ANY };
        let manner = Manner { patient: true, ..Manner::default() };
        for answer in storm::run(subject, &storm::storm(seed, climate), &storm::link(), manner) {
            match answer {
                Answer::Pulled(Dequeue::Wait { why: WaitReason::PhaseClosed, .. }) => closed += 1,
                Answer::Pulled(Dequeue::Wait { why: WaitReason::UpperLimit, .. }) => limited += 1,
                _ => {}
            }
        }
    }
    assert!(closed > 2 * SEEDS, "{closed} waits for a gate");
    assert_eq!(limited > 0, subject.promises.max_rate, "{limited} waits for a limit");
}

/// Every scheduler in phases of so many owners, without lending and with it.
fn subjects(owners: usize) -> impl Iterator<Item = Subject> {
    let each = SchedulerAlgorithm::ALL.into_iter();
    each.flat_map(move |kind| [false, true].map(|borrow| of(kind, owners, borrow)))
}

pub(crate) fn of(kind: SchedulerAlgorithm, owners: usize, borrow: bool) -> Subject {
    let (make, nested) = maker(kind);
    within(phases(owners, borrow), nested, make, subject::of(kind))
}

/// A subject whose schedulers are inside phases.
pub(crate) fn within<S: Scheduler + 'static>(
    phases: Phases,
    nested: bool,
    make: fn(&LinkConfig) -> S,
    subject: Subject,
) -> Subject {
    let inside = phases.clone();
    let make = move |link: &LinkConfig| -> Box<dyn Scheduler> {
        Box::new(InPhases::new(&inside, nested, link, make))
    };
    Subject { phases: Some(phases), make: Box::new(make), ..subject }
}

/// One owner more than asked for has a phase: it has nothing to send. The first has two, and one
/// more that is too short for long frames. The end of the cycle is nobody's.
pub(crate) fn phases(owners: usize, borrow: bool) -> Phases {
    let phase = |owner, length: Nanos| TimetablePhase { owner, length: length.as_nanos() };
    let mut phases: Vec<_> = (0..=owners).map(|owner| phase(Some(owner), PHASE)).collect();
    phases.push(phase(Some(0), SHORT));
    phases.push(phase(Some(owners), SHORT));
    phases.push(phase(Some(0), PHASE));
    phases.push(phase(None, PHASE));
    Phases { timetable: Timetable::new(phases, GUARD, borrow), owners }
}

/// Makes owners' schedulers, and tells whether they have levels.
fn maker(kind: SchedulerAlgorithm) -> (fn(&LinkConfig) -> AnyScheduler, bool) {
    match kind {
        SchedulerAlgorithm::Fifo => {
            (|link| AnyScheduler::new(SchedulerAlgorithm::Fifo, link), false)
        }
        SchedulerAlgorithm::Strict => {
            (|link| AnyScheduler::new(SchedulerAlgorithm::Strict, link), false)
        }
        SchedulerAlgorithm::Wrr => (|link| AnyScheduler::new(SchedulerAlgorithm::Wrr, link), false),
        SchedulerAlgorithm::Drr => (|link| AnyScheduler::new(SchedulerAlgorithm::Drr, link), false),
        SchedulerAlgorithm::Wfq => (|link| AnyScheduler::new(SchedulerAlgorithm::Wfq, link), false),
        SchedulerAlgorithm::Hfsc => {
            (|link| AnyScheduler::new(SchedulerAlgorithm::Hfsc, link), true)
        }
    }
}

/// A cyclic scheduler whose owners are there from the start: a class of it goes to one of them by
/// its number.
struct InPhases<S> {
    cyclic: Cyclic<S>,
    owners: Vec<ClassId>,
    /// By class.
    taken: Vec<bool>,
}

impl<S: Scheduler> InPhases<S> {
    fn new(phases: &Phases, nested: bool, link: &LinkConfig, make: fn(&LinkConfig) -> S) -> Self {
        let Phases { timetable, owners } = phases;
        let idle = u32::try_from(owners + 1).unwrap();
        let link = LinkConfig { classes_max: link.classes_max + idle, ..link.clone() };
        let mut cyclic = Cyclic::new(&link, nested, make);
        let config = ClassConfig::default();
        let owners = (0..idle).map(|_| cyclic.add_class(START, None, &config).unwrap());
        let owners: Vec<ClassId> = owners.collect();
        cyclic.set_cycle(START, &cycle(timetable, &owners)).unwrap();
        Self { cyclic, owners, taken: Vec::new() }
    }

    /// Owners take the first classes of the cycle, and nobody gives one back.
    fn inner(&self, class: ClassId) -> ClassId {
        ClassId(class.0 + u32::try_from(self.owners.len()).unwrap())
    }

    fn outer(&self, class: ClassId) -> ClassId {
        ClassId(class.0 - u32::try_from(self.owners.len()).unwrap())
    }
}

/// The last cycle of a timetable, in which only the last phase may be nobody's.
pub(crate) fn cycle(timetable: &Timetable, owners: &[ClassId]) -> CycleConfig {
    let phases = timetable.phases();
    let closed = phases.last().is_some_and(|phase| phase.owner.is_none());
    let phases = &phases[..phases.len() - usize::from(closed)];
    let of = |phase: &TimetablePhase| Phase {
        owner: owners[phase.owner.unwrap()],
        length: Nanos::new(phase.length),
    };
    let phases = phases.iter().map(of).collect();
    let (guard, borrow) = (timetable.guard, timetable.borrow);
    CycleConfig { length: Nanos::new(timetable.length()), phases, guard, borrow }
}

impl<S: Scheduler> Scheduler for InPhases<S> {
    fn add_class(
        &mut self,
        now: Instant,
        _parent: Option<ClassId>,
        config: &ClassConfig,
    ) -> Result<ClassId, ConfigError> {
        let free = self.taken.iter().position(|taken| !taken).unwrap_or(self.taken.len());
        let owner = self.owners[free % (self.owners.len() - 1)];
        let class = self.cyclic.add_class(now, Some(owner), config)?;
        self.taken.resize(self.taken.len().max(free + 1), false);
        self.taken[free] = true;
        Ok(self.outer(class))
    }

    fn change_class(
        &mut self,
        now: Instant,
        class: ClassId,
        config: &ClassConfig,
    ) -> Result<(), ConfigError> {
        self.cyclic.change_class(now, self.inner(class), config)
    }

    fn remove_class(
        &mut self,
        now: Instant,
        class: ClassId,
        orphan: &mut dyn FnMut(Packet),
    ) -> Result<(), ConfigError> {
        self.cyclic.remove_class(now, self.inner(class), orphan)?;
        self.taken[class.0 as usize] = false;
        Ok(())
    }

    fn enqueue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        self.cyclic.enqueue(now, self.inner(class), packet)
    }

    fn requeue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        self.cyclic.requeue(now, self.inner(class), packet)
    }

    fn touch(&self, class: ClassId) {
        self.cyclic.touch(self.inner(class));
    }

    fn dequeue(&mut self, now: Instant) -> Dequeue {
        match self.cyclic.dequeue(now) {
            Dequeue::Send { class, packet, mark } => {
                Dequeue::Send { class: self.outer(class), packet, mark }
            }
            Dequeue::Dropped { class, packet, reason } => {
                Dequeue::Dropped { class: self.outer(class), packet, reason }
            }
            answer => answer,
        }
    }

    fn charge(&mut self, now: Instant, class: ClassId, bytes: ByteCount) {
        self.cyclic.charge(now, self.inner(class), bytes);
    }

    /// A phase carries the longest frame at any rate that the link may have.
    fn set_link_rate(&mut self, now: Instant, rate: Option<BitRate>) {
        self.cyclic.set_link_rate(now, rate.map(|rate| rate.max(RATE_MIN)));
    }

    fn backlog(&self) -> Backlog {
        self.cyclic.backlog()
    }

    fn class_backlog(&self, class: ClassId) -> Backlog {
        self.cyclic.class_backlog(self.inner(class))
    }

    fn head_arrived(&self, class: ClassId) -> Option<Instant> {
        self.cyclic.head_arrived(self.inner(class))
    }

    fn room(&self, class: ClassId) -> u32 {
        self.cyclic.room(self.inner(class))
    }

    fn counters(&self, class: ClassId) -> ClassCounters {
        self.cyclic.counters(self.inner(class))
    }

    fn flow_counters(&self, class: ClassId) -> FlowCounters {
        self.cyclic.flow_counters(self.inner(class))
    }
}

const SEEDS: u64 = 300;
pub(crate) const OWNERS: usize = 3;
const START: Instant = Instant::ZERO;
/// Six long frames at the rate of the laws' links.
const PHASE: Nanos = Nanos::new(9_000);
/// Two thirds of a long frame.
const SHORT: Nanos = Nanos::new(1_000);
const GUARD: Nanos = Nanos::new(300);
/// The longest frame and the guard fit a phase.
pub(crate) const RATE_MIN: BitRate = BitRate::from_mbps(2_000);
