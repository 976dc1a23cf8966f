// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a node has to do with its routers: nothing, until its policy wants one held.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_platform::cap::Budgets;
use weir_platform::{HostError, StateDir, journal};
use weir_policy::{Policy, Reservation};
use weir_units::CpuShare;

use super::host::{self, Host};
use super::manager::Manager;
use super::parts::Wanted;
use super::readings::Collector;
use super::status::{Load, LogLine, RouterStatus};
use super::thread::{Asker, Patience, Running, Start};
use weir_dataplane::WorkerHandle;
use weir_dataplane::reservation;
use weir_dataplane::{Refusal, RefusalKind};

/// Tells the operator.
pub type Tell = Arc<dyn Fn(String) + Send + Sync>;

/// The routers of a node.
pub struct Holding {
    state: StateDir,
    tell: Tell,
    running: Mutex<Option<Running>>,
}

impl Holding {
    /// Holds no router yet.
    pub fn new(state: StateDir, tell: Tell) -> Self {
        Self { state, tell, running: Mutex::new(None) }
    }

    /// Holds the routers that `policy` wants held. What cannot be held is in the status, and tried
    /// again; what an earlier run left of routers is undone or told: a node starts all the same.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(&self, policy: &Policy, worker: &WorkerHandle) -> Result<(), HostError> {
        if Wanted::of(policy).is_empty() {
            let name = host::journal_name(&policy.node.name);
            match journal::clean_one(&self.state, &name) {
                Ok(cleaned) => cleaned.undone.iter().for_each(|what| self.tell_undone(what)),
                Err(error) => (self.tell)(format!("routers: {error}")),
            }
            return Ok(());
        }
        let asker = self.asker_for(policy, worker)?;
        if let Err(refusal) = asker.follow(policy) {
            (self.tell)(format!("routers are not held yet: {refusal}"));
        }
        Ok(())
    }

    /// Whether the policy could be followed; the thread that does comes with the first router.
    ///
    /// # Errors
    /// The router, the value and the bound; or there is nobody to follow it now.
    pub fn may_follow(&self, policy: &Policy, worker: &WorkerHandle) -> Result<(), Refusal> {
        if self.asker().is_none() && Wanted::of(policy).is_empty() {
            return Ok(());
        }
        let refused = |error: HostError| Refusal::new(RefusalKind::Refused, error.to_string());
        self.asker_for(policy, worker).map_err(refused)?.check(policy)
    }

    /// Does what `policy` says from now on; the thread goes with the last router. What it is too
    /// busy for now it does later.
    pub fn follow(&self, policy: &Policy) {
        let Some(asker) = self.asker() else { return };
        match asker.follow(policy) {
            Err(refusal) => (self.tell)(format!("the policy is followed later: {refusal}")),
            Ok(()) if Wanted::of(policy).is_empty() => {
                self.end().into_iter().for_each(|line| (self.tell)(line));
            }
            Ok(()) => {}
        }
    }

    /// Takes all caps and limits away. A line for each that could not be.
    pub fn end(&self) -> Vec<String> {
        let running = self.running().take();
        running.map(Running::end).unwrap_or_default()
    }

    /// How all routers are that are to be held, or the one of that name.
    ///
    /// # Errors
    /// What holds them does not answer.
    pub fn status(&self, router: Option<&str>) -> Result<(Vec<RouterStatus>, Load), Refusal> {
        self.asker().map_or_else(|| Ok(Default::default()), |asker| asker.status(router))
    }

    /// The newest decisions on a router; none if it is not to be held.
    ///
    /// # Errors
    /// What holds them does not answer.
    pub fn log(&self, router: &str, newest: usize) -> Result<Option<Vec<LogLine>>, Refusal> {
        self.asker().map_or(Ok(None), |asker| asker.log(router, newest))
    }

    fn asker(&self) -> Option<Asker> {
        self.running().as_ref().map(Running::asker)
    }

    /// Of the thread that there is, or of a new one.
    fn asker_for(&self, policy: &Policy, worker: &WorkerHandle) -> Result<Asker, HostError> {
        let mut running = self.running();
        if let Some(running) = running.as_ref() {
            return Ok(running.asker());
        }
        let (node, budgets) = (policy.node.name.clone(), budgets(policy));
        let (state, tell) = (self.state.clone(), Arc::clone(&self.tell));
        let worker = worker.clone();
        let make = Box::new(move || {
            let tell = Arc::clone(&tell);
            let host = Host::new(&node, &state, budgets.clone(), Some(worker.clone()), tell);
            Manager::new(Box::new(Collector::new(Some(worker.clone()))), Box::new(host))
        });
        let tell = Arc::clone(&self.tell);
        let note = Box::new(move |line| tell(line));
        let (wish, patience) = (reservation::beside(&policy.node), Patience::DEFAULT);
        let started = Running::start(Start { make, wish, note, patience })?;
        Ok(running.insert(started).asker())
    }

    fn tell_undone(&self, what: &str) {
        (self.tell)(format!("undone, left by an earlier run: {what}"));
    }

    /// It is there or not, whatever happened to the thread that had the lock.
    fn running(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Holding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holding").field("state", &self.state).finish_non_exhaustive()
    }
}

/// What deadline budgets of routers may come to, beside the worker's own.
fn budgets(policy: &Policy) -> Budgets {
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let beside = match policy.node.reservation {
        Reservation::Deadline => CpuShare::from_percent(WORKER_PERCENT),
        Reservation::Pinned | Reservation::Fifo | Reservation::None => CpuShare::ZERO,
    };
    Budgets::of(u32::try_from(processors).unwrap_or(u32::MAX), beside)
}

/// A worker's deadline reservation: see `reservation.rs`.
const WORKER_PERCENT: u32 = 90;
