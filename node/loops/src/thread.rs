// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The thread of the loops, which exists while a router is to be held or has a class.
//!
//! **The thread owns the manager. A caller sends it a job and waits for a bounded time. All waiting
//! jobs are done between two passes, late or not.** So neither a slow pass nor a hanging actuator
//! delays a caller for longer than that. An answer is a copy of the data; the caller makes the text
//! of it.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use weir_control::control_loop::Decision;
use weir_platform::HostError;
use weir_platform::cpu::CpuRequest;
use weir_policy::{KeyPath, Policy};
use weir_units::Nanos;

use super::classes::ClassStatus;
use super::error::RouterError;
use super::leases::{LeaseRequest, RefusedLeases};
use super::manager::LoopManager;
use super::status::{LogLine, LoopsLoad, RouterStatus};
use weir_dataplane::clock;
use weir_dataplane::reservation;
use weir_dataplane::{Refusal, RefusalKind};

/// The parameters of a start.
pub(crate) struct LoopsStart {
    /// Makes the manager, on the thread; again after a failure.
    pub(crate) make: Make,
    /// The processor time of the thread.
    pub(crate) request: Option<CpuRequest>,
    /// Tells the operator.
    pub(crate) note: Box<dyn Fn(String) + Send>,
    pub(crate) patience: Patience,
}

pub(crate) type Make = Box<dyn FnMut() -> LoopManager + Send>;

/// The bounds on waiting.
#[derive(Clone, Copy)]
pub(crate) struct Patience {
    /// The longest wait for an answer.
    pub(crate) answer: Duration,
    /// The time from a failure to the next start.
    pub(crate) anew: Nanos,
}

/// The manager, on its thread.
pub(crate) struct LoopsThread {
    asker: LoopsClient,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Vec<String>>,
}

/// A client of the thread.
#[derive(Clone)]
pub(crate) struct LoopsClient {
    jobs: SyncSender<Job>,
    /// The newest policy to follow, which is kept however busy the thread is.
    newest: Newest,
    patience: Duration,
}

type Job = Box<dyn FnOnce(&mut LoopsState) + Send>;
type Newest = Arc<Mutex<Option<Policy>>>;

/// The state that a job may use.
struct LoopsState {
    manager: LoopManager,
    /// The policy in force.
    policy: Option<Policy>,
    newest: Newest,
}

impl LoopsThread {
    /// Starts the thread, without routers.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn start(start: LoopsStart) -> Result<Self, HostError> {
        let LoopsStart { make, request, note, patience } = start;
        let (jobs, inbox) = sync_channel(JOBS_MAX);
        let newest = Newest::default();
        let ended = Arc::new(AtomicBool::new(false));
        let asker = LoopsClient { jobs, newest: Arc::clone(&newest), patience: patience.answer };
        let seen = Arc::clone(&ended);
        let thread = std::thread::Builder::new()
            .name("weir-xtc".into())
            .spawn(move || {
                // Without a reservation the thread runs all the same, but it may delay a worker on
                // the same processor.
                let _reserved = reservation::take(request);
                Work::new(make, newest, inbox, seen, note, patience.anew).run()
            })
            .map_err(|error: io::Error| HostError::io("start", "the thread of routers", error))?;
        Ok(Self { asker, ended, thread })
    }

    /// Returns a client.
    pub(crate) fn asker(&self) -> LoopsClient {
        self.asker.clone()
    }

    /// Releases all routers and ends the thread. Returns a line for each leftover.
    pub(crate) fn end(self) -> Vec<String> {
        self.ended.store(true, Ordering::Relaxed);
        // A busy thread sees the end after its job.
        let _woken = self.asker.jobs.try_send(Box::new(|_| {}));
        self.thread.join().unwrap_or_else(|_| vec!["routers: what held them failed".to_owned()])
    }
}

impl std::fmt::Debug for LoopsThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Running").finish_non_exhaustive()
    }
}

impl LoopsClient {
    /// Has the loops follow `policy`. A busy thread does so later.
    ///
    /// # Errors
    /// The policy is not followed yet.
    pub(crate) fn follow(&self, policy: &Policy) -> Result<(), Refusal> {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Some(policy.clone());
        self.ask(LoopsState::follow)
    }

    /// Checks a policy by [`LoopManager::check`].
    ///
    /// # Errors
    /// The policy cannot be followed, or the thread does not answer.
    pub(crate) fn check(&self, policy: &Policy) -> Result<(), Refusal> {
        let policy = policy.clone();
        let checked = self.ask(move |stage| stage.manager.check(&policy))?;
        checked.map_err(|unfit| {
            let refusal = Refusal::new(RefusalKind::Refused, unfit.to_string());
            match unfit.error {
                RouterError::Class(_) => {
                    refusal.about([KeyPath::of("router", &unfit.router, "realtime.cpu")])
                }
                RouterError::NoCore(_) | RouterError::SharedCore(_) => {
                    refusal.about([KeyPath::of("router", &unfit.router, "realtime.core")])
                }
                _ => refusal,
            }
        })
    }

    /// Has the loops take set-points of a controller, under the newest policy. Returns the routers
    /// for which they are refused.
    ///
    /// # Errors
    /// The thread does not answer.
    pub(crate) fn lease(&self, request: LeaseRequest) -> Result<RefusedLeases, Refusal> {
        self.ask(move |stage| {
            stage.follow();
            stage.manager.lease(clock::now(), &request)
        })
    }

    /// Returns the status of all routers or of one, and the load.
    ///
    /// # Errors
    /// The thread does not answer.
    pub(crate) fn status(
        &self,
        router: Option<&str>,
    ) -> Result<(Vec<RouterStatus>, LoopsLoad), Refusal> {
        let router = router.map(str::to_owned);
        self.ask(move |stage| (stage.manager.status(router.as_deref()), stage.manager.load()))
    }

    /// Returns the status of all classes, or of one router's.
    ///
    /// # Errors
    /// The thread does not answer.
    pub(crate) fn classes(&self, router: Option<&str>) -> Result<Vec<ClassStatus>, Refusal> {
        let router = router.map(str::to_owned);
        self.ask(move |stage| stage.manager.classes(router.as_deref()))
    }

    /// Returns the newest decisions on a router; none if it is not to be held.
    ///
    /// # Errors
    /// The thread does not answer.
    pub(crate) fn log(&self, router: &str, newest: usize) -> Result<Option<Vec<LogLine>>, Refusal> {
        let router = router.to_owned();
        let copied: Option<Vec<Decision>> =
            self.ask(move |stage| stage.manager.decisions(&router, newest))?;
        Ok(copied.map(|decisions| decisions.iter().map(LogLine::from).collect()))
    }

    fn ask<T: Send + 'static>(
        &self,
        what: impl FnOnce(&mut LoopsState) -> T + Send + 'static,
    ) -> Result<T, Refusal> {
        let (reply, answer) = sync_channel(1);
        let job = move |stage: &mut LoopsState| {
            // The caller may have given up.
            let _heard = reply.send(what(stage));
        };
        let busy = |text: String| Refusal::new(RefusalKind::Busy, format!("control loops: {text}"));
        self.jobs.try_send(Box::new(job)).map_err(|error| match error {
            TrySendError::Full(_) => busy(format!("{JOBS_MAX} requests are pending")),
            TrySendError::Disconnected(_) => busy("they are ending".to_owned()),
        })?;
        answer.recv_timeout(self.patience).map_err(|error| {
            busy(match error {
                RecvTimeoutError::Timeout => {
                    let most = self.patience.as_millis();
                    format!("no answer within {most} ms")
                }
                RecvTimeoutError::Disconnected => "they failed or are ending".to_owned(),
            })
        })
    }
}

impl LoopsState {
    /// Follows the newest policy, if there is one that was not followed yet.
    fn follow(&mut self) {
        let newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(policy) = newest {
            // Kept first: after a failure the next manager follows it.
            let policy = self.policy.insert(policy);
            self.manager.follow(clock::now(), policy);
        }
    }
}

/// The thread.
struct Work {
    stage: LoopsState,
    make: Make,
    inbox: Receiver<Job>,
    ended: Arc<AtomicBool>,
    note: Box<dyn Fn(String) + Send>,
    anew: Nanos,
}

impl Work {
    fn new(
        mut make: Make,
        newest: Newest,
        inbox: Receiver<Job>,
        ended: Arc<AtomicBool>,
        note: Box<dyn Fn(String) + Send>,
        anew: Nanos,
    ) -> Self {
        let stage = LoopsState { manager: make(), policy: None, newest };
        Self { stage, make, inbox, ended, note, anew }
    }

    /// Runs until the end. A failure of the program is reported, and leaves no cap behind.
    fn run(mut self) -> Vec<String> {
        while catch_unwind(AssertUnwindSafe(|| self.serve())).is_err() {
            self.begin_anew();
        }
        let failed = self.stage.manager.end_all(clock::now());
        let mut lines = self.stage.manager.take_notes();
        lines.extend(failed.err().map(|unclean| unclean.to_string()));
        lines
    }

    fn serve(&mut self) {
        while !self.ended.load(Ordering::Relaxed) {
            let wait = self.stage.manager.next_due().saturating_since(clock::now());
            let wait = Duration::from_nanos(wait.as_nanos()).min(WAIT_MOST);
            match self.inbox.recv_timeout(wait) {
                Ok(job) => {
                    job(&mut self.stage);
                    self.do_waiting();
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.stage.follow();
            let manager = &mut self.stage.manager;
            manager.tick(clock::now());
            manager.used(thread_time());
            manager.take_notes().into_iter().for_each(&self.note);
        }
    }

    /// Does waiting jobs, at most as many as the queue holds.
    fn do_waiting(&mut self) {
        for _ in 0..JOBS_MAX {
            match self.inbox.try_recv() {
                Ok(job) => job(&mut self.stage),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => return,
            }
        }
    }

    /// Replaces a manager that panicked. All routers are released, by the undo journal if the
    /// manager cannot do it, and are held again some time later.
    fn begin_anew(&mut self) {
        let now = clock::now();
        let ended = catch_unwind(AssertUnwindSafe(|| self.stage.manager.end_all(now)));
        let left = match ended {
            Ok(Ok(())) => "no cap and no limit is in force".to_owned(),
            Ok(Err(unclean)) => unclean.to_string(),
            Err(_) => "caps and limits may still be in force".to_owned(),
        };
        let why = format!("the control loops failed, and begin anew after {}", self.anew);
        (self.note)(format!("{why}: {left}"));
        self.stage.manager = (self.make)();
        self.stage.manager.hold_off(now + self.anew, why);
        let mut newest = self.stage.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if newest.is_none() {
            newest.clone_from(&self.stage.policy);
        }
    }
}

/// Returns the CPU time of the calling thread.
fn thread_time() -> Nanos {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    let (seconds, nanos) = (used.tv_sec.unsigned_abs(), used.tv_nsec.unsigned_abs());
    Nanos::new(seconds.saturating_mul(1_000_000_000).saturating_add(nanos))
}

impl Patience {
    /// The default: a pass takes milliseconds. systemd ends a node that shows no sign of life for
    /// ten seconds; a reload, which asks twice, stays far below that.
    pub(crate) const DEFAULT: Self =
        Self { answer: Duration::from_secs(2), anew: Nanos::from_secs(10) };
}

/// The most jobs that wait.
const JOBS_MAX: usize = 64;

/// The longest wait between two looks at the end flag, however far away the next sample is.
const WAIT_MOST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests;
