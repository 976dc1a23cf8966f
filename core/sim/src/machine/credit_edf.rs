// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two queues a processor: earliest deadline first in front of the credit scheduler.
//!
//! **Problem.** Under the credit scheduler a domain with enough processor time may get it too late:
//! one that sends by its own timer waits for the 30 ms turns of its neighbours.
//!
//! **Idea** (the Jitter text, *Solution for VMM CPU scheduler*). Real-time domains are in an EDF
//! queue as well, which is served first. A *periodic* domain is in it whenever it can run, an
//! *aperiodic* one from an external event until it blocks. Everybody pays with credit, so that
//! shares stay. The text names no budget, so neither does this: a periodic domain that never
//! blocks starves its neighbours (`weir_sim::run_edf` shows servers with budgets).

use weir_units::{CpuShare, Instant, Nanos};

use super::credit::CreditScheduler;
use super::scheduler::{CpuScheduler, CpusToDecide, WakeCause};

/// The real-time class of a domain.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RealTimeClass {
    /// Credit alone.
    #[default]
    Normal,
    /// In the EDF queue whenever it can run.
    Periodic {
        /// The time from a wake-up to its deadline.
        deadline: Nanos,
    },
    /// In the EDF queue from an external event until it blocks.
    Aperiodic {
        /// The time from the event to the deadline.
        deadline: Nanos,
    },
}

/// The credit scheduler with an EDF queue in front of it.
#[derive(Clone, Debug)]
pub struct CreditEdfScheduler {
    credit: CreditScheduler,
    /// Class and deadline, by virtual processor; `None` outside the EDF queue.
    real_time: Vec<(RealTimeClass, Option<Instant>)>,
}

impl CreditEdfScheduler {
    /// Puts an EDF queue in front of `credit`. Virtual processors
    /// beyond `classes` are normal.
    #[must_use]
    pub fn new(credit: CreditScheduler, classes: &[RealTimeClass]) -> Self {
        Self { credit, real_time: classes.iter().map(|class| (*class, None)).collect() }
    }

    fn deadline(&self, vcpu: usize) -> Option<Instant> {
        self.real_time.get(vcpu)?.1
    }

    /// Returns the virtual processor with the earliest deadline of those that can run on `cpu`; of
    /// equal ones the first.
    fn most_urgent(&self, cpu: usize) -> Option<usize> {
        let ready = (0..self.real_time.len())
            .filter(|vcpu| self.credit.is_ready(*vcpu) && self.credit.cpu_of(*vcpu) == cpu);
        let due = ready.filter_map(|vcpu| Some((self.deadline(vcpu)?, vcpu)));
        due.min().map(|(_, vcpu)| vcpu)
    }
}

impl CpuScheduler for CreditEdfScheduler {
    fn wake(&mut self, now: Instant, vcpu: usize, reason: WakeCause) -> CpusToDecide {
        let due = self.real_time.get_mut(vcpu).and_then(|(class, due)| {
            *due = match (*class, reason) {
                (RealTimeClass::Periodic { deadline }, _)
                | (RealTimeClass::Aperiodic { deadline }, WakeCause::Event) => Some(now + deadline),
                (RealTimeClass::Normal | RealTimeClass::Aperiodic { .. }, _) => None,
            };
            *due
        });
        let mut decide = self.credit.wake(now, vcpu, reason);
        if let Some(due) = due {
            let cpu = self.credit.cpu_of(vcpu);
            let running = self.credit.running(cpu);
            let before = running.and_then(|running| self.deadline(running));
            if before.is_none_or(|before| due < before) {
                decide.add(cpu);
                if let Some(running) = running {
                    self.credit.add_idle(running, &mut decide);
                }
            }
        }
        decide
    }

    fn block(&mut self, vcpu: usize) {
        if let Some((_, due)) = self.real_time.get_mut(vcpu) {
            *due = None;
        }
        self.credit.block(vcpu);
    }

    fn charge(&mut self, vcpu: usize, ran: Nanos) {
        self.credit.charge(vcpu, ran);
    }

    fn choose(&mut self, now: Instant, cpu: usize) -> Option<usize> {
        match self.most_urgent(cpu) {
            Some(vcpu) => {
                self.credit.preempt(cpu);
                self.credit.start(cpu, vcpu);
                Some(vcpu)
            }
            None => self.credit.choose(now, cpu),
        }
    }

    fn tick(&mut self, cpu: usize) -> CpusToDecide {
        self.credit.tick(cpu)
    }

    fn account(&mut self) -> CpusToDecide {
        self.credit.account()
    }

    fn set_cap(&mut self, vcpu: usize, cap: Option<CpuShare>) {
        self.credit.set_cap(vcpu, cap);
    }

    fn slice(&self, vcpu: usize) -> Nanos {
        self.credit.slice(vcpu)
    }
}
