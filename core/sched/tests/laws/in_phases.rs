// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schedulers inside the phases of a cycle keep the laws, whether unused time is lent or not.
//!
//! The classes of a law are spread over the owners of a cycle, whose gates close again and again
//! while the law runs. What a scheduler promises of its classes must hold inside phases, too: none
//! is lost, an order is kept, a limit holds, shares are fair. How exactly the gates are kept is
//! audited in `weir-sim`, against a timetable.

use weir_sched::{
    AnyScheduler, Backlog, ClassConfig, ClassCounters, ClassId, ConfigError, CycleConfig, Cyclic,
    Dequeue, DropReason, FlowCounters, LinkConfig, Packet, Phase, Scheduler, SchedulerAlgorithm,
};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

use crate::subject::{self, Subject};
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

/// Every scheduler in phases of so many owners, without lending and with it.
fn subjects(owners: u32) -> impl Iterator<Item = Subject> {
    let each = SchedulerAlgorithm::ALL.into_iter();
    each.flat_map(move |kind| [false, true].map(|borrow| of(kind, owners, borrow)))
}

pub(crate) fn of(kind: SchedulerAlgorithm, owners: u32, borrow: bool) -> Subject {
    let (make, nested) = maker(kind);
    Subject { phased: true, make: maker_of(owners, borrow, nested, make), ..subject::of(kind) }
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

pub(crate) fn maker_of<S: Scheduler + 'static>(
    owners: u32,
    borrow: bool,
    nested: bool,
    make: fn(&LinkConfig) -> S,
) -> subject::Make {
    Box::new(move |link| Box::new(InPhases::new(owners, borrow, nested, link, make)))
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
    /// One owner more than asked for has phases: it has nothing to send.
    fn new(
        owners: u32,
        borrow: bool,
        nested: bool,
        link: &LinkConfig,
        make: fn(&LinkConfig) -> S,
    ) -> Self {
        let link = LinkConfig { classes_max: link.classes_max + owners + 1, ..link.clone() };
        let mut cyclic = Cyclic::new(&link, nested, make);
        let config = ClassConfig::default();
        let owners = (0..=owners).map(|_| cyclic.add_class(START, None, &config).unwrap());
        let owners: Vec<ClassId> = owners.collect();
        // The first owner has two phases, and the end of the cycle is nobody's.
        let phases = owners.iter().chain(&owners[..1]);
        let phases = phases.map(|owner| Phase { owner: *owner, length: PHASE }).collect::<Vec<_>>();
        let length = Nanos::new(PHASE.as_nanos() * (phases.len() as u64 + 1));
        let cycle = CycleConfig { length, phases, guard: GUARD, borrow };
        cyclic.set_cycle(START, &cycle).unwrap();
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

pub(crate) const OWNERS: u32 = 3;
const START: Instant = Instant::ZERO;
/// Six long frames at the rate of the laws' links.
const PHASE: Nanos = Nanos::new(9_000);
const GUARD: Nanos = Nanos::new(300);
/// The longest frame and the guard fit a phase.
const RATE_MIN: BitRate = BitRate::from_mbps(2_000);
