// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The seam between a simulated machine and what decides who runs on its processors.

use weir_units::{CpuShare, Instant, Nanos};

/// Why a virtual processor became able to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WakeCause {
    /// Something came from outside, such as a packet: schedulers may favour this.
    Event,
    /// The domain's own timer. The Jitter text calls this self-initiated: nothing outside tells
    /// the scheduler that it is urgent.
    Timer,
}

/// Processors whose choice has to be made again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpusToDecide {
    /// The processors that choose first, one bit each.
    first: u64,
    /// The processors that choose when all of `first` have chosen, one bit each. An idle processor
    /// can then run a domain that was preempted.
    then: u64,
}

impl CpusToDecide {
    /// The largest number of processors of a machine.
    pub const CPUS_MAX: usize = 64;

    /// Adds a processor; a number of [`Self::CPUS_MAX`] or more is ignored.
    pub const fn add(&mut self, cpu: usize) {
        if cpu < Self::CPUS_MAX {
            self.first |= 1 << cpu;
        }
    }

    /// Adds a processor that chooses after every processor of [`Self::add`]; a number
    /// of [`Self::CPUS_MAX`] or more is ignored.
    pub const fn add_after(&mut self, cpu: usize) {
        if cpu < Self::CPUS_MAX {
            self.then |= 1 << cpu;
        }
    }

    /// Returns the processors of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self { first: self.first | other.first, then: self.then | other.then }
    }

    /// Takes out the processor that chooses next.
    pub const fn take(&mut self) -> Option<usize> {
        let set = if self.first != 0 { &mut self.first } else { &mut self.then };
        if *set == 0 {
            return None;
        }
        let cpu = set.trailing_zeros() as usize;
        *set &= *set - 1;
        Some(cpu)
    }
}

/// A scheduler of virtual processors on physical ones. Time is an argument; virtual processors and
/// processors are numbers from 0 on.
///
/// The machine charges ([`CpuScheduler::charge`]) what ran before each call that depends on it.
pub trait CpuScheduler {
    /// Makes a virtual processor able to run.
    fn wake(&mut self, now: Instant, vcpu: usize, reason: WakeCause) -> CpusToDecide;

    /// Takes the ability to run from a virtual processor that has nothing to do.
    fn block(&mut self, vcpu: usize);

    /// Reports that a virtual processor ran for a time.
    fn charge(&mut self, vcpu: usize, ran: Nanos);

    /// Decides which virtual processor runs on `cpu` from now on; `None` leaves it idle. Whoever
    /// ran there waits again if it still can run.
    fn choose(&mut self, now: Instant, cpu: usize) -> Option<usize>;

    /// Handles the periodic interrupt of a processor.
    fn tick(&mut self, cpu: usize) -> CpusToDecide;

    /// Hands out processor time for the next period of accounting.
    fn account(&mut self) -> CpusToDecide;

    /// Caps the domain of a virtual processor from the next accounting on; `None`: no cap.
    fn set_cap(&mut self, vcpu: usize, cap: Option<CpuShare>);

    /// Returns the longest time that a virtual processor, chosen now, runs before the next
    /// choice.
    fn slice(&self, vcpu: usize) -> Nanos;

    /// Returns when [`Self::timer`] is to be called next; `None`: the scheduler has no timer.
    fn next_timer(&self) -> Option<Instant> {
        None
    }

    /// Handles the scheduler's own timer.
    fn timer(&mut self, _now: Instant) -> CpusToDecide {
        CpusToDecide::default()
    }
}
