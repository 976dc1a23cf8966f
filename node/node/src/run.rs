// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir node run`: the node in the foreground, from a policy file to the last undo.
//!
//! A start takes the devices, opens them, starts the worker, then the interface. From then on three
//! more threads follow devices, keep the report and hold routers. The calling thread waits for
//! signals and requests ([`crate::controlled`]). The end undoes the start in reverse order.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_platform::{HostError, StateDir, text};
use weir_policy::{Dataplane, Direction, Kind, Policy, Vif};
use weir_ports::{DevicePropertyCache, Devices, LinkEvents, Pins, Pool, device_number};

use crate::control::{self, Control, Refusal, RefusalKind};
use crate::controlled::{ControlledNode, EndWatch, NodePlane, SharedNotes};
use crate::error::NodeError;
use crate::host_state::{FollowedDevices, HostState};
use crate::hotplug::DeviceWatch;
use crate::kernel_node;
use crate::live_policy::{self, LivePolicy};
use crate::operator_notes::OperatorNotes;
use crate::options::{NodeEnd, Options, Serving};
use crate::present;
use crate::service_manager::ServiceManager;
use crate::takeover::Takeover;
use crate::told_lines::ToldLines;
use weir_api_types::status::NodeStatus;
use weir_dataplane::WorkerHandle;
use weir_dataplane::capture::{CaptureRequest, Capturing};
use weir_dataplane::command::WorkerCommand;
use weir_dataplane::opener::{self, Opener};
use weir_dataplane::ports::NodePorts;
use weir_dataplane::redirect::may_stand_in;
use weir_dataplane::reservation;
use weir_dataplane::status::add_waiting;
use weir_dataplane::worker::Worker;
use weir_loops::{
    ClassStatus, LeaseRequest, LogLine, LoopsLoad, RefusedLeases, RouterActivations, RouterLoops,
    RouterStatus, watch_activations,
};

/// Reads and checks a policy file.
///
/// # Errors
/// The file cannot be read, or the policy has problems: all of them, each with its line.
pub fn read_policy(path: &Path) -> Result<Policy, NodeError> {
    let text = text::read(path).map_err(|error| NodeError::io(path, error))?;
    weir_policy::parse(&text)
        .map_err(|problems| NodeError::Policy { path: path.to_owned(), problems })
}

/// Runs a node until SIGINT, SIGTERM, a request to stop, or a missing confirmation, then undoes
/// everything. Asked to leave (SIGUSR1 or a request), or killed, it leaves its devices and the data
/// plane as they are, and the next start adopts them. `report` is called with a line for each step.
/// `serve` begins to listen once the node forwards; its result is dropped when the node ends.
///
/// # Errors
/// A file cannot be read, the policy cannot be applied, or a change of the host cannot be undone.
pub fn run<S>(
    options: &Options,
    report: &mut dyn FnMut(&str),
    serve: impl FnOnce(Serving) -> std::io::Result<S>,
) -> Result<NodeEnd, NodeError> {
    let text =
        text::read(&options.config).map_err(|error| NodeError::io(&options.config, error))?;
    if options.without_overlay
        && let Some(aside) = live_policy::put_edits_aside(&text, &options.config, &options.state)?
    {
        report(&format!("what was changed live is kept aside: {}", aside.display()));
    }
    let (live, dropped) = LivePolicy::open(&text, &options.config, &options.state)?;
    dropped.iter().for_each(|line| report(line));
    let wanted = live.in_force().policy;
    if wanted.node.dataplane == Dataplane::Kernel {
        return kernel_node::run(options, live, report, serve);
    }
    let node = Node::new(options, live, |notes| SwitchPlane::new(&options.state, notes))?;
    // Kept until everything is undone: the undo must not be starved by guests.
    let session = reservation::raise_session(&wanted.node);
    if let Err(error) = &session {
        report(&format!(
            "cannot raise the session's priority, the node may be slow on a busy host: {error}"
        ));
    }
    let (policy, devices) = present::on_host(&wanted, device_number);
    let pins = Pins::of(options.state.path(), &policy.node.name);
    let adoptable = pins.as_ref().is_some_and(|pins| opener::adoptable(&wanted, pins).is_some());
    let adopted = if adoptable { Takeover::adopt(&policy, &options.state)? } else { None };
    let adopts = adopted.is_some();
    let mut takeover = match adopted {
        Some(takeover) => {
            report("going on with what an earlier run left");
            takeover
        }
        None => Takeover::begin(&policy, &options.state, report)?,
    };
    node.live().take_over_old_files().iter().for_each(|line| report(line));
    let socket = control::socket_path(options.state.path(), &policy.node.name);
    let mut noted = takeover.will_leave(&socket);
    match &pins {
        Some(pins) => noted = noted.and_then(|()| takeover.will_leave_pins(pins)),
        None => report(
            "no BPF file system: nothing forwards while no node runs \
             (`mount -t bpf bpf /sys/fs/bpf` makes one)",
        ),
    }
    let host = HostState::new(takeover, Policy::clone(&wanted), (policy.clone(), devices));
    host.waiting().iter().for_each(|what| report(&format!("{what} waits for its device")));
    *node.plane.host() = Some(host);
    node.plane.list_unheld(&wanted).for_each(|line| report(&line));
    let (socket, pins) = (&socket, pins.as_ref());
    let start = StartArguments { socket, options, wanted: &wanted, policy: &policy, pins };
    let forwarded = noted.and_then(|()| forward(&start, &node, report, serve));
    // The lock waits for a change in progress.
    let Some(HostState { takeover, opener, .. }) = node.plane.host().take() else {
        return forwarded;
    };
    // Adopted changes stay, too, if the start failed before it opened their devices.
    let stays = match &forwarded {
        Ok(ended) => *ended == NodeEnd::Left,
        Err(_) => adopts && opener.is_none(),
    };
    let ended = if stays { takeover.leave() } else { takeover.undo() };
    forwarded.and_then(|forwarded| ended.map(|()| forwarded))
}

/// The arguments of a start.
struct StartArguments<'a> {
    socket: &'a Path,
    options: &'a Options,
    wanted: &'a Arc<Policy>,
    /// The part of `wanted` whose devices are there.
    policy: &'a Policy,
    pins: Option<&'a Pins>,
}

/// Opens the ports, starts the worker, and answers requests until the node is to end. Returns why
/// it ended.
fn forward<S>(
    StartArguments { socket, options, wanted, policy, pins }: &StartArguments<'_>,
    node: &Arc<Node>,
    report: &mut dyn FnMut(&str),
    serve: impl FnOnce(Serving) -> std::io::Result<S>,
) -> Result<NodeEnd, NodeError> {
    let mut supervisor =
        ServiceManager::from_env().map_err(|error| NodeError::io("service manager", error))?;
    let mut pool = Pool::new(policy.node.frames, policy.node.frame_size.bytes())?;
    let (mut opener, plane) = Opener::new(wanted, &pool, *pins, &node.plane.device_properties)?;
    let opened = opener.open(policy, |_| true)?;
    node.attach_stand_ins(opener.devices(), STAND_INS_AT_START);
    let ports = NodePorts::new(policy, plane, opened, &mut pool)?;
    for attached in &ports.attached {
        if let Some(why) = &attached.fallback {
            report(&format!("{} by a packet socket, which is slower: {why}", attached.name));
        }
    }
    let worker = Worker::new(Policy::clone(policy), ports, pool)?;
    let (handle, inbox) = WorkerHandle::new();
    let thread = start_worker(worker, inbox, policy)?;
    node.plane.connect(handle);
    let devices = Arc::clone(opener.devices());
    if let Some(host) = node.plane.host().as_mut() {
        host.opener = Some(opener);
    }
    let name = &policy.node.name;
    let serving = Serving {
        socket: PathBuf::from(socket),
        control: Arc::clone(node) as Arc<dyn Control>,
        policy: Arc::clone(wanted),
    };
    // If anything fails from here on, the worker ends first, and then the host is handed back.
    let served = node.keep_report(&options.state, policy).and_then(|ticking| {
        node.plane.hold_routers(wanted)?;
        let server = serve(serving).map_err(|error| NodeError::io(socket, error))?;
        Ok((server, ticking))
    });
    let why = served.map(|_served| {
        report(&format!("node {name} forwards; control socket {}", socket.display()));
        supervisor.ready();
        let watch = node.watch_devices(&devices, report);
        let watch_end = EndWatch {
            is_over: &|| thread.is_finished(),
            // The node is alive if its worker answers.
            is_alive: &|| node.plane.worker().and_then(WorkerHandle::status).is_ok(),
            cannot_leave: &|| node.cannot_leave(pins.is_some()),
        };
        let ended = node.await_end(options.confirm, report, &mut supervisor, &watch_end);
        supervisor.stopping();
        watch.into_iter().for_each(DeviceWatch::end);
        if matches!(ended, NodeEnd::Left) {
            node.attach_all_stand_ins(&devices);
        }
        ended
    });
    node.plane.routers.end().iter().for_each(|line| report(line));
    node.plane.end_worker(matches!(why, Ok(NodeEnd::Left)));
    let ended = thread.join().unwrap_or(Err(NodeError::WorkerDied));
    if let Ok(last) = &ended {
        node.end_report(last).iter().for_each(|failed| report(failed));
    }
    why.and_then(|why| ended.map(|_| why))
}

/// Starts the worker's thread, and waits until it has its processor, or its share of one.
fn start_worker(
    worker: Worker,
    inbox: Receiver<WorkerCommand>,
    policy: &Policy,
) -> Result<WorkerThread, NodeError> {
    let request = reservation::request(&policy.node);
    let (reserved, reservation_made) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("weir-worker".into())
        .spawn(move || {
            let taken = reservation::take(request);
            let failed = taken.as_ref().err().map(ToString::to_string);
            // The starting thread waits for this message.
            let _told = reserved.send(failed);
            match taken {
                // The reservation is held until the worker has ended.
                Ok(_reservation) => worker.run(&inbox).map_err(NodeError::from),
                Err(error) => Err(NodeError::Reservation(error.to_string())),
            }
        })
        .map_err(|error| NodeError::io("worker thread", error))?;
    match reservation_made.recv() {
        Ok(None) => Ok(thread),
        Ok(Some(message)) => Err(NodeError::Reservation(message)),
        Err(_) => Err(NodeError::WorkerDied),
    }
}

/// The worker's thread, whose result is the last status.
type WorkerThread = JoinHandle<Result<NodeStatus, NodeError>>;

/// The switch as a node's data plane: its worker, the host's devices, and routers that are held at
/// a rate.
#[derive(Debug)]
struct SwitchPlane {
    worker: OnceLock<WorkerHandle>,
    /// The state of the host, locked for one change at a time; `None` before the start and after
    /// the end.
    host: Mutex<Option<HostState>>,
    routers: RouterLoops,
    /// Cached properties of the devices. Any thread but the worker's refreshes them.
    device_properties: Arc<DevicePropertyCache>,
    /// The keys of the policy in force that the schedulers of the ports do not hold.
    unheld: ToldLines,
}

type Node = ControlledNode<SwitchPlane>;

impl SwitchPlane {
    fn new(state: &StateDir, notes: &SharedNotes) -> Self {
        let told = Arc::clone(notes);
        let tell = Arc::new(move |line| OperatorNotes::add_to(&told, line));
        Self {
            worker: OnceLock::new(),
            host: Mutex::new(None),
            routers: RouterLoops::new(state.clone(), tell),
            device_properties: Arc::default(),
            unheld: ToldLines::default(),
        }
    }

    /// Lets requests reach the worker from now on.
    fn connect(&self, worker: WorkerHandle) {
        let set = self.worker.set(worker);
        debug_assert!(set.is_ok(), "a node starts one worker");
    }

    fn hold_routers(&self, policy: &Policy) -> Result<(), NodeError> {
        let worker = self.worker.get();
        Ok(worker.map_or(Ok(()), |worker| self.routers.start(policy, worker))?)
    }

    /// Lists the keys that the ports' schedulers do not hold. Returns a line for each entry that is
    /// not in the list of the last call.
    fn list_unheld(&self, policy: &Policy) -> impl Iterator<Item = String> {
        let unheld = policy.unheld().iter().map(ToString::to_string).collect();
        self.unheld.replace(unheld).into_iter().map(|key| format!("not held: {key}"))
    }

    fn end_worker(&self, leaves: bool) {
        if let Some(worker) = self.worker.get() {
            if leaves { worker.leave() } else { worker.stop() }
        }
    }

    /// Returns the worker, once there is one.
    fn worker(&self) -> Result<&WorkerHandle, Refusal> {
        let starting = || Refusal::new(RefusalKind::NotRunning, "the node is starting");
        self.worker.get().ok_or_else(starting)
    }

    /// Locks the state of the host. If a holder of the lock panicked, the journal still has all
    /// changes.
    fn host(&self) -> MutexGuard<'_, Option<HostState>> {
        self.host.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Node {
    /// Returns why the node must stop instead of leaving, if it must. `pinned` tells whether the
    /// data plane outlives the process.
    fn cannot_leave(&self, pinned: bool) -> Option<String> {
        if !pinned {
            return Some("the data plane is not pinned: no BPF file system".to_owned());
        }
        let cut_off = |vif: &&Vif| {
            vif.kind == Kind::Host && !Direction::ALL.iter().all(|way| may_stand_in(vif, *way))
        };
        let policy = self.policy_now();
        let name = &policy.vifs.iter().find(cut_off)?.name;
        Some(format!(
            "host vif {name} would be cut off: set `mac`, and remove `addresses` and `filter`"
        ))
    }

    /// Attaches the stand-ins of devices that wait for theirs, for about `most`. Returns true if
    /// any is new; the kernel does not know yet which vifs that one carries.
    fn attach_stand_ins(&self, devices: &Devices, most: Duration) -> bool {
        let begun = Instant::now();
        let mut any = false;
        while begun.elapsed() < most {
            match devices.attach_next_stand_in() {
                Some(Ok(attached)) => any |= attached,
                Some(Err(error)) => self.tell(format!("a device has no stand-in: {error}")),
                None => break,
            }
        }
        any
    }

    /// Attaches the stand-ins of all devices that wait for theirs.
    fn attach_all_stand_ins(&self, devices: &Devices) {
        if self.attach_stand_ins(devices, Duration::MAX) {
            self.follow_devices(true);
        }
    }

    /// Follows the host's devices until the watch ends, and attaches the stand-ins of those that
    /// are opened. Reports if it cannot: without events it only looks after the present devices;
    /// without a thread it attaches their stand-ins at once.
    fn watch_devices(
        self: &Arc<Self>,
        devices: &Arc<Devices>,
        report: &mut dyn FnMut(&str),
    ) -> Option<DeviceWatch> {
        let mut not_followed = |error: std::io::Error| {
            report(&format!("devices that come and go are not followed: {error}"));
        };
        let events = LinkEvents::open().map_err(&mut not_followed).ok();
        let watch = self.start_watch(events, Arc::clone(devices));
        watch
            .map_err(|error| {
                not_followed(error);
                self.attach_all_stand_ins(devices);
            })
            .ok()
    }

    fn start_watch(
        self: &Arc<Self>,
        events: Option<LinkEvents>,
        devices: Arc<Devices>,
    ) -> std::io::Result<DeviceWatch> {
        let (node, asking) = (Arc::clone(self), Arc::clone(self));
        let abilities_changed = Arc::new(AtomicBool::new(false));
        let changed = Arc::clone(&abilities_changed);
        let look = move || {
            let attached = asking.attach_stand_ins(&devices, STAND_INS_EACH);
            changed
                .fetch_or(asking.plane.device_properties.refresh() | attached, Ordering::Relaxed);
            changed.load(Ordering::Relaxed)
        };
        let (mut told, mut again) = (Vec::new(), false);
        let request = reservation::beside(&self.policy_now().node);
        DeviceWatch::start(events, request, look, move || {
            let anew = abilities_changed.swap(false, Ordering::Relaxed) || again;
            let FollowedDevices { notes, failed } = node.follow_devices(anew);
            // The new abilities have not taken effect yet.
            again = anew && failed;
            // A failure is noted once, however often it is tried again.
            if notes != told {
                notes.iter().for_each(|note| node.tell(note.clone()));
            }
            told = if failed { notes } else { Vec::new() };
            failed
        })
    }

    /// Takes devices that came and lets go of those that left. With `anew` it also looks again at
    /// those that stay, since abilities of devices have changed.
    fn follow_devices(&self, anew: bool) -> FollowedDevices {
        // The lock keeps the policy from changing meanwhile.
        let _live = self.live();
        let (Some(worker), Some(host)) = (self.plane.worker.get(), &mut *self.plane.host()) else {
            return FollowedDevices::default();
        };
        host.follow(worker, anew, device_number)
    }
}

impl NodePlane for SwitchPlane {
    const DATAPLANE: Dataplane = Dataplane::Switch;

    fn read_status(&self, _policy: &Policy) -> Result<NodeStatus, Refusal> {
        Ok(NodeStatus { unheld: self.unheld.held(), ..self.worker()?.status()? })
    }

    fn add_waiting(&self, status: &mut NodeStatus, policy: &Policy) {
        add_waiting(status, policy);
    }

    /// Has the worker, the host's devices and the control loops take over a policy.
    fn apply(&self, policy: &Policy, note: &dyn Fn(String)) -> Result<(), Refusal> {
        let not_now = |why| move || Refusal::new(RefusalKind::NotRunning, why);
        let worker = self.worker.get().ok_or_else(not_now("the node is starting"))?;
        let mut host = self.host();
        let host = host.as_mut().ok_or_else(not_now("the node is ending"))?;
        self.routers.may_follow(policy, worker)?;
        host.change(policy.clone(), worker, device_number)?.into_iter().for_each(note);
        self.list_unheld(policy).for_each(note);
        self.routers.follow(policy);
        Ok(())
    }

    /// Checks that worker, host and control loops could take over a policy.
    fn could_apply(&self, policy: &Policy) -> Result<(), Refusal> {
        self.routers.may_follow(policy, self.worker()?)?;
        let ending = || Refusal::new(RefusalKind::NotRunning, "the node is ending");
        self.host().as_ref().ok_or_else(ending)?.could_change(policy)
    }

    fn capture(&self, request: CaptureRequest) -> Result<Capturing, Refusal> {
        self.worker()?.capture(request)
    }

    fn routers(&self, router: Option<&str>) -> Result<(Vec<RouterStatus>, LoopsLoad), Refusal> {
        self.routers.status(router)
    }

    fn lease(&self, request: LeaseRequest) -> Result<RefusedLeases, Refusal> {
        self.routers.lease(request)
    }

    fn router_log(&self, router: &str, newest: usize) -> Result<Vec<LogLine>, Refusal> {
        let missing = || {
            let text = format!("router {router:?} is not held at a rate");
            Refusal::new(RefusalKind::NotFound, text)
        };
        self.routers.log(router, newest)?.ok_or_else(missing)
    }

    fn classes(&self) -> Result<Vec<ClassStatus>, Refusal> {
        self.routers.classes(None)
    }

    fn activations(
        &self,
        policy: &Policy,
        router: &str,
        span: Duration,
    ) -> Result<RouterActivations, Refusal> {
        let Some(found) = policy.routers.iter().find(|one| one.name == router) else {
            let text = format!("there is no router {router:?}");
            return Err(Refusal::new(RefusalKind::NotFound, text));
        };
        let refused = |error: HostError| Refusal::new(RefusalKind::Refused, error.to_string());
        watch_activations(found, span).map_err(refused)
    }
}

/// The time for stand-ins at the start, which suffices for some twenty devices. Further devices get
/// theirs once the node answers.
const STAND_INS_AT_START: Duration = Duration::from_millis(500);

/// The time for stand-ins at a stretch; in between, the node looks for devices that come and go and
/// for changed abilities.
const STAND_INS_EACH: Duration = Duration::from_millis(200);
