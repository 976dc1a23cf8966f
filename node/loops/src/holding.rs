// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control loops of a node. Their thread exists while the policy has a router that is held or
//! has a class.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use weir_control::realtime::ProcessorPool;
use weir_platform::cap::Budgets;
use weir_platform::cpu;
use weir_platform::doctor::TimingFacts;
use weir_platform::{HostError, StateDir, journal};
use weir_policy::{Policy, Reservation};
use weir_units::CpuShare;

use super::class_host::{self, HostClasses};
use super::classes::{ClassKeeper, ClassStatus, RouterClass};
use super::error::UnfitRouter;
use super::host::{self, HostPlatform};
use super::leases::{LeaseRequest, RefusedLeases};
use super::manager::LoopManager;
use super::parts::{RouterTarget, Tell};
use super::readings::ThroughputCollector;
use super::status::{LogLine, LoopsLoad, RouterStatus};
use super::thread::{LoopsClient, LoopsStart, LoopsThread, Patience};
use weir_dataplane::WorkerHandle;
use weir_dataplane::reservation;
use weir_dataplane::{Refusal, RefusalKind};

/// The control loops of a node's routers.
pub struct RouterLoops {
    state: StateDir,
    tell: Tell,
    running: Mutex<Option<LoopsThread>>,
}

impl RouterLoops {
    /// Makes the value, without any loop.
    pub fn new(state: StateDir, tell: Tell) -> Self {
        Self { state, tell, running: Mutex::new(None) }
    }

    /// Starts the loops of the policy's routers. A router that cannot be held yet, or a class that
    /// does not fit, is shown in the status and retried. It does not keep the node from starting,
    /// since the host may reach the world through this node's ports only. Leftovers of an earlier
    /// run are undone or reported; the node starts in any case.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(&self, policy: &Policy, worker: &WorkerHandle) -> Result<(), HostError> {
        if has_nothing(policy) {
            let node = &policy.node.name;
            for name in [host::journal_name(node), class_host::journal_name(node)] {
                match journal::clean_one(&self.state, &name) {
                    Ok(cleaned) => cleaned.undone.iter().for_each(|what| self.tell_undone(what)),
                    Err(error) => (self.tell)(format!("routers: {error}")),
                }
            }
            return Ok(());
        }
        let asker = self.asker_for(policy, worker)?;
        if let Err(refusal) = asker.follow(policy) {
            (self.tell)(format!("routers are not held yet: {refusal}"));
        }
        Ok(())
    }

    /// Checks that the loops can follow the policy. Starts the thread if the policy has the first
    /// router to be held or with a class.
    ///
    /// # Errors
    /// The router, the value and the bound; or the thread does not answer.
    pub fn may_follow(&self, policy: &Policy, worker: &WorkerHandle) -> Result<(), Refusal> {
        if self.asker().is_none() && has_nothing(policy) {
            return Ok(());
        }
        let refused = |error: HostError| Refusal::new(RefusalKind::Refused, error.to_string());
        self.asker_for(policy, worker).map_err(refused)?.check(policy)
    }

    /// Follows the policy from now on; a busy thread does so later. The thread ends with the last
    /// router that is held or has a class.
    pub fn follow(&self, policy: &Policy) {
        let Some(asker) = self.asker() else { return };
        match asker.follow(policy) {
            Err(refusal) => (self.tell)(format!("the policy is followed later: {refusal}")),
            Ok(()) if has_nothing(policy) => {
                self.end().into_iter().for_each(|line| (self.tell)(line));
            }
            Ok(()) => {}
        }
    }

    /// Takes set-points of a controller of several nodes ([`LoopManager::lease`]). Returns the
    /// routers for which they are refused.
    ///
    /// # Errors
    /// The thread does not answer.
    pub fn lease(&self, request: LeaseRequest) -> Result<RefusedLeases, Refusal> {
        match self.asker() {
            Some(asker) => asker.lease(request),
            None => Ok(request.without_loops()),
        }
    }

    /// Releases all routers. Returns a line for each failure.
    pub fn end(&self) -> Vec<String> {
        let running = self.running().take();
        running.map(LoopsThread::end).unwrap_or_default()
    }

    /// Returns the status of all routers to be held, or of the named one.
    ///
    /// # Errors
    /// The thread does not answer.
    pub fn status(&self, router: Option<&str>) -> Result<(Vec<RouterStatus>, LoopsLoad), Refusal> {
        self.asker().map_or_else(|| Ok(Default::default()), |asker| asker.status(router))
    }

    /// Returns the status of all routers' classes, or of the named one's.
    ///
    /// # Errors
    /// The thread does not answer.
    pub fn classes(&self, router: Option<&str>) -> Result<Vec<ClassStatus>, Refusal> {
        self.asker().map_or_else(|| Ok(Vec::new()), |asker| asker.classes(router))
    }

    /// Returns the newest decisions on a router; none if it is not to be held.
    ///
    /// # Errors
    /// The thread does not answer.
    pub fn log(&self, router: &str, newest: usize) -> Result<Option<Vec<LogLine>>, Refusal> {
        self.asker().map_or(Ok(None), |asker| asker.log(router, newest))
    }

    fn asker(&self) -> Option<LoopsClient> {
        self.running().as_ref().map(LoopsThread::asker)
    }

    /// Returns a client of the thread, and starts it if need be.
    fn asker_for(&self, policy: &Policy, worker: &WorkerHandle) -> Result<LoopsClient, HostError> {
        let mut running = self.running();
        if let Some(running) = running.as_ref() {
            return Ok(running.asker());
        }
        let (node, budgets) = (policy.node.name.clone(), budgets(policy));
        let (state, tell) = (self.state.clone(), Arc::clone(&self.tell));
        let worker = worker.clone();
        let make = Box::new(move || {
            let tell = Arc::clone(&tell);
            let classes = HostClasses::new(&node, &state, budgets.clone(), Arc::clone(&tell));
            let host =
                HostPlatform::new(&node, &state, budgets.clone(), Some(worker.clone()), tell);
            LoopManager::new(
                Box::new(ThroughputCollector::new(Some(worker.clone()))),
                Box::new(host),
            )
            .with_classes(ClassKeeper::new(Box::new(classes)))
        });
        let tell = Arc::clone(&self.tell);
        let note = Box::new(move |line| tell(line));
        let (request, patience) = (reservation::beside(&policy.node), Patience::DEFAULT);
        let started = LoopsThread::start(LoopsStart { make, request, note, patience })?;
        Ok(running.insert(started).asker())
    }

    fn tell_undone(&self, what: &str) {
        (self.tell)(format!("undone, left by an earlier run: {what}"));
    }

    /// Locks the thread's handle, which is valid even if another holder of the lock panicked.
    fn running(&self) -> MutexGuard<'_, Option<LoopsThread>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for RouterLoops {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Holding").field("state", &self.state).finish_non_exhaustive()
    }
}

/// The plan of a node's routers, for a dry run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RouterPlan {
    /// Each router to be held and each class, a line each.
    pub lines: Vec<String>,
    /// The reasons for which a class could not come into force on this host.
    pub problems: Vec<String>,
}

/// Plans the routers to be held, and the classes. It reads the host and changes nothing.
#[must_use]
pub fn plan(policy: &Policy) -> RouterPlan {
    let mut lines = host::plan(policy);
    let classes = RouterClass::of(policy);
    lines.extend(classes.iter().map(class_host::plan));
    let problems = class_host::check(&classes, &budgets(policy)).err();
    let problem = |unfit: UnfitRouter| format!("router {}: {}", unfit.router, unfit.error);
    RouterPlan { lines, problems: problems.into_iter().map(problem).collect() }
}

/// Returns true if no router is to be held and none has a class.
fn has_nothing(policy: &Policy) -> bool {
    RouterTarget::of(policy).is_empty() && RouterClass::of(policy).is_empty()
}

/// Returns the bound on deadline budgets of routers on this host, beside the worker's own.
fn budgets(policy: &Policy) -> Budgets {
    let beside = match policy.node.reservation {
        Reservation::Deadline => CpuShare::from_percent(WORKER_PERCENT),
        Reservation::Pinned | Reservation::Fifo | Reservation::None => CpuShare::ZERO,
    };
    let count = cpu::count();
    Budgets::of(ProcessorPool { count, granted: TimingFacts::read().granted() }, beside)
}

/// The worker's deadline reservation, in percent of a processor: see `reservation.rs` of
/// `weir-dataplane`.
const WORKER_PERCENT: u32 = 90;
