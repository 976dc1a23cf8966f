// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A scheduler chosen when it is made, by name.

use core::fmt;
use core::str::FromStr;

use weir_units::{BitRate, ByteCount, Instant};

use crate::{
    Backlog, ClassConfig, ClassCounters, ClassId, ConfigError, Dequeue, DropReason, Drr, Fifo,
    FlowCounters, Hfsc, LinkConfig, Packet, Scheduler, StrictPriority, Wfq, Wrr,
};

/// The schedulers by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SchedulerAlgorithm {
    /// [`Fifo`]
    Fifo,
    /// [`StrictPriority`]
    Strict,
    /// [`Wrr`]
    Wrr,
    /// [`Drr`]
    Drr,
    /// [`Wfq`]
    Wfq,
    /// [`Hfsc`]
    Hfsc,
}

/// One of the schedulers; a match a call instead of a pointer.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "one for each link, and it stays where it is made")]
pub enum AnyScheduler {
    /// [`Fifo`]
    Fifo(Fifo),
    /// [`StrictPriority`]
    Strict(StrictPriority),
    /// [`Wrr`]
    Wrr(Wrr),
    /// [`Drr`]
    Drr(Drr),
    /// [`Wfq`]
    Wfq(Wfq),
    /// [`Hfsc`]
    Hfsc(Hfsc),
}

/// A name that is not one of [`SchedulerAlgorithm`]'s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownScheduler;

impl SchedulerAlgorithm {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Fifo, Self::Strict, Self::Wrr, Self::Drr, Self::Wfq, Self::Hfsc];

    /// Returns the name, as in a policy.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Strict => "strict",
            Self::Wrr => "wrr",
            Self::Drr => "drr",
            Self::Wfq => "wfq",
            Self::Hfsc => "hfsc",
        }
    }

    /// Checks that a class of such a scheduler can have a configuration.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`], as of [`Scheduler::add_class`].
    pub fn check(self, config: &ClassConfig) -> Result<(), ConfigError> {
        match self {
            Self::Hfsc => Hfsc::check(config),
            _ => config.check(),
        }
    }
}

impl AnyScheduler {
    /// Makes a scheduler of that kind without classes.
    #[must_use]
    pub fn new(kind: SchedulerAlgorithm, link: &LinkConfig) -> Self {
        match kind {
            SchedulerAlgorithm::Fifo => Self::Fifo(Fifo::new(link)),
            SchedulerAlgorithm::Strict => Self::Strict(StrictPriority::new(link)),
            SchedulerAlgorithm::Wrr => Self::Wrr(Wrr::new(link)),
            SchedulerAlgorithm::Drr => Self::Drr(Drr::new(link)),
            SchedulerAlgorithm::Wfq => Self::Wfq(Wfq::new(link)),
            SchedulerAlgorithm::Hfsc => Self::Hfsc(Hfsc::new(link)),
        }
    }

    /// Returns the kind of this scheduler.
    #[must_use]
    pub const fn kind(&self) -> SchedulerAlgorithm {
        match self {
            Self::Fifo(_) => SchedulerAlgorithm::Fifo,
            Self::Strict(_) => SchedulerAlgorithm::Strict,
            Self::Wrr(_) => SchedulerAlgorithm::Wrr,
            Self::Drr(_) => SchedulerAlgorithm::Drr,
            Self::Wfq(_) => SchedulerAlgorithm::Wfq,
            Self::Hfsc(_) => SchedulerAlgorithm::Hfsc,
        }
    }
}

/// Calls a method of whichever scheduler it is.
macro_rules! each {
    ($any:expr, $scheduler:ident => $call:expr) => {
        match $any {
            AnyScheduler::Fifo($scheduler) => $call,
            AnyScheduler::Strict($scheduler) => $call,
            AnyScheduler::Wrr($scheduler) => $call,
            AnyScheduler::Drr($scheduler) => $call,
            AnyScheduler::Wfq($scheduler) => $call,
            AnyScheduler::Hfsc($scheduler) => $call,
        }
    };
}

impl Scheduler for AnyScheduler {
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

impl FromStr for SchedulerAlgorithm {
    type Err = UnknownScheduler;

    fn from_str(name: &str) -> Result<Self, UnknownScheduler> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or(UnknownScheduler)
    }
}

impl fmt::Display for SchedulerAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for UnknownScheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("unknown scheduler; known are")?;
        for (n, kind) in SchedulerAlgorithm::ALL.into_iter().enumerate() {
            write!(f, "{} {kind}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

impl core::error::Error for UnknownScheduler {}
