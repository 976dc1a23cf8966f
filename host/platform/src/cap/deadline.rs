// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cap as a deadline budget of each of a router's threads (SCHED_DEADLINE): a runtime in each
//! period, after which the thread waits for the next one. Unlike a quota of a control group it
//! holds the kernel's own threads; and it is the only cap of threads with a real-time class, which
//! quotas do not hold.
//!
//! The cap is a request: [`Budgets`] writes the budgets that follow from it and from the router's
//! guarantee.

use weir_control::CapRange;
use weir_units::{CpuShare, Nanos};

use super::actuator::{Actuator, CapError};
use super::budgets::{Budgets, PERIOD};
use super::threads::BudgetUser;
use super::threads::MOST_PERCENT;
use crate::cpu;
use crate::error::HostError;
use crate::journal::Journal;
use crate::meter::{CpuMeter, CpuSource};
use crate::process::{self, Identity};
use crate::undo::Undo;

/// The cap of one router by budgets of its threads.
#[derive(Debug)]
pub struct DeadlineCap {
    router: String,
    meter: CpuMeter,
    budgets: Budgets,
    range: CapRange,
    user: BudgetUser,
}

impl DeadlineCap {
    /// Caps these threads of the kernel, in periods of [`PERIOD`]; the journal makes them ordinary
    /// again.
    ///
    /// # Errors
    /// There is no thread, or one is gone; the journal cannot be written.
    pub fn new(
        journal: &mut Journal,
        router: &str,
        threads: &[Identity],
        budgets: Budgets,
    ) -> Result<Self, HostError> {
        let threads: Vec<CpuSource> = threads.iter().copied().map(CpuSource::Process).collect();
        let count = u32::try_from(threads.len()).unwrap_or(u32::MAX);
        let most = CpuShare::from_percent(MOST_PERCENT.saturating_mul(count));
        for thread in &threads {
            let thread = thread.identity();
            cpu::class_of_thread(thread)?;
            let what = format!("router {router}: thread {} without a budget", thread.pid);
            journal.record(&what, Undo::Ordinary(thread))?;
        }
        let meter = CpuMeter::new(threads.iter().copied());
        Self::enter(router, &threads, meter, most, budgets)
    }

    /// Caps all threads that a process has now; [`Budgets::enter`] takes later ones.
    ///
    /// # Errors
    /// The process is gone; the journal cannot be written.
    pub fn of_process(
        journal: &mut Journal,
        router: &str,
        process: Identity,
        budgets: Budgets,
    ) -> Result<Self, HostError> {
        let threads: Vec<CpuSource> =
            process::threads_of(process).into_iter().map(CpuSource::Thread).collect();
        let what = format!("router {router}: process {} without budgets", process.pid);
        journal.record(&what, Undo::OrdinaryProcess(process))?;
        let meter = CpuMeter::new([CpuSource::Process(process)]);
        let most = budgets.bound();
        Self::enter(router, &threads, meter, most, budgets)
    }

    fn enter(
        router: &str,
        threads: &[CpuSource],
        meter: CpuMeter,
        most: CpuShare,
        budgets: Budgets,
    ) -> Result<Self, HostError> {
        if threads.is_empty() {
            return Err(HostError::Refused(format!("router {router}: no thread to cap")));
        }
        let least = CpuShare::from_percent(LEAST_PERCENT);
        let range = CapRange::new(least..=most.min(budgets.bound()), GRAIN)
            .map_err(|error| HostError::Refused(format!("router {router}: {error}")))?;
        let user = budgets.new_cap();
        budgets.enter(router, threads, user)?;
        Ok(Self { router: router.to_owned(), meter, budgets, range, user })
    }

    /// Returns the CPU time that its threads used.
    ///
    /// # Errors
    /// One of them is gone.
    pub fn used(&mut self) -> Result<Nanos, CapError> {
        self.meter.read()
    }

    /// Returns the budget of each thread, in the order in which they were named.
    pub fn parts(&self) -> impl Iterator<Item = CpuShare> + '_ {
        self.budgets.parts(&self.router).into_iter()
    }
}

impl Actuator for DeadlineCap {
    fn name(&self) -> &'static str {
        "deadline budget"
    }

    fn range(&self) -> CapRange {
        self.range
    }

    fn period(&self) -> Nanos {
        PERIOD
    }

    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
        self.budgets.cap_in_force(&self.router)
    }

    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
        self.budgets.cap(&self.router, self.range.clamp(cap), self.range.least())
    }

    /// Splits the same cap anew if the needs of the threads have changed much.
    fn refresh(&mut self) -> Result<(), CapError> {
        self.budgets.refresh(&self.router)
    }

    fn release(&mut self) -> Result<(), CapError> {
        self.budgets.lift_cap(&self.router)
    }
}

/// Forgets the cap, which leaves its budget to other routers. The undo journal makes the threads
/// ordinary.
impl Drop for DeadlineCap {
    fn drop(&mut self) {
        self.budgets.forget_cap(&self.router, self.user);
    }
}

/// The least cap: 20 µs of 2 ms. Below that, a thread's runtime is less than a full batch of 64
/// packets takes.
const LEAST_PERCENT: u32 = 1;

/// The step of caps, a tenth of a percent: 2 µs of a period.
const GRAIN: CpuShare = CpuShare::from_ppm(1000);
