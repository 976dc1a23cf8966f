// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread that steps the instances; there is one while a router is to be held.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use weir_host::cap::Budgets;
use weir_host::journal;
use weir_host::{HostError, StateDir};
use weir_policy::{Policy, Reservation};
use weir_units::{CpuShare, Nanos};

use super::host::Host;
use super::manager::Manager;
use super::parts::Wanted;
use super::readings::Collector;
use super::status::{Load, LogLine, RouterStatus};
use crate::clock;
use crate::reservation;
use crate::worker::Command;

/// What a start needs.
pub(crate) struct Start<'s> {
    pub(crate) policy: &'s Policy,
    pub(crate) state: &'s StateDir,
    /// To the worker.
    pub(crate) commands: SyncSender<Command>,
    /// Tells the operator.
    pub(crate) note: Box<dyn Fn(String) + Send>,
}

/// The manager, on its thread.
pub(crate) struct Running {
    shared: Arc<Shared>,
    thread: JoinHandle<()>,
}

struct Shared {
    manager: Mutex<Manager>,
    /// Something else is due than before.
    changed: Condvar,
    ended: AtomicBool,
}

impl Running {
    /// Holds the routers that the policy wants held; none where it wants none. What an earlier run
    /// left of routers is undone in either case.
    ///
    /// # Errors
    /// The journal is another's, or something of an earlier run stays; there is no thread to be
    /// had.
    pub(crate) fn start(start: Start<'_>) -> Result<Option<Self>, HostError> {
        let Start { policy, state, commands, note } = start;
        let journal = format!("xtc-{}", policy.node.name);
        if Wanted::of(policy).is_empty() {
            journal::clean_one(state, &journal)?;
            return Ok(None);
        }
        let (journal, left) = journal::open_clean(state, &journal, LOCK_PATIENCE)?;
        for what in &left.undone {
            note(format!("undone, left by an earlier run: {what}"));
        }
        let budgets = budgets(policy);
        let host = Host::new(&policy.node.name, journal, budgets, Some(commands.clone()));
        let collector = Collector::new(Some(commands));
        let mut manager = Manager::new(Box::new(collector), Box::new(host));
        manager.follow(clock::now(), policy);
        let manager = Mutex::new(manager);
        let shared = Shared { manager, changed: Condvar::new(), ended: AtomicBool::new(false) };
        let shared = Arc::new(shared);
        let own = Arc::clone(&shared);
        let wish = reservation::beside(&policy.node);
        let thread = std::thread::Builder::new()
            .name("weir-xtc".into())
            .spawn(move || {
                // Without it, it steps all the same; a worker that it shares with may be late.
                let _reserved = reservation::take(wish);
                own.work(&note);
            })
            .map_err(|error: io::Error| HostError::io("start", "the thread of routers", error))?;
        Ok(Some(Self { shared, thread }))
    }

    /// Does what `policy` says from now on.
    pub(crate) fn follow(&self, policy: &Policy) {
        self.shared.lock().follow(clock::now(), policy);
        self.shared.changed.notify_all();
    }

    /// As [`Manager::check`].
    ///
    /// # Errors
    /// What cannot be followed.
    pub(crate) fn check(&self, policy: &Policy) -> Result<(), String> {
        self.shared.lock().check(policy)
    }

    /// Whether no router is to be held any more.
    pub(crate) fn is_idle(&self) -> bool {
        self.shared.lock().is_idle()
    }

    /// How all routers are, and what holding them takes.
    pub(crate) fn status(&self) -> (Vec<RouterStatus>, Load) {
        let manager = self.shared.lock();
        (manager.status(), manager.load())
    }

    /// As [`Manager::log`].
    pub(crate) fn log(&self, router: &str, newest: usize) -> Option<Vec<LogLine>> {
        self.shared.lock().log(router, newest)
    }

    /// Takes all caps and limits away, hands everything back and ends the thread. What could not be
    /// handed back, a line each.
    pub(crate) fn end(self) -> Vec<String> {
        self.shared.ended.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
        // If it panicked, it has ended.
        let _ended = self.thread.join();
        let mut manager = self.shared.lock();
        let failed = manager.end_all(clock::now());
        let mut lines = manager.take_notes();
        lines.extend(failed.err());
        lines
    }
}

impl std::fmt::Debug for Running {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl Shared {
    fn work(&self, note: &dyn Fn(String)) {
        let mut manager = self.lock();
        while !self.ended.load(Ordering::Relaxed) {
            let now = clock::now();
            let wait = manager.next_due().saturating_since(now);
            if wait > Nanos::ZERO {
                let wait = Duration::from_nanos(wait.as_nanos()).min(WAIT_MOST);
                let waited = self.changed.wait_timeout(manager, wait);
                manager = waited.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            manager.tick(now);
            let used = clock_gettime(ClockId::ThreadCPUTime);
            let (seconds, nanos) = (used.tv_sec.unsigned_abs(), used.tv_nsec.unsigned_abs());
            manager.used(Nanos::new(seconds.saturating_mul(1_000_000_000).saturating_add(nanos)));
            manager.take_notes().into_iter().for_each(note);
        }
    }

    /// Each call of the manager leaves it whole, whatever happened to the thread that made it.
    fn lock(&self) -> MutexGuard<'_, Manager> {
        self.manager.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The last run of the same node may be about to end.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// However far away the next sample is, the end is seen.
const WAIT_MOST: Duration = Duration::from_secs(1);
