// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running node with any data plane: the live policy, the report, requests and signals.
//!
//! The data plane is behind a trait, [`NodePlane`]. A change of the policy is decided, recorded and
//! answered here; the plane makes it. Two locks order all changes: `live` (the policy) before
//! those of the plane. Readers of the policy in force wait for neither.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use weir_api_types::status::NodeStatus;
use weir_dataplane::capture::{CaptureRequest, Capturing};
use weir_loops::{
    ClassStatus, LeaseRequest, LogLine, LoopsLoad, RefusedLeases, RouterActivations, RouterStatus,
};
use weir_platform::wake_latency::WakeLatency;
use weir_platform::{StateDir, text};
use weir_policy::{Dataplane, Edit, ItemName, Policy, Problem, ProblemPlace};
use weir_report::{
    ReportKeeper, ReportStore, ReportSubject, ReportTicker, Service, StoreAnswer, StoreQuery,
};

use crate::changes::PolicyChange;
use crate::control::{ChangeRequest, Control, InForce, Refusal, RefusalKind};
use crate::cpu_drift::CpuModelWatch;
use crate::error::NodeError;
use crate::live_policy::{ApplyPolicy, LivePolicy};
use crate::operator_notes::OperatorNotes;
use crate::options::{NodeEnd, Options};
use crate::service_manager::ServiceManager;

/// The data plane of a node, which moves its packets.
pub(crate) trait NodePlane: std::fmt::Debug + Send + Sync + 'static {
    /// The value of `node.dataplane` that selects it.
    const DATAPLANE: Dataplane;

    /// Returns the policy with the vifs that the plane made by the rules of `policy`, which is in
    /// force.
    fn in_effect(&self, policy: &Arc<Policy>) -> Arc<Policy> {
        Arc::clone(policy)
    }

    /// Returns counters, queues and lateness; `policy` is in effect.
    ///
    /// # Errors
    /// The node is busy, starting or ending.
    fn read_status(&self, policy: &Policy) -> Result<NodeStatus, Refusal>;

    /// Adds the ports and vifs that wait for their devices to a status that lacks them.
    fn add_waiting(&self, _status: &mut NodeStatus, _policy: &Policy) {}

    /// Takes over a policy, and notes for the operator what came of it.
    ///
    /// # Errors
    /// It cannot; nothing has changed then.
    fn apply(&self, policy: &Policy, note: &dyn Fn(String)) -> Result<(), Refusal>;

    /// Checks that [`Self::apply`] could take over a policy.
    ///
    /// # Errors
    /// The errors of [`Self::apply`] that can be foreseen.
    fn could_apply(&self, policy: &Policy) -> Result<(), Refusal>;

    /// See [`Control::capture`].
    ///
    /// # Errors
    /// There is nothing to capture.
    fn capture(&self, request: CaptureRequest) -> Result<Capturing, Refusal>;

    /// See [`Control::routers`]; a plane without control loops holds none.
    ///
    /// # Errors
    /// The control loops do not answer.
    fn routers(&self, _router: Option<&str>) -> Result<(Vec<RouterStatus>, LoopsLoad), Refusal> {
        Ok((Vec::new(), LoopsLoad::default()))
    }

    /// See [`Control::lease`]; a plane without control loops refuses all.
    ///
    /// # Errors
    /// The control loops do not answer.
    fn lease(&self, request: LeaseRequest) -> Result<RefusedLeases, Refusal> {
        Ok(request.without_loops())
    }

    /// See [`Control::router_log`].
    ///
    /// # Errors
    /// The router is not held at a rate; or what holds it does not answer.
    fn router_log(&self, router: &str, newest: usize) -> Result<Vec<LogLine>, Refusal> {
        let text = format!("router {router:?} is not held at a rate; the newest {newest} are none");
        Err(Refusal::new(RefusalKind::NotFound, text))
    }

    /// See [`Control::classes`].
    ///
    /// # Errors
    /// The thread that keeps them does not answer.
    fn classes(&self) -> Result<Vec<ClassStatus>, Refusal> {
        Ok(Vec::new())
    }

    /// See [`Control::activations`]; `policy` is in force.
    ///
    /// # Errors
    /// There is no such router; it has no threads that can be watched; the kernel refuses.
    fn activations(
        &self,
        _policy: &Policy,
        router: &str,
        span: Duration,
    ) -> Result<RouterActivations, Refusal> {
        let text = format!("router {router:?} has no threads to be watched for {span:?}");
        Err(Refusal::new(RefusalKind::NotFound, text))
    }
}

/// A running node, as all threads see it.
#[derive(Debug)]
pub(crate) struct ControlledNode<P> {
    pub(crate) plane: P,
    config: PathBuf,
    /// The policy with its live changes, locked for one change at a time.
    live: Mutex<LivePolicy>,
    /// The policy in force, which can be read while a change is in progress.
    in_force: RwLock<InForce>,
    /// The service report.
    keeper: ReportKeeper,
    /// The comparison of the CPU model with the worker's processor time.
    cpu_model: CpuModelWatch,
    /// The bound on the time that processors take to wake up.
    wake_bound: Mutex<WakeBound>,
    /// Lines for the operator.
    notes: SharedNotes,
    confirmed: AtomicBool,
    stop: Arc<AtomicBool>,
    leave: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

/// The bound on the time that processors take to wake up, while the policy has one.
#[derive(Debug, Default)]
struct WakeBound {
    latency: WakeLatency,
    /// The fault of the latest attempt, which the operator was told.
    told: Option<String>,
}

/// Lines for the operator, which all threads add to.
pub(crate) type SharedNotes = Arc<Mutex<OperatorNotes>>;

/// What a node watches until it ends, beside requests and signals.
pub(crate) struct EndWatch<'a> {
    /// Tells whether the plane has ended by itself.
    pub(crate) is_over: &'a dyn Fn() -> bool,
    /// Tells whether the node is alive, for the service manager.
    pub(crate) is_alive: &'a dyn Fn() -> bool,
    /// Says why the node must stop instead of leaving, if it must.
    pub(crate) cannot_leave: &'a dyn Fn() -> Option<String>,
}

impl<P: NodePlane> ControlledNode<P> {
    /// Makes the node and turns signals into requests from now on. `plane` gets the operator's
    /// lines.
    ///
    /// # Errors
    /// A signal cannot be caught.
    pub(crate) fn new(
        options: &Options,
        live: LivePolicy,
        plane: impl FnOnce(&SharedNotes) -> P,
    ) -> Result<Arc<Self>, NodeError> {
        let [stop, leave, reload] = [false; 3].map(|no| Arc::new(AtomicBool::new(no)));
        let signals = [(SIGINT, &stop), (SIGTERM, &stop), (SIGUSR1, &leave), (SIGHUP, &reload)];
        for (signal, flag) in signals {
            signal_hook::flag::register(signal, Arc::clone(flag))
                .map_err(|error| NodeError::io("signal handler", error))?;
        }
        let notes = SharedNotes::default();
        let cpu_model = CpuModelWatch::new(&options.state, &live.in_force().policy.node.name);
        let node = Self {
            plane: plane(&notes),
            config: options.config.clone(),
            in_force: RwLock::new(live.in_force()),
            live: Mutex::new(live),
            keeper: ReportKeeper::default(),
            cpu_model,
            wake_bound: Mutex::default(),
            notes,
            confirmed: AtomicBool::new(options.confirm.is_none()),
            stop,
            leave,
            reload,
        };
        node.ask_for_wake_latency();
        Ok(Arc::new(node))
    }

    /// Keeps the report until the returned ticker is dropped.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn keep_report(
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
            let failed = ticker.keeper.take(&status, &ticker.policy_in_effect());
            failed.into_iter().for_each(|why| ticker.tell(why));
            ticker.cpu_model.tick(&status).into_iter().for_each(|line| ticker.tell(line));
        };
        ReportTicker::start(begin, tick).map_err(|error| NodeError::io("report thread", error))
    }

    /// Ends the report with the last status. Returns the reason if that failed.
    pub(crate) fn end_report(&self, last: &NodeStatus) -> Option<String> {
        self.keeper.end(last, &self.policy_in_effect())
    }

    /// Waits until the node is to end, and returns why. Reloads the policy on SIGHUP.
    pub(crate) fn await_end(
        &self,
        confirm: Option<Duration>,
        report: &mut dyn FnMut(&str),
        supervisor: &mut ServiceManager,
        watch: &EndWatch<'_>,
    ) -> NodeEnd {
        let deadline = confirm.map(|time| (time, Instant::now() + time));
        while !self.stop.load(Ordering::Relaxed) && !(watch.is_over)() {
            if self.leave.load(Ordering::Relaxed) {
                return match (watch.cannot_leave)() {
                    None => {
                        report("leaving everything to the next start");
                        NodeEnd::Left
                    }
                    Some(why) => {
                        report(&format!("{why}: undoing everything instead"));
                        NodeEnd::Asked
                    }
                };
            }
            if supervisor.is_due() && (watch.is_alive)() {
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

    /// The policy in force.
    pub(crate) fn policy_now(&self) -> Arc<Policy> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner).policy)
    }

    /// Returns the policy in force with the vifs that its rules made.
    fn policy_in_effect(&self) -> Arc<Policy> {
        self.plane.in_effect(&self.policy_now())
    }

    /// Adds a line for the operator. Lines beyond a bound are counted.
    pub(crate) fn tell(&self, line: String) {
        OperatorNotes::add_to(&self.notes, line);
    }

    /// Locks the live policy. It changes in one step, so it is whole even if a holder panicked.
    pub(crate) fn live(&self) -> MutexGuard<'_, LivePolicy> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_status(&self) -> Result<NodeStatus, Refusal> {
        self.plane.read_status(&self.policy_in_effect())
    }

    /// Turns the refusal for a missing vif that a rule made into one that says so, if the caller
    /// may see the vif.
    fn telling_of_rules(
        &self,
        refusal: Refusal,
        request: &ChangeRequest<'_>,
        edits: &[Edit],
    ) -> Refusal {
        if refusal.kind != RefusalKind::NotFound {
            return refusal;
        }
        let (written, all) = (self.policy_now(), self.policy_in_effect());
        let names = |policy: &Policy, name: &str| policy.vifs.iter().any(|vif| vif.name == name);
        let by_rule = edits.iter().map(|edit| &edit.place).find(|place| {
            let (name, key) = (&place.name, place.key.clone());
            let item = Some(ItemName::Name(name.clone()));
            let place_of = ProblemPlace { table: place.table.clone(), item, key };
            let problem = Problem { line: 0, column: 0, place: place_of, message: String::new() };
            let is_by_rule = place.table == "vif" && names(&all, name) && !names(&written, name);
            is_by_rule && (request.sees)(&all, &problem)
        });
        let Some(place) = by_rule else { return refusal };
        let text = format!(
            "vif {:?} is made by a rule of its port: a [[vif]] with its device, or a [[slice]] \
             with its slice's name, gives it values of its own",
            place.name
        );
        Refusal::new(RefusalKind::NotFound, text).about([place.clone()])
    }

    fn apply_file(&self, who: &str) -> Result<(), Refusal> {
        let text = text::read(&self.config).map_err(|error| {
            Refusal::new(RefusalKind::Refused, format!("{}: {error}", self.config.display()))
        })?;
        let dropped = self.with_live(|live, apply| live.reload(who, &text, &self.config, apply))?;
        dropped.into_iter().for_each(|line| self.tell(line));
        Ok(())
    }

    /// Calls `change` with the live policy and a function that has the plane take a policy over.
    fn with_live<T>(
        &self,
        change: impl FnOnce(&mut LivePolicy, ApplyPolicy<'_>) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let mut live = self.live();
        let done = change(&mut live, &mut |policy| {
            keeps_dataplane(policy, P::DATAPLANE)?;
            self.plane.apply(policy, &|line| self.tell(line))
        });
        // Also after an error: callers are authenticated by the policy in force.
        *self.in_force.write().unwrap_or_else(PoisonError::into_inner) = live.in_force();
        self.ask_for_wake_latency();
        done
    }

    /// Asks the kernel for the bound of the policy in force. Each change of the policy retries what
    /// failed; the same fault is told once.
    fn ask_for_wake_latency(&self) {
        let most = self.policy_now().wake_latency();
        let mut bound = self.wake_bound.lock().unwrap_or_else(PoisonError::into_inner);
        let fault = bound.latency.ask(most).err().map(|error| error.to_string());
        if let Some(fault) = fault.as_ref().filter(|_| fault != bound.told) {
            self.tell(format!("node.wake_latency is not held: /dev/cpu_dma_latency: {fault}"));
        }
        bound.told = fault;
    }
}

impl<P: NodePlane> Control for ControlledNode<P> {
    fn status(&self) -> Result<NodeStatus, Refusal> {
        let mut status = self.read_status()?;
        self.plane.add_waiting(&mut status, &self.policy_in_effect());
        self.keeper.judge(&mut status);
        self.cpu_model.add_to(&mut status);
        Ok(status)
    }

    fn policy(&self) -> Result<InForce, Refusal> {
        let in_force = self.in_force.read().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(InForce { policy: self.plane.in_effect(&in_force.policy), ..in_force })
    }

    fn change(&self, request: &ChangeRequest<'_>, edits: &[Edit]) -> Result<PolicyChange, Refusal> {
        let made = self.with_live(|live, apply| live.change(request, edits, apply));
        made.map_err(|refusal| self.telling_of_rules(refusal, request, edits))
    }

    fn foresee(
        &self,
        request: &ChangeRequest<'_>,
        edits: &[Edit],
    ) -> Result<PolicyChange, Refusal> {
        let foreseen = self.live().foresee(request, edits, &mut |policy| {
            keeps_dataplane(policy, P::DATAPLANE)?;
            self.plane.could_apply(policy)
        });
        foreseen.map_err(|refusal| self.telling_of_rules(refusal, request, edits))
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

    fn routers(&self, router: Option<&str>) -> Result<(Vec<RouterStatus>, LoopsLoad), Refusal> {
        self.plane.routers(router)
    }

    fn lease(&self, request: LeaseRequest) -> Result<RefusedLeases, Refusal> {
        self.plane.lease(request)
    }

    fn router_log(&self, router: &str, newest: usize) -> Result<Vec<LogLine>, Refusal> {
        self.plane.router_log(router, newest)
    }

    fn classes(&self) -> Result<Vec<ClassStatus>, Refusal> {
        self.plane.classes()
    }

    fn activations(&self, router: &str, span: Duration) -> Result<RouterActivations, Refusal> {
        self.plane.activations(&self.policy_now(), router, span)
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

    fn capture(&self, request: CaptureRequest) -> Result<Capturing, Refusal> {
        self.plane.capture(request)
    }
}

/// Refuses a policy for another data plane than the running one.
fn keeps_dataplane(policy: &Policy, running: Dataplane) -> Result<(), Refusal> {
    if policy.node.dataplane == running {
        return Ok(());
    }
    let text = "node.dataplane changes with a restart only";
    Err(Refusal::new(RefusalKind::Refused, text))
}

/// The time within which a signal is noticed.
const SIGNAL_POLL: Duration = Duration::from_millis(20);
