// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cap as a deadline budget of each of a router's kernel threads (SCHED_DEADLINE): so much time
//! in each period, and then none. Unlike a quota of a control group it holds the kernel's own
//! threads.
//!
//! One cap is for all threads of the router, split by their need ([`super::split`]). A thread that
//! is pinned to a processor cannot be given a budget.

use std::time::Instant;

use weir_control::CapRange;
use weir_units::{CpuShare, Nanos};

use super::actuator::{Actuator, CapError};
use super::budget::{Budgets, Need, runtime, split};
use crate::cpu::{self, Class};
use crate::error::HostError;
use crate::journal::Journal;
use crate::meter::{CpuMeter, CpuSource};
use crate::process::Identity;
use crate::undo::Undo;

/// The cap of one router whose threads are the kernel's.
#[derive(Debug)]
pub struct DeadlineCap {
    router: String,
    threads: Vec<Member>,
    meter: CpuMeter,
    budgets: Budgets,
    period: Nanos,
    range: CapRange,
    cap: Option<CpuShare>,
    looked: Instant,
}

#[derive(Debug)]
struct Member {
    thread: Identity,
    given: CpuShare,
    /// CPU time when it was last looked at.
    used: Nanos,
}

impl DeadlineCap {
    /// Caps these threads, in periods of [`PERIOD`]; the journal makes them ordinary again.
    ///
    /// # Errors
    /// There is no thread, or one is gone; the journal cannot be written.
    pub fn new(
        journal: &mut Journal,
        router: &str,
        threads: &[Identity],
        budgets: Budgets,
    ) -> Result<Self, HostError> {
        if threads.is_empty() {
            return Err(HostError::Refused(format!("router {router}: no thread to cap")));
        }
        let count = u32::try_from(threads.len()).unwrap_or(u32::MAX);
        let most = CpuShare::from_percent(MOST_PERCENT.saturating_mul(count));
        let least = CpuShare::from_percent(LEAST_PERCENT);
        let range = CapRange::new(least..=most.min(budgets.bound()), GRAIN)
            .map_err(|error| HostError::Refused(format!("router {router}: {error}")))?;
        for thread in threads {
            cpu::class_of_thread(*thread)?;
            let what = format!("router {router}: thread {} without a budget", thread.pid);
            journal.record(&what, Undo::Ordinary(*thread))?;
        }
        let meter = CpuMeter::new(threads.iter().copied().map(CpuSource::Process));
        let member = |thread: &Identity| Member {
            thread: *thread,
            given: CpuShare::ZERO,
            used: Nanos::ZERO,
        };
        Ok(Self {
            router: router.to_owned(),
            threads: threads.iter().map(member).collect(),
            meter,
            budgets,
            period: PERIOD,
            range,
            cap: None,
            looked: Instant::now(),
        })
    }

    /// CPU time that its threads used.
    ///
    /// # Errors
    /// One of them is gone.
    pub fn used(&mut self) -> Result<Nanos, CapError> {
        self.meter.read()
    }

    /// Returns the budget of each thread, in the order in which they were named.
    pub fn parts(&self) -> impl Iterator<Item = CpuShare> + '_ {
        self.threads.iter().map(|member| member.given)
    }

    /// Returns the use of each thread since the last look, and looks anew.
    fn needs(&mut self) -> Result<Vec<Need>, CapError> {
        self.meter.read()?;
        let span = Nanos::new(u64::try_from(self.looked.elapsed().as_nanos()).unwrap_or(u64::MAX));
        self.looked = Instant::now();
        let members = self.threads.iter_mut().zip(self.meter.each());
        let needs = members.map(|(member, used)| {
            let more = Nanos::new(used.as_nanos().saturating_sub(member.used.as_nanos()));
            member.used = used;
            Need { used: CpuShare::of_floor(more, span), given: member.given }
        });
        Ok(needs.collect())
    }

    /// Gives each its part; those that get less come first, so that the sum is never above both of
    /// the old and the new. If the kernel refuses one, all have what they had.
    fn give(&mut self, parts: &[CpuShare]) -> Result<(), CapError> {
        let mut order: Vec<usize> = (0..self.threads.len()).collect();
        // A thread without a budget gets more, whatever it gets.
        order.sort_by_key(|place| {
            let given = self.threads.get(*place).map(|member| member.given);
            given <= parts.get(*place).copied()
        });
        let before: Vec<CpuShare> = self.parts().collect();
        for (done, place) in order.iter().enumerate() {
            let (Some(member), Some(part)) = (self.threads.get_mut(*place), parts.get(*place))
            else {
                continue;
            };
            if let Err(error) = member.apply(*part, self.period) {
                for place in order.iter().take(done) {
                    if let (Some(member), Some(old)) =
                        (self.threads.get_mut(*place), before.get(*place))
                    {
                        // It had this before; if it is gone meanwhile, the error below says so.
                        let _ = member.apply(*old, self.period);
                    }
                }
                return Err(self.refused(error));
            }
        }
        Ok(())
    }

    fn refused(&self, (thread, error): (Identity, std::io::Error)) -> CapError {
        if error.raw_os_error() == Some(libc::ESRCH) {
            return CapError::Gone { what: format!("thread {}", thread.pid) };
        }
        let hint = match error.raw_os_error() {
            Some(libc::EBUSY) => " (the kernel's sum of deadline budgets is full: others have one)",
            Some(libc::EPERM) => " (without CAP_SYS_NICE, or the thread is pinned)",
            _ => "",
        };
        CapError::Refused {
            what: format!("give thread {} of router {} a budget", thread.pid, self.router),
            answer: format!("{error}{hint}"),
        }
    }
}

impl Member {
    fn apply(&mut self, part: CpuShare, period: Nanos) -> Result<(), (Identity, std::io::Error)> {
        let class = match part {
            CpuShare::ZERO => Class::Normal { nice: 0 },
            _ => Class::Deadline { runtime: runtime(part, period), deadline: period, period },
        };
        cpu::set_class_of_thread(self.thread, class).map_err(|error| (self.thread, error))?;
        self.given = part;
        Ok(())
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
        self.period
    }

    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
        let mut sum = 0_u32;
        for member in &self.threads {
            if !member.thread.is_alive() {
                return Err(CapError::Gone { what: format!("thread {}", member.thread.pid) });
            }
            match cpu::class_of_thread(member.thread)? {
                Class::Deadline { runtime, period, .. } => {
                    sum = sum.saturating_add(CpuShare::of_floor(runtime, period).as_ppm());
                }
                // One thread without a budget: the router has no cap.
                _ => return Ok(None),
            }
        }
        Ok(Some(CpuShare::from_ppm(sum)))
    }

    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
        let before = self.cap;
        let asked = self.range.clamp(cap);
        let given = self.budgets.ask(&self.router, asked, self.range.least())?;
        let result = self.needs().and_then(|needs| {
            let parts = parts(given, &needs);
            let cut = parts.contains(&MOST);
            self.give(&parts).map(|()| if cut { sum(&parts) } else { given })
        });
        match result {
            Ok(held) => {
                self.cap = Some(given);
                Ok(held)
            }
            Err(error) => {
                self.budgets.put_back(&self.router, before.unwrap_or(CpuShare::ZERO));
                Err(error)
            }
        }
    }

    /// Splits the same cap anew where the threads' needs have changed by much.
    fn refresh(&mut self) -> Result<(), CapError> {
        let Some(cap) = self.cap else { return Ok(()) };
        let needs = self.needs()?;
        let parts = parts(cap, &needs);
        let moved = self
            .parts()
            .zip(&parts)
            .any(|(old, new)| old.as_ppm().abs_diff(new.as_ppm()) > cap.as_ppm() / MOVED_PARTS);
        if moved { self.give(&parts) } else { Ok(()) }
    }

    fn release(&mut self) -> Result<(), CapError> {
        for member in &mut self.threads {
            cpu::make_ordinary(member.thread)?;
            member.given = CpuShare::ZERO;
        }
        self.cap = None;
        self.budgets.put_back(&self.router, CpuShare::ZERO);
        Ok(())
    }
}

/// Splits a cap over the threads: never more than one thread may have.
fn parts(cap: CpuShare, needs: &[Need]) -> Vec<CpuShare> {
    split(cap, needs).into_iter().map(|part| part.min(MOST)).collect()
}

fn sum(parts: &[CpuShare]) -> CpuShare {
    CpuShare::from_ppm(parts.iter().fold(0, |sum, part| sum.saturating_add(part.as_ppm())))
}

/// A router that goes leaves its budget to the others; its threads are the journal's to undo.
impl Drop for DeadlineCap {
    fn drop(&mut self) {
        self.budgets.put_back(&self.router, CpuShare::ZERO);
    }
}

/// The period of a budget. Rates vary least with 1 and 2 ms of 1, 2, 5 and 10 at small caps; and a
/// veth's ring of 256 packets overflows where offered × (1 − cap) × period is above.
pub const PERIOD: Nanos = Nanos::from_millis(2);

/// Below, a thread's runtime is 20 µs of 2 ms, less than a full batch of 64 packets takes.
const LEAST_PERCENT: u32 = 1;

/// The most of one thread: above, the kernel's answers get slow (95 granted, 5 of them for ordinary
/// threads).
const MOST_PERCENT: u32 = 85;

const MOST: CpuShare = CpuShare::from_percent(MOST_PERCENT);

/// A tenth of a percent: 2 µs.
const GRAIN: CpuShare = CpuShare::from_ppm(1000);

/// A split moves when a part is off by a tenth of the cap.
const MOVED_PARTS: u32 = 10;
