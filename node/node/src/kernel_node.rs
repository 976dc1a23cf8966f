// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node whose data plane is the kernel's own: the host's bridge forwards, this process configures
//! and answers.
//!
//! A start plans the steps from the host's state to the policy, and makes them; a live change does
//! the same with another policy. No packet depends on the process: if it is killed or leaves,
//! nothing changes, and the next start continues from there. A stop undoes everything.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use weir_api_types::status::NodeStatus;
use weir_dataplane::capture::{CaptureRequest, Capturing};
use weir_kernel::{AppliedPolicy, KernelPlane, KernelPlaneError};
use weir_platform::journal::{self, Journal};
use weir_platform::{StateDir, Undo};
use weir_policy::{Dataplane, Policy};
use weir_ports::LinkEvents;

use crate::control::{self, Control, Refusal, RefusalKind};
use crate::controlled::{ControlledNode, EndWatch, NodePlane};
use crate::error::NodeError;
use crate::hotplug::DeviceWatch;
use crate::kernel_status;
use crate::live_policy::LivePolicy;
use crate::options::{NodeEnd, Options, Serving};
use crate::service_manager::ServiceManager;
use crate::takeover::{LOCK_PATIENCE, all_undone, journal_name};
use crate::told_lines::FollowedLines;

/// The kernel as a node's data plane.
#[derive(Debug)]
struct BridgePlane {
    started: Instant,
    /// `None` after the end.
    host: Arc<Mutex<Option<KernelHost>>>,
    told: FollowedLines,
    /// The policy with the vifs that its rules made of the host's devices.
    in_effect: Mutex<Arc<Policy>>,
    /// The faults of devices that hold now.
    faults: Mutex<Vec<String>>,
    /// The keys of the policy that this host does not enforce now.
    unheld: Mutex<Vec<String>>,
}

/// [`KernelPlane::change`], which refuses a policy that fails at any device, or
/// [`KernelPlane::follow`].
type MakePolicy =
    fn(&mut KernelPlane, &Policy, &mut Journal) -> Result<AppliedPolicy, KernelPlaneError>;

type KernelNode = ControlledNode<BridgePlane>;

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
    let begun = begin(&options.state, &policy, (&socket, adopts), &mut journal);
    let (plane, applied) = match begun {
        Ok(begun) => begun,
        Err(error) => {
            after_failure(journal, adopts)?;
            return Err(error);
        }
    };
    let told = FollowedLines::default();
    told.followed(lines_of(&applied).collect()).iter().for_each(|line| report(line));
    let faults = Mutex::new(faults_of(&applied).collect());
    let unheld = Mutex::new(unheld_of(&applied).collect());
    let in_effect = Mutex::new(Arc::new(applied.compiled.policy));
    let host = Arc::new(Mutex::new(Some(KernelHost { plane, journal })));
    let plane = BridgePlane {
        started: Instant::now(),
        host: Arc::clone(&host),
        told,
        in_effect,
        faults,
        unheld,
    };
    let node = KernelNode::new(options, live, |_| plane);
    let ended = node.and_then(|node| {
        node.live().take_over_old_files().iter().for_each(|line| report(line));
        serve_until_end(&node, options, (&socket, &policy), report, serve)
    });
    let host = lock(&host).take();
    let Some(KernelHost { mut journal, .. }) = host else { return ended };
    match &ended {
        Ok(NodeEnd::Left) => journal.keep()?,
        Ok(NodeEnd::Asked | NodeEnd::NotConfirmed) => undo(journal)?,
        Err(_) => after_failure(journal, adopts)?,
    }
    ended
}

/// Undoes everything after a failure, unless the data plane was left by an earlier run; then it
/// stays.
fn after_failure(mut journal: Journal, adopts: bool) -> Result<(), NodeError> {
    match adopts {
        true => Ok(journal.keep()?),
        false => undo(journal),
    }
}

/// Loads the programs and makes the host enforce the policy. A faulty device does not end a data
/// plane that an earlier run left.
fn begin(
    state: &StateDir,
    policy: &Policy,
    (socket, adopts): (&std::path::Path, bool),
    journal: &mut Journal,
) -> Result<(KernelPlane, AppliedPolicy), NodeError> {
    let file = Undo::Remove(socket.to_owned());
    if !journal.holds(&file) {
        journal.record(&format!("file {}", socket.display()), file)?;
    }
    let mut plane = KernelPlane::open(state, &policy.node.name, journal)?;
    let applied = match adopts {
        true => plane.follow(policy, journal)?,
        false => plane.apply(policy, journal)?,
    };
    Ok((plane, applied))
}

fn undo(journal: Journal) -> Result<(), NodeError> {
    let host = journal.host();
    Ok(all_undone(&journal.undo_all(&host)?.failed)?)
}

/// Returns the lines for the operator: keys that are not held, faults, ports and vifs that wait,
/// programs of others.
fn lines_of(applied: &AppliedPolicy) -> impl Iterator<Item = String> {
    let unheld = unheld_of(applied).map(|key| format!("not held: {key}"));
    let waiting = applied.compiled.waiting.iter();
    let waits = waiting.map(|vif| format!("vif {vif} waits for its device"));
    let postponed = applied.compiled.postponed.iter();
    let waits = waits.chain(postponed.map(|vif| format!("vif {vif} waits for room")));
    let ports = applied.compiled.ports_waiting.values();
    let waits = waits.chain(ports.map(|port| format!("{port}; the port waits for it")));
    let faults = faults_of(applied).map(|fault| format!("fault: {fault}"));
    unheld.chain(faults).chain(waits).chain(applied.programs_before.iter().cloned())
}

/// Returns the faults of devices, each with its port or vif.
fn faults_of(applied: &AppliedPolicy) -> impl Iterator<Item = String> {
    applied.compiled.faults.iter().map(ToString::to_string)
}

/// Returns the keys of the policy that this host does not enforce, each with the reason.
fn unheld_of(applied: &AppliedPolicy) -> impl Iterator<Item = String> {
    applied.compiled.unheld.iter().map(ToString::to_string)
}

/// Answers requests until the node is to end.
fn serve_until_end<S>(
    node: &Arc<KernelNode>,
    options: &Options,
    (socket, policy): (&PathBuf, &Arc<Policy>),
    report: &mut dyn FnMut(&str),
    serve: impl FnOnce(Serving) -> std::io::Result<S>,
) -> Result<NodeEnd, NodeError> {
    let mut supervisor =
        ServiceManager::from_env().map_err(|error| NodeError::io("service manager", error))?;
    let ticking = node.keep_report(&options.state, policy)?;
    let (socket, control) = (socket.clone(), Arc::clone(node) as Arc<dyn Control>);
    let serving = Serving { socket: socket.clone(), control, policy: Arc::clone(policy) };
    let _server = serve(serving).map_err(|error| NodeError::io(&socket, error))?;
    let (name, socket) = (&policy.node.name, socket.display());
    report(&format!("node {name}: the kernel forwards; control socket {socket}"));
    supervisor.ready();
    let follower = Arc::clone(node);
    let watch = LinkEvents::with_disciplines().and_then(|events| {
        DeviceWatch::start(Some(events), None, || false, move || follow(&follower))
    });
    if let Err(error) = &watch {
        report(&format!("devices that come and go are not followed: {error}"));
    }
    let watch_end = EndWatch { is_over: &|| false, is_alive: &|| true, cannot_leave: &|| None };
    let ended = node.await_end(options.confirm, report, &mut supervisor, &watch_end);
    supervisor.stopping();
    watch.into_iter().for_each(DeviceWatch::end);
    drop(ticking);
    if let Ok(last) = node.status() {
        node.end_report(&last).iter().for_each(|line| report(line));
    }
    Ok(ended)
}

/// Takes devices that came, lets go of those that left, and restores what somebody else removed.
/// Returns true if that is incomplete, so that it is tried again.
fn follow(node: &KernelNode) -> bool {
    // The lock keeps the policy from changing meanwhile.
    let _live = node.live();
    let applied = node.plane.plan_and_make(&node.policy_now(), KernelPlane::follow);
    let tell = |line| node.tell(line);
    match &applied {
        Ok(Some(applied)) => node.plane.tell(applied, &tell),
        Ok(None) => {}
        Err(error) => node.plane.tell_failure(error, &tell),
    }
    let is_whole = |made: &AppliedPolicy| {
        made.compiled.postponed.is_empty() && made.compiled.faults.is_empty()
    };
    !applied.is_ok_and(|applied| applied.as_ref().is_none_or(is_whole))
}

impl BridgePlane {
    /// Makes the host enforce a policy; `None` after the end.
    fn plan_and_make(
        &self,
        policy: &Policy,
        make: MakePolicy,
    ) -> Result<Option<AppliedPolicy>, KernelPlaneError> {
        let mut host = self.host();
        let Some(KernelHost { plane, journal }) = host.as_mut() else { return Ok(None) };
        let applied = make(plane, policy, journal)?;
        *lock(&self.faults) = faults_of(&applied).collect();
        *lock(&self.unheld) = unheld_of(&applied).collect();
        let mut in_effect = lock(&self.in_effect);
        // Readers of the policy compare pointers, so an equal policy keeps its pointer.
        if **in_effect != applied.compiled.policy {
            *in_effect = Arc::new(applied.compiled.policy.clone());
        }
        Ok(Some(applied))
    }

    /// Tells the operator what is new about the policy in effect.
    fn tell(&self, applied: &AppliedPolicy, note: &dyn Fn(String)) {
        self.told.followed(lines_of(applied).collect()).into_iter().for_each(note);
    }

    /// Tells the operator why a change of devices could not be followed.
    fn tell_failure(&self, error: &KernelPlaneError, note: &dyn Fn(String)) {
        let problems = error.to_string();
        let lines: Vec<String> =
            problems.lines().map(|line| format!("a change of devices: {line}")).collect();
        lock(&self.faults).clone_from(&lines);
        self.told.failed(lines).into_iter().for_each(note);
    }

    /// Locks the host, whose state the journal and the record have even if a holder panicked.
    fn host(&self) -> MutexGuard<'_, Option<KernelHost>> {
        lock(&self.host)
    }
}

impl NodePlane for BridgePlane {
    const DATAPLANE: Dataplane = Dataplane::Kernel;

    fn in_effect(&self, policy: &Arc<Policy>) -> Arc<Policy> {
        match policy.has_rules() {
            true => Arc::clone(&lock(&self.in_effect)),
            false => Arc::clone(policy),
        }
    }

    fn read_status(&self, policy: &Policy) -> Result<NodeStatus, Refusal> {
        let ending = || Refusal::new(RefusalKind::NotRunning, "the node is ending");
        let counts = {
            let host = self.host();
            host.as_ref().ok_or_else(ending)?.plane.counts()
        };
        let counts = counts.map_err(|error| Refusal::new(RefusalKind::Busy, error.to_string()))?;
        let uptime = u64::try_from(self.started.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let device_faults = lock(&self.faults).clone();
        let unheld = lock(&self.unheld).clone();
        Ok(NodeStatus { device_faults, unheld, ..kernel_status::status(policy, &counts, uptime) })
    }

    fn apply(&self, policy: &Policy, note: &dyn Fn(String)) -> Result<(), Refusal> {
        let applied = self.plan_and_make(policy, KernelPlane::change);
        let applied = applied.map_err(|error| refused(&error))?;
        applied.iter().for_each(|applied| self.tell(applied, note));
        Ok(())
    }

    fn could_apply(&self, policy: &Policy) -> Result<(), Refusal> {
        let host = self.host();
        let Some(KernelHost { plane, journal }) = host.as_ref() else { return Ok(()) };
        plane.check(policy, &journal.host()).map_err(|error| refused(&error))
    }

    fn capture(&self, _request: CaptureRequest) -> Result<Capturing, Refusal> {
        let text = "the kernel forwards: `tcpdump -i DEVICE` sees the frames of a vif";
        Err(Refusal::new(RefusalKind::Refused, text))
    }
}

/// Locks a mutex, whose value is valid even if another holder panicked.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(error: &KernelPlaneError) -> Refusal {
    Refusal::new(RefusalKind::Refused, error.to_string())
}
