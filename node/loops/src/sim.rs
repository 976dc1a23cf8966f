// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node in virtual time: the manager as it is, over routers, meters and actuators that are
//! simulated, each of which can be made to fail.
//!
//! Rows of `weir-lab verify` and the manager's own tests drive it: [`SimNode::run`] lets all
//! routers forward for a while and steps what is due then. The same document and the same faults
//! give the same run.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_control::Reading;
use weir_control::plant::{Plant, Router};
use weir_control::{CapRange, Sample};
use weir_platform::cap::{Actuator, CapError};
use weir_policy::{Draft, Edit, Place, Policy};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

use super::manager::Manager;
use super::parts::{Counted, Cpu, Hands, Held, Readings, Wanted};
use super::status::RouterStatus;

/// A node whose time passes when it is told to.
pub struct SimNode {
    /// Its routers.
    pub world: World,
    /// What holds them.
    pub manager: Manager,
    /// Its policy, as it is changed.
    pub document: Draft,
    /// The clock that manager and meters go by; a test may set it.
    pub now: Instant,
    /// What the operator was told.
    pub notes: Vec<String>,
}

/// All simulated routers, and what they share.
#[derive(Clone, Default)]
pub struct World(Arc<Mutex<Shared>>);

/// One simulated router, its meters and what caps it.
#[derive(Clone, Debug)]
pub struct SimRouter {
    /// What forwards.
    pub router: Router,
    /// What it did in the last run, whatever its meters show.
    pub last: Sample,
    /// What its meters show.
    pub reading: Reading,
    /// What its counters of packets are at most: they wrap there.
    pub counts_to: u64,
    /// The cap in force.
    pub cap: Option<CpuShare>,
    /// Packets a second that are let in.
    pub limit: Option<PacketRate>,
    /// How often a cap was set.
    pub sets: u64,
    /// Its meters stand still.
    pub frozen: bool,
    /// Its interfaces are not there.
    pub no_device: bool,
    /// Its process is not there.
    pub dead: bool,
    /// What caps it says no.
    pub refuses: bool,
    /// The node has handed it back, or never had it.
    pub free: bool,
}

#[derive(Default)]
struct Shared {
    routers: BTreeMap<String, SimRouter>,
    counted: Vec<Counted>,
    /// CPU time that all routers have together; `None`: each has its own processor.
    budget: Option<CpuShare>,
    limit_fails: bool,
    passes: u64,
}

/// What caps a router and meters its CPU time.
struct Grip(World, String);

impl SimNode {
    /// A node of this policy, with a simulated router for each that it has. Time begins at one
    /// second.
    ///
    /// # Errors
    /// What is wrong with the policy.
    pub fn new(text: &str) -> Result<Self, String> {
        let (document, _) = Draft::parse(text).map_err(|error| error.to_string())?;
        let world = World::default();
        let manager = Manager::new(Box::new(world.clone()), Box::new(world.clone()));
        let now = Instant::from_nanos(1_000_000_000);
        let mut node = Self { world, manager, document, now, notes: Vec::new() };
        let policy = node.policy()?;
        for (seed, router) in (0..).zip(&policy.routers) {
            node.world.lock().routers.insert(router.name.clone(), SimRouter::new(seed));
        }
        node.manager.follow(node.now, &policy);
        Ok(node)
    }

    /// What is asked for now.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn policy(&self) -> Result<Policy, String> {
        self.document.policy().map_err(|error| error.to_string())
    }

    /// Changes the policy, all at once, as the interface does.
    ///
    /// # Errors
    /// What is wrong with it; then the node goes on as before, and so does the document.
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

    /// Changes a key of how a router is held.
    ///
    /// # Errors
    /// As [`Self::edit`].
    pub fn set(
        &mut self,
        router: &str,
        key: &str,
        value: impl Into<serde_json::Value>,
    ) -> Result<(), String> {
        self.edit(&[Edit::set(Place::of("router", router, &format!("xtc.{key}")), value)])
    }

    /// Lets all routers forward for a while, then steps what is due.
    pub fn run(&mut self, span: Nanos) {
        self.now += span;
        self.world.forward(self.now, span);
        self.manager.tick(self.now);
        self.notes.extend(self.manager.take_notes());
    }

    /// How a router is; `None` where the policy does not have it held.
    #[must_use]
    pub fn status(&self, router: &str) -> Option<RouterStatus> {
        self.manager.status(Some(router)).pop()
    }

    /// How many of the decisions that are kept of a router say that.
    #[must_use]
    pub fn says(&self, router: &str, text: &str) -> usize {
        let lines = self.manager.log(router, usize::MAX).unwrap_or_default();
        lines.iter().filter(|line| line.text.contains(text)).count()
    }
}

impl std::fmt::Debug for SimNode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SimNode").field("now", &self.now).finish_non_exhaustive()
    }
}

impl World {
    /// Looks at a router, or changes what it is like; `None` where there is none of that name.
    pub fn router<T>(&self, name: &str, what: impl FnOnce(&mut SimRouter) -> T) -> Option<T> {
        self.lock().routers.get_mut(name).map(what)
    }

    /// Gives all routers together so much CPU time; `None`: a processor each.
    pub fn share(&self, budget: Option<CpuShare>) {
        self.lock().budget = budget;
    }

    /// Whether no limit at ingress can be set any more.
    pub fn refuse_limits(&self, refuse: bool) {
        self.lock().limit_fails = refuse;
    }

    /// How often all counters were read.
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

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World").finish_non_exhaustive()
    }
}

impl SimRouter {
    /// The process router of `weir-control`, which loses little below its knee, with 1 % of noise.
    fn new(seed: u64) -> Self {
        let plant = Plant { noise_ppm: 10_000, knee: 50, ..Plant::LIKE_TABLE_1 };
        Self {
            router: Router::new(plant, seed),
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

    /// CPU time that it would use of a processor of its own, in millionths. What its cap makes it
    /// drop was carried up to it first, and is in that.
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

    /// Forwards for `span`. Where all want more than there is, each gets as large a part of it as
    /// of what they want: `part` is both, in millionths.
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

impl Readings for World {
    fn follow(&mut self, routers: &[Counted]) {
        self.lock().counted = routers.to_vec();
    }

    fn collect(&mut self, now: Instant) -> Instant {
        self.lock().passes += 1;
        now
    }

    fn of(&mut self, router: usize) -> Result<Reading, String> {
        let shared = self.lock();
        let counted = shared.counted.get(router).ok_or("not counted")?;
        match shared.routers.get(&counted.router) {
            Some(sim) if !sim.no_device => Ok(sim.reading),
            Some(_) => Err("device v0: not there".to_owned()),
            None => Err("not simulated".to_owned()),
        }
    }
}

impl Hands for World {
    fn take(&mut self, wanted: &Wanted) -> Result<Held, String> {
        let name = wanted.router.clone();
        let taken = self.router(&name, |sim| {
            sim.free &= sim.dead;
            !sim.dead
        });
        if taken != Some(true) {
            return Err("process 17: not there".to_owned());
        }
        let grip = || Grip(self.clone(), name.clone());
        Ok(Held { actuator: Box::new(grip()), cpu: Box::new(grip()) })
    }

    fn give_back(&mut self, router: &str) -> Result<(), String> {
        self.router(router, |sim| {
            sim.free = true;
            sim.cap = None;
        });
        Ok(())
    }

    fn limit(&mut self, limits: &[(String, Option<PacketRate>)]) -> Result<(), String> {
        if self.lock().limit_fails {
            return Err("the worker did not answer within 5 s".to_owned());
        }
        for (name, limit) in limits {
            self.router(name, |sim| sim.limit = *limit);
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), String> {
        Ok(())
    }
}

impl Grip {
    fn sim<T>(
        &self,
        what: impl FnOnce(&mut SimRouter) -> Result<T, CapError>,
    ) -> Result<T, CapError> {
        let gone = || Err(CapError::Gone { what: "the simulated router".to_owned() });
        self.0.router(&self.1, what).unwrap_or_else(gone)
    }
}

impl Actuator for Grip {
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

impl Cpu for Grip {
    fn used(&mut self) -> Result<Option<Nanos>, CapError> {
        self.sim(|sim| sim.there().map(|()| sim.reading.cpu))
    }
}
