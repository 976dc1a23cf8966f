// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The schedulers under test, and what each promises.

use weir_sched::{AnyScheduler, ClassId, LinkConfig, Paced, Scheduler, SchedulerAlgorithm};

use crate::timetable::Timetable;

/// A scheduler that can be made, and what it promises.
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) kind: SchedulerAlgorithm,
    /// Set if it is behind a link's clock.
    pub(crate) paced: bool,
    /// The phases that it is inside, if it is: it waits for gates, and may hold a packet of each
    /// owner.
    pub(crate) phases: Option<Phases>,
    pub(crate) make: Make,
    pub(crate) promises: Promises,
}

/// The phases of a link whose classes belong to owners in turn.
#[derive(Clone, Debug)]
pub(crate) struct Phases {
    pub(crate) timetable: Timetable,
    /// Owners with classes.
    pub(crate) owners: usize,
}

/// Makes a scheduler for a link.
pub(crate) type Make = Box<dyn Fn(&LinkConfig) -> Box<dyn Scheduler>>;

#[derive(Clone, Debug)]
pub(crate) struct Promises {
    pub(crate) order: Order,
    pub(crate) min_rate: bool,
    pub(crate) max_rate: bool,
    /// A packet leaves whenever one may, at whatever rate the link asks.
    pub(crate) conserves_work: bool,
}

/// The division of service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By arrival.
    Arrival,
    /// By level.
    Level,
    /// By weight, in rounds of packets.
    Rounds,
    /// By weight, in rounds of bytes (Shreedhar and Varghese 1995).
    Deficit,
    /// By weight (Bennett and Zhang 1997).
    WorstCaseFair,
    /// By weight, with the bound of start-time fair queueing (Goyal, Vin, Cheng 1997).
    StartTimeFair,
}

impl Order {
    /// Tells whether weights are shares.
    pub(crate) fn shares(self) -> bool {
        !matches!(self, Self::Arrival | Self::Level)
    }
}

fn subject(kind: SchedulerAlgorithm, order: Order, min_rate: bool) -> Subject {
    let max_rate = order != Order::Arrival;
    let conserves_work = order != Order::Rounds;
    Subject {
        name: kind.name(),
        kind,
        paced: false,
        phases: None,
        make: Box::new(move |link| Box::new(AnyScheduler::new(kind, link))),
        promises: Promises { order, min_rate, max_rate, conserves_work },
    }
}

impl Phases {
    /// The owner of a class.
    pub(crate) fn owner(&self, class: ClassId) -> usize {
        class.0 as usize % self.owners
    }
}

impl Subject {
    /// This kind behind the link's clock.
    pub(crate) fn paced(&self) -> Self {
        let kind = self.kind;
        let make = move |link: &LinkConfig| -> Box<dyn Scheduler> {
            Box::new(Paced::new(AnyScheduler::new(kind, link), link))
        };
        let promises = self.promises.clone();
        Self { name: self.name, kind, paced: true, phases: None, make: Box::new(make), promises }
    }
}

/// The subject of a kind.
pub(crate) fn of(kind: SchedulerAlgorithm) -> Subject {
    match kind {
        SchedulerAlgorithm::Fifo => fifo(),
        SchedulerAlgorithm::Strict => strict(),
        SchedulerAlgorithm::Wrr => wrr(),
        SchedulerAlgorithm::Drr => drr(),
        SchedulerAlgorithm::Wfq => wfq(),
        SchedulerAlgorithm::Hfsc => hfsc(),
    }
}

pub(crate) fn fifo() -> Subject {
    subject(SchedulerAlgorithm::Fifo, Order::Arrival, false)
}

pub(crate) fn strict() -> Subject {
    subject(SchedulerAlgorithm::Strict, Order::Level, false)
}

pub(crate) fn wrr() -> Subject {
    subject(SchedulerAlgorithm::Wrr, Order::Rounds, true)
}

pub(crate) fn drr() -> Subject {
    subject(SchedulerAlgorithm::Drr, Order::Deficit, false)
}

pub(crate) fn wfq() -> Subject {
    subject(SchedulerAlgorithm::Wfq, Order::WorstCaseFair, false)
}

pub(crate) fn hfsc() -> Subject {
    subject(SchedulerAlgorithm::Hfsc, Order::StartTimeFair, true)
}
