// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The threads of one router, and the deadline budget of each.
//!
//! A budget is split by need ([`split`]). A thread that is pinned to a processor cannot be given
//! one. Threads of a process come and go; those of the kernel are gone for good when one is.

use std::io;
use std::time::{Duration, Instant};

use weir_control::realtime::Allotment;
use weir_units::{CpuShare, Nanos};

use super::actuator::CapError;
use super::budget::{Need, RUNTIME_LEAST, least_of_cap, least_of_guarantee, runtime, split};
use crate::cpu::{self, SchedulingClass};
use crate::error::HostError;
use crate::meter::{CpuMeter, CpuSource};
use crate::process::Identity;

/// The threads of one router.
#[derive(Debug, Default)]
pub(super) struct RouterThreads {
    members: Vec<Member>,
    looked: Option<Instant>,
    /// A class uses them.
    classed: bool,
    /// The cap that uses them; a later one takes the place of an earlier one.
    cap: Option<u64>,
}

/// The user of a router's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetUser {
    /// The router's real-time class.
    Class,
    /// A cap, by its number.
    Cap(u64),
}

/// The condition for writing budgets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Write {
    /// Write in any case.
    Always,
    /// Write if a part moved by much.
    Moved,
    /// Write if a part moved by much, or the kernel has another budget than was written.
    Different,
}

#[derive(Debug)]
struct Member {
    source: CpuSource,
    meter: CpuMeter,
    given: CpuShare,
    /// The timing of `given`.
    timing: BudgetTiming,
    /// CPU time when it was last looked at.
    used: Option<Nanos>,
    need: Need,
}

/// Deadline and period of a budget.
#[derive(Clone, Copy, Debug, Default)]
struct BudgetTiming {
    deadline: Nanos,
    period: Nanos,
}

impl RouterThreads {
    /// Replaces the threads; those that left are made ordinary.
    pub(super) fn replace(&mut self, threads: &[CpuSource]) -> Result<(), HostError> {
        let mut failed = Ok(());
        self.members.retain(|member| {
            let stays = threads.contains(&member.source);
            if !stays
                && member.given > CpuShare::ZERO
                && let Err(error) = cpu::make_ordinary(member.source.identity())
            {
                // It is tried again with the next look.
                failed = Err(error);
                return true;
            }
            stays
        });
        for source in threads {
            if self.members.iter().all(|member| member.source != *source) {
                self.members.push(Member::new(*source));
            }
        }
        failed
    }

    /// Adds a user, a class or a cap.
    pub(super) const fn used_by(&mut self, user: BudgetUser) {
        match user {
            BudgetUser::Class => self.classed = true,
            BudgetUser::Cap(number) => self.cap = Some(number),
        }
    }

    /// Removes a user. Returns false if it was not one.
    pub(super) fn left_by(&mut self, user: BudgetUser) -> bool {
        match user {
            BudgetUser::Class => std::mem::take(&mut self.classed),
            BudgetUser::Cap(number) => self.cap.take_if(|cap| *cap == number).is_some(),
        }
    }

    pub(super) const fn is_unused(&self) -> bool {
        !self.classed && self.cap.is_none()
    }

    pub(super) fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns the budget of each thread.
    pub(super) fn parts(&self) -> impl Iterator<Item = CpuShare> + '_ {
        self.members.iter().map(|member| member.given)
    }

    /// Returns the CPU time that all threads used at the last look, and the number of threads that
    /// used nearly their whole budget.
    pub(super) fn used(&self) -> (CpuShare, usize) {
        let needs = || self.members.iter().map(|member| member.need);
        let used = needs().fold(0_u32, |sum, need| sum.saturating_add(need.used.as_ppm()));
        (CpuShare::from_ppm(used), needs().filter(|need| need.is_exhausted()).count())
    }

    /// Writes the budget of an allotment. Returns the sum of its parts.
    pub(super) fn apply(
        &mut self,
        router: &str,
        allotment: &Allotment,
        write: Write,
    ) -> Result<CpuShare, CapError> {
        let timing = BudgetTiming { deadline: allotment.deadline, period: allotment.period };
        self.look(router)?;
        let parts = self.split(router, allotment)?;
        let least_move = allotment.budget().as_ppm() / MOVED_PARTS;
        let moved = self.parts().zip(&parts).any(|(old, new)| {
            old == CpuShare::ZERO || old.as_ppm().abs_diff(new.as_ppm()) > least_move
        });
        let differs = || !self.members.iter().all(|member| member.has(timing));
        if moved || write == Write::Always || (write == Write::Different && differs()) {
            self.give(router, &parts, timing)?;
        }
        Ok(CpuShare::from_ppm(self.parts().fold(0, |sum, part| sum.saturating_add(part.as_ppm()))))
    }

    /// Takes the budgets from all threads.
    pub(super) fn make_ordinary(&mut self) -> Result<(), CapError> {
        let mut first = Ok(());
        for member in &mut self.members {
            match cpu::make_ordinary(member.source.identity()) {
                Ok(()) => member.given = CpuShare::ZERO,
                Err(error) => first = first.and(Err(error)),
            }
        }
        first.map_err(CapError::from)
    }

    /// Reads the sum of all budgets from the kernel; `None` if a thread has no budget.
    pub(super) fn in_force(&self) -> Result<Option<CpuShare>, CapError> {
        let mut sum = 0_u32;
        for member in &self.members {
            let thread = member.source.identity();
            if !thread.is_alive() {
                match member.source {
                    CpuSource::Process(_) => return Err(gone(thread)),
                    CpuSource::Thread(_) => continue,
                }
            }
            match cpu::class_of_thread(thread)? {
                SchedulingClass::Deadline { runtime, period, .. } => {
                    sum = sum.saturating_add(CpuShare::of_floor(runtime, period).as_ppm());
                }
                _ => return Ok(None),
            }
        }
        Ok((sum > 0).then_some(CpuShare::from_ppm(sum)))
    }

    /// Looks at the use of each thread since the last look, and drops threads of a process that
    /// ended. Looks that follow each other at once are one, since so little time says nothing.
    fn look(&mut self, router: &str) -> Result<(), CapError> {
        let elapsed = self.looked.map(|looked| looked.elapsed());
        let known = self.members.iter().all(|member| member.used.is_some());
        if known && elapsed.is_some_and(|elapsed| elapsed < LOOK_LEAST) {
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let span = elapsed.unwrap_or_default();
        let span = Nanos::new(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX));
        let mut lost = None;
        self.members.retain_mut(|member| match (member.look(span), member.source) {
            (Ok(()), _) => true,
            (Err(_), CpuSource::Thread(_)) => false,
            (Err(error), CpuSource::Process(_)) => {
                lost = Some(error);
                true
            }
        });
        match lost {
            Some(error) => Err(error),
            None if self.members.is_empty() => {
                Err(CapError::Gone { what: format!("the threads of router {router}") })
            }
            None => Ok(()),
        }
    }

    /// Splits the budget. No part is more than one thread may have, and no part of a guarantee is
    /// less than [`RUNTIME_LEAST`].
    fn split(&self, router: &str, allotment: &Allotment) -> Result<Vec<CpuShare>, CapError> {
        let needs: Vec<Need> = self.members.iter().map(|member| member.need).collect();
        let most = MOST.max(allotment.guarantee);
        let (budget, period) = (allotment.budget(), allotment.period);
        let least = match allotment.is_guaranteed() {
            true => least_of_guarantee(budget, needs.len(), period),
            false => least_of_cap(budget, needs.len(), period),
        };
        let parts: Vec<CpuShare> =
            split(budget, least, &needs).into_iter().map(|part| part.min(most)).collect();
        let short = parts.iter().find(|part| part.time_in_floor(period) < RUNTIME_LEAST);
        match short {
            Some(part) if allotment.is_guaranteed() => Err(CapError::Refused {
                what: format!("split {budget} over {} threads", parts.len()),
                answer: format!(
                    "router {router}: {part} of {period} is less than {RUNTIME_LEAST}, the least \
                     of a thread"
                ),
            }),
            _ => Ok(parts),
        }
    }

    /// Gives each thread its part. Parts that shrink are written first, so that the sum never
    /// exceeds the larger of the old and the new sum. If the kernel refuses one, all get their
    /// earlier parts back.
    fn give(
        &mut self,
        router: &str,
        parts: &[CpuShare],
        timing: BudgetTiming,
    ) -> Result<(), CapError> {
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        // A thread without a budget gets more, whatever it gets.
        order.sort_by_key(|place| {
            let given = self.members.get(*place).map(|member| member.given);
            given <= parts.get(*place).copied()
        });
        let before: Vec<(CpuShare, BudgetTiming)> =
            self.members.iter().map(|member| (member.given, member.timing)).collect();
        for (done, place) in order.iter().enumerate() {
            let (Some(member), Some(part)) = (self.members.get_mut(*place), parts.get(*place))
            else {
                continue;
            };
            let Err(error) = member.give(*part, timing) else { continue };
            if error.raw_os_error() == Some(libc::ESRCH) && !member.is_kernels() {
                // It ended just now; the next look drops it.
                continue;
            }
            let error = refused(router, member.source.identity(), &error);
            for place in order.iter().take(done) {
                if let (Some(member), Some((given, timing))) =
                    (self.members.get_mut(*place), before.get(*place))
                {
                    // The thread had this before. If it is gone meanwhile, a later look notices.
                    member.put_back(*given, *timing);
                }
            }
            return Err(error);
        }
        Ok(())
    }
}

impl Member {
    fn new(source: CpuSource) -> Self {
        let (meter, need) = (CpuMeter::new([source]), Need::default());
        let (given, timing) = (CpuShare::ZERO, BudgetTiming::default());
        Self { source, meter, given, timing, used: None, need }
    }

    /// Returns true for a kernel thread: here, only such a thread is given as a whole process.
    const fn is_kernels(&self) -> bool {
        matches!(self.source, CpuSource::Process(_))
    }

    fn class(&self) -> Option<SchedulingClass> {
        cpu::class_of_thread(self.source.identity()).ok()
    }

    fn look(&mut self, span: Nanos) -> Result<(), CapError> {
        let used = self.meter.read()?;
        // Nothing is known of the time before the first look.
        let before = self.used.replace(used).unwrap_or(used);
        let more = Nanos::new(used.as_nanos().saturating_sub(before.as_nanos()));
        self.need = Need { used: CpuShare::of_floor(more, span), given: self.given };
        Ok(())
    }

    /// Returns true if the kernel has the budget as it was written.
    fn has(&self, timing: BudgetTiming) -> bool {
        let BudgetTiming { deadline, period } = timing;
        let written =
            SchedulingClass::Deadline { runtime: runtime(self.given, period), deadline, period };
        self.class() == Some(written)
    }

    fn give(&mut self, part: CpuShare, timing: BudgetTiming) -> io::Result<()> {
        let BudgetTiming { deadline, period } = timing;
        let class = match part {
            CpuShare::ZERO => SchedulingClass::Normal { nice: 0 },
            _ => SchedulingClass::Deadline { runtime: runtime(part, period), deadline, period },
        };
        cpu::set_class_of_thread(self.source.identity(), class)?;
        (self.given, self.timing) = (part, timing);
        Ok(())
    }

    fn put_back(&mut self, given: CpuShare, timing: BudgetTiming) {
        let _gone = match given {
            CpuShare::ZERO => cpu::make_ordinary(self.source.identity()).is_ok(),
            _ => self.give(given, timing).is_ok(),
        };
        (self.given, self.timing) = (given, timing);
    }
}

fn gone(thread: Identity) -> CapError {
    CapError::Gone { what: format!("thread {}", thread.pid) }
}

fn refused(router: &str, thread: Identity, error: &io::Error) -> CapError {
    if error.raw_os_error() == Some(libc::ESRCH) {
        return gone(thread);
    }
    let hint = match error.raw_os_error() {
        Some(libc::EBUSY) => " (the kernel's sum of deadline budgets is full: others have one)",
        Some(libc::EPERM) => {
            " (without CAP_SYS_NICE, or the thread may run on a part of the processors of its \
             partition only, or has not run since it was moved there)"
        }
        _ => "",
    };
    CapError::Refused {
        what: format!("give thread {} of router {router} a budget", thread.pid),
        answer: format!("{error}{hint}"),
    }
}

/// The largest part of one thread under a cap, in percent. The kernel grants 95, of which 5 are for
/// ordinary threads; close to the rest, its answers get slow.
pub(super) const MOST_PERCENT: u32 = 85;

const MOST: CpuShare = CpuShare::from_percent(MOST_PERCENT);

/// The least move of a part, as a fraction of the budget, for which a split is written: a tenth.
const MOVED_PARTS: u32 = 10;

/// The least time between two looks at what threads use.
const LOOK_LEAST: Duration = Duration::from_millis(10);
