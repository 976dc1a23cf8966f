// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node in virtual time: the real manager and loops over simulated routers, meters and actuators,
//! each of which can be made to fail.
//!
//! Rows of `weir-lab verify` and the manager's own tests drive it: [`SimLoopsNode::run`] lets all
//! routers forward for a while and then runs the due loops. The same document and the same faults
//! give the same run.
//!
//! It is not in `weir-sim`, which simulates packets: it implements this crate's traits, and a pure
//! crate cannot depend on this one. Its routers are [`Plant`]s of `weir-control`, which stay there
//! because the controllers' own tests and examples run against them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_control::Reading;
use weir_control::plant::{Plant, SimulatedRouter};
use weir_control::{CapRange, Sample};
use weir_dataplane::{Refusal, RefusalKind};
use weir_platform::HostError;
use weir_platform::cap::{Actuator, CapError};
use weir_policy::{Draft, Edit, KeyPath, Policy};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use super::error::{CounterError, RouterError};
use super::manager::LoopManager;
use super::parts::{
    CounterReader, CounterSource, CpuTimeMeter, RouterEndpoint, RouterPlatform, RouterTarget,
};
use super::status::RouterStatus;

/// A node in virtual time.
pub struct SimLoopsNode {
    /// Its routers.
    pub world: SimWorld,
    /// Their manager.
    pub manager: LoopManager,
    /// Its policy, with changes.
    pub document: Draft,
    /// The clock of manager and meters; a test may set it.
    pub now: Instant,
    /// The lines for the operator.
    pub notes: Vec<String>,
}

/// All simulated routers, and what they share.
#[derive(Clone, Default)]
pub struct SimWorld(Arc<Mutex<Shared>>);

/// A simulated router, with its meters and its actuator.
#[derive(Clone, Debug)]
pub struct SimRouter {
    /// The plant.
    pub router: SimulatedRouter,
    /// Its true counts in the last run.
    pub last: Sample,
    /// The reading of its meters.
    pub reading: Reading,
    /// The largest value of its packet counters, where they wrap.
    pub counts_to: u64,
    /// The cap in force.
    pub cap: Option<CpuShare>,
    /// Packets a second that are let in.
    pub limit: Option<PacketRate>,
    /// The number of caps set.
    pub sets: u64,
    /// True while its meters stand still.
    pub frozen: bool,
    /// True while its interfaces are missing.
    pub no_device: bool,
    /// True while its process is missing.
    pub dead: bool,
    /// True while its actuator refuses.
    pub refuses: bool,
    /// True while the node has not taken it.
    pub free: bool,
}

#[derive(Default)]
struct Shared {
    routers: BTreeMap<String, SimRouter>,
    counted: Vec<CounterSource>,
    /// The CPU time that all routers share; `None`: each has its own processor.
    budget: Option<CpuShare>,
    limit_fails: bool,
    passes: u64,
}

/// Actuator and CPU meter of a simulated router.
struct SimEndpoint(SimWorld, String);

impl SimLoopsNode {
    /// Makes a node of this policy, with a simulated router for each of the policy. Time begins at
    /// one second.
    ///
    /// # Errors
    /// The problem of the policy.
    pub fn new(text: &str) -> Result<Self, String> {
        let (document, _) = Draft::parse(text).map_err(|error| error.to_string())?;
        let world = SimWorld::default();
        let manager = LoopManager::new(Box::new(world.clone()), Box::new(world.clone()));
        let now = Instant::from_nanos(1_000_000_000);
        let mut node = Self { world, manager, document, now, notes: Vec::new() };
        let policy = node.policy()?;
        for (seed, router) in (0..).zip(&policy.routers) {
            node.world.lock().routers.insert(router.name.clone(), SimRouter::new(seed));
        }
        node.manager.follow(node.now, &policy);
        Ok(node)
    }

    /// Returns the policy in force.
    ///
    /// # Errors
    /// The problem of the policy.
    pub fn policy(&self) -> Result<Policy, String> {
        self.document.policy().map_err(|error| error.to_string())
    }

    /// Changes the policy by all edits at once, as a request to a node does.
    ///
    /// # Errors
    /// The problem of the policy; node and document are then unchanged.
    pub fn edit(&mut self, edits: &[Edit]) -> Result<(), String> {
        let before = self.document.clone();
        let mut outcomes = edits.iter().map(|edit| self.document.apply(edit));
        let outcome = outcomes.find_map(Result::err).map_or(Ok(()), |error| Err(error.to_string()));
        match outcome.and_then(|()| self.policy()) {
            Ok(policy) => {
                self.manager.follow(self.now, &policy);
                Ok(())
            }
            Err(why) => {
                self.document = before;
                Err(why)
            }
        }
    }

    /// Changes a key of a router's policy.
    ///
    /// # Errors
    /// The errors of [`Self::edit`].
    pub fn set(
        &mut self,
        router: &str,
        key: &str,
        value: impl Into<serde_json::Value>,
    ) -> Result<(), String> {
        self.edit(&[Edit::set(KeyPath::of("router", router, &format!("xtc.{key}")), value)])
    }

    /// Lets all routers forward for a while, then runs the due loops.
    pub fn run(&mut self, span: Nanos) {
        self.now += span;
        self.world.forward(self.now, span);
        self.manager.tick(self.now);
        self.notes.extend(self.manager.take_notes());
    }

    /// Returns the status of a router; `None` if it is not to be held.
    #[must_use]
    pub fn status(&self, router: &str) -> Option<RouterStatus> {
        self.manager.status(Some(router)).pop()
    }

    /// Counts the kept decisions on a router with this text.
    #[must_use]
    pub fn says(&self, router: &str, text: &str) -> usize {
        let lines = self.manager.log(router, usize::MAX).unwrap_or_default();
        lines.iter().filter(|line| line.text.contains(text)).count()
    }
}

impl std::fmt::Debug for SimLoopsNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimLoopsNode").field("now", &self.now).finish_non_exhaustive()
    }
}

impl SimWorld {
    /// Reads or changes a router; `None` without one of that name.
    pub fn router<T>(&self, name: &str, what: impl FnOnce(&mut SimRouter) -> T) -> Option<T> {
        self.lock().routers.get_mut(name).map(what)
    }

    /// Gives all routers together this CPU time; `None`: a processor each.
    pub fn share(&self, budget: Option<CpuShare>) {
        self.lock().budget = budget;
    }

    /// Refuses limits at ingress from now on, or accepts them again.
    pub fn refuse_limits(&self, refuse: bool) {
        self.lock().limit_fails = refuse;
    }

    /// Returns the number of passes over all counters.
    #[must_use]
    pub fn passes(&self) -> u64 {
        self.lock().passes
    }

    fn forward(&self, now: Instant, span: Nanos) {
        let mut shared = self.lock();
        let wanted: u64 = shared.routers.values().map(SimRouter::wants).sum();
        let part = shared.budget.map(|budget| (u64::from(budget.as_ppm()), wanted));
        shared.routers.values_mut().for_each(|router| router.forward(now, span, part));
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SimWorld {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl SimRouter {
    /// Makes the process router of `weir-control`, which loses little below its knee, with 1 % of
    /// noise.
    fn new(seed: u64) -> Self {
        let plant = Plant { noise_ppm: 10_000, knee: 50, ..Plant::LIKE_TABLE_1 };
        Self {
            router: SimulatedRouter::new(plant, seed),
            last: Sample::default(),
            reading: Reading { offered: Some(0), cpu: Some(Nanos::ZERO), ..Reading::default() },
            counts_to: u64::MAX,
            cap: None,
            limit: None,
            sets: 0,
            frozen: false,
            no_device: false,
            dead: false,
            refuses: false,
            free: true,
        }
    }

    /// Returns its demand of CPU time on its own processor, in millionths. It includes packets that
    /// the cap makes the router drop, since they cost CPU time before.
    fn wants(&self) -> u64 {
        if self.dead {
            return 0;
        }
        let plant = &self.router.plant;
        let admitted = self.limit.map_or(plant.offered, |limit| limit.min(plant.offered));
        let used = u128::from(admitted.as_pps()) * u128::from(plant.cost.as_nanos()) / 1000;
        let cap = self.cap.unwrap_or(CpuShare::ONE);
        u64::try_from(used).unwrap_or(u64::MAX).min(cap.as_ppm().into())
    }

    /// Forwards for `span`. `part` is the CPU time of all and their demand, in millionths: if the
    /// demand is larger, each gets its proportional part.
    fn forward(&mut self, now: Instant, span: Nanos, part: Option<(u64, u64)>) {
        let cap = self.cap.unwrap_or(CpuShare::ONE);
        let cap = match part {
            Some((budget, wanted)) if wanted > budget => {
                let mine = u128::from(self.wants()) * u128::from(budget) / u128::from(wanted);
                cap.min(CpuShare::from_ppm(u32::try_from(mine).unwrap_or(u32::MAX)))
            }
            _ => cap,
        };
        if self.dead {
            self.last = Sample { span, ..Sample::default() };
            return;
        }
        let sample = self.router.run(cap, self.limit, span);
        self.last = sample;
        if self.frozen {
            return;
        }
        let counted = |old: u64, new: u64| match self.counts_to.checked_add(1) {
            Some(around) => old.wrapping_add(new) % around,
            None => old.wrapping_add(new),
        };
        let old = self.reading;
        self.reading = Reading {
            at: now,
            packets: counted(old.packets, sample.packets),
            offered: old.offered.zip(sample.offered).map(|(old, new)| counted(old, new)),
            cpu: old.cpu.zip(sample.cpu).map(|(old, new)| old.saturating_add(new)),
        };
    }

    fn there(&self) -> Result<(), CapError> {
        if self.dead { Err(CapError::Gone { what: "process 17".to_owned() }) } else { Ok(()) }
    }
}

impl CounterReader for SimWorld {
    fn follow(&mut self, routers: &[CounterSource]) {
        self.lock().counted = routers.to_vec();
    }

    fn collect(&mut self, now: Instant) -> Instant {
        self.lock().passes += 1;
        now
    }

    fn of(&mut self, router: usize) -> Result<Reading, CounterError> {
        let shared = self.lock();
        let counted = shared.counted.get(router).ok_or(CounterError::NotFollowed)?;
        match shared.routers.get(&counted.router) {
            Some(sim) if !sim.no_device => Ok(sim.reading),
            Some(_) => Err(CounterError::DeviceMissing("v0".to_owned())),
            None => Err(CounterError::NotFollowed),
        }
    }
}

impl RouterPlatform for SimWorld {
    fn take(&mut self, wanted: &RouterTarget) -> Result<RouterEndpoint, RouterError> {
        let name = wanted.router.clone();
        let taken = self.router(&name, |sim| {
            sim.free &= sim.dead;
            !sim.dead
        });
        if taken != Some(true) {
            return Err(HostError::Refused("process 17: not there".to_owned()).into());
        }
        let grip = || SimEndpoint(self.clone(), name.clone());
        Ok(RouterEndpoint { actuator: Box::new(grip()), cpu: Box::new(grip()) })
    }

    fn give_back(&mut self, router: &str) -> Result<(), RouterError> {
        self.router(router, |sim| {
            sim.free = true;
            sim.cap = None;
        });
        Ok(())
    }

    fn limit(&mut self, limits: &[(String, Option<PacketRate>)]) -> Result<(), RouterError> {
        if self.lock().limit_fails {
            let text = "the worker did not answer within 5 s";
            return Err(RouterError::Worker(Refusal::new(RefusalKind::Busy, text)));
        }
        for (name, limit) in limits {
            self.router(name, |sim| sim.limit = *limit);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), RouterError> {
        Ok(())
    }
}

impl SimEndpoint {
    fn sim<T>(
        &self,
        what: impl FnOnce(&mut SimRouter) -> Result<T, CapError>,
    ) -> Result<T, CapError> {
        let gone = || Err(CapError::Gone { what: "the simulated router".to_owned() });
        self.0.router(&self.1, what).unwrap_or_else(gone)
    }
}

impl Actuator for SimEndpoint {
    fn name(&self) -> &'static str {
        "simulated"
    }

    fn range(&self) -> CapRange {
        CapRange::WHOLE
    }

    fn period(&self) -> Nanos {
        Nanos::from_millis(10)
    }

    fn in_force(&mut self) -> Result<Option<CpuShare>, CapError> {
        self.sim(|sim| sim.there().map(|()| sim.cap))
    }

    fn set(&mut self, cap: CpuShare) -> Result<CpuShare, CapError> {
        self.sim(|sim| {
            sim.there()?;
            if sim.refuses {
                let (what, answer) = ("write 1000".to_owned(), "EBUSY".to_owned());
                return Err(CapError::Refused { what, answer });
            }
            sim.sets += 1;
            sim.cap = Some(cap);
            Ok(cap)
        })
    }

    fn release(&mut self) -> Result<(), CapError> {
        self.sim(|sim| {
            sim.cap = None;
            Ok(())
        })
    }
}

impl CpuTimeMeter for SimEndpoint {
    fn used(&mut self) -> Result<Option<Nanos>, CapError> {
        self.sim(|sim| sim.there().map(|()| sim.reading.cpu))
    }
}
