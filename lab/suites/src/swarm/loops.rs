// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan carried out: the shipped manager of all control loops over a [`SwarmWorld`], in virtual
//! time.
//!
//! The loop is that of the daemon's thread: sleep until the next loop is due, but for a second at
//! most; follow a changed policy; tick. In between, the world forwards, and the plan's events
//! happen.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;
use weir_loops::{ClassKeeper, LoopManager};
use weir_policy::{Draft, Edit, KeyPath, Policy};
use weir_sim::{CreditAccounting, Seed, SimError};
use weir_units::{Instant, Nanos, PacketRate};

use super::judge::Judge;
use super::mutants::{Invariant, SwarmMutant};
use super::outcome::{SwarmTally, Violation};
use super::plan::{STEPS_WITHIN_MS, SwarmEvent, SwarmFault, SwarmPlan, SwarmStep};
use super::world::{START, SwarmWorld};

/// A run of the control loops.
pub(crate) struct LoopsRun {
    mutant: Option<SwarmMutant>,
    pub(crate) world: SwarmWorld,
    pub(crate) manager: LoopManager,
    document: Draft,
    /// The policy in force.
    pub(crate) policy: Policy,
    /// The true time since the start.
    pub(crate) now: Instant,
    /// The clock's lead over the true time, in nanoseconds.
    clock_off: i64,
    /// The control of routers that left the policy, to come back.
    removed: BTreeMap<usize, Value>,
    /// Faults that go on, with their ends.
    faults: Vec<(Instant, SwarmFault)>,
    /// The manager does not run before this.
    late_until: Instant,
    jitter: Seed,
    judge: Judge,
    tally: SwarmTally,
}

impl LoopsRun {
    /// Makes the node of a plan, which follows its first policy.
    pub(crate) fn new(
        plan: &SwarmPlan,
        mutant: Option<SwarmMutant>,
    ) -> Result<Self, SwarmRunError> {
        let accounting = plan.machine.then_some(CreditAccounting::Exact);
        let world = SwarmWorld::new(&plan.routers, accounting, plan.seed, mutant)?;
        let manager = manager_of(&world);
        let (document, policy) = first_policy(plan, &manager)?;
        let mut run = Self {
            mutant,
            manager,
            world,
            document,
            policy,
            now: Instant::ZERO,
            clock_off: 0,
            removed: BTreeMap::new(),
            faults: Vec::new(),
            late_until: Instant::ZERO,
            jitter: Seed::new(plan.seed ^ JITTER),
            judge: Judge::new(plan.routers.len()),
            tally: SwarmTally::default(),
        };
        run.manager.follow(run.clock(), &run.told());
        run.judge.look(run.now, &run.manager, &run.policy, &run.world);
        Ok(run)
    }

    /// Carries out the steps, lets the node settle, and judges it. Returns what was broken.
    pub(crate) fn run(
        mut self,
        steps: &[&SwarmStep],
    ) -> Result<(Vec<Violation>, SwarmTally), SwarmRunError> {
        let mut left = steps.iter();
        let mut next = left.next();
        let busy = Instant::ZERO + Nanos::from_millis(STEPS_WITHIN_MS);
        while self.now < busy || !self.faults.is_empty() {
            let stop = next.map_or_else(|| busy.max(self.now + WINDOW), |step| step.at);
            self.advance(stop)?;
            while let Some(step) = next.filter(|step| step.at <= self.now) {
                self.happen(&step.event);
                next = left.next();
            }
            self.end_faults();
            self.tick();
        }
        self.settle(SETTLE)?;
        self.judge_end()?;
        Ok((self.judge.violations, self.tally))
    }

    /// Runs without faults until `span` has passed.
    pub(crate) fn settle(&mut self, span: Nanos) -> Result<(), SwarmRunError> {
        let end = self.now + span;
        while self.now < end {
            self.advance(end)?;
            self.tick();
        }
        Ok(())
    }

    /// Returns the manager's clock.
    pub(crate) fn clock(&self) -> Instant {
        let now = START + self.now.saturating_since(Instant::ZERO);
        let off = Nanos::new(self.clock_off.unsigned_abs());
        if self.clock_off < 0 {
            Instant::from_nanos(now.as_nanos() - off.as_nanos())
        } else {
            now + off
        }
    }

    /// Lets the world forward until something is due, at `stop` at the latest.
    fn advance(&mut self, stop: Instant) -> Result<(), SwarmRunError> {
        let wait = self.manager.next_due().saturating_since(self.clock());
        // The thread wakes up a little late, and at least once a second.
        let late = Nanos::from_micros(self.jitter.between(0, 2000));
        let due = self.now + wait.min(Nanos::from_secs(1)) + late;
        let due = if due < self.late_until { self.late_until } else { due };
        let faults = self.faults.iter().map(|(end, _)| *end).min().unwrap_or(due);
        let next = due.min(faults).min(stop).max(self.now + Nanos::from_micros(100));
        let span = next - self.now;
        self.now = next;
        let clock = self.clock();
        self.world.lock().forward(span, clock)?;
        Ok(())
    }

    fn tick(&mut self) {
        if self.now < self.late_until {
            return;
        }
        if self.faults.iter().any(|(_, fault)| matches!(fault, SwarmFault::Frozen(_))) {
            self.judge.blind(self.now);
        }
        let clock = self.clock();
        self.manager.tick(clock);
        self.tally.ticks += 1;
        let _lines = self.manager.take_notes();
        if self.manager.next_due() <= clock {
            let due = self.manager.next_due();
            self.judge.broken(
                Invariant::Storm,
                self.now,
                format!("due at {due} again, at {clock}"),
            );
        }
        self.judge.look(self.now, &self.manager, &self.policy, &self.world);
    }

    fn happen(&mut self, event: &SwarmEvent) {
        self.tally.events += 1;
        self.judge.note_event();
        let mut state = self.world.lock();
        let router = |at: usize| if at < state.routers.len() { at } else { 0 };
        match event {
            SwarmEvent::Offer(at, rate) => {
                let at = router(*at);
                self.judge.offered(self.now, at, state.routers[at].offered);
                state.routers[at].offered = *rate;
            }
            SwarmEvent::Misread(at, ahead) => {
                let at = router(*at);
                state.routers[at].misread(*ahead);
                // A manager knows nothing but its meters.
                self.judge.misread(self.now, at);
                self.judge.blind(self.now);
            }
            SwarmEvent::Fault(fault, lasts) => {
                drop(state);
                self.set_fault(*fault, true);
                self.faults.push((self.now + *lasts, *fault));
            }
            SwarmEvent::Late(by) => {
                self.late_until = self.late_until.max(self.now + *by);
                self.judge.blind(self.late_until);
            }
            SwarmEvent::Clock(by) => {
                self.clock_off += by * 1_000_000;
                self.judge.blind(self.now);
            }
            SwarmEvent::Change(edits) => {
                drop(state);
                self.change(edits);
            }
            SwarmEvent::Toggle(at) => {
                drop(state);
                self.toggle(*at);
            }
            SwarmEvent::Crash => {
                drop(state);
                self.crash();
            }
        }
    }

    fn end_faults(&mut self) {
        let (over, on): (Vec<_>, Vec<_>) =
            self.faults.iter().copied().partition(|(end, _)| *end <= self.now);
        self.faults = on;
        for (_, fault) in over {
            // Two faults of a kind may overlap: the fault lasts until the later one ends.
            let goes_on =
                |(_, other): &(Instant, SwarmFault)| format!("{other:?}") == format!("{fault:?}");
            if !self.faults.iter().any(goes_on) {
                self.set_fault(fault, false);
            }
        }
    }

    fn set_fault(&mut self, fault: SwarmFault, on: bool) {
        self.judge.blind(self.now);
        let mut state = self.world.lock();
        match fault {
            SwarmFault::Frozen(at) => state.routers[at].frozen = on,
            SwarmFault::NoDevice(at) => state.routers[at].no_device = on,
            SwarmFault::Dead(at) => state.die(at, on),
            SwarmFault::Refuses(at) => state.routers[at].refuses = on,
            SwarmFault::ClassFails(at) => state.routers[at].class_fails = on,
            SwarmFault::LimitsFail => state.limits_fail = on,
            SwarmFault::GiveBackFails => state.give_back_fails = on,
        }
    }

    /// Changes the policy as the node does: all edits or none, checked before anything follows.
    fn change(&mut self, edits: &[Edit]) {
        let mut document = self.document.clone();
        let edited = edits.iter().all(|edit| document.apply(edit).is_ok());
        let Some(policy) = document.policy().ok().filter(|_| edited) else {
            self.tally.refused += 1;
            return;
        };
        if self.manager.check(&policy).is_err() {
            self.tally.refused += 1;
            return;
        }
        self.tally.changed += 1;
        (self.document, self.policy) = (document, policy);
        if self.mutant == Some(SwarmMutant::LosesChanges) {
            self.judge.look(self.now, &self.manager, &self.policy, &self.world);
        } else {
            self.follow();
        }
    }

    fn follow(&mut self) {
        let (clock, told) = (self.clock(), self.told());
        self.manager.follow(clock, &told);
        // A router that comes is not seen yet, and lends what it has.
        self.judge.blind(self.now);
        self.judge.look(self.now, &self.manager, &self.policy, &self.world);
    }

    fn toggle(&mut self, at: usize) {
        let name = self.world.lock().routers[at].name.clone();
        let place = KeyPath::of("router", &name, "xtc");
        let edit = match self.removed.remove(&at) {
            Some(value) => Edit::set(place, value),
            None => {
                if let Some(value) = self.document.value(&place) {
                    self.removed.insert(at, value);
                }
                Edit::unset(place)
            }
        };
        let comes = edit.after.clone();
        let before = self.tally.changed;
        self.change(&[edit]);
        if self.tally.changed == before {
            // Refused: it stays where it was.
            match comes {
                Some(value) => drop(self.removed.insert(at, value)),
                None => drop(self.removed.remove(&at)),
            }
        }
    }

    /// Kills the node and starts it again, with the policy that is on record.
    pub(crate) fn crash(&mut self) {
        self.tally.crashes += 1;
        self.world.lock().crash();
        self.manager = manager_of(&self.world);
        self.judge.blind(self.now);
        self.follow();
    }

    /// Returns the policy that the manager is given. Some mutants falsify it.
    fn told(&self) -> Policy {
        let mut policy = self.policy.clone();
        match self.mutant {
            Some(SwarmMutant::SharesTooMuch) => {
                let more = |rate: PacketRate| PacketRate::from_pps(rate.as_pps() * 3 / 2);
                policy.node.capacity = policy.node.capacity.map(more);
            }
            Some(SwarmMutant::HalvesMinimums) => {
                for router in &mut policy.routers {
                    let half = router.receive.min_pps.as_pps() / 2;
                    router.receive.min_pps = PacketRate::from_pps(half);
                }
            }
            Some(SwarmMutant::IgnoresRange) => {
                for xtc in policy.routers.iter_mut().filter_map(|one| one.xtc.as_mut()) {
                    (xtc.cap_min, xtc.cap_max) = (None, None);
                }
            }
            Some(SwarmMutant::ActsInDryRuns) => policy.xtc.dry_run = false,
            _ => {}
        }
        policy
    }

    /// Judges a settled node: its rates, its routers after a crash, and what its end leaves behind.
    fn judge_end(&mut self) -> Result<(), SwarmRunError> {
        self.judge_rates()?;
        let kept = self.judge.standing(&self.manager, &self.policy, &self.world);
        self.crash();
        self.settle(AFTER_CRASH)?;
        let now = self.judge.standing(&self.manager, &self.policy, &self.world);
        self.judge.adopted(self.now, &kept, &now);
        self.turn_off_while_down()?;
        self.judge.let_go(self.now, &self.world);
        let clock = self.clock();
        let ended = self.manager.end_all(clock);
        self.judge.restored(self.now, ended, &self.world);
        Ok(())
    }

    /// Judges the rates over the first window in which contention neither begins nor ends, and
    /// nobody's grade changes. Contention that keeps coming back ends for 30 s at most, so that one
    /// of [`WINDOWS_MOST`] windows is steady. The last window is judged in any case.
    fn judge_rates(&mut self) -> Result<(), SwarmRunError> {
        for window in 1..=WINDOWS_MOST {
            let (before, regime) = (self.judge.mark(&self.world), Judge::regime(&self.manager));
            self.settle(WINDOW)?;
            if regime == Judge::regime(&self.manager) || window == WINDOWS_MOST {
                let told = (&self.manager, &self.policy);
                self.judge.rates(self.now, WINDOW, &before, told, &self.world);
                return Ok(());
            }
        }
        Ok(())
    }

    /// Kills the node, and starts it with a policy that turns every router off.
    fn turn_off_while_down(&mut self) -> Result<(), SwarmRunError> {
        let names: Vec<String> = self.policy.routers.iter().map(|one| one.name.clone()).collect();
        for name in names {
            let place = KeyPath::of("router", &name, "xtc.state");
            if self.document.value(&KeyPath::of("router", &name, "xtc")).is_some() {
                let edit = Edit::set(place, "off");
                self.document.apply(&edit).map_err(|error| SwarmRunError(format!("{error:?}")))?;
            }
        }
        self.policy = self.document.policy().map_err(|error| SwarmRunError(error.to_string()))?;
        self.crash();
        self.settle(AFTER_CRASH)
    }
}

/// Returns the first policy, without its real-time classes if they do not fit.
fn first_policy(plan: &SwarmPlan, manager: &LoopManager) -> Result<(Draft, Policy), SwarmRunError> {
    let wrong = |error: &dyn fmt::Display| SwarmRunError(format!("{error}\n{}", plan.text));
    let (mut document, policy) = Draft::parse(&plan.text).map_err(|error| wrong(&error))?;
    if manager.check(&policy).is_ok() {
        return Ok((document, policy));
    }
    for router in &plan.routers {
        let class = KeyPath::of("router", &router.name, "realtime");
        document.apply(&Edit::unset(class)).map_err(|error| wrong(&format!("{error:?}")))?;
    }
    let policy = document.policy().map_err(|error| wrong(&error))?;
    Ok((document, policy))
}

fn manager_of(world: &SwarmWorld) -> LoopManager {
    let manager = LoopManager::new(Box::new(world.clone()), Box::new(world.clone()));
    manager.with_classes(ClassKeeper::new(Box::new(world.clone())))
}

/// The reason why a seed could not be run at all.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub struct SwarmRunError(pub(crate) String);

impl From<SimError> for SwarmRunError {
    fn from(error: SimError) -> Self {
        Self(error.to_string())
    }
}

/// A missing router is looked for every ten seconds; a flood takes fifteen to be stopped.
const SETTLE: Nanos = Nanos::from_secs(45);
const WINDOW: Nanos = Nanos::from_secs(5);
const WINDOWS_MOST: u32 = 8;
const AFTER_CRASH: Nanos = Nanos::from_secs(10);

const JITTER: u64 = 0x6a17;
