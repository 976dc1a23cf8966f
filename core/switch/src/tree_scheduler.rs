// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The scheduler at the top of a tree: one paced by the link, or the phases of a cycle.

use alloc::vec::Vec;

use weir_policy::{PortCycle, SchedulerKind};
use weir_sched::{
    AnyScheduler, Backlog, ClassConfig, ClassCounters, ClassId, ConfigError, CycleConfig, Cyclic,
    Dequeue, DropReason, FlowCounters, LinkConfig, Paced, Packet, Phase, PhaseCounters, Scheduler,
    SchedulerAlgorithm,
};
use weir_units::{BitRate, ByteCount, Instant};

/// A tree's scheduler.
#[expect(clippy::large_enum_variant, reason = "one for each tree, and it stays where it is made")]
pub(crate) enum TreeScheduler {
    /// One scheduler for all slices, paced by the link.
    Paced(Paced<AnyScheduler>),
    /// A scheduler for each slice, which sends in the slice's phases; with the cycle in force.
    Cyclic(Cyclic<AnyScheduler>, CycleConfig),
}

impl TreeScheduler {
    pub(crate) fn new(kind: SchedulerKind, nested: bool, cyclic: bool, link: &LinkConfig) -> Self {
        if cyclic {
            return Self::Cyclic(Cyclic::new(link, nested, make(kind)), CycleConfig::default());
        }
        Self::Paced(Paced::new(AnyScheduler::new(of(kind), link), link))
    }

    /// Tells whether slices have phases.
    pub(crate) const fn is_cyclic(&self) -> bool {
        matches!(self, Self::Cyclic(..))
    }

    /// Follows a cycle; an unchanged one is not begun anew.
    pub(crate) fn set_cycle(&mut self, now: Instant, cycle: PortCycle, phases: Vec<Phase>) {
        let Self::Cyclic(scheduler, in_force) = self else { return };
        let PortCycle { length, borrow } = cycle;
        let cycle = CycleConfig { length, phases, guard: PortCycle::GUARD, borrow };
        if cycle == *in_force {
            return;
        }
        let set = scheduler.set_cycle(now, &cycle);
        debug_assert!(set.is_ok(), "a cycle that was checked is refused: {set:?}");
        *in_force = cycle;
    }

    /// Returns how punctually phases were served; `None` without a cycle.
    pub(crate) const fn phase_counters(&self) -> Option<PhaseCounters> {
        match self {
            Self::Paced(_) => None,
            Self::Cyclic(scheduler, _) => Some(scheduler.phase_counters()),
        }
    }
}

/// Calls a method of whichever scheduler it is.
macro_rules! each {
    ($any:expr, $scheduler:ident => $call:expr) => {
        match $any {
            TreeScheduler::Paced($scheduler) => $call,
            TreeScheduler::Cyclic($scheduler, _) => $call,
        }
    };
}

impl Scheduler for TreeScheduler {
    fn add_class(
        &mut self,
        now: Instant,
        parent: Option<ClassId>,
        config: &ClassConfig,
    ) -> Result<ClassId, ConfigError> {
        each!(self, scheduler => scheduler.add_class(now, parent, config))
    }

    fn change_class(
        &mut self,
        now: Instant,
        class: ClassId,
        config: &ClassConfig,
    ) -> Result<(), ConfigError> {
        each!(self, scheduler => scheduler.change_class(now, class, config))
    }

    fn remove_class(
        &mut self,
        now: Instant,
        class: ClassId,
        orphan: &mut dyn FnMut(Packet),
    ) -> Result<(), ConfigError> {
        each!(self, scheduler => scheduler.remove_class(now, class, orphan))
    }

    #[inline]
    fn enqueue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        each!(self, scheduler => scheduler.enqueue(now, class, packet))
    }

    fn requeue(&mut self, now: Instant, class: ClassId, packet: Packet) -> Result<(), DropReason> {
        each!(self, scheduler => scheduler.requeue(now, class, packet))
    }

    #[inline]
    fn touch(&self, class: ClassId) {
        each!(self, scheduler => scheduler.touch(class));
    }

    #[inline]
    fn dequeue(&mut self, now: Instant) -> Dequeue {
        each!(self, scheduler => scheduler.dequeue(now))
    }

    fn charge(&mut self, now: Instant, class: ClassId, bytes: ByteCount) {
        each!(self, scheduler => scheduler.charge(now, class, bytes));
    }

    fn pause(&mut self, class: ClassId) {
        each!(self, scheduler => scheduler.pause(class));
    }

    fn resume(&mut self, now: Instant, class: ClassId) {
        each!(self, scheduler => scheduler.resume(now, class));
    }

    fn set_link_rate(&mut self, now: Instant, rate: Option<BitRate>) {
        each!(self, scheduler => scheduler.set_link_rate(now, rate));
    }

    fn backlog(&self) -> Backlog {
        each!(self, scheduler => scheduler.backlog())
    }

    fn class_backlog(&self, class: ClassId) -> Backlog {
        each!(self, scheduler => scheduler.class_backlog(class))
    }

    fn head_arrived(&self, class: ClassId) -> Option<Instant> {
        each!(self, scheduler => scheduler.head_arrived(class))
    }

    fn room(&self, class: ClassId) -> u32 {
        each!(self, scheduler => scheduler.room(class))
    }

    fn counters(&self, class: ClassId) -> ClassCounters {
        each!(self, scheduler => scheduler.counters(class))
    }

    fn flow_counters(&self, class: ClassId) -> FlowCounters {
        each!(self, scheduler => scheduler.flow_counters(class))
    }
}

/// Returns the scheduler that a policy names.
pub(crate) const fn of(kind: SchedulerKind) -> SchedulerAlgorithm {
    match kind {
        SchedulerKind::Hfsc => SchedulerAlgorithm::Hfsc,
        SchedulerKind::Wrr => SchedulerAlgorithm::Wrr,
        SchedulerKind::Drr => SchedulerAlgorithm::Drr,
        SchedulerKind::Wfq => SchedulerAlgorithm::Wfq,
        SchedulerKind::Strict => SchedulerAlgorithm::Strict,
        SchedulerKind::Fifo => SchedulerAlgorithm::Fifo,
    }
}

/// Makes an owner's scheduler of that kind.
fn make(kind: SchedulerKind) -> fn(&LinkConfig) -> AnyScheduler {
    match kind {
        SchedulerKind::Hfsc => |link| AnyScheduler::new(SchedulerAlgorithm::Hfsc, link),
        SchedulerKind::Wrr => |link| AnyScheduler::new(SchedulerAlgorithm::Wrr, link),
        SchedulerKind::Drr => |link| AnyScheduler::new(SchedulerAlgorithm::Drr, link),
        SchedulerKind::Wfq => |link| AnyScheduler::new(SchedulerAlgorithm::Wfq, link),
        SchedulerKind::Strict => |link| AnyScheduler::new(SchedulerAlgorithm::Strict, link),
        SchedulerKind::Fifo => |link| AnyScheduler::new(SchedulerAlgorithm::Fifo, link),
    }
}
