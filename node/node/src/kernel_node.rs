// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node whose data plane is the kernel's own: the host's bridge forwards, this process configures
//! and answers.
//!
//! A start plans the way from what is there to the policy, and makes it; a live change is the same
//! with another policy. No packet depends on the process: one that is killed or leaves changes
//! nothing, and the next start goes on from there. A stop undoes everything.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use weir_api_types::status::NodeStatus;
use weir_dataplane::capture::{CaptureRequest, Capturing};
use weir_kernel::{KernelPlane, KernelPlaneError};
use weir_kernel_plan::CompiledPolicy;
use weir_platform::journal::{self, Journal};
use weir_platform::{StateDir, Undo, text};
use weir_policy::{Dataplane, Edit, Policy};
use weir_report::{
    ReportKeeper, ReportStore, ReportSubject, ReportTicker, Service, StoreAnswer, StoreQuery,
};

use crate::changes::PolicyChange;
use crate::control::{self, ChangeRequest, Control, InForce, Refusal, RefusalKind};
use crate::error::NodeError;
use crate::hotplug::DeviceWatch;
use crate::kernel_status;
use crate::live_policy::{ApplyPolicy, LivePolicy};
use crate::operator_notes::OperatorNotes;
use crate::options::{NodeEnd, Options, Serving};
use crate::service_manager::ServiceManager;
use crate::takeover::{LOCK_PATIENCE, all_undone, journal_name};

/// A running node, as all threads see it.
#[derive(Debug)]
struct KernelNode {
    config: PathBuf,
    started: Instant,
    /// The data plane and its journal; `None` after the end.
    host: Mutex<Option<KernelHost>>,
    /// The policy with its live changes, locked for one change at a time, before `host`.
    live: Mutex<LivePolicy>,
    /// The policy in force, which can be read while a change is in progress.
    in_force: RwLock<InForce>,
    keeper: ReportKeeper,
    notes: Arc<Mutex<OperatorNotes>>,
    confirmed: AtomicBool,
    stop: Arc<AtomicBool>,
    leave: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

/// The data plane and the journal that undoes it.
#[derive(Debug)]
struct KernelHost {
    plane: KernelPlane,
    journal: Journal,
}

/// Runs the node until it is asked to end.
///
/// # Errors
/// The policy cannot be enforced here, or a change of the host cannot be undone.
pub(crate) fn run<S>(
    options: &Options,
    live: LivePolicy,
    report: &mut dyn FnMut(&str),
    serve: impl FnOnce(Serving) -> std::io::Result<S>,
) -> Result<NodeEnd, NodeError> {
    let policy = live.in_force().policy;
    let name = &policy.node.name;
    let adopts = KernelPlane::was_left(&options.state, name);
    let mut journal = match adopts {
        true => {
            report("going on with what an earlier run left");
            Journal::open(&options.state, &journal_name(&policy), LOCK_PATIENCE)?
        }
        false => {
            let (journal, left) =
                journal::open_clean(&options.state, &journal_name(&policy), LOCK_PATIENCE)?;
            for what in &left.undone {
                report(&format!("undone, left by an earlier run: {what}"));
            }
            journal
        }
    };
    let socket = control::socket_path(options.state.path(), name);
    let begun = begin(&options.state, &policy, &socket, &mut journal);
    let (plane, compiled) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            // An earlier run's data plane goes on.
            if adopts {
                journal.keep()?
            } else {
                undo(journal)?
            }
            return Err(error);
        }
    };
    lines_of(&compiled).for_each(|line| report(&line));
    let node = Arc::new(KernelNode::new(options, live, KernelHost { plane, journal })?);
    node.live().take_over_old_files().iter().for_each(|line| report(line));
    let ended = node.serve(options, (&socket, &policy), report, serve);
    let Some(KernelHost { mut journal, .. }) = node.host().take() else { return ended };
    match &ended {
        Ok(NodeEnd::Left) => journal.keep()?,
        Ok(NodeEnd::Asked | NodeEnd::NotConfirmed) | Err(_) => undo(journal)?,
    }
    ended
}

/// Loads the programs and makes the host enforce the policy.
fn begin(
    state: &StateDir,
    policy: &Policy,
    socket: &std::path::Path,
    journal: &mut Journal,
) -> Result<(KernelPlane, CompiledPolicy), NodeError> {
    let file = Undo::Remove(socket.to_owned());
    if !journal.holds(&file) {
        journal.record(&format!("file {}", socket.display()), file)?;
    }
    let mut plane = KernelPlane::open(state, &policy.node.name, journal)?;
    let (compiled, _) = plane.apply(policy, journal)?;
    Ok((plane, compiled))
}

fn undo(journal: Journal) -> Result<(), NodeError> {
    let host = journal.host();
    Ok(all_undone(&journal.undo_all(&host)?.failed)?)
}

/// Lines for the operator: keys that are not held, vifs that wait.
fn lines_of(compiled: &CompiledPolicy) -> impl Iterator<Item = String> {
    let unheld = compiled.unheld.iter().map(|key| format!("not held: {key}"));
    let waits = compiled.waiting.iter().map(|vif| format!("vif {vif} waits for its device"));
    unheld.chain(waits)
}

impl KernelNode {
    fn new(options: &Options, live: LivePolicy, host: KernelHost) -> Result<Self, NodeError> {
        let [stop, leave, reload] = [false; 3].map(|no| Arc::new(AtomicBool::new(no)));
        let signals = [(SIGINT, &stop), (SIGTERM, &stop), (SIGUSR1, &leave), (SIGHUP, &reload)];
        for (signal, flag) in signals {
            signal_hook::flag::register(signal, Arc::clone(flag))
                .map_err(|error| NodeError::io("signal handler", error))?;
        }
        Ok(Self {
            config: options.config.clone(),
            started: Instant::now(),
            host: Mutex::new(Some(host)),
            in_force: RwLock::new(live.in_force()),
            live: Mutex::new(live),
            keeper: ReportKeeper::default(),
            notes: Arc::default(),
            confirmed: AtomicBool::new(options.confirm.is_none()),
            stop,
            leave,
            reload,
        })
    }

    /// Answers requests until the node is to end.
    fn serve<S>(
        self: &Arc<Self>,
        options: &Options,
        (socket, policy): (&PathBuf, &Arc<Policy>),
        report: &mut dyn FnMut(&str),
        serve: impl FnOnce(Serving) -> std::io::Result<S>,
    ) -> Result<NodeEnd, NodeError> {
        let mut supervisor =
            ServiceManager::from_env().map_err(|error| NodeError::io("service manager", error))?;
        let ticking = self.keep_report(&options.state, policy)?;
        let (socket, control) = (socket.clone(), Arc::clone(self) as Arc<dyn Control>);
        let serving = Serving { socket: socket.clone(), control, policy: Arc::clone(policy) };
        let _server = serve(serving).map_err(|error| NodeError::io(&socket, error))?;
        let (name, socket) = (&policy.node.name, socket.display());
        report(&format!("node {name}: the kernel forwards; control socket {socket}"));
        supervisor.ready();
        let follower = Arc::clone(self);
        let watch = DeviceWatch::start(None, || false, move || follower.follow());
        if let Err(error) = &watch {
            report(&format!("devices that come and go are not followed: {error}"));
        }
        let ended = self.await_end(options.confirm, report, &mut supervisor);
        supervisor.stopping();
        watch.into_iter().for_each(DeviceWatch::end);
        drop(ticking);
        if let Ok(last) = self.status() {
            let failed = self.keeper.end(&last, &self.policy_now());
            failed.iter().for_each(|line| report(line));
        }
        Ok(ended)
    }

    fn keep_report(
        self: &Arc<Self>,
        state: &StateDir,
        policy: &Policy,
    ) -> Result<ReportTicker, NodeError> {
        let (opener, ticker) = (Arc::clone(self), Arc::clone(self));
        let (paths, bounds) = (ReportStore::paths(state, &policy.node.name), policy.report.clone());
        let begin = move || {
            let failed = opener.keeper.open(&paths, &bounds);
            failed.into_iter().for_each(|why| opener.tell(why));
        };
        let tick = move || {
            let Ok(status) = ticker.read_status() else { return };
            let failed = ticker.keeper.take(&status, &ticker.policy_now());
            failed.into_iter().for_each(|why| ticker.tell(why));
        };
        ReportTicker::start(begin, tick).map_err(|error| NodeError::io("report thread", error))
    }

    /// Waits until the node is to end, and returns why. Reloads the policy on SIGHUP.
    fn await_end(
        &self,
        confirm: Option<Duration>,
        report: &mut dyn FnMut(&str),
        supervisor: &mut ServiceManager,
    ) -> NodeEnd {
        let deadline = confirm.map(|time| (time, Instant::now() + time));
        while !self.stop.load(Ordering::Relaxed) {
            if self.leave.load(Ordering::Relaxed) {
                report("leaving everything to the next start");
                return NodeEnd::Left;
            }
            if supervisor.is_due() {
                supervisor.alive();
            }
            let notes =
                std::mem::take(&mut *self.notes.lock().unwrap_or_else(PoisonError::into_inner));
            notes.tell(report);
            if self.reload.swap(false, Ordering::Relaxed) {
                match self.apply_file("signal") {
                    Ok(()) => report("configuration applied"),
                    Err(refusal) => report(&format!("configuration refused: {refusal}")),
                }
            }
            if let Some((time, deadline)) = deadline
                && !self.confirmed.load(Ordering::Relaxed)
                && Instant::now() > deadline
            {
                report(&format!("not confirmed within {} s: undoing", time.as_secs_f64()));
                return NodeEnd::NotConfirmed;
            }
            std::thread::sleep(SIGNAL_POLL);
        }
        NodeEnd::Asked
    }

    fn apply_file(&self, who: &str) -> Result<(), Refusal> {
        let text = text::read(&self.config).map_err(|error| {
            Refusal::new(RefusalKind::Refused, format!("{}: {error}", self.config.display()))
        })?;
        let dropped = self.with_live(|live, apply| live.reload(who, &text, &self.config, apply))?;
        dropped.into_iter().for_each(|line| self.tell(line));
        Ok(())
    }

    /// Calls `change` with the live policy and a function that has the host take a policy over.
    fn with_live<T>(
        &self,
        change: impl FnOnce(&mut LivePolicy, ApplyPolicy<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut live = self.live();
        let done = change(&mut live, &mut |policy| self.apply(policy));
        // Also after an error: callers are authenticated by the policy in force.
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = live.in_force();
        done
    }

    /// Has the host take over a policy.
    fn apply(&self, policy: &Policy) -> Result<(), Refusal> {
        keeps_dataplane(policy, Dataplane::Kernel)?;
        let compiled = self.plan_and_make(policy).map_err(|error| refused(&error))?;
        lines_of(&compiled).for_each(|line| self.tell(line));
        Ok(())
    }

    /// Checks that the host could take over a policy.
    fn could_apply(&self, policy: &Policy) -> Result<(), Refusal> {
        keeps_dataplane(policy, Dataplane::Kernel)?;
        let host = self.host();
        let Some(KernelHost { plane, journal }) = host.as_ref() else { return Ok(()) };
        plane.check(policy, &journal.host()).map_err(|error| refused(&error))
    }

    fn plan_and_make(&self, policy: &Policy) -> Result<CompiledPolicy, KernelPlaneError> {
        let mut host = self.host();
        let Some(KernelHost { plane, journal }) = host.as_mut() else {
            return Ok(CompiledPolicy::default());
        };
        plane.apply(policy, journal).map(|(compiled, _)| compiled)
    }

    /// Takes devices that came and lets go of those that left. Returns true if that failed.
    fn follow(&self) -> bool {
        // The lock keeps the policy from changing meanwhile.
        let _live = self.live();
        self.plan_and_make(&self.policy_now()).is_err()
    }

    fn read_status(&self) -> Result<NodeStatus, Refusal> {
        let ending = || Refusal::new(RefusalKind::NotRunning, "the node is ending");
        let counts = {
            let host = self.host();
            host.as_ref().ok_or_else(ending)?.plane.counts()
        };
        let counts = counts.map_err(|error| Refusal::new(RefusalKind::Busy, error.to_string()))?;
        let policy = self.policy_now();
        let uptime = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        Ok(kernel_status::status(&policy, &counts, uptime))
    }

    fn policy_now(&self) -> Arc<Policy> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner).policy)
    }

    /// Adds a line for the operator. Lines beyond a bound are counted.
    fn tell(&self, line: String) {
        OperatorNotes::add_to(&self.notes, line);
    }

    /// Locks the live policy. It changes in one step, so it is whole even if a holder panicked.
    fn live(&self) -> MutexGuard<'_, LivePolicy> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the host, whose state the journal and the record have even if a holder panicked.
    fn host(&self) -> MutexGuard<'_, Option<KernelHost>> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control for KernelNode {
    fn status(&self) -> Result<NodeStatus, Refusal> {
        let mut status = self.read_status()?;
        self.keeper.judge(&mut status);
        Ok(status)
    }

    fn policy(&self) -> Result<InForce, Refusal> {
        Ok(self.in_force.read().unwrap_or_else(PoisonError::into_inner).clone())
    }

    fn change(&self, request: &ChangeRequest<'_>, edits: &[Edit]) -> Result<PolicyChange, Refusal> {
        self.with_live(|live, apply| live.change(request, edits, apply))
    }

    fn foresee(
        &self,
        request: &ChangeRequest<'_>,
        edits: &[Edit],
    ) -> Result<PolicyChange, Refusal> {
        self.live().foresee(request, edits, &mut |policy| self.could_apply(policy))
    }

    fn undo(&self, request: &ChangeRequest<'_>, id: Option<u64>) -> Result<PolicyChange, Refusal> {
        self.with_live(|live, apply| live.undo(request, id, apply))
    }

    fn changes(&self, most: usize, wanted: &dyn Fn(&PolicyChange) -> bool) -> Vec<PolicyChange> {
        self.live().changes(most, wanted)
    }

    fn report(&self, question: &StoreQuery) -> Result<StoreAnswer, Refusal> {
        self.keeper.ask(question)
    }

    fn service(&self) -> BTreeMap<ReportSubject, [Service; 2]> {
        self.keeper.totals()
    }

    fn reload(&self, who: &str) -> Result<(), Refusal> {
        self.apply_file(who)
    }

    fn note(&self, line: String) {
        self.tell(line);
    }

    fn confirm(&self) {
        self.confirmed.store(true, Ordering::Relaxed);
    }

    fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn leave(&self) {
        self.leave.store(true, Ordering::Relaxed);
    }

    fn capture(&self, _request: CaptureRequest) -> Result<Capturing, Refusal> {
        let text = "the kernel forwards: `tcpdump -i DEVICE` sees the frames of a vif";
        Err(Refusal::new(RefusalKind::Refused, text))
    }
}

/// Refuses a policy for another data plane than the running one.
pub(crate) fn keeps_dataplane(policy: &Policy, running: Dataplane) -> Result<(), Refusal> {
    if policy.node.dataplane == running {
        return Ok(());
    }
    let text = "node.dataplane changes with a restart only";
    Err(Refusal::new(RefusalKind::Refused, text))
}

fn refused(error: &KernelPlaneError) -> Refusal {
    Refusal::new(RefusalKind::Refused, error.to_string())
}

/// The time within which a signal is noticed.
const SIGNAL_POLL: Duration = Duration::from_millis(20);
