// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host beneath the manager of a swarm's run: routers, meters, actuators, real-time budgets.
//!
//! It implements the interfaces of the shipped manager ([`CounterReader`], [`RouterPlatform`],
//! [`ClassPlatform`]), and each part of it can be made to fail. The routers are either the plants
//! of `weir-control` or domains of a [`SimMachine`] under Xen's credit scheduler. Whatever an
//! invariant judges is read from here, not from the manager.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_control::plant::{Plant, SimulatedRouter};
use weir_control::realtime::{AllotmentLedger, ProcessorPool, TimingDemand};
use weir_control::{Actuator, CapError, CapRange, Reading};
use weir_dataplane::{Refusal, RefusalKind};
use weir_loops::{
    AppliedClass, ClassPlatform, CounterError, CounterReader, CounterSource, CpuTimeMeter,
    RouterClass, RouterEndpoint, RouterError, RouterPlatform, RouterTarget, UnfitRouter,
};
use weir_platform::HostError;
use weir_sim::{CreditAccounting, CreditScheduler, CreditShare, DomainWork, SimError, SimMachine};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use super::mutants::SwarmMutant;

/// The host, shared by the manager's three interfaces and the judge.
#[derive(Clone)]
pub(crate) struct SwarmWorld(Arc<Mutex<WorldState>>);

pub(crate) struct WorldState {
    /// The clock of manager and meters.
    pub(crate) now: Instant,
    pub(crate) routers: Vec<WorldRouter>,
    /// Budgets of real-time classes that are in force.
    pub(crate) classes: BTreeMap<String, CpuShare>,
    pub(crate) limits_fail: bool,
    pub(crate) give_back_fails: bool,
    /// The simulated machine that the routers run on, if caps are held there.
    machine: Option<SimMachine<CreditScheduler>>,
    ledger: AllotmentLedger,
    counted: Vec<CounterSource>,
    mutant: Option<SwarmMutant>,
}

/// A router of the host.
pub(crate) struct WorldRouter {
    pub(crate) name: String,
    /// True if its packets come through vifs, where they can be limited.
    pub(crate) vifs: bool,
    pub(crate) offered: PacketRate,
    pub(crate) cap: Option<CpuShare>,
    pub(crate) limit: Option<PacketRate>,
    pub(crate) taken: bool,
    pub(crate) sets: u64,
    pub(crate) takes: u64,
    /// Packets that it forwarded, counted apart from its meters.
    pub(crate) done: u64,
    pub(crate) frozen: bool,
    pub(crate) no_device: bool,
    pub(crate) dead: bool,
    pub(crate) refuses: bool,
    pub(crate) class_fails: bool,
    /// The least and the largest cap that were set since the judge last looked.
    pub(crate) caps_set: Option<(CpuShare, CpuShare)>,
    /// True if a limit was requested where there is no ingress to limit.
    pub(crate) limited_in_vain: bool,
    realtime: bool,
    reading: Reading,
    /// The number of the router's present process. An endpoint of an earlier process is gone.
    process: u64,
    plant: SimulatedRouter,
}

/// A process of a router, as an actuator and as a meter of processor time.
struct WorldEndpoint {
    world: SwarmWorld,
    router: usize,
    process: u64,
    /// True for a dry run, whose actuator changes nothing.
    watches: bool,
}

/// A router to be made.
#[derive(Clone, Debug)]
pub(crate) struct RouterSpec {
    pub(crate) name: String,
    pub(crate) vifs: bool,
    pub(crate) offered: PacketRate,
    /// The processor time of a packet.
    pub(crate) cost: Nanos,
}

impl SwarmWorld {
    /// Makes a host. With `accounting`, its routers are domains of a simulated machine that charges
    /// processor time in that way, each with a processor of its own.
    pub(crate) fn new(
        routers: &[RouterSpec],
        accounting: Option<CreditAccounting>,
        seed: u64,
        mutant: Option<SwarmMutant>,
    ) -> Result<Self, SimError> {
        let machine =
            accounting.map(|accounting| make_machine(routers, accounting, seed)).transpose()?;
        let pool = ProcessorPool { count: PROCESSORS, granted: CpuShare::from_percent(GRANTED) };
        let made = (0..).zip(routers).map(|(at, spec)| WorldRouter::new(spec, seed ^ at));
        let state = WorldState {
            now: START,
            routers: made.collect(),
            classes: BTreeMap::new(),
            limits_fail: false,
            give_back_fails: false,
            machine,
            ledger: AllotmentLedger::new(pool, None),
            counted: Vec::new(),
            mutant,
        };
        Ok(Self(Arc::new(Mutex::new(state))))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, WorldState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn make_machine(
    routers: &[RouterSpec],
    accounting: CreditAccounting,
    seed: u64,
) -> Result<SimMachine<CreditScheduler>, SimError> {
    let share = |at: usize| CreditShare { affinity: 1 << at, ..CreditShare::default() };
    let shares: Vec<CreditShare> = (0..routers.len()).map(share).collect();
    let scheduler = CreditScheduler::new(routers.len(), accounting, &shares);
    let work = |spec: &RouterSpec| DomainWork::Router {
        gap: gap_of(spec.offered),
        cost: spec.cost,
        ring: 256,
    };
    let works: Vec<DomainWork> = routers.iter().map(work).collect();
    SimMachine::new(routers.len(), scheduler, &works, seed)
}

impl WorldState {
    /// Lets all routers forward for `span` of true time, after which the clock shows `now`.
    pub(crate) fn forward(&mut self, span: Nanos, now: Instant) -> Result<(), SimError> {
        self.now = now;
        match self.machine.take() {
            Some(mut machine) => {
                self.forward_machine(&mut machine, span)?;
                self.machine = Some(machine);
            }
            None => self.forward_plants(span),
        }
        for router in self.routers.iter_mut().filter(|one| !one.frozen) {
            router.reading.at = now;
        }
        Ok(())
    }

    fn forward_plants(&mut self, span: Nanos) {
        let caps: Vec<CpuShare> = (0..self.routers.len()).map(|at| self.cap_of(at)).collect();
        let factor = self.seen_factor();
        for (router, cap) in self.routers.iter_mut().zip(caps) {
            router.plant.plant.offered = router.offered;
            if router.is_away() {
                continue;
            }
            let sample = router.plant.run(cap, router.limit, span);
            let offered = sample.offered.unwrap_or_default() * factor;
            router.count(sample.packets, offered, sample.cpu.unwrap_or_default());
        }
    }

    fn forward_machine(
        &mut self,
        machine: &mut SimMachine<CreditScheduler>,
        span: Nanos,
    ) -> Result<(), SimError> {
        for at in 0..self.routers.len() {
            let cap = self.cap_of(at);
            machine.set_cap(at, (cap < CpuShare::ONE).then_some(cap));
            let Some(router) = self.routers.get_mut(at) else { continue };
            let admitted = match (router.is_away(), router.limit) {
                (true, _) => PacketRate::ZERO,
                (false, Some(limit)) => router.offered.min(limit),
                (false, None) => router.offered,
            };
            if router.plant.plant.offered != admitted {
                router.plant.plant.offered = admitted;
                machine.set_gap(at, gap_of(admitted))?;
            }
        }
        let before: Vec<_> = (0..self.routers.len()).map(|at| machine.counts(at)).collect();
        let factor = self.seen_factor();
        machine.run_until(machine.now() + span)?;
        for (at, (router, before)) in self.routers.iter_mut().zip(before).enumerate() {
            let (Some(before), Some(after)) = (before, machine.counts(at)) else { continue };
            if router.is_away() {
                continue;
            }
            let offered = u128::from(router.offered.as_pps()) * u128::from(span.as_nanos());
            let offered = u64::try_from(offered / 1_000_000_000).unwrap_or(u64::MAX);
            let (done, cpu) = (after.done - before.done, after.cpu.saturating_sub(before.cpu));
            router.count(done, offered.max(done) * factor, cpu);
        }
        Ok(())
    }

    /// Returns the factor by which the meters exaggerate the offered packets; 1 without a mutant.
    fn seen_factor(&self) -> u64 {
        if self.mutant == Some(SwarmMutant::BlamesInnocents) { 5 } else { 1 }
    }

    /// Returns the cap in force; for a router with a real-time budget, the budget that the ledger
    /// left it.
    pub(crate) fn cap_of(&self, at: usize) -> CpuShare {
        let Some(router) = self.routers.get(at) else { return CpuShare::ONE };
        let whole = CpuShare::ONE;
        match router.cap {
            Some(_) if router.realtime => {
                self.ledger.of(&router.name).map_or(whole, |one| one.budget())
            }
            Some(cap) => cap,
            None => whole,
        }
    }

    /// Returns the budgets in force: of classes, and of caps above them.
    pub(crate) fn budgets(&self) -> Vec<(String, CpuShare)> {
        let mut budgets = self.classes.clone();
        for router in self.routers.iter().filter(|one| one.realtime && one.cap.is_some()) {
            if let Some(allotment) = self.ledger.of(&router.name) {
                budgets.insert(router.name.clone(), allotment.budget());
            }
        }
        budgets.into_iter().collect()
    }

    /// Kills the node's process and undoes what the next start would undo by the journals: limits
    /// go with the switch, then caps and classes are handed back.
    pub(crate) fn crash(&mut self) {
        let forgets = self.mutant == Some(SwarmMutant::ForgetsAfterCrash);
        for router in &mut self.routers {
            router.limit = None;
            if router.taken && !forgets {
                router.hand_back();
            }
        }
        self.classes.clear();
        let pool = ProcessorPool { count: PROCESSORS, granted: CpuShare::from_percent(GRANTED) };
        self.ledger = AllotmentLedger::new(pool, None);
        self.counted.clear();
    }

    /// Ends a router's process, and the cap with it, or starts another.
    pub(crate) fn die(&mut self, at: usize, dead: bool) {
        let Some(router) = self.routers.get_mut(at) else { return };
        (router.dead, router.cap) = (dead, None);
        router.process += 1;
        self.ledger.set_ceiling(&router.name, None, NO_TIMING);
    }

    pub(crate) fn at(&self, name: &str) -> Option<usize> {
        self.routers.iter().position(|one| one.name == name)
    }

    fn end_class(&mut self, router: &str) {
        self.classes.remove(router);
        self.ledger.end_guarantee(router, NO_TIMING);
    }
}

impl WorldRouter {
    fn new(spec: &RouterSpec, seed: u64) -> Self {
        let (offered, cost) = (spec.offered, spec.cost);
        let plant = Plant { offered, cost, noise_ppm: 10_000, knee: 50, ..Plant::LIKE_TABLE_1 };
        Self {
            name: spec.name.clone(),
            vifs: spec.vifs,
            offered,
            cap: None,
            limit: None,
            taken: false,
            sets: 0,
            takes: 0,
            done: 0,
            frozen: false,
            no_device: false,
            dead: false,
            refuses: false,
            class_fails: false,
            caps_set: None,
            limited_in_vain: false,
            realtime: false,
            reading: Reading { offered: Some(0), cpu: Some(Nanos::ZERO), at: START, packets: 0 },
            process: 0,
            plant: SimulatedRouter::new(plant, seed),
        }
    }

    /// Returns the packet rate that it can forward under `cap`.
    pub(crate) fn reach(&self, cap: CpuShare) -> u64 {
        let cost = self.plant.plant.cost.as_nanos().max(1);
        u64::from(cap.as_ppm()) * 1000 / cost
    }

    pub(crate) fn is_touched(&self) -> bool {
        self.cap.is_some() || self.limit.is_some()
    }

    /// Returns true if its process or its device is gone.
    pub(crate) const fn is_away(&self) -> bool {
        self.dead || self.no_device
    }

    /// Makes its meters read wrongly from now on: from zero, or far ahead.
    pub(crate) fn misread(&mut self, ahead: Option<u64>) {
        self.reading.packets = ahead.map_or(0, |ahead| self.reading.packets.wrapping_add(ahead));
    }

    fn hand_back(&mut self) {
        (self.taken, self.cap) = (false, None);
    }

    fn count(&mut self, done: u64, offered: u64, cpu: Nanos) {
        self.done += done;
        if self.frozen {
            return;
        }
        let old = self.reading;
        self.reading.packets = old.packets.wrapping_add(done);
        self.reading.offered = old.offered.map(|old| old.wrapping_add(offered));
        self.reading.cpu = old.cpu.map(|old| old.saturating_add(cpu));
    }
}

impl CounterReader for SwarmWorld {
    fn follow(&mut self, routers: &[CounterSource]) {
        self.lock().counted = routers.to_vec();
    }

    fn collect(&mut self, now: Instant) -> Instant {
        now
    }

    fn of(&mut self, router: usize) -> Result<Reading, CounterError> {
        let state = self.lock();
        let counted = state.counted.get(router).ok_or(CounterError::NotFollowed)?;
        let at = state.at(&counted.router).ok_or(CounterError::NotFollowed)?;
        match state.routers.get(at) {
            Some(one) if !one.no_device => Ok(one.reading),
            Some(_) => Err(CounterError::DeviceMissing("v0".to_owned())),
            None => Err(CounterError::NotFollowed),
        }
    }
}

impl RouterPlatform for SwarmWorld {
    fn take(&mut self, wanted: &RouterTarget) -> Result<RouterEndpoint, RouterError> {
        let mut state = self.lock();
        let missing = || HostError::Refused("process 17: not there".to_owned()).into();
        let Some(router) = state.at(&wanted.router) else { return Err(missing()) };
        let one = state.routers.get_mut(router).ok_or_else(missing)?;
        one.takes += 1;
        if one.dead {
            return Err(missing());
        }
        let watches = wanted.dry_run;
        one.taken |= !watches;
        one.realtime = wanted.realtime;
        let process = one.process;
        drop(state);
        let endpoint = || WorldEndpoint { world: self.clone(), router, process, watches };
        Ok(RouterEndpoint { actuator: Box::new(endpoint()), cpu: Box::new(endpoint()) })
    }

    fn give_back(&mut self, router: &str) -> Result<(), RouterError> {
        let mut state = self.lock();
        let (fails, mutant) = (state.give_back_fails, state.mutant);
        let Some(at) = state.at(router) else { return Ok(()) };
        let Some(one) = state.routers.get_mut(at) else { return Ok(()) };
        if one.taken && fails {
            return Err(HostError::Refused("the journal: EIO".to_owned()).into());
        }
        let kept = one.cap.filter(|_| mutant == Some(SwarmMutant::KeepsCaps));
        one.hand_back();
        one.cap = kept;
        Ok(())
    }

    fn limit(&mut self, limits: &[(String, Option<PacketRate>)]) -> Result<(), RouterError> {
        let mut state = self.lock();
        if state.limits_fail {
            let text = "the worker did not answer within 5 s";
            return Err(RouterError::Worker(Refusal::new(RefusalKind::Busy, text)));
        }
        let cut = state.mutant == Some(SwarmMutant::HoldsLess);
        for (name, limit) in limits {
            let Some(at) = state.at(name) else { continue };
            let Some(one) = state.routers.get_mut(at) else { continue };
            one.limited_in_vain |= !one.vifs && limit.is_some();
            let part = |limit: PacketRate| PacketRate::from_pps(limit.as_pps() * 7 / 10);
            one.limit = if cut { limit.map(part) } else { *limit };
            if state.mutant == Some(SwarmMutant::LimitsNeighbours) {
                let next = (at + 1) % state.routers.len().max(1);
                let one = state.routers.get_mut(next).filter(|one| one.limit.is_none());
                one.into_iter().for_each(|one| one.limit = limit.map(|_| PacketRate::from_pps(1)));
            }
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), RouterError> {
        let mut state = self.lock();
        if state.give_back_fails {
            return Err(HostError::Refused("the journal: EIO".to_owned()).into());
        }
        let keeps = state.mutant == Some(SwarmMutant::KeepsCaps);
        state.routers.iter_mut().filter(|_| !keeps).for_each(WorldRouter::hand_back);
        Ok(())
    }
}

impl WorldEndpoint {
    fn with<T>(
        &self,
        what: impl FnOnce(&mut WorldState, usize) -> Result<T, CapError>,
    ) -> Result<T, CapError> {
        let mut state = self.world.lock();
        let one = state.routers.get(self.router);
        if one.is_none_or(|one| one.dead || one.process != self.process) {
            return Err(CapError::Gone { what: "process 17".to_owned() });
        }
        what(&mut state, self.router)
    }
}

impl Actuator for WorldEndpoint {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn range(&self) -> CapRange {
        CapRange::WHOLE
    }

    fn period(&self) -> Nanos {
        Nanos::from_millis(30)
    }

    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
        self.with(|state, at| Ok(state.routers.get(at).and_then(|one| one.cap)))
    }

    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
        let watches = self.watches;
        self.with(|state, at| {
            let mutant = state.mutant;
            let Some(one) = state.routers.get_mut(at) else { return Ok(cap) };
            if watches {
                return Ok(cap);
            }
            if mutant == Some(SwarmMutant::Panics) && one.sets > 20 {
                std::panic::resume_unwind(Box::new("planted"));
            }
            one.sets += if mutant == Some(SwarmMutant::CallsTooOften) { 40 } else { 1 };
            if one.refuses {
                let (what, answer) = ("write 1000".to_owned(), "EBUSY".to_owned());
                return Err(CapError::Refused { what, answer });
            }
            let (least, most) = one.caps_set.unwrap_or((cap, cap));
            one.caps_set = Some((least.min(cap), most.max(cap)));
            one.cap = Some(cap);
            let (name, realtime) = (one.name.clone(), one.realtime);
            if !realtime {
                return Ok(cap);
            }
            let least = CpuShare::from_percent(1);
            state.ledger.cap(&name, cap, least, NO_TIMING).map_err(|refusal| CapError::NoRoom {
                what: format!("router {name}"),
                asked: cap,
                others: refusal.others,
                bound: refusal.bound,
            })
        })
    }

    fn release(&mut self) -> Result<(), CapError> {
        let watches = self.watches;
        let released = self.with(|state, at| {
            let keeps = state.mutant == Some(SwarmMutant::KeepsCaps);
            let Some(one) = state.routers.get_mut(at).filter(|_| !watches && !keeps) else {
                return Ok(());
            };
            if one.refuses {
                let (what, answer) = ("write max".to_owned(), "EBUSY".to_owned());
                return Err(CapError::Refused { what, answer });
            }
            one.cap = None;
            if one.realtime {
                let name = one.name.clone();
                state.ledger.set_ceiling(&name, None, NO_TIMING);
            }
            Ok(())
        });
        match released {
            // The cap is gone with the process.
            Err(CapError::Gone { .. }) => Ok(()),
            other => other,
        }
    }
}

impl CpuTimeMeter for WorldEndpoint {
    fn used(&mut self) -> Result<Option<Nanos>, CapError> {
        self.with(|state, at| Ok(state.routers.get(at).and_then(|one| one.reading.cpu)))
    }
}

impl ClassPlatform for SwarmWorld {
    fn apply(&mut self, class: &RouterClass) -> Result<AppliedClass, RouterError> {
        let mut state = self.lock();
        let at = state.at(&class.router);
        let one = at.and_then(|at| state.routers.get(at));
        if one.is_none_or(|one| one.dead || one.class_fails) {
            return Err(HostError::Refused("process 17: not there".to_owned()).into());
        }
        let Some(demand) = class.demand() else { return Ok(AppliedClass::default()) };
        if state.mutant != Some(SwarmMutant::AdmitsEverything) {
            let admitted = state.ledger.guarantee(&class.router, demand);
            admitted.map_err(|refusal| RouterError::Class(refusal.bound))?;
        }
        state.classes.insert(class.router.clone(), demand.share);
        let budget = Some(demand.share);
        Ok(AppliedClass { budget, threads: 1, used: None, exhausted: 0 })
    }

    fn in_force(&self, router: &str) -> Option<AppliedClass> {
        let budget = self.lock().classes.get(router).copied()?;
        Some(AppliedClass { budget: Some(budget), threads: 1, used: None, exhausted: 0 })
    }

    fn release(&mut self, router: &str) -> Result<(), RouterError> {
        let mut state = self.lock();
        if state.give_back_fails {
            return Err(HostError::Refused("the journal: EIO".to_owned()).into());
        }
        state.end_class(router);
        Ok(())
    }

    fn check_core(&self, core: u32) -> Result<(), RouterError> {
        // All processors of this host are shared.
        Err(RouterError::SharedCore(core))
    }

    fn check(&self, classes: &[RouterClass]) -> Result<(), UnfitRouter> {
        let state = self.lock();
        if state.mutant == Some(SwarmMutant::AdmitsEverything) {
            return Ok(());
        }
        let demands = classes.iter().filter_map(|one| Some((one.router.as_str(), one.demand()?)));
        state.ledger.check(demands).map_err(|refusal| UnfitRouter {
            router: refusal.router,
            error: RouterError::Class(refusal.bound),
        })
    }

    fn end(&mut self) -> Result<(), RouterError> {
        let mut state = self.lock();
        let all: Vec<String> = state.classes.keys().cloned().collect();
        all.iter().for_each(|router| state.end_class(router));
        Ok(())
    }
}

/// Returns the time between packets of a rate; for none, far longer than a run.
fn gap_of(rate: PacketRate) -> Nanos {
    Nanos::new(1_000_000_000_u64.checked_div(rate.as_pps()).unwrap_or(NEVER).max(1))
}

/// A million seconds.
const NEVER: u64 = 1_000_000_000_000_000;

/// The instant at which a run begins: a clock that is set back must not reach zero.
pub(crate) const START: Instant = Instant::from_nanos(1_000_000_000_000);

/// The processors that real-time classes share, and the part of each that they may have, in per
/// cent.
pub(crate) const PROCESSORS: u32 = 2;
pub(crate) const GRANTED: u32 = 95;

/// The timing of a budget without a class.
const NO_TIMING: TimingDemand = TimingDemand {
    share: CpuShare::ZERO,
    deadline: Nanos::from_millis(100),
    period: Nanos::from_millis(100),
    core: None,
};
