// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares out deadline budgets: among routers, of what the kernel grants at all; and of one router
//! among its threads, by their need. Pure.
//!
//! The kernel grants deadline threads a sum of at most 95 % of every processor
//! (`sched_rt_runtime_us`), of which it keeps 5 points for ordinary threads since Linux 6.8. What
//! is more it refuses as a whole, whoever asks last; so Weir adds up itself, gives a router that
//! asks for more what is left, and so never loses a cap to a refusal.
//!
//! Source: Linux, Documentation/scheduler/sched-deadline.rst, section 4.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_units::{CpuShare, Nanos};

use super::actuator::CapError;

/// The sum that all deadline budgets of a node may reach; shared by its routers' actuators.
#[derive(Clone, Debug)]
pub struct Budgets(Arc<Mutex<Ledger>>);

#[derive(Debug)]
struct Ledger {
    bound: CpuShare,
    /// By the name of the router.
    granted: BTreeMap<String, CpuShare>,
}

impl Budgets {
    /// Makes the budgets of a node with so many processors, beside what else has a budget on it:
    /// the worker's own reservation, where that is a deadline.
    #[must_use]
    pub fn of(processors: u32, beside: CpuShare) -> Self {
        let all = PERCENT_GRANTED.saturating_mul(processors);
        let bound = CpuShare::from_percent(all).as_ppm().saturating_sub(beside.as_ppm());
        let bound = CpuShare::from_ppm(bound);
        Self(Arc::new(Mutex::new(Ledger { bound, granted: BTreeMap::new() })))
    }

    /// Returns the most that all routers may have together.
    #[must_use]
    pub fn bound(&self) -> CpuShare {
        self.ledger().bound
    }

    /// Returns the sum of what all routers have.
    #[must_use]
    pub fn granted(&self) -> CpuShare {
        self.ledger().others("")
    }

    /// Grants `router` what it asks for, in place of what it had; less if no more is left.
    ///
    /// # Errors
    /// Not even `least` is left: the router keeps what it had.
    pub fn ask(
        &self,
        router: &str,
        asked: CpuShare,
        least: CpuShare,
    ) -> Result<CpuShare, CapError> {
        let mut ledger = self.ledger();
        let (bound, others) = (ledger.bound, ledger.others(router));
        let left = CpuShare::from_ppm(bound.as_ppm().saturating_sub(others.as_ppm()));
        if left < least {
            let what = format!("router {router}");
            return Err(CapError::NoRoom { what, asked, others, bound });
        }
        let given = asked.min(left);
        ledger.granted.insert(router.to_owned(), given);
        Ok(given)
    }

    /// Writes down what a router really has, after the kernel refused more; zero: nothing.
    pub fn put_back(&self, router: &str, share: CpuShare) {
        let mut ledger = self.ledger();
        match share {
            CpuShare::ZERO => ledger.granted.remove(router),
            some => ledger.granted.insert(router.to_owned(), some),
        };
    }

    /// A thread that panicked while it held the ledger has changed nothing by halves.
    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ledger {
    fn others(&self, router: &str) -> CpuShare {
        let shares = self.granted.iter().filter(|(name, _)| *name != router);
        CpuShare::from_ppm(shares.fold(0, |sum, (_, share)| sum.saturating_add(share.as_ppm())))
    }
}

/// The use that a thread made of its budget since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Need {
    /// The CPU time that it used, as a share of that time.
    pub used: CpuShare,
    /// The budget that it had; zero: it was not capped yet.
    pub given: CpuShare,
}

/// One cap split over a router's threads by their need; the parts come to the cap, but for less
/// than one millionth a thread.
///
/// Each has at least a tenth of an equal part, so that the first packets of a thread that was idle
/// are forwarded; where the cap is small it is the lesser of half of an equal part and 1 % of a
/// processor, which the thread that needs the cap lacks until the others do something. What a
/// thread takes beyond its budget it waits for in proportion, and one packet that wakes it takes
/// some 30 µs: 12 ms of a four-hundredth, the least that the kernel takes of 2 ms; 3 ms of 1 %.
///
/// A thread that used nearly all that it had wants twice as much; any other a quarter more than it
/// used. What is left of the cap, or what it is short of the wants, is divided in proportion to
/// them.
#[must_use]
pub fn split(cap: CpuShare, needs: &[Need]) -> Vec<CpuShare> {
    let count = needs.len().max(1) as u128;
    let cap = u128::from(cap.as_ppm());
    let equal = cap / count;
    let least = (equal / LEAST_PARTS).max((equal / 2).min(LEAST_PPM));
    let free = cap - least * count;
    let wants: Vec<u128> = needs.iter().map(|need| want(*need)).collect();
    let sum: u128 = wants.iter().sum();
    let part = |want: u128| match (free * want).checked_div(sum) {
        Some(more) => least + more,
        None => equal,
    };
    wants.into_iter().map(|want| share(part(want))).collect()
}

fn want(need: Need) -> u128 {
    let (used, given) = (u128::from(need.used.as_ppm()), u128::from(need.given.as_ppm()));
    let exhausted = given > 0 && used * 10 >= given * 9;
    if exhausted { used * 2 } else { used + used / 4 }
}

fn share(ppm: u128) -> CpuShare {
    CpuShare::from_ppm(u32::try_from(ppm).unwrap_or(u32::MAX))
}

/// The runtime that a share is of a period; at least what the kernel takes.
#[must_use]
pub fn runtime(share: CpuShare, period: Nanos) -> Nanos {
    share.time_in_floor(period).max(RUNTIME_LEAST)
}

/// The share of each processor for deadline threads: 95 less the 5 of the kernel's own server for
/// ordinary threads. Asked for 91, Linux 6.18 refuses.
pub const PERCENT_GRANTED: u32 = 90;

/// The kernel's least runtime is 1024 ns; below about 5 µs a thread does nothing but start.
pub const RUNTIME_LEAST: Nanos = Nanos::from_micros(5);

/// The least part of a thread, as a fraction of an equal part: a tenth.
const LEAST_PARTS: u128 = 10;
/// And where that is less: half of an equal part, as far as that is not more than this.
const LEAST_PPM: u128 = 10_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn percent(percent: u32) -> CpuShare {
        CpuShare::from_percent(percent)
    }

    fn need(used: u32, given: u32) -> Need {
        Need { used: percent(used), given: percent(given) }
    }

    #[test]
    fn a_cap_is_split_by_need_and_no_thread_starves() {
        assert_eq!(split(percent(20), &[need(0, 0); 2]), [percent(10); 2]);
        let one_way = split(percent(20), &[need(19, 19), need(0, 1)]);
        assert_eq!(one_way, [percent(19), percent(1)]);
        // Exhausted: 10 wants 20; idle half: 4 wants 5.
        let [busy, easy] = split(percent(20), &[need(10, 10), need(4, 10)])[..] else { panic!() };
        assert_eq!((busy.as_ppm(), easy.as_ppm()), (154_000, 46_000));
        let small = split(percent(4), &[need(3, 4), need(0, 0), need(0, 0), need(0, 0)]);
        assert_eq!(small[1], CpuShare::from_ppm(5000), "half of an equal part");
        assert_eq!(split(percent(8), &[need(3, 4), need(0, 0)])[1], percent(1));
        assert_eq!(split(percent(30), &[]), []);
        assert_eq!(split(percent(30), &[need(1, 1)]), [percent(30)]);
    }

    #[test]
    fn the_parts_are_the_cap_whatever_the_needs() {
        for (seed, cap) in (1..500_u32).zip([1, 7, 85, 170].into_iter().cycle()) {
            let needs: Vec<Need> =
                (0..1 + seed % 5).map(|n| need(seed * 7 % 90 * (n % 3), seed % 90)).collect();
            let parts = split(percent(cap), &needs);
            let sum: u32 = parts.iter().map(|part| part.as_ppm()).sum();
            assert!(sum <= percent(cap).as_ppm() && sum + 5 >= percent(cap).as_ppm(), "{sum}");
            let equal = percent(cap).as_ppm() / u32::try_from(needs.len()).unwrap();
            let least = (equal / 10).max((equal / 2).min(10_000));
            assert!(parts.iter().all(|part| part.as_ppm() >= least));
        }
        let huge = Need { used: CpuShare::MAX, given: CpuShare::MAX };
        assert_eq!(split(CpuShare::MAX, &[huge; 3]).len(), 3);
    }

    /// Two processors, of which the worker reserved 30 %: 150 % for routers.
    #[test]
    fn who_asks_for_more_than_is_left_gets_what_is_left() {
        let budgets = Budgets::of(2, percent(30));
        assert_eq!(budgets.bound(), percent(150));
        let ask = |router, asked| budgets.ask(router, percent(asked), percent(1));
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
        budgets.put_back("b", CpuShare::ZERO);
        assert_eq!(budgets.granted(), percent(20));
        assert_eq!(Budgets::of(1, percent(95)).bound(), CpuShare::ZERO);
    }

    #[test]
    fn a_runtime_is_never_below_what_the_kernel_takes() {
        let period = Nanos::from_millis(2);
        assert_eq!(runtime(percent(10), period), Nanos::from_micros(200));
        assert_eq!(runtime(CpuShare::ZERO, period), RUNTIME_LEAST);
    }
}
