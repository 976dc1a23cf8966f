// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The work of a simulated domain: what arrives for it, how long it takes, what became of it.

use std::collections::VecDeque;

use weir_units::{Instant, Nanos};

use super::scheduler::WakeCause;
use crate::Seed;

/// The kind of work that a domain does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DomainWork {
    /// Always has something to compute.
    Busy,
    /// A software router: packets at a constant rate wait in a ring, and each costs the same time.
    ///
    /// A packet arrives at a random moment of its own interval. At exact intervals, those of a tick
    /// would be a multiple of a packet's, and a tick would see the same each time.
    Router {
        /// The time between two packets; zero counts as one nanosecond.
        gap: Nanos,
        /// The processor time of a packet; zero counts as one nanosecond.
        cost: Nanos,
        /// Packets that wait at most, the one in work among them. More are dropped at entry.
        ring: usize,
    },
    /// A software router whose packets are given to it one by one ([`super::SimMachine::deliver`]).
    Relay {
        /// The processor time of a packet; zero counts as one nanosecond.
        cost: Nanos,
        /// Packets that wait at most, the one in work among them.
        ring: usize,
    },
    /// A sender by its own timer, such as RTP video: a piece of work in each period.
    Stream {
        /// The time between two pieces; zero counts as one nanosecond.
        period: Nanos,
        /// The processor time of a piece; zero counts as one nanosecond.
        work: Nanos,
        /// Pieces that wait at most.
        queue: usize,
    },
}

/// The counts of a domain's work since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkCounts {
    /// Packets or pieces that arrived.
    pub offered: u64,
    /// Packets or pieces dropped because ring or queue was full.
    pub dropped: u64,
    /// Packets or pieces done.
    pub done: u64,
    /// Processor time.
    pub cpu: Nanos,
}

/// A domain's work while a simulation runs.
#[derive(Clone, Debug)]
pub(super) struct WorkState {
    work: DomainWork,
    seed: Seed,
    /// The beginning of the next arrival's interval, and the arrival.
    interval: Instant,
    arrival: Instant,
    /// Arrivals that wait, the one in work first.
    waiting: VecDeque<Instant>,
    /// The time left of the one in work.
    left: Nanos,
    pub(super) counts: WorkCounts,
    /// The generation of the event for the next arrival, while the domain waits for it.
    pub(super) pending: Option<u32>,
    generation: u32,
    /// By how much each piece was late: its end, less its arrival and its own time.
    pub(super) late: Vec<Nanos>,
}

impl WorkState {
    pub(super) fn new(work: DomainWork, mut seed: Seed) -> Self {
        let every = work.interval().as_nanos();
        // Phases are drawn: 10 ms beside 5 ms would lock.
        let phase = Instant::from_nanos(seed.between(0, every - 1));
        let mut state = Self {
            work,
            seed,
            interval: phase,
            arrival: phase,
            waiting: VecDeque::new(),
            left: Nanos::ZERO,
            counts: WorkCounts::default(),
            pending: None,
            generation: 0,
            late: Vec::new(),
        };
        state.draw();
        state
    }

    /// Returns when work arrives next; `None` if there always is some.
    pub(super) const fn next_arrival(&self) -> Option<Instant> {
        match self.work {
            DomainWork::Busy | DomainWork::Relay { .. } => None,
            DomainWork::Router { .. } | DomainWork::Stream { .. } => Some(self.arrival),
        }
    }

    /// Returns the generation of a new event for the next arrival, which voids the one before.
    pub(super) const fn await_arrival(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1);
        self.pending = Some(self.generation);
        self.generation
    }

    /// Changes the time between two arrivals, the next one included.
    pub(super) fn set_gap(&mut self, now: Instant, new: Nanos) {
        match &mut self.work {
            DomainWork::Busy | DomainWork::Relay { .. } => return,
            DomainWork::Router { gap, .. } => *gap = new,
            DomainWork::Stream { period, .. } => *period = new,
        }
        self.interval = now;
        self.draw();
    }

    pub(super) const fn is_relay(&self) -> bool {
        matches!(self.work, DomainWork::Relay { .. })
    }

    pub(super) const fn wake_reason(&self) -> WakeCause {
        match self.work {
            DomainWork::Router { .. } | DomainWork::Relay { .. } => WakeCause::Event,
            DomainWork::Busy | DomainWork::Stream { .. } => WakeCause::Timer,
        }
    }

    /// Takes in what has arrived by now. Between two ends of work nothing leaves, so taking
    /// arrivals in late gives the same drops as taking each in at its instant.
    #[inline]
    pub(super) fn take_in(&mut self, now: Instant) {
        if self.arrival <= now {
            self.take_in_due(now);
        }
    }

    #[inline(never)]
    fn take_in_due(&mut self, now: Instant) {
        let every = self.work.interval();
        while self.arrival <= now && self.next_arrival().is_some() {
            self.arrive(self.arrival);
            self.interval += every;
            self.draw();
        }
    }

    /// Takes a packet or piece that arrived at `at`. Returns false if it is dropped.
    pub(super) fn arrive(&mut self, at: Instant) -> bool {
        let (bound, time) = match self.work {
            DomainWork::Busy => return false,
            DomainWork::Router { ring, cost, .. } | DomainWork::Relay { ring, cost } => {
                (ring, cost)
            }
            DomainWork::Stream { queue, work, .. } => (queue, work),
        };
        self.counts.offered += 1;
        if self.waiting.len() >= bound.max(1) {
            self.counts.dropped += 1;
            return false;
        }
        if self.waiting.is_empty() {
            self.left = time.max(Nanos::new(1));
        }
        self.waiting.push_back(at);
        true
    }

    /// Returns the processor time until the work at hand is done; `None` if there is none.
    pub(super) fn time_left(&self) -> Option<Nanos> {
        match self.work {
            DomainWork::Busy => Some(Nanos::MAX),
            DomainWork::Router { .. } | DomainWork::Relay { .. } | DomainWork::Stream { .. } => {
                (!self.waiting.is_empty()).then_some(self.left)
            }
        }
    }

    /// Uses processor time that ended now; with it, a packet or piece may be done.
    pub(super) fn run(&mut self, ran: Nanos, now: Instant) {
        self.counts.cpu = self.counts.cpu.saturating_add(ran);
        let (time, is_stream) = match self.work {
            DomainWork::Busy => return,
            DomainWork::Router { cost, .. } | DomainWork::Relay { cost, .. } => {
                (cost.max(Nanos::new(1)), false)
            }
            DomainWork::Stream { work, .. } => (work.max(Nanos::new(1)), true),
        };
        self.left = self.left.saturating_sub(ran);
        if self.left > Nanos::ZERO {
            return;
        }
        // Ends of work come first: what arrives at this instant finds the place free.
        let Some(arrived) = self.waiting.pop_front() else { return };
        self.counts.done += 1;
        if is_stream && self.late.len() < LATE_MAX {
            self.late.push(now.saturating_since(arrived).saturating_sub(time));
        }
        self.left = time;
    }

    /// Draws the moment of the next arrival.
    fn draw(&mut self) {
        self.arrival = match self.work {
            DomainWork::Router { .. } => {
                let within = self.work.interval().as_nanos() - 1;
                self.interval + Nanos::new(self.seed.between(0, within))
            }
            DomainWork::Stream { .. } => self.interval,
            DomainWork::Busy | DomainWork::Relay { .. } => Instant::FAR_FUTURE,
        };
    }
}

impl DomainWork {
    /// Returns the time between two arrivals, at least a nanosecond.
    fn interval(self) -> Nanos {
        let every = match self {
            Self::Busy | Self::Relay { .. } => Nanos::ZERO,
            Self::Router { gap, .. } => gap,
            Self::Stream { period, .. } => period,
        };
        every.max(Nanos::new(1))
    }
}

/// Delays that are kept of a domain; later ones are not.
const LATE_MAX: usize = 1 << 20;
