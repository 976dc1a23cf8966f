// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The admission test for a set of real-time routers on the processors of a node.
//!
//! The *density* of a router is the processor time of one activation over the time there is for it,
//! δ = C ÷ min(deadline, period). On `m` processors that all routers may use (global EDF) every
//! deadline holds if the densities add up to at most m − (m − 1) · δ_max: a router waits only while
//! all processors are busy with others, and the router with the largest density can afford the
//! shortest wait. On one processor the bound is 1. Routers that are bound to an exclusive
//! processor, which no others may use, share that processor only.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use core::fmt;

use weir_units::{CpuShare, Nanos};

/// The processor time that a router needs, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimingDemand {
    /// The share of one processor: the time of one activation over the period.
    pub share: CpuShare,
    /// The time from an activation to the end of its work.
    pub deadline: Nanos,
    /// The least time between two activations.
    pub period: Nanos,
    /// The exclusive processor that it is bound to; `None`: the shared processors.
    pub core: Option<u32>,
}

/// The processors that real-time routers of a node share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessorPool {
    /// The number of shared processors, without exclusive ones.
    pub count: u32,
    /// The share that real-time threads may have of each, shared or exclusive; the kernel keeps the
    /// rest for others.
    pub granted: CpuShare,
}

/// Why a router is not admitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRefusal {
    /// The router that does not fit beside those before it.
    pub router: String,
    /// The bound that it would exceed.
    pub bound: AdmissionBound,
}

/// A bound of the admission test, with the sum that exceeds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdmissionBound {
    /// The sum of densities on all shared processors.
    Density {
        /// The sum.
        sum: CpuShare,
        /// The largest density of one.
        largest: CpuShare,
        /// The shared processors.
        processors: u32,
        /// The largest sum that is schedulable.
        bound: CpuShare,
    },
    /// The sum of shares on all shared processors, which is what the kernel checks.
    Time {
        /// The sum.
        sum: CpuShare,
        /// The largest sum that the kernel grants.
        bound: CpuShare,
    },
    /// The sum of densities on an exclusive processor.
    Pinned {
        /// The processor.
        core: u32,
        /// The sum.
        sum: CpuShare,
        /// The largest sum.
        bound: CpuShare,
    },
}

/// Checks that all of `demands` hold their deadlines together, in the order given.
///
/// # Errors
/// The first router that does not fit beside those before it, with the sum and the bound.
pub fn admit<'a>(
    pool: ProcessorPool,
    demands: impl IntoIterator<Item = (&'a str, TimingDemand)>,
) -> Result<(), AdmissionRefusal> {
    DemandSums::new(pool).admit(demands)
}

/// Returns the largest sum of densities that `processors` hold, where one of them is `largest`:
/// m − (m − 1) · δ_max.
#[must_use]
pub fn density_bound(processors: u32, largest: CpuShare) -> CpuShare {
    let whole = u64::from(processors) * u64::from(CpuShare::ONE.as_ppm());
    let lost = u64::from(processors.saturating_sub(1)) * u64::from(largest.as_ppm());
    share_of(whole.saturating_sub(lost))
}

impl TimingDemand {
    /// No time at all, in a period that changes nothing.
    pub const NONE: Self = Self {
        share: CpuShare::ZERO,
        deadline: Nanos::from_millis(1),
        period: Nanos::from_millis(1),
        core: None,
    };

    /// Returns its density, rounded up.
    #[must_use]
    pub fn density(self) -> CpuShare {
        let within = self.deadline.min(self.period).as_nanos().max(1);
        let work = u128::from(self.share.as_ppm()) * u128::from(self.period.as_nanos());
        let ppm = work.div_ceil(u128::from(within));
        CpuShare::from_ppm(u32::try_from(ppm).unwrap_or(u32::MAX))
    }
}

/// The sums over a set of demands so far.
#[derive(Clone)]
pub(super) struct DemandSums {
    pool: ProcessorPool,
    time: u64,
    density: u64,
    largest: CpuShare,
    pinned: BTreeMap<u32, u64>,
}

impl DemandSums {
    pub(super) const fn new(pool: ProcessorPool) -> Self {
        let largest = CpuShare::ZERO;
        Self { pool, time: 0, density: 0, largest, pinned: BTreeMap::new() }
    }

    /// Checks that all of `demands` hold their deadlines beside the demands so far, in the order
    /// given.
    pub(super) fn admit<'a>(
        mut self,
        demands: impl IntoIterator<Item = (&'a str, TimingDemand)>,
    ) -> Result<(), AdmissionRefusal> {
        demands.into_iter().try_for_each(|(router, demand)| {
            let refused = |bound| AdmissionRefusal { router: router.to_string(), bound };
            self.add(demand).map_err(refused)
        })
    }

    /// Adds a demand; returns the bound that is now exceeded, if any.
    fn add(&mut self, demand: TimingDemand) -> Result<(), AdmissionBound> {
        match demand.core {
            None => self.add_shared(demand),
            Some(core) => self.add_pinned(core, demand.density()),
        }
    }

    /// Adds a demand whether or not it fits.
    pub(super) fn count(&mut self, demand: TimingDemand) {
        let _whether_it_fits = self.add(demand);
    }

    /// Returns the largest share that still fits for a demand of this timing; `by_density` is true
    /// if its deadline and those of all others are to hold.
    pub(super) fn room(&self, timing: TimingDemand, by_density: bool) -> CpuShare {
        if let Some(core) = timing.core {
            return self.room_pinned(core, timing);
        }
        let time = self.time_bound().saturating_sub(self.time);
        if !by_density {
            return share_of(time);
        }
        let processors = self.pool.count;
        let bound = u64::from(density_bound(processors, self.largest).as_ppm());
        let beside_largest = bound.saturating_sub(self.density);
        // If this density δ becomes the largest, the bound is S + δ ≤ m − (m − 1) · δ.
        let whole = u64::from(processors) * u64::from(CpuShare::ONE.as_ppm());
        let as_largest = whole.saturating_sub(self.density) / u64::from(processors.max(1));
        let density = beside_largest.min(as_largest);
        let within = timing.deadline.min(timing.period).as_nanos();
        let share =
            u128::from(density) * u128::from(within) / u128::from(timing.period.as_nanos().max(1));
        share_of(time.min(u64::try_from(share).unwrap_or(u64::MAX)))
    }

    /// Returns what is left of the shared processors for budgets of which none is larger than the
    /// second value, so that all deadlines hold.
    pub(super) fn spare(&self) -> (CpuShare, CpuShare) {
        let (processors, largest) = (self.pool.count, self.largest);
        let density = u64::from(density_bound(processors, largest).as_ppm());
        let time = self.time_bound().saturating_sub(self.time);
        let left = time.min(density.saturating_sub(self.density));
        // The largest density lowers the bound only if there are several processors; without any
        // density there is no deadline to hold.
        let most = if processors > 1 && largest > CpuShare::ZERO { largest } else { CpuShare::ONE };
        (share_of(left), most)
    }

    /// Returns the largest share that still fits on an exclusive processor, by density as
    /// [`Self::add_pinned`] counts it.
    fn room_pinned(&self, core: u32, timing: TimingDemand) -> CpuShare {
        let taken = self.pinned.get(&core).copied().unwrap_or_default();
        let density = u64::from(self.pool.granted.as_ppm()).saturating_sub(taken);
        let within = timing.deadline.min(timing.period).as_nanos();
        let share =
            u128::from(density) * u128::from(within) / u128::from(timing.period.as_nanos().max(1));
        share_of(u64::try_from(share).unwrap_or(u64::MAX))
    }

    fn add_shared(&mut self, demand: TimingDemand) -> Result<(), AdmissionBound> {
        self.time += u64::from(demand.share.as_ppm());
        self.density += u64::from(demand.density().as_ppm());
        self.largest = self.largest.max(demand.density());
        self.check_shared()
    }

    fn add_pinned(&mut self, core: u32, density: CpuShare) -> Result<(), AdmissionBound> {
        let sum = self.pinned.entry(core).or_default();
        *sum += u64::from(density.as_ppm());
        let (sum, bound) = (share_of(*sum), self.pool.granted);
        if sum > bound {
            return Err(AdmissionBound::Pinned { core, sum, bound });
        }
        Ok(())
    }

    /// Checks the shared processors.
    fn check_shared(&self) -> Result<(), AdmissionBound> {
        let (sum, bound) = (share_of(self.time), share_of(self.time_bound()));
        if sum > bound {
            return Err(AdmissionBound::Time { sum, bound });
        }
        let (processors, largest) = (self.pool.count, self.largest);
        let (sum, bound) = (share_of(self.density), density_bound(processors, largest));
        if sum > bound {
            return Err(AdmissionBound::Density { sum, largest, processors, bound });
        }
        Ok(())
    }

    fn time_bound(&self) -> u64 {
        u64::from(self.pool.count) * u64::from(self.pool.granted.as_ppm())
    }
}

impl fmt::Display for AdmissionRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "router {}: {}", self.router, self.bound)
    }
}

impl fmt::Display for AdmissionBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Density { sum, largest, processors, bound } => write!(
                f,
                "densities (cpu × period / deadline) add up to {sum}, must be at most {bound}: \
                 {processors} processors less {} times the largest, {largest}",
                processors.saturating_sub(1)
            ),
            Self::Time { sum, bound } => {
                write!(f, "shares add up to {sum}, the kernel grants at most {bound}")
            }
            Self::Pinned { core, sum, bound } => {
                write!(f, "densities on processor {core} add up to {sum}, must be at most {bound}")
            }
        }
    }
}

impl core::error::Error for AdmissionRefusal {}

fn share_of(ppm: u64) -> CpuShare {
    CpuShare::from_ppm(u32::try_from(ppm).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: ProcessorPool = ProcessorPool { count: 2, granted: CpuShare::from_percent(90) };

    fn demand(percent: u32, deadline: u64, period: u64) -> TimingDemand {
        TimingDemand {
            share: CpuShare::from_percent(percent),
            deadline: Nanos::from_millis(deadline),
            period: Nanos::from_millis(period),
            core: None,
        }
    }

    #[test]
    fn a_short_deadline_makes_a_share_dense() {
        assert_eq!(demand(20, 5, 10).density(), CpuShare::from_percent(40));
        assert_eq!(demand(20, 10, 10).density(), CpuShare::from_percent(20));
        // Rounded up: never admitted by a fraction.
        let third =
            TimingDemand { deadline: Nanos::new(3), period: Nanos::new(10), ..demand(1, 1, 1) };
        assert_eq!(third.density().as_ppm(), 33_334);
    }

    /// Two processors, a largest density of 60 %: 2 − 1 × 60 % = 140 % in all.
    #[test]
    fn a_set_is_refused_with_thread_sum_and_bound() {
        let set = [("a", demand(60, 10, 10)), ("b", demand(20, 5, 10)), ("c", demand(40, 10, 10))];
        assert_eq!(admit(TWO, set), Ok(()));
        let more = set.into_iter().chain([("d", demand(1, 10, 10))]);
        assert_eq!(
            admit(TWO, more).unwrap_err().to_string(),
            "router d: densities (cpu × period / deadline) add up to 141%, must be at most 140%: \
             2 processors less 1 times the largest, 60%"
        );
    }

    #[test]
    fn the_kernels_own_sum_binds_where_densities_would_fit() {
        let low = [("a", demand(45, 10, 10)), ("b", demand(45, 10, 10)), ("c", demand(45, 10, 10))];
        assert_eq!(admit(TWO, low), Ok(()));
        let many = (0..19).map(|_| ("x", demand(10, 10, 10)));
        let refused = admit(TWO, many).unwrap_err().to_string();
        assert_eq!(refused, "router x: shares add up to 190%, the kernel grants at most 180%");
    }

    #[test]
    fn an_exclusive_processor_has_a_sum_of_its_own() {
        let pinned = |percent| TimingDemand { core: Some(2), ..demand(percent, 10, 10) };
        let shared = |percent| demand(percent, 10, 10);
        let fits = [("a", pinned(50)), ("b", pinned(40)), ("c", shared(60)), ("d", shared(60))];
        assert_eq!(admit(TWO, fits), Ok(()));
        let refused = admit(TWO, [("a", pinned(50)), ("b", pinned(41))]).unwrap_err().to_string();
        let text = "router b: densities on processor 2 add up to 91%, must be at most 90%";
        assert_eq!(refused, text);
        let other = TimingDemand { core: Some(3), ..shared(90) };
        assert_eq!(admit(TWO, [("a", pinned(90)), ("b", other)]), Ok(()));
    }

    /// Goal: the room that is returned is the largest share that is admitted.
    #[test]
    fn what_is_left_fits_and_a_thousandth_more_does_not() {
        for (percents, timing) in
            [([30, 20], (10, 10)), ([60, 10], (5, 10)), ([10, 85], (2, 2)), ([1, 1], (1, 10))]
        {
            let mut sums = DemandSums::new(TWO);
            let others = percents.map(|percent| ("o", demand(percent, 10, 10)));
            others.iter().for_each(|(_, one)| sums.count(*one));
            let timing = demand(0, timing.0, timing.1);
            let room = sums.room(timing, true);
            let with = |share: CpuShare| {
                admit(TWO, others.into_iter().chain([("n", TimingDemand { share, ..timing })]))
            };
            assert_eq!(with(room), Ok(()), "{percents:?}");
            let more = CpuShare::from_ppm(room.as_ppm() + 1000);
            assert!(with(more).is_err(), "{percents:?}: {room}");
        }
    }
}
