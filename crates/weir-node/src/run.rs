// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir node run`: the node in the foreground, from a policy file to the last undo.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use weir_host::{StateDir, text};
use weir_policy::Policy;
use weir_ports::Pool;

use crate::capture::{CaptureRequest, Capturing};
use crate::control::{self, Handler, Request, Response};
use crate::error::NodeError;
use crate::opener::Opener;
use crate::ports::Ports;
use crate::reservation;
use crate::site::{self, COMMANDS_MAX, Site};
use crate::takeover::Takeover;
use crate::worker::{Command, Worker};

/// How a node is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The policy file.
    pub config: PathBuf,
    /// Undo everything after this time unless somebody confirms.
    pub confirm: Option<Duration>,
    /// Where journals and the control socket are.
    pub state: StateDir,
}

/// How a node ended; in either case everything is undone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Ended {
    /// It was asked to: by a signal or a request.
    Asked,
    /// Nobody confirmed it in time.
    NotConfirmed,
}

/// Reads and checks a policy file.
///
/// # Errors
/// The file cannot be read, or the policy has problems: all of them, each with its line.
pub fn read_policy(path: &Path) -> Result<Policy, NodeError> {
    let text = text::read(path).map_err(|error| NodeError::io(path, error))?;
    weir_policy::parse(&text)
        .map_err(|problems| NodeError::Policy { path: path.to_owned(), problems })
}

/// Runs a node until SIGINT, SIGTERM, a request to stop, or a confirmation that did not come; then
/// undoes everything, and says which of them it was. `report` is told each step in a line.
///
/// # Errors
/// What could not be read, opened, applied or undone.
pub fn run(options: &Options, report: &mut dyn FnMut(&str)) -> Result<Ended, NodeError> {
    let policy = read_policy(&options.config)?;
    let node = Arc::new(Node::new(options)?);
    let mut takeover = Takeover::begin(&policy, &options.state, report)?;
    let socket = control::socket_path(options.state.path(), &policy.node.name);
    let noted = takeover.will_leave(&socket);
    *node.site() = Some(Site { takeover, opener: None, policy: policy.clone() });
    let forwarded = noted.and_then(|()| forward(&socket, options, &policy, &node, report));
    // A change under way is waited for.
    let site = node.site().take();
    let undone = site.map_or(Ok(()), |site| site.takeover.undo());
    forwarded.and_then(|ended| undone.map(|()| ended))
}

/// Opens the ports, starts the worker, answers requests, until told to stop.
fn forward(
    socket: &Path,
    options: &Options,
    policy: &Policy,
    node: &Arc<Node>,
    report: &mut dyn FnMut(&str),
) -> Result<Ended, NodeError> {
    let mut pool = Pool::new(policy.node.frames, policy.node.frame_size.bytes())?;
    let (mut opener, plane) = Opener::new(policy, &pool)?;
    let opened = opener.open(policy, |_| true)?;
    let ports = Ports::new(policy, plane, opened, &mut pool)?;
    for attached in &ports.attached {
        if let Some(why) = &attached.fallback {
            report(&format!("{} by a packet socket, which is slower: {why}", attached.name));
        }
    }
    let worker = Worker::new(policy.clone(), ports, pool).map_err(NodeError::Switch)?;
    let (commands, inbox) = sync_channel(COMMANDS_MAX);
    let thread = start_worker(worker, inbox, policy)?;
    node.connect(commands);
    if let Some(site) = node.site().as_mut() {
        site.opener = Some(opener);
    }
    let name = &policy.node.name;
    let served = control::serve(socket, Arc::clone(node) as Arc<dyn Handler>)
        .map_err(|error| NodeError::io(socket, error));
    let why = served.map(|()| {
        report(&format!("node {name} forwards; control socket {}", socket.display()));
        node.stay(options.confirm, report, &thread)
    });
    node.end_worker();
    let ended = thread.join().unwrap_or(Err(NodeError::WorkerDied));
    why.and_then(|why| ended.map(|()| why))
}

fn start_worker(
    worker: Worker,
    inbox: Receiver<Command>,
    policy: &Policy,
) -> Result<WorkerThread, NodeError> {
    let wish = reservation::wish(&policy.node);
    let (reserved, reservation_made) = mpsc::sync_channel(1);
    let thread = std::thread::Builder::new()
        .name("weir-worker".into())
        .spawn(move || {
            let taken = reservation::take(wish);
            let failed = taken.as_ref().err().map(ToString::to_string);
            // The starter waits for this; if it is gone, so is the node.
            let _told = reserved.send(failed);
            match taken {
                // Held until the worker has ended.
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

/// The worker's thread, and how it ended.
type WorkerThread = JoinHandle<Result<(), NodeError>>;

/// What the control side knows of the running node.
#[derive(Debug)]
struct Node {
    config: PathBuf,
    commands: std::sync::OnceLock<SyncSender<Command>>,
    /// One change at a time; none before the start and after the end.
    site: Mutex<Option<Site>>,
    confirmed: AtomicBool,
    stop: Arc<AtomicBool>,
    reload: Arc<AtomicBool>,
}

impl Node {
    /// From here on signals are requests: a stop in the middle of the start is not lost.
    fn new(options: &Options) -> Result<Self, NodeError> {
        let (stop, reload) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for (signal, flag) in [(SIGINT, &stop), (SIGTERM, &stop), (SIGHUP, &reload)] {
            signal_hook::flag::register(signal, Arc::clone(flag))
                .map_err(|error| NodeError::io("signal handler", error))?;
        }
        Ok(Self {
            config: options.config.clone(),
            commands: std::sync::OnceLock::new(),
            site: Mutex::new(None),
            confirmed: AtomicBool::new(options.confirm.is_none()),
            stop,
            reload,
        })
    }

    fn connect(&self, commands: SyncSender<Command>) {
        // Called once, before anybody asks.
        let _known = self.commands.set(commands);
    }

    /// Waits until the node is to end, and says why; reloads when told to.
    fn stay(
        &self,
        confirm: Option<Duration>,
        report: &mut dyn FnMut(&str),
        worker: &WorkerThread,
    ) -> Ended {
        let deadline = confirm.map(|time| (time, Instant::now() + time));
        while !self.stop.load(Ordering::Relaxed) && !worker.is_finished() {
            if self.reload.swap(false, Ordering::Relaxed) {
                match self.apply_file() {
                    Ok(()) => report("configuration applied"),
                    Err(message) => report(&format!("configuration refused: {message}")),
                }
            }
            if let Some((time, deadline)) = deadline
                && !self.confirmed.load(Ordering::Relaxed)
                && Instant::now() > deadline
            {
                report(&format!("not confirmed within {} s: undoing", time.as_secs_f64()));
                return Ended::NotConfirmed;
            }
            std::thread::sleep(SIGNAL_POLL);
        }
        Ended::Asked
    }

    fn end_worker(&self) {
        if let Some(commands) = self.commands.get() {
            // It may have ended already, which is what is wanted.
            let _ended = commands.send(Command::Stop);
        }
    }

    fn apply_file(&self) -> Result<(), String> {
        let policy = read_policy(&self.config).map_err(|error| error.to_string())?;
        let commands = self.commands.get().ok_or("the node is starting")?;
        let mut site = self.site();
        site.as_mut().ok_or("the node is ending")?.change(policy, commands)
    }

    fn ask<T>(&self, command: impl FnOnce(SyncSender<T>) -> Command) -> Result<T, String> {
        site::ask(self.commands.get().ok_or("the node is starting")?, command)
    }

    /// What it holds is written down in a journal, whatever happened to the thread with the lock.
    fn site(&self) -> MutexGuard<'_, Option<Site>> {
        self.site.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Handler for Node {
    fn answer(&self, request: Request) -> Response {
        let done = match request {
            Request::Status {} => {
                return match self.ask(Command::Status) {
                    Ok(status) => Response::Status(Box::new(status)),
                    Err(message) => Response::Error { message },
                };
            }
            Request::Reload {} => self.apply_file(),
            Request::Confirm {} => {
                self.confirmed.store(true, Ordering::Relaxed);
                Ok(())
            }
            Request::Stop {} => {
                self.stop.store(true, Ordering::Relaxed);
                Ok(())
            }
            // Captures have an answer of their own.
            Request::Capture(_) => Ok(()),
        };
        done.map_or_else(|message| Response::Error { message }, |()| Response::Ok)
    }

    fn capture(&self, request: CaptureRequest) -> Result<Capturing, String> {
        self.ask(|reply| Command::Capture(request, reply))?
    }
}

/// How soon a signal is seen.
const SIGNAL_POLL: Duration = Duration::from_millis(20);
