// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Writes the deadline budgets (SCHED_DEADLINE) of a node's threads. No other module does.
//!
//! Two parts of a node set a router's budget: its real-time class guarantees time, and the XTC
//! control loop caps time. Both enter their demand into the router's [`Allotment`]. The resulting
//! budget is the cap, but never less than the guarantee; this module splits it over the router's
//! threads and writes it. Whenever a sum grows, budgets that shrink are written first.
//!
//! The kernel grants deadline threads a share of every processor (`sched_rt_runtime_us`, 95 %
//! unless somebody set it). Since Linux 6.8 it keeps 5 points of that for ordinary threads. It
//! refuses a budget that exceeds the sum, whoever asks last. Weir therefore knows the share that
//! this host grants, and adds up itself: a cap that asks for more gets what is left, so the kernel
//! never refuses one. Guarantees are admitted or refused.
//!
//! Source: Linux, Documentation/scheduler/sched-deadline.rst, section 4.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_control::realtime::{
    AdmissionRefusal, Allotment, AllotmentLedger, CeilingRefusal, ProcessorPool, TimingDemand,
};
use weir_units::{CpuShare, Nanos};

use super::actuator::CapError;
use super::budget::least_of_threads;
use super::threads::{BudgetUser, RouterThreads, Write};
use crate::error::HostError;
use crate::meter::CpuSource;

/// The deadline budgets of a node's routers and their threads; shared by all that set them.
#[derive(Clone, Debug)]
pub struct Budgets(Arc<Mutex<BudgetTable>>);

#[derive(Debug)]
struct BudgetTable {
    ledger: AllotmentLedger,
    /// By the name of the router.
    threads: BTreeMap<String, RouterThreads>,
    /// The number of the last cap that was made.
    caps: u64,
}

/// The budget of one router now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetUse {
    /// The sum over its threads.
    pub budget: CpuShare,
    /// Its threads.
    pub threads: usize,
    /// The time that they used when last measured, as a share of a processor.
    pub used: CpuShare,
    /// Threads that used nearly their whole budget.
    pub exhausted: usize,
}

/// The reason why a guarantee is not in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuaranteeError {
    /// It does not fit beside those of others.
    NotAdmitted(AdmissionRefusal),
    /// A thread could not be given its budget.
    NotGiven(CapError),
}

impl Budgets {
    /// Makes the budgets of a node on these processors. `beside` is the sum of other budgets there:
    /// the worker's own reservation, if it is a deadline.
    #[must_use]
    pub fn of(pool: ProcessorPool, beside: CpuShare) -> Self {
        let worker = TimingDemand { share: beside, ..timing(WORKER_PERIOD) };
        let ledger = AllotmentLedger::new(pool, (beside > CpuShare::ZERO).then_some(worker));
        Self(Arc::new(Mutex::new(BudgetTable { ledger, threads: BTreeMap::new(), caps: 0 })))
    }

    /// Returns the most that all routers may have together on the shared processors.
    #[must_use]
    pub fn bound(&self) -> CpuShare {
        self.table().ledger.bound()
    }

    /// Returns the sum of what all routers have.
    #[must_use]
    pub fn granted(&self) -> CpuShare {
        self.table().ledger.granted()
    }

    /// Returns the guarantee and the cap of a router; `None` if it has neither.
    #[must_use]
    pub fn allotment(&self, router: &str) -> Option<Allotment> {
        self.table().ledger.of(router)
    }

    /// Checks that these guarantees hold together, whatever is in force now.
    ///
    /// # Errors
    /// The first router that does not fit, with the sum and the bound.
    pub fn check<'a>(
        &self,
        guarantees: impl IntoIterator<Item = (&'a str, TimingDemand)>,
    ) -> Result<(), AdmissionRefusal> {
        self.table().ledger.check(guarantees)
    }

    /// Returns a number for a new cap.
    pub(super) fn new_cap(&self) -> BudgetUser {
        let mut table = self.table();
        table.caps += 1;
        BudgetUser::Cap(table.caps)
    }

    /// Enters these threads as the router's from now on, for one user. New threads get their part
    /// with the next budget; threads that are no longer in the list are made ordinary. The caller
    /// has recorded the undo in a journal.
    ///
    /// # Errors
    /// There are more than [`THREADS_MAX`]; or a thread that left could not be made ordinary.
    pub fn enter(
        &self,
        router: &str,
        threads: &[CpuSource],
        user: BudgetUser,
    ) -> Result<(), HostError> {
        if threads.len() > THREADS_MAX {
            let count = threads.len();
            return Err(HostError::Refused(format!(
                "router {router}: {count} threads, at most {THREADS_MAX} can have a budget"
            )));
        }
        let mut table = self.table();
        let entry = table.threads.entry(router.to_owned()).or_default();
        entry.used_by(user);
        entry.replace(threads)
    }

    /// Guarantees a router its time and gives its threads their budgets. Caps of other routers are
    /// cut first if they stand in the way. A repeated call for the same guarantee gives new threads
    /// their part, and moves parts to threads that need them.
    ///
    /// # Errors
    /// The guarantee does not fit, or the kernel refused it. Then the earlier budgets stay in
    /// force.
    pub fn guarantee(&self, router: &str, demand: TimingDemand) -> Result<(), GuaranteeError> {
        let mut table = self.table();
        let before = table.ledger.clone();
        let same = before.of(router).is_some_and(|one| is_that(&one, demand));
        if !same {
            table.ledger.guarantee(router, demand).map_err(GuaranteeError::NotAdmitted)?;
            table.apply_others(router);
        }
        let write = if same { Write::Different } else { Write::Always };
        let Err(error) = table.apply(router, write) else { return Ok(()) };
        if !same {
            table.ledger = before;
            // The earlier budgets still fit; only the first error is reported.
            let _told_above = table.apply(router, Write::Always);
            table.apply_others(router);
        }
        Err(GuaranteeError::NotGiven(error))
    }

    /// Takes a router's guarantee away. Its threads keep the budget of a cap, if it has one, and
    /// are ordinary otherwise.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn end_guarantee(&self, router: &str) -> Result<(), CapError> {
        let mut table = self.table();
        table.ledger.end_guarantee(router, timing(PERIOD));
        let ended = table.apply(router, Write::Always);
        table.leave(router, BudgetUser::Class);
        ended.map(drop)
    }

    /// Caps a router at `asked`, in place of its earlier cap. The cap is less if no more is left,
    /// but never less than its guarantee or the kernel's minimum for each thread. Returns the sum
    /// that its threads got.
    ///
    /// # Errors
    /// The router has no guarantee and less than `least` is left, or the kernel refused. Then the
    /// router keeps its earlier budget.
    pub fn cap(
        &self,
        router: &str,
        asked: CpuShare,
        least: CpuShare,
    ) -> Result<CpuShare, CapError> {
        let mut table = self.table();
        let before = table.ledger.of(router).and_then(|one| one.ceiling);
        // The kernel takes no less than the floor, and the sums must count what threads really get.
        let floor = table.threads.get(router).map_or(CpuShare::ZERO, floor);
        let (asked, least) = (asked.max(floor), least.max(floor));
        let given = table
            .ledger
            .cap(router, asked, least, timing(PERIOD))
            .map_err(|refused| no_room(router, asked, refused))?;
        match table.apply(router, Write::Always) {
            // Parts are rounded down, by less than a millionth each.
            Ok(held) if held.as_ppm() + ROUNDED_PPM < given.as_ppm() => Ok(held),
            Ok(_) => Ok(given),
            Err(error) => {
                table.ledger.set_ceiling(router, before, timing(PERIOD));
                Err(error)
            }
        }
    }

    /// Splits a router's budget anew if the needs of its threads have changed much.
    ///
    /// # Errors
    /// A thread is gone, or the kernel refused.
    pub fn refresh(&self, router: &str) -> Result<(), CapError> {
        self.table().apply(router, Write::Moved).map(drop)
    }

    /// Writes a router's budget again, for example after somebody else changed its threads.
    ///
    /// # Errors
    /// A thread is gone, or the kernel refused.
    pub fn reassert(&self, router: &str) -> Result<(), CapError> {
        self.table().apply(router, Write::Always).map(drop)
    }

    /// Lifts a router's cap. Its threads keep the budget of a guarantee, if it has one, and are
    /// ordinary otherwise.
    ///
    /// # Errors
    /// The kernel refused.
    pub fn lift_cap(&self, router: &str) -> Result<(), CapError> {
        let mut table = self.table();
        table.ledger.set_ceiling(router, None, timing(PERIOD));
        table.apply(router, Write::Always).map(drop)
    }

    /// Forgets a cap, unless a later one of the same router has taken its place. The journal makes
    /// the threads ordinary, unless a guarantee stays.
    pub(super) fn forget_cap(&self, router: &str, cap: BudgetUser) {
        let mut table = self.table();
        if table.leave(router, cap) {
            table.ledger.set_ceiling(router, None, timing(PERIOD));
        }
    }

    /// Returns the cap in force as the kernel reports it: the sum over a router's threads; `None`
    /// if one of them has no budget, or if only a guarantee is in force.
    ///
    /// # Errors
    /// A thread is gone.
    pub(super) fn cap_in_force(&self, router: &str) -> Result<Option<CpuShare>, CapError> {
        let table = self.table();
        let only_guaranteed =
            table.ledger.of(router).is_some_and(|one| one.is_guaranteed() && one.ceiling.is_none());
        let threads = table.threads.get(router);
        let read = threads.map_or(Ok(None), RouterThreads::in_force)?;
        Ok(read.filter(|_| !only_guaranteed))
    }

    /// Returns the budget of each of a router's threads.
    #[must_use]
    pub fn parts(&self, router: &str) -> Vec<CpuShare> {
        self.table()
            .threads
            .get(router)
            .map(|threads| threads.parts().collect())
            .unwrap_or_default()
    }

    /// Returns the budget of a router and its use of it; `None`: it has no thread here.
    #[must_use]
    pub fn in_use(&self, router: &str) -> Option<BudgetUse> {
        self.table().threads.get(router).map(|threads| {
            let (used, exhausted) = threads.used();
            BudgetUse { budget: sum(threads.parts()), threads: threads.len(), used, exhausted }
        })
    }

    /// Returns the budget that a router's threads have now, as the kernel reports it; `None` if the
    /// threads are gone or one has no budget.
    #[must_use]
    pub fn held(&self, router: &str) -> Option<BudgetUse> {
        let budget = self.table().threads.get(router)?.in_force().ok()??;
        self.in_use(router).map(|used| BudgetUse { budget, ..used })
    }

    /// Locks the table, also after a thread panicked while it held the lock: the next pass writes
    /// all budgets again.
    fn table(&self) -> MutexGuard<'_, BudgetTable> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BudgetTable {
    /// Writes the budget of a router. Returns the sum of its parts.
    fn apply(&mut self, router: &str, write: Write) -> Result<CpuShare, CapError> {
        if let Some(threads) = self.threads.get(router) {
            let floor = floor(threads);
            // If threads were added, the minimum of the cap has risen.
            let raised = self.ledger.set_floor(router, floor);
            raised.map_err(|refused| no_room(router, floor, refused))?;
        }
        let allotment = self.ledger.of(router);
        let Some(threads) = self.threads.get_mut(router) else {
            return Ok(allotment.map_or(CpuShare::ZERO, |one| one.budget()));
        };
        match allotment {
            None => threads.make_ordinary().map(|()| CpuShare::ZERO),
            Some(allotment) => threads.apply(router, &allotment, write),
        }
    }

    /// Writes the budgets of all other routers that have more or less than their allotment, those
    /// that shrink first. A failed write is retried with the next refresh of that router.
    fn apply_others(&mut self, router: &str) {
        let mut others: Vec<(bool, String)> = Vec::new();
        for (name, threads) in self.threads.iter().filter(|(name, _)| name.as_str() != router) {
            let budget = self.ledger.of(name).map_or(CpuShare::ZERO, |one| one.budget());
            let written = sum(threads.parts());
            if written.as_ppm().abs_diff(budget.as_ppm()) > ROUNDED_PPM {
                others.push((written < budget, name.clone()));
            }
        }
        others.sort();
        for (_, name) in others {
            let _tried_again = self.apply(&name, Write::Always);
        }
    }

    /// Removes a user of a router's threads; the threads are forgotten with their last user.
    /// Returns false if `user` was not one of them.
    fn leave(&mut self, router: &str, user: BudgetUser) -> bool {
        let Some(threads) = self.threads.get_mut(router) else { return false };
        let left = threads.left_by(user);
        if threads.is_unused() {
            self.threads.remove(router);
        }
        left
    }
}

impl fmt::Display for GuaranteeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAdmitted(refusal) => refusal.fmt(f),
            Self::NotGiven(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GuaranteeError {}

fn no_room(router: &str, asked: CpuShare, refused: CeilingRefusal) -> CapError {
    let what = format!("router {router}");
    CapError::NoRoom { what, asked, others: refused.others, bound: refused.bound }
}

/// Returns the least that threads can have together by a cap.
fn floor(threads: &RouterThreads) -> CpuShare {
    match threads.len() {
        0 => CpuShare::ZERO,
        count => least_of_threads(count, PERIOD),
    }
}

fn is_that(allotment: &Allotment, demand: TimingDemand) -> bool {
    let TimingDemand { share, deadline, period, core } = demand;
    let Allotment { guarantee, deadline: has, period: every, core: on, .. } = *allotment;
    (share, deadline, period, core) == (guarantee, has, every, on)
}

fn sum(parts: impl Iterator<Item = CpuShare>) -> CpuShare {
    CpuShare::from_ppm(parts.fold(0, |sum, part| sum.saturating_add(part.as_ppm())))
}

/// The timing of a cap: its deadline is its period.
const fn timing(period: Nanos) -> TimingDemand {
    TimingDemand { share: CpuShare::ZERO, deadline: period, period, core: None }
}

/// The period of a cap. Of 1, 2, 5 and 10 ms, rates vary least with 1 and 2 ms at small caps. A
/// veth's ring of 256 packets overflows if offered × (1 − cap) × period exceeds 256 packets.
pub const PERIOD: Nanos = Nanos::from_millis(2);

/// The most by which rounding can lower the sum of a budget's parts, in millionths.
const ROUNDED_PPM: u32 = 1_000;

/// The period of the worker's own reservation.
const WORKER_PERIOD: Nanos = Nanos::from_millis(1);

/// The largest share of each processor for deadline threads, in percent: 95 less 5 for the kernel's
/// own server of ordinary threads. Linux 6.18 refuses 91.
pub const PERCENT_GRANTED: u32 = 90;

/// The most threads of a router that can have a budget: split over more, each part would be
/// useless.
pub const THREADS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(percent: u32) -> CpuShare {
        CpuShare::from_percent(percent)
    }

    fn pool(count: u32) -> ProcessorPool {
        ProcessorPool { count, granted: percent(PERCENT_GRANTED) }
    }

    /// Goal: admission is bounded by the share that the host's kernel grants.
    #[test]
    fn a_limit_of_the_host_bounds_what_is_admitted() {
        let budgets = Budgets::of(ProcessorPool { count: 2, granted: percent(45) }, percent(0));
        let demand = TimingDemand { share: percent(50), ..timing(Nanos::from_millis(5)) };
        budgets.check([("a", demand)]).unwrap();
        let refused = budgets.check([("a", demand), ("b", demand)]).unwrap_err().to_string();
        assert_eq!(refused, "router b: shares add up to 100%, the kernel grants at most 90%");
    }

    /// Goal: on two processors, of which the worker reserved 30 %, routers get at most 150 %
    /// together.
    #[test]
    fn who_asks_for_more_than_is_left_gets_what_is_left() {
        let budgets = Budgets::of(pool(2), percent(30));
        assert_eq!(budgets.bound(), percent(150));
        let ask = |router, asked| budgets.cap(router, percent(asked), percent(1));
        assert_eq!(ask("a", 80).unwrap(), percent(80));
        assert_eq!(ask("b", 85).unwrap(), percent(70), "what is left");
        let error = ask("c", 10).unwrap_err().to_string();
        assert_eq!(
            error,
            "router c: a cap of 10% does not fit beside 150% of others, must be at most 150% \
             together"
        );
        assert_eq!(ask("a", 20).unwrap(), percent(20), "its own does not count against it");
        assert_eq!(ask("b", 85).unwrap(), percent(85));
        budgets.lift_cap("b").unwrap();
        assert_eq!(budgets.granted(), percent(20));
        assert_eq!(Budgets::of(pool(1), percent(95)).bound(), CpuShare::ZERO);
    }

    /// Goal: a cap never lowers a budget below a guarantee, and lifting the cap leaves the
    /// guarantee.
    #[test]
    fn a_cap_never_takes_a_guarantee_away() {
        let budgets = Budgets::of(pool(2), CpuShare::ZERO);
        let demand = TimingDemand { share: percent(30), ..timing(Nanos::from_millis(5)) };
        budgets.guarantee("a", demand).unwrap();
        assert_eq!(budgets.cap("a", percent(5), percent(1)).unwrap(), percent(30));
        assert_eq!(budgets.cap("a", percent(50), percent(1)).unwrap(), percent(50));
        budgets.lift_cap("a").unwrap();
        assert_eq!(budgets.granted(), percent(30));
        let more = TimingDemand { share: percent(90), ..demand };
        let refused = budgets.guarantee("b", more).unwrap_err().to_string();
        assert!(refused.starts_with("router b: densities"), "{refused}");
        assert_eq!(budgets.granted(), percent(30), "a refusal changes nothing");
        budgets.end_guarantee("a").unwrap();
        assert_eq!(budgets.granted(), CpuShare::ZERO);
    }

    #[test]
    fn the_threads_of_a_router_have_a_bound() {
        let own = CpuSource::Thread(crate::process::Identity::own().unwrap());
        let budgets = Budgets::of(pool(2), CpuShare::ZERO);
        budgets.enter("a", &[own], BudgetUser::Class).unwrap();
        let many = [own; THREADS_MAX + 1];
        let refused = budgets.enter("a", &many, BudgetUser::Class).unwrap_err().to_string();
        assert_eq!(refused, "router a: 257 threads, at most 256 can have a budget");
    }
}
