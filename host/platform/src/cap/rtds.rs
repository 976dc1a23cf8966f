// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The real-time class of a Xen guest, under the scheduler RTDS, by `xl` in the driver domain.
//!
//! RTDS serves each virtual processor with a budget in each period, by earliest deadline first. It
//! has no deadline of its own: the period is the deadline. A class whose deadline is shorter than
//! its period therefore gets the work of one activation in each *deadline*. The resulting share is
//! its density, which admission counts. With `-e 1` a guest may also use time that no other budget
//! needs; the guests that may do so share it in proportion to their budgets.
//!
//! Source: xl(1), section *sched-rtds*; Xi and others, *Real-Time Multi-Core Virtual Machine
//! Scheduling in Xen* (2014).

use std::sync::Arc;
use std::time::Duration;

use weir_control::realtime::TimingDemand;
use weir_units::{CpuShare, Nanos};

use super::xl::check_name;
use super::xl_text::{self, DomainBudget, XenScheduler};
use crate::error::HostError;
use crate::journal::Journal;
use crate::run::{Command, Platform};
use crate::undo::Undo;

/// The class of one guest.
pub struct RtdsClass {
    on: Arc<dyn Platform + Send + Sync>,
    domain: String,
    set: Option<RtdsBudget>,
}

/// The budget of each virtual processor, in microseconds as `xl` takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtdsBudget {
    /// The period.
    pub period_us: u64,
    /// The budget in each period.
    pub budget_us: u64,
    /// True if it may use spare time, too.
    pub extra: bool,
}

impl RtdsBudget {
    /// Returns the budget of a demand: its work, rounded up, in each deadline.
    #[must_use]
    pub fn of(demand: TimingDemand, extra: bool) -> Self {
        let work = demand.share.time_in_floor(demand.period);
        let period = demand.deadline.min(demand.period);
        let (period_us, budget_us) = (period.as_nanos() / 1000, work.as_nanos().div_ceil(1000));
        Self { period_us, budget_us: budget_us.min(period_us), extra }
    }

    /// Returns the budget of a guest without a guarantee, which may use spare time, too: `share` of
    /// each period that RTDS gives by itself, and no less than it takes.
    #[must_use]
    pub fn of_weight(share: CpuShare) -> Self {
        let budget_us = share.time_in_floor(PERIOD).as_nanos() / 1000;
        let period_us = PERIOD.as_nanos() / 1000;
        Self { period_us, budget_us: budget_us.clamp(BUDGET_US_MIN, period_us), extra: true }
    }

    /// Returns it as a share of a processor.
    #[must_use]
    pub fn share(self) -> CpuShare {
        CpuShare::of_floor(Nanos::new(self.budget_us), Nanos::new(self.period_us))
    }
}

impl RtdsClass {
    /// Takes the guest of that name, and records its present budget in the journal. The guest is
    /// known by name, since a restart gives it another number.
    ///
    /// # Errors
    /// There is no such guest; its name is none; it has several virtual processors, whose budgets a
    /// class cannot be divided into; Xen runs another scheduler; `xl` failed, or printed something
    /// else; the journal cannot be written.
    pub fn new(
        on: Arc<dyn Platform + Send + Sync>,
        journal: &mut Journal,
        domain: &str,
    ) -> Result<Self, HostError> {
        check_name(domain)?;
        let refused = |what: String| HostError::Refused(format!("guest {domain}: {what}"));
        let info = on.run(&Command::line("xl info").limit(LIMIT))?;
        match xl_text::scheduler(&info) {
            Some(XenScheduler::Rtds) => {}
            Some(other) => {
                let what = format!("Xen's scheduler is {other}, real-time classes need rtds");
                return Err(refused(what));
            }
            None => return Err(refused("`xl info` names no scheduler".to_owned())),
        }
        let class = Self { on, domain: domain.to_owned(), set: None };
        let rows = class.read()?;
        let [before] = rows.as_slice() else {
            let count = rows.len();
            let what = format!("{count} virtual processors, a class is for a guest with one");
            return Err(refused(what));
        };
        let micros = |time: Nanos| time.as_nanos() / 1000;
        let before = RtdsBudget {
            period_us: micros(before.period),
            budget_us: micros(before.budget),
            extra: before.extra,
        };
        let undo = Undo::run(class.command(before).limit(UNDO_LIMIT));
        journal.record(&format!("guest {domain}: the budget it had"), undo)?;
        Ok(class)
    }

    /// Gives the guest its budget, unless that is the budget which was given last.
    ///
    /// # Errors
    /// `xl` failed, as where the guest is gone.
    pub fn set(&mut self, budget: RtdsBudget) -> Result<(), HostError> {
        if self.set == Some(budget) {
            return Ok(());
        }
        self.set = None;
        self.on.run(&self.command(budget))?;
        self.set = Some(budget);
        Ok(())
    }

    /// Forgets the budget that was given last, so that it is given again.
    pub fn forget(&mut self) {
        self.set = None;
    }

    /// Returns the budget that was given last, unless that failed.
    #[must_use]
    pub const fn last_set(&self) -> Option<RtdsBudget> {
        self.set
    }

    /// Returns the budget of the guest as Xen reports it.
    ///
    /// # Errors
    /// `xl` failed, or printed something else.
    pub fn in_force(&self) -> Result<CpuShare, HostError> {
        let rows = self.read()?;
        let share = |row: &DomainBudget| row.demand().share.as_ppm();
        Ok(CpuShare::from_ppm(rows.iter().map(share).fold(0, u32::saturating_add)))
    }

    fn read(&self) -> Result<Vec<DomainBudget>, HostError> {
        let command = Command::new("xl", ["sched-rtds", "-d", &self.domain, "-v", "all"]);
        let text = self.on.run(&command.limit(LIMIT))?;
        let rows = xl_text::budgets(&text);
        let rows = rows.map_err(|error| HostError::Refused(error.to_string()))?;
        Ok(rows.into_iter().filter(|row| row.name == self.domain).collect())
    }

    /// Returns `xl sched-rtds -d fc1 -v all -p 10000 -b 2500 -e 0`: `xl` requires all parameters
    /// together.
    fn command(&self, budget: RtdsBudget) -> Command {
        let RtdsBudget { period_us, budget_us, extra } = budget;
        let [period, budget] = [period_us, budget_us].map(|us| us.to_string());
        let extra = if extra { "1" } else { "0" };
        let words = ["sched-rtds", "-d", &self.domain, "-v", "all", "-p", &period, "-b", &budget];
        Command::new("xl", words.into_iter().chain(["-e", extra])).limit(LIMIT)
    }
}

impl std::fmt::Debug for RtdsClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RtdsClass").field("domain", &self.domain).finish_non_exhaustive()
    }
}

/// Xen's processors, and the budgets on them that are not the policy's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XenRoom {
    /// The number of processors, which are not those of the driver domain.
    pub processors: u32,
    /// The budget of each virtual processor of domain 0, and of a guest that the policy does not
    /// name.
    pub others: Vec<TimingDemand>,
}

impl XenRoom {
    /// Reads processors and budgets; `named` are the guests whose budget is the policy's. RTDS
    /// serves all budgets by earliest deadline first, so that one that nobody set (4 ms of 10 ms)
    /// counts as much as one of a class. `None` without Xen, and under another scheduler, which
    /// [`RtdsClass::new`] names.
    ///
    /// # Errors
    /// `xl` does not list the budgets.
    pub fn read(on: &dyn Platform, named: &[&str]) -> Result<Option<Self>, HostError> {
        let Ok(info) = on.run(&Command::line("xl info").limit(LIMIT)) else { return Ok(None) };
        if xl_text::scheduler(&info) != Some(XenScheduler::Rtds) {
            return Ok(None);
        }
        let processors = xl_text::info(&info, "nr_cpus").and_then(|count| count.parse().ok());
        let Some(processors) = processors else { return Ok(None) };
        let text = on.run(&Command::line("xl sched-rtds -v all").limit(LIMIT))?;
        let rows = xl_text::budgets(&text);
        let rows = rows.map_err(|error| HostError::Refused(error.to_string()))?;
        let others = rows.iter().filter(|row| !named.contains(&row.name.as_str()));
        Ok(Some(Self { processors, others: others.map(DomainBudget::demand).collect() }))
    }
}

impl DomainBudget {
    fn demand(&self) -> TimingDemand {
        let Self { period, budget, .. } = *self;
        let share = CpuShare::of_floor(budget, period);
        TimingDemand { share, deadline: period, period, core: None }
    }
}

/// The period that RTDS gives a virtual processor when it starts.
const PERIOD: Nanos = Nanos::from_millis(10);
/// The least budget that RTDS takes.
const BUDGET_US_MIN: u64 = 10;

/// The time that a call may take: it waits for nothing but the hypervisor and its store.
const LIMIT: Duration = Duration::from_secs(2);

/// The time that a call may take to restore the old budget: see `UNDO_LIMIT` of `xl.rs`.
const UNDO_LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_deadline_makes_the_budget_dense() {
        let demand = |percent, deadline, period| TimingDemand {
            share: CpuShare::from_percent(percent),
            deadline: Nanos::from_millis(deadline),
            period: Nanos::from_millis(period),
            core: None,
        };
        let even = RtdsBudget::of(demand(25, 10, 10), false);
        assert_eq!(even, RtdsBudget { period_us: 10_000, budget_us: 2_500, extra: false });
        let dense = RtdsBudget::of(demand(20, 5, 10), true);
        assert_eq!(dense, RtdsBudget { period_us: 5_000, budget_us: 2_000, extra: true });
        assert_eq!(dense.share(), demand(20, 5, 10).density());
    }

    #[test]
    fn a_weight_is_a_budget_with_spare_time() {
        let budget = |budget_us| RtdsBudget { period_us: 10_000, budget_us, extra: true };
        assert_eq!(RtdsBudget::of_weight(CpuShare::from_percent(12)), budget(1_200));
        assert_eq!(RtdsBudget::of_weight(CpuShare::ZERO), budget(10));
        assert_eq!(RtdsBudget::of_weight(CpuShare::from_percent(300)), budget(10_000));
    }
}
