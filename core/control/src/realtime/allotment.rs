// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The budgets of a node's routers: what each is guaranteed, and what a control loop caps it at.
//!
//! A thread has one budget. Two parts of Weir want to set it: the real-time class, which guarantees
//! time, and the control loop of XTC, which holds a packet rate by a cap. Both write their requests
//! into the router's [`Allotment`]; one writer puts [`Allotment::budget`] into force. **The
//! guarantee wins:** a cap below it is raised to it, and the loop holds the rate by its limit at
//! ingress. The part of a cap above the guarantee is granted as far as all guarantees still hold.

use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use weir_units::{CpuShare, Nanos};

use super::admission::{AdmissionRefusal, DemandSums, ProcessorPool, TimingDemand};

/// The processor time that one router may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allotment {
    /// The guaranteed share of a processor; zero: none.
    pub guarantee: CpuShare,
    /// The granted cap of the control loop; `None`: no cap.
    pub ceiling: Option<CpuShare>,
    /// The least that its threads can have together; a cap is not cut below it.
    pub floor: CpuShare,
    /// The deadline of its threads.
    pub deadline: Nanos,
    /// The period of its threads.
    pub period: Nanos,
    /// The exclusive processor that it is bound to; `None`: the shared processors.
    pub core: Option<u32>,
}

/// The allotments of all routers of a node, with the checks that they fit together.
#[derive(Clone, Debug)]
pub struct AllotmentLedger {
    pool: ProcessorPool,
    /// The demands of what runs there too without being a router, such as the node's own worker.
    beside: Vec<TimingDemand>,
    allotments: BTreeMap<String, Allotment>,
}

/// Why no cap was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CeilingRefusal {
    /// The sum of the others' budgets.
    pub others: CpuShare,
    /// The largest sum of all.
    pub bound: CpuShare,
}

impl Allotment {
    /// Returns the budget to put into force: the cap, but never less than the guarantee.
    #[must_use]
    pub fn budget(&self) -> CpuShare {
        self.ceiling.map_or(self.guarantee, |ceiling| ceiling.max(self.guarantee))
    }

    /// Returns true if the router has a guarantee, that is, a real-time class.
    #[must_use]
    pub fn is_guaranteed(&self) -> bool {
        self.guarantee > CpuShare::ZERO
    }

    /// Returns the allotment with its cap cut to so many thousandths, though not below
    /// [`CEILING_MIN`] or its floor.
    fn scaled(&self, thousandths: u32) -> Self {
        let cut = |ceiling: CpuShare| {
            let part = u64::from(ceiling.as_ppm()) * u64::from(thousandths) / u64::from(WHOLE);
            let part = CpuShare::from_ppm(u32::try_from(part).unwrap_or(u32::MAX));
            part.max(CEILING_MIN.max(self.floor).min(ceiling))
        };
        Self { ceiling: self.ceiling.map(cut), ..*self }
    }

    fn demand(&self, share: CpuShare) -> TimingDemand {
        TimingDemand { share, deadline: self.deadline, period: self.period, core: self.core }
    }
}

impl AllotmentLedger {
    /// Makes an empty ledger of these processors, on which `beside` runs too.
    #[must_use]
    pub fn new(pool: ProcessorPool, beside: impl IntoIterator<Item = TimingDemand>) -> Self {
        Self { pool, beside: beside.into_iter().collect(), allotments: BTreeMap::new() }
    }

    /// Replaces the demands that count beside the routers. Guarantees stay, whether or not they
    /// still fit.
    pub fn set_beside(&mut self, beside: Vec<TimingDemand>) {
        self.beside = beside;
    }

    /// Checks that these guarantees hold together beside the demands that are no router's. Caps do
    /// not count, since they give way to guarantees.
    ///
    /// # Errors
    /// The first router that does not fit, with the sum and the bound.
    pub fn check<'a>(
        &self,
        guarantees: impl IntoIterator<Item = (&'a str, TimingDemand)>,
    ) -> Result<(), AdmissionRefusal> {
        self.sums_beside().admit(guarantees)
    }

    /// Returns the sums without any router.
    fn sums_beside(&self) -> DemandSums {
        let mut sums = DemandSums::new(self.pool);
        self.beside.iter().for_each(|demand| sums.count(*demand));
        sums
    }

    /// Guarantees `demand` to a router in place of its earlier guarantee. Caps of others above
    /// their own guarantees are cut where they stand in the way.
    ///
    /// # Errors
    /// It does not fit beside the guarantees of the others: nothing has changed.
    pub fn guarantee(
        &mut self,
        router: &str,
        demand: TimingDemand,
    ) -> Result<(), AdmissionRefusal> {
        let others =
            self.on(demand.core).filter(|(name, one)| *name != router && one.is_guaranteed());
        let others = others.map(|(name, one)| (name, one.demand(one.guarantee)));
        self.check(others.chain([(router, demand)]))?;
        let before = self.allotments.get(router).copied();
        let TimingDemand { share: guarantee, deadline, period, core } = demand;
        let ceiling = before.and_then(|one| one.ceiling);
        let floor = before.map_or(CpuShare::ZERO, |one| one.floor);
        let allotment = Allotment { guarantee, ceiling, floor, deadline, period, core };
        self.allotments.insert(router.to_string(), allotment);
        self.cut_ceilings(core).inspect_err(|_| match before {
            Some(before) => drop(self.allotments.insert(router.to_string(), before)),
            None => drop(self.allotments.remove(router)),
        })
    }

    /// Takes a router's guarantee away; its cap, if any, stays, in periods of `timing`. Caps are
    /// cut where one that comes from an exclusive processor stands in the way of a guarantee.
    pub fn end_guarantee(&mut self, router: &str, timing: TimingDemand) {
        let Some(allotment) = self.allotments.get_mut(router) else { return };
        *allotment = Allotment {
            guarantee: CpuShare::ZERO,
            ceiling: allotment.ceiling,
            floor: allotment.floor,
            deadline: timing.deadline,
            period: timing.period,
            core: timing.core,
        };
        if allotment.ceiling.is_none() {
            self.allotments.remove(router);
        }
        let _least_caps_may_not_fit = self.cut_ceilings(timing.core);
    }

    /// Caps a router in place of its earlier cap, and returns the budget that results: less than
    /// `asked` where no more is left, and never less than the guarantee. `timing` is used only if
    /// nothing is set for the router yet.
    ///
    /// # Errors
    /// The router has no guarantee, and there is no room for `least`: the earlier cap stays.
    pub fn cap(
        &mut self,
        router: &str,
        asked: CpuShare,
        least: CpuShare,
        timing: TimingDemand,
    ) -> Result<CpuShare, CeilingRefusal> {
        let mut allotment = self.allotments.get(router).copied().unwrap_or(Allotment {
            guarantee: CpuShare::ZERO,
            ceiling: None,
            floor: CpuShare::ZERO,
            deadline: timing.deadline,
            period: timing.period,
            core: timing.core,
        });
        let room = self.room(router, &allotment);
        if room < least && !allotment.is_guaranteed() {
            let others = self.on(allotment.core).filter(|(name, _)| *name != router);
            let (others, bound) = (sum_of_budgets(others), self.bound_on(allotment.core));
            return Err(CeilingRefusal { others, bound });
        }
        allotment.ceiling = Some(asked.min(room.max(allotment.guarantee)));
        self.allotments.insert(router.to_string(), allotment);
        debug_assert!(allotment.budget() >= allotment.guarantee, "a guarantee wins");
        Ok(allotment.budget())
    }

    /// Sets the least budget that the threads of a capped router can have together. A lower cap is
    /// raised to it. A guarantee is split by its own rule, and is never raised.
    ///
    /// # Errors
    /// There is no room to raise the cap: it stays as it is.
    pub fn set_floor(&mut self, router: &str, floor: CpuShare) -> Result<(), CeilingRefusal> {
        let Some(allotment) = self.allotments.get_mut(router) else { return Ok(()) };
        allotment.floor = floor;
        let timing = allotment.demand(CpuShare::ZERO);
        let is_short = allotment.ceiling.is_some_and(|ceiling| ceiling < floor);
        if allotment.is_guaranteed() || !is_short {
            return Ok(());
        }
        self.cap(router, floor, floor, timing).map(drop)
    }

    /// Sets a router's cap to the one really in force, for example after the kernel refused
    /// another; `None`: no cap.
    pub fn set_ceiling(&mut self, router: &str, ceiling: Option<CpuShare>, timing: TimingDemand) {
        let entry = self.allotments.get_mut(router);
        match (entry, ceiling) {
            (Some(allotment), Some(_)) => allotment.ceiling = ceiling,
            (Some(allotment), None) if allotment.is_guaranteed() => allotment.ceiling = None,
            (Some(_), None) => drop(self.allotments.remove(router)),
            (None, Some(_)) => {
                let TimingDemand { deadline, period, core, .. } = timing;
                let (guarantee, floor) = (CpuShare::ZERO, CpuShare::ZERO);
                let allotment = Allotment { guarantee, ceiling, floor, deadline, period, core };
                self.allotments.insert(router.to_string(), allotment);
            }
            (None, None) => {}
        }
    }

    /// Divides by weight what all routers and the demands beside them leave, so that every
    /// guarantee holds. Returns the share of each, in the order of `weights`. What one cannot use
    /// is left over.
    #[must_use]
    pub fn divide(&self, weights: &[u32]) -> Vec<CpuShare> {
        let mut sums = self.sums_beside();
        self.allotments.values().for_each(|one| sums.count(one.demand(one.budget())));
        let (left, most) = sums.spare();
        let all: u64 = weights.iter().copied().map(u64::from).sum();
        let share = |weight: &u32| {
            let ppm = u64::from(left.as_ppm()) * u64::from(*weight) / all.max(1);
            most.min(CpuShare::from_ppm(u32::try_from(ppm).unwrap_or(u32::MAX)))
        };
        weights.iter().map(share).collect()
    }

    /// Returns a router's allotment; `None`: nothing is set for it.
    #[must_use]
    pub fn of(&self, router: &str) -> Option<Allotment> {
        self.allotments.get(router).copied()
    }

    /// Returns the sum of all budgets.
    #[must_use]
    pub fn granted(&self) -> CpuShare {
        sum_of_budgets(self.allotments.iter().map(|(name, one)| (name.as_str(), one)))
    }

    /// Returns the largest sum of budgets that the kernel grants on the shared processors, beside
    /// the demands that are no router's.
    #[must_use]
    pub fn bound(&self) -> CpuShare {
        self.bound_on(None)
    }

    fn bound_on(&self, core: Option<u32>) -> CpuShare {
        self.sums_beside().room(TimingDemand { core, ..TimingDemand::NONE }, false)
    }

    /// Returns the allotments on an exclusive processor, or on the shared ones (`None`).
    fn on(&self, core: Option<u32>) -> impl Iterator<Item = (&str, &Allotment)> {
        let all = self.allotments.iter().map(|(name, one)| (name.as_str(), one));
        all.filter(move |(_, one)| one.core == core)
    }

    /// Returns the room for the budget of one router beside all others' budgets. Densities count
    /// only where somebody has a guarantee on the same processors.
    fn room(&self, router: &str, allotment: &Allotment) -> CpuShare {
        let mut sums = self.sums_beside();
        let others = || self.on(allotment.core).filter(|(name, _)| *name != router);
        others().for_each(|(_, one)| sums.count(one.demand(one.budget())));
        let guaranteed = allotment.is_guaranteed() || others().any(|(_, one)| one.is_guaranteed());
        sums.room(allotment.demand(CpuShare::ZERO), guaranteed)
    }

    /// Cuts the caps on an exclusive processor, or on the shared ones (`None`), all by the same
    /// part, and just far enough that the guarantees there hold. Cuts nothing if there are no
    /// guarantees.
    fn cut_ceilings(&mut self, core: Option<u32>) -> Result<(), AdmissionRefusal> {
        let is_guaranteed = self.on(core).any(|(_, one)| one.is_guaranteed());
        if !is_guaranteed || self.check_scaled(core, WHOLE).is_ok() {
            return Ok(());
        }
        self.check_scaled(core, 0)?;
        let (mut fits, mut exceeds) = (0, WHOLE);
        while exceeds - fits > 1 {
            let middle = fits.midpoint(exceeds);
            match self.check_scaled(core, middle) {
                Ok(()) => fits = middle,
                Err(_) => exceeds = middle,
            }
        }
        for allotment in self.allotments.values_mut().filter(|one| one.core == core) {
            *allotment = allotment.scaled(fits);
        }
        Ok(())
    }

    /// Checks the budgets on those processors, with all caps cut to so many thousandths.
    fn check_scaled(&self, core: Option<u32>, thousandths: u32) -> Result<(), AdmissionRefusal> {
        self.check(self.on(core).map(|(name, one)| {
            let scaled = one.scaled(thousandths);
            (name, scaled.demand(scaled.budget()))
        }))
    }
}

fn sum_of_budgets<'a>(of: impl Iterator<Item = (&'a str, &'a Allotment)>) -> CpuShare {
    let ppm = of.fold(0_u32, |sum, (_, one)| sum.saturating_add(one.budget().as_ppm()));
    CpuShare::from_ppm(ppm)
}

/// The least that a cap is cut to: with less, a router could never show what it needs.
const CEILING_MIN: CpuShare = CpuShare::from_percent(1);

/// A whole, in thousandths.
const WHOLE: u32 = 1000;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::super::admission::admit;
    use super::*;

    fn percent(percent: u32) -> CpuShare {
        CpuShare::from_percent(percent)
    }

    fn timing(share: u32) -> TimingDemand {
        TimingDemand { share: percent(share), ..TimingDemand::NONE }
    }

    fn ledger() -> AllotmentLedger {
        AllotmentLedger::new(ProcessorPool { count: 2, granted: percent(90) }, None)
    }

    /// Goal: a cap moves the budget above the guarantee, and never below it.
    #[test]
    fn a_guarantee_wins_over_a_cap() {
        let mut ledger = ledger();
        ledger.guarantee("r", timing(30)).unwrap();
        assert_eq!(ledger.of("r").unwrap().budget(), percent(30));
        let cap = |ledger: &mut AllotmentLedger, share| {
            ledger.cap("r", percent(share), percent(1), timing(0))
        };
        assert_eq!(cap(&mut ledger, 5), Ok(percent(30)));
        assert_eq!(cap(&mut ledger, 50), Ok(percent(50)));
        ledger.set_ceiling("r", None, timing(0));
        assert_eq!(ledger.of("r").unwrap().budget(), percent(30));
        ledger.end_guarantee("r", timing(0));
        assert_eq!(ledger.of("r"), None);
    }

    /// A cap that was granted while there was room gives way to a later guarantee.
    #[test]
    fn a_cap_gives_way_to_a_guarantee() {
        let mut ledger = ledger();
        assert_eq!(ledger.cap("x", percent(85), percent(1), timing(0)), Ok(percent(85)));
        assert_eq!(ledger.cap("y", percent(85), percent(1), timing(0)), Ok(percent(85)));
        ledger.guarantee("r", timing(60)).unwrap();
        // Caps of 40 % each: 60 + 40 + 40 is 200 less the largest, 60.
        assert_eq!(ledger.of("r").unwrap().budget(), percent(60));
        let caps = ["x", "y"].map(|name| ledger.of(name).unwrap().budget());
        assert!(caps.iter().all(|cap| (399_000..=400_000).contains(&cap.as_ppm())), "{caps:?}");
        assert!(ledger.guarantee("s", timing(85)).is_err());
        assert_eq!(ledger.of("s"), None, "a refusal changes nothing");
    }

    /// Goal: what the kernel's least runtime adds to a cap of many threads is in the sums, also
    /// when caps are cut.
    #[test]
    fn a_cap_is_never_below_what_its_threads_can_have() {
        let mut ledger = ledger();
        ledger.cap("many", percent(5), percent(1), timing(0)).unwrap();
        ledger.set_floor("many", percent(40)).unwrap();
        assert_eq!(ledger.granted(), percent(40));
        ledger.cap("x", percent(85), percent(1), timing(0)).unwrap();
        ledger.guarantee("r", timing(60)).unwrap();
        assert_eq!(ledger.of("many").unwrap().budget(), percent(40), "not cut");
        let other = ledger.of("x").unwrap().budget();
        assert!(other < percent(41), "{other}: cut, so that 60 + 40 + its own is at most 140");
        let refused = ledger.set_floor("many", percent(90)).unwrap_err();
        assert_eq!(refused.bound, percent(180));
        assert_eq!(ledger.of("many").unwrap().budget(), percent(40));
        ledger.set_floor("r", percent(90)).unwrap();
        assert_eq!(ledger.of("r").unwrap().budget(), percent(60), "a guarantee stays as it is");
    }

    /// Goal: the cap of a router on an exclusive processor is granted from that processor alone.
    #[test]
    fn a_cap_on_an_exclusive_processor_leaves_the_guarantees_there() {
        let pinned = |share| TimingDemand { core: Some(1), ..timing(share) };
        let mut ledger = ledger();
        ledger.guarantee("a", pinned(20)).unwrap();
        ledger.guarantee("b", pinned(60)).unwrap();
        assert_eq!(ledger.cap("a", percent(90), percent(1), pinned(0)), Ok(percent(30)));
        assert_eq!(ledger.cap("b", percent(90), percent(1), pinned(0)), Ok(percent(60)));
        // The two shared processors are left to others, and no guarantee there is in their way.
        assert_eq!(ledger.cap("c", percent(90), percent(1), timing(0)), Ok(percent(90)));
        assert_eq!(ledger.cap("d", percent(90), percent(1), timing(0)), Ok(percent(90)));
        let refused = ledger.cap("e", percent(10), percent(1), pinned(0)).unwrap_err();
        let a_and_b = CeilingRefusal { others: percent(90), bound: percent(90) };
        assert_eq!(refused, a_and_b);
        ledger.guarantee("f", TimingDemand { core: Some(2), ..timing(90) }).unwrap();
        assert_eq!(ledger.of("d").unwrap().ceiling, Some(percent(90)), "f is elsewhere");
    }

    /// Goal: demands that are no router's count in each sum, but no refusal names them.
    #[test]
    fn a_guarantee_fits_beside_those_that_are_no_routers() {
        let pool = ProcessorPool { count: 2, granted: CpuShare::ONE };
        let mut ledger = AllotmentLedger::new(pool, [timing(40), timing(40)]);
        // 200 % less the largest, 60 %, and 80 % of others.
        assert_eq!(ledger.check([("a", timing(60))]), Ok(()));
        let refused = ledger.guarantee("a", timing(61)).unwrap_err().to_string();
        assert!(refused.starts_with("router a: ") && refused.contains("141%"), "{refused}");
        ledger.set_beside(vec![timing(40)]);
        assert_eq!(ledger.guarantee("a", timing(61)), Ok(()));
        ledger.set_beside(vec![timing(40); 3]);
        assert_eq!(ledger.of("a").unwrap().budget(), percent(61), "it stays");
        assert!(ledger.guarantee("b", timing(1)).is_err());
    }

    /// By hand: two processors less 25 % for the largest leave 175 %, of which 65 % are taken.
    #[test]
    fn what_is_left_is_divided_by_weight_and_breaks_no_guarantee() {
        let pool = ProcessorPool { count: 2, granted: CpuShare::ONE };
        let mut ledger = AllotmentLedger::new(pool, [timing(20), timing(20)]);
        ledger.guarantee("a", timing(25)).unwrap();
        let divided = ledger.divide(&[100, 300, 700]);
        let expected = [10, 25, 25].map(percent);
        assert_eq!(divided, expected, "110 %, of which 30 % and 70 % are more than the largest");
        let all = [25, 20, 20].into_iter().map(timing);
        let all = all
            .chain(divided.into_iter().map(|share| TimingDemand { share, ..TimingDemand::NONE }));
        assert_eq!(admit(pool, all.map(|one| ("x", one))), Ok(()));
        ledger.set_beside(vec![timing(60); 3]);
        assert_eq!(ledger.divide(&[100]), [CpuShare::ZERO]);
        let one = ProcessorPool { count: 1, granted: CpuShare::ONE };
        let alone = AllotmentLedger::new(one, [timing(40)]);
        assert_eq!(alone.divide(&[100, 200]), [20, 40].map(percent));
        assert_eq!(alone.divide(&[]), []);
    }

    /// Guarantees stay for any order of caps, and budgets beside them pass the test of admission.
    #[test]
    fn no_order_of_caps_and_guarantees_breaks_a_guarantee() {
        let mut state = 7_u64;
        let mut draw = |most: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            u32::try_from((state >> 33) % most).unwrap()
        };
        let mut granted = 0;
        for _ in 0..200 {
            let mut ledger = ledger();
            let mut guaranteed: BTreeMap<String, CpuShare> = BTreeMap::new();
            for _ in 0..30 {
                let name = ["a", "b", "c", "d"][draw(4) as usize];
                match draw(4) {
                    0 => {
                        let core = [None, None, Some(1)][draw(3) as usize];
                        let demand = TimingDemand { core, ..timing(1 + draw(60)) };
                        if ledger.guarantee(name, demand).is_ok() {
                            guaranteed.insert(name.to_string(), demand.share);
                        }
                    }
                    1 => {
                        ledger.end_guarantee(name, timing(0));
                        guaranteed.remove(name);
                    }
                    2 => ledger.set_ceiling(name, None, timing(0)),
                    _ => {
                        let asked = percent(1 + draw(85));
                        granted +=
                            u32::from(ledger.cap(name, asked, percent(1), timing(0)).is_ok());
                    }
                }
                for (name, guarantee) in &guaranteed {
                    assert!(ledger.of(name).unwrap().budget() >= *guarantee);
                }
                for core in [None, Some(1)] {
                    if ledger.on(core).any(|(_, one)| one.is_guaranteed()) {
                        let all = ledger.on(core);
                        let all = all.map(|(name, one)| (name, one.demand(one.budget())));
                        assert_eq!(admit(ledger.pool, all), Ok(()));
                    }
                }
            }
        }
        assert!(granted > 500, "{granted}: the test has caps in it");
    }
}
