// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtualized machine in virtual time: processors, domains, and the scheduler between them.
//!
//! **Problem.** The texts' measurements on Xen follow from which domain runs when. The machines are
//! gone, and a controller that was tuned for them can be tried on a model only.
//!
//! **Model.** Each domain has one virtual processor and one kind of [`DomainWork`]. A
//! [`CpuScheduler`] decides who runs. Ticks come every 10 ms on each processor, accounting every
//! 30 ms. A switch of contexts costs nothing. The events are: an arrival that wakes a domain, the
//! end of what a processor runs, a tick, the scheduler's own timer. Arrivals for a domain that has
//! work need no event; they are taken in at the next end of work.
//!
//! **Determinism.** Times are whole nanoseconds, and every domain draws from its own generator,
//! which follows from the seed and its position. [`SimMachine::log_hash`] covers every event that
//! is handled and every choice of a domain, in order: if two runs of one machine have different
//! hashes, the runs differ.
//!
//! `docs/simulator.md` says which parameter comes from which published number.

mod credit;
mod credit_edf;
mod rtds;
mod scheduler;
mod work;

use weir_units::{CpuShare, Instant, Nanos};

pub use credit::{CreditAccounting, CreditScheduler, CreditShare};
pub use credit_edf::{CreditEdfScheduler, RealTimeClass};
pub use rtds::{RtdsScheduler, RtdsServer};
pub use scheduler::{CpuScheduler, CpusToDecide, WakeCause};
pub use work::{DomainWork, WorkCounts};

use crate::{EventQueue, Seed, SimError};
use work::WorkState;

/// A simulated machine.
#[derive(Clone, Debug)]
pub struct SimMachine<S> {
    scheduler: S,
    now: Instant,
    events: EventQueue<MachineEvent>,
    cpus: Vec<PhysicalCpu>,
    domains: Vec<WorkState>,
    /// The time of the scheduler's timer, and the generation of its event.
    timer: (Option<Instant>, u32),
    handled: u64,
    log: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct PhysicalCpu {
    running: Option<usize>,
    /// The instant up to which its time is charged.
    since: Instant,
    turn_ends: Instant,
    /// Counts decisions, so that the end of an earlier one is recognized as void.
    generation: u32,
}

#[derive(Clone, Copy, Debug)]
enum MachineEvent {
    Arrival { domain: usize, generation: u32 },
    End { cpu: usize, generation: u32 },
    Tick { cpu: usize },
    Timer { generation: u32 },
}

impl<S: CpuScheduler> SimMachine<S> {
    /// Makes a machine of `cpus` processors, clamped to 1 to [`CpusToDecide::CPUS_MAX`], and of
    /// these domains, in the order by which `scheduler` knows them. `scheduler` must have been made
    /// for as many processors.
    ///
    /// # Errors
    /// The queue of events does not hold one for each domain.
    pub fn new(
        cpus: usize,
        scheduler: S,
        domains: &[DomainWork],
        seed: u64,
    ) -> Result<Self, SimError> {
        let cpus = cpus.clamp(1, CpusToDecide::CPUS_MAX);
        let mut parts = Seed::new(seed);
        let states = domains.iter().map(|work| WorkState::new(*work, Seed::new(parts.draw())));
        let mut machine = Self {
            scheduler,
            now: Instant::ZERO,
            // Ends that are void stay until their time: a turn has one for each interruption.
            events: EventQueue::new(EVENTS_MAX),
            cpus: vec![PhysicalCpu::default(); cpus],
            domains: states.collect(),
            timer: (None, 0),
            handled: 0,
            log: FNV_OFFSET,
        };
        for cpu in 0..cpus {
            machine.events.push(Instant::ZERO + TICK, MachineEvent::Tick { cpu })?;
        }
        for domain in 0..domains.len() {
            machine.sleep_or_wake(domain)?;
        }
        Ok(machine)
    }

    /// Handles every event up to and including `until`.
    ///
    /// # Errors
    /// Too many events are scheduled.
    pub fn run_until(&mut self, until: Instant) -> Result<(), SimError> {
        while let Some((at, event)) = self.events.pop_due(until) {
            self.now = self.now.max(at);
            self.handle(event)?;
        }
        self.now = self.now.max(until);
        (0..self.cpus.len()).for_each(|cpu| self.charge(cpu));
        let now = self.now;
        self.domains.iter_mut().for_each(|domain| domain.take_in(now));
        Ok(())
    }

    /// Gives a packet to a [`DomainWork::Relay`], now. Returns false if its ring is full, or if the
    /// domain is not a relay.
    ///
    /// # Errors
    /// Too many events are scheduled.
    pub fn deliver(&mut self, domain: usize) -> Result<bool, SimError> {
        let now = self.now;
        let Some(state) = self.domains.get_mut(domain) else { return Ok(false) };
        let slept = state.time_left().is_none();
        if !state.is_relay() || !state.arrive(now) {
            return Ok(false);
        }
        if slept {
            self.sleep_or_wake(domain)?;
        }
        Ok(true)
    }

    /// Returns the instant of the next event.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.events.next()
    }

    /// Caps a domain from the next accounting on; `None`: no cap.
    pub fn set_cap(&mut self, domain: usize, cap: Option<CpuShare>) {
        self.scheduler.set_cap(domain, cap);
    }

    /// Has the packets of a router, or the pieces of a stream, arrive `gap` apart from now on.
    ///
    /// # Errors
    /// Too many events are scheduled.
    pub fn set_gap(&mut self, domain: usize, gap: Nanos) -> Result<(), SimError> {
        let now = self.now;
        let Some(state) = self.domains.get_mut(domain) else { return Ok(()) };
        state.take_in(now);
        state.set_gap(now, gap);
        // A sleeping domain waits for an arrival at the old gap, whose event is void now.
        if state.pending.is_some() { self.sleep_or_wake(domain) } else { Ok(()) }
    }

    /// Returns the counts of a domain; `None` if there is no such domain.
    #[must_use]
    pub fn counts(&self, domain: usize) -> Option<WorkCounts> {
        self.domains.get(domain).map(|state| state.counts)
    }

    /// Returns by how much each piece of a stream was late, in order: its end less its arrival and
    /// its own processor time. Only the first 2^20 are kept.
    #[must_use]
    pub fn lateness(&self, domain: usize) -> &[Nanos] {
        self.domains.get(domain).map_or(&[], |state| &state.late)
    }

    /// Returns how many events were handled.
    #[must_use]
    pub const fn handled(&self) -> u64 {
        self.handled
    }

    /// Returns a hash of all events handled and domains chosen, in their order (FNV-1a over words).
    #[must_use]
    pub const fn log_hash(&self) -> u64 {
        self.log
    }

    /// Returns the instant that the machine has reached.
    #[must_use]
    pub const fn now(&self) -> Instant {
        self.now
    }

    fn handle(&mut self, event: MachineEvent) -> Result<(), SimError> {
        let (kind, part) = match event {
            MachineEvent::Arrival { domain, generation } => {
                let pending = self.domains.get_mut(domain).map(|state| &mut state.pending);
                match pending {
                    Some(pending) if *pending == Some(generation) => *pending = None,
                    _ => return Ok(()),
                }
                (0, domain)
            }
            MachineEvent::End { cpu, generation } => {
                if self.cpus.get(cpu).is_none_or(|of| of.generation != generation) {
                    return Ok(());
                }
                (1, cpu)
            }
            MachineEvent::Tick { cpu } => (2, cpu),
            MachineEvent::Timer { generation } if generation == self.timer.1 => (3, 0),
            MachineEvent::Timer { .. } => return Ok(()),
        };
        self.handled += 1;
        self.note(self.now.as_nanos());
        self.note((part as u64) << 2 | kind);
        match event {
            MachineEvent::Arrival { domain, .. } => self.sleep_or_wake(domain),
            MachineEvent::End { cpu, .. } => self.end(cpu),
            MachineEvent::Tick { cpu } => self.tick(cpu),
            MachineEvent::Timer { .. } => {
                (0..self.cpus.len()).for_each(|cpu| self.charge(cpu));
                self.timer.0 = None;
                let decide = self.scheduler.timer(self.now);
                self.decide(decide)
            }
        }
    }

    /// Handles a tick. Every third tick is followed by the accounting, after the ticks of all
    /// processors, so that a domain that it releases is not sampled before it has run.
    fn tick(&mut self, cpu: usize) -> Result<(), SimError> {
        self.charge(cpu);
        let mut decide = self.scheduler.tick(cpu);
        self.events.push(self.now + TICK, MachineEvent::Tick { cpu })?;
        let ticks = self.now.as_nanos() / TICK.as_nanos();
        if cpu + 1 == self.cpus.len() && ticks.is_multiple_of(TICKS_OF_ACCOUNTING) {
            (0..self.cpus.len()).for_each(|cpu| self.charge(cpu));
            decide = decide.with(self.scheduler.account());
        }
        self.decide(decide)
    }

    /// Wakes a domain that does not run if it has work, and otherwise schedules its next arrival.
    fn sleep_or_wake(&mut self, domain: usize) -> Result<(), SimError> {
        let now = self.now;
        let Some(state) = self.domains.get_mut(domain) else { return Ok(()) };
        state.take_in(now);
        if state.time_left().is_some() {
            let reason = state.wake_reason();
            let decide = self.scheduler.wake(now, domain, reason);
            return self.decide(decide);
        }
        match state.next_arrival() {
            Some(at) => {
                let generation = state.await_arrival();
                self.events.push(at, MachineEvent::Arrival { domain, generation })
            }
            None => Ok(()),
        }
    }

    /// Handles the end of a turn, or of a packet or piece of work in it.
    fn end(&mut self, cpu: usize) -> Result<(), SimError> {
        self.charge(cpu);
        let now = self.now;
        let Some(of) = self.cpus.get(cpu).copied() else { return Ok(()) };
        let Some(domain) = of.running else { return Ok(()) };
        let Some(state) = self.domains.get_mut(domain) else { return Ok(()) };
        state.take_in(now);
        match state.time_left() {
            Some(_) if now < of.turn_ends => self.go_on(cpu),
            Some(_) => self.choose(cpu),
            None => {
                self.scheduler.block(domain);
                self.choose(cpu)?;
                self.sleep_or_wake(domain)
            }
        }
    }

    /// Charges what runs on a processor for the time since it was last charged.
    fn charge(&mut self, cpu: usize) {
        let now = self.now;
        let Some(of) = self.cpus.get_mut(cpu) else { return };
        let ran = now.saturating_since(std::mem::replace(&mut of.since, now));
        let Some(domain) = of.running.filter(|_| ran > Nanos::ZERO) else { return };
        if let Some(state) = self.domains.get_mut(domain) {
            // Packets from before this instant meet the ring as it was.
            state.take_in(Instant::from_nanos(now.as_nanos() - 1));
            state.run(ran, now);
        }
        self.scheduler.charge(domain, ran);
    }

    fn decide(&mut self, mut decide: CpusToDecide) -> Result<(), SimError> {
        while let Some(cpu) = decide.take() {
            self.charge(cpu);
            let running = self.cpus.get(cpu).and_then(|of| of.running);
            let has_work = |domain: usize| {
                self.domains.get(domain).is_some_and(|state| state.time_left().is_some())
            };
            match running {
                // Its work ended at this very instant: the event of that end decides.
                Some(domain) if !has_work(domain) => {}
                _ => self.choose(cpu)?,
            }
        }
        self.arm()
    }

    /// Schedules the scheduler's timer where its time has changed.
    fn arm(&mut self) -> Result<(), SimError> {
        let next = self.scheduler.next_timer();
        if next == self.timer.0 {
            return Ok(());
        }
        let generation = self.timer.1.wrapping_add(1);
        self.timer = (next, generation);
        next.map_or(Ok(()), |at| self.events.push(at, MachineEvent::Timer { generation }))
    }

    /// Asks the scheduler for the virtual processor that runs on `cpu` from now on.
    fn choose(&mut self, cpu: usize) -> Result<(), SimError> {
        let chosen = self.scheduler.choose(self.now, cpu);
        self.note(chosen.map_or(u64::MAX, |domain| domain as u64));
        let turn = chosen.map_or(Nanos::ZERO, |vcpu| self.scheduler.slice(vcpu));
        let turn_ends = self.now + turn;
        if let Some(of) = self.cpus.get_mut(cpu) {
            of.running = chosen;
            of.since = self.now;
            of.turn_ends = turn_ends;
        }
        self.go_on(cpu)
    }

    /// Schedules the end of what a processor runs.
    fn go_on(&mut self, cpu: usize) -> Result<(), SimError> {
        let Some(of) = self.cpus.get_mut(cpu) else { return Ok(()) };
        of.generation = of.generation.wrapping_add(1);
        let left = of.running.and_then(|domain| self.domains.get(domain)?.time_left());
        let Some(left) = left else { return Ok(()) };
        let at = of.turn_ends.min(self.now + left);
        let generation = of.generation;
        self.events.push(at, MachineEvent::End { cpu, generation })
    }

    fn note(&mut self, word: u64) {
        self.log = (self.log ^ word).wrapping_mul(FNV_PRIME);
    }
}

/// Events that can be scheduled. Under credit, a turn that is cut short leaves a void end for 30 ms
/// at most: room for 546 000 such turns a second on each of 64 processors.
const EVENTS_MAX: usize = 1 << 20;

const TICK: Nanos = Nanos::from_millis(10);
const TICKS_OF_ACCOUNTING: u64 = 3;

/// The start and the factor of the FNV-1a hash of 64 bits.
const FNV_OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0000_0100_0000_01b3;

#[cfg(test)]
mod rtds_tests;
#[cfg(test)]
mod tests;
