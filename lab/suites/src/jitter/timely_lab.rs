// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Machines in a namespace, and a node that gives them their classes.
//!
//! The node is the shipped one, with a policy that has a router for each machine. A class counts as
//! in force once the kernel says so.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};

use weir_experiment::host_changes::HostChanges;
use weir_experiment::node_process::NodeProcess;
use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_experiment::{clock, product};
use weir_platform::cpu::{self, SchedulingClass};
use weir_platform::host::Change;
use weir_platform::meter::{CpuMeter, CpuSource};
use weir_platform::netns::Namespace;
use weir_platform::process::Identity;
use weir_platform::{ChangePurpose, StateDir, Undo};
use weir_policy::{Kind, Port, RealtimeKind, Reservation, Router, RouterRealtime, Slice};
use weir_traffic::StampedSocket;
use weir_units::CpuShare;

use super::timely_process::{PATIENCE, TimelyMachine};

/// A lab of machines.
pub(super) struct TimelyLab {
    /// The node ends before its machines, and they before the namespace.
    node: Option<NodeProcess>,
    machines: Vec<PlacedMachine>,
    namespace: Namespace,
    place: RunFolder,
    _made: HostChanges,
}

/// A machine of a lab.
pub(super) struct PlacedMachine {
    name: String,
    child: Child,
    identity: Identity,
    class: Option<RouterRealtime>,
}

impl TimelyLab {
    /// Makes a lab without machines.
    pub(super) fn up() -> Result<Self> {
        let place = RunFolder::take(NAME, &StateDir::from_env())?;
        let made = HostChanges::make(NAME, || {
            let add = weir_platform::run::Command::line(&format!("ip netns add {NAME}"));
            let up = weir_platform::run::Command::line(&format!("ip -n {NAME} link set lo up"));
            vec![Change {
                purpose: ChangePurpose::Other,
                what: format!("namespace {NAME}"),
                run: vec![add, up],
                undo: Undo::DeleteNamespace(NAME.to_owned()),
            }]
        })?;
        let namespace = Namespace::open(NAME)?;
        Ok(Self { node: None, machines: Vec::new(), namespace, place, _made: made })
    }

    /// Starts a machine on a core, or on any, and returns its number. It has `class` with the next
    /// [`Self::apply`].
    pub(super) fn start(
        &mut self,
        machine: TimelyMachine,
        core: Option<u32>,
        class: Option<RouterRealtime>,
    ) -> Result<usize> {
        let mut command = Command::new(product::own_path()?);
        command.args(["lab", "machine"]).args(arguments(machine));
        if let Some(core) = core {
            command.args(["--core", &core.to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let child = self.namespace.spawn(command)?;
        let identity = Identity::of(child.id());
        let gone = || ExperimentError::Node("a machine ended at once".to_owned());
        let (name, identity) = (format!("m{}", self.machines.len()), identity.ok_or_else(gone)?);
        self.machines.push(PlacedMachine { name, child, identity, class });
        Ok(self.machines.len() - 1)
    }

    /// Returns the process of a machine.
    pub(super) fn identity(&self, machine: usize) -> Result<Identity> {
        let identity = self.machines.get(machine).map(|one| one.identity);
        identity.ok_or_else(|| ExperimentError::Node(format!("no machine {machine}")))
    }

    /// Has the node give all machines their classes, and waits until the kernel says so.
    pub(super) fn apply(&mut self) -> Result {
        self.ask_for_classes()?;
        self.wait_for_classes()
    }

    /// Has the node give all machines their classes.
    pub(super) fn ask_for_classes(&mut self) -> Result {
        let policy = self.policy();
        match &self.node {
            None => {
                let node = NodeProcess::start(Namespace::open(NAME)?, &policy, &self.place)?;
                self.node = Some(node);
                Ok(())
            }
            Some(node) => node.reload(&policy),
        }
    }

    /// Waits until the kernel says that all machines have their classes.
    pub(super) fn wait_for_classes(&self) -> Result {
        let done = clock::wait_for(APPLIED_WITHIN, POLL, || {
            Ok(self.machines.iter().all(PlacedMachine::is_in_class).then_some(()))
        })?;
        let said = || self.node.as_ref().map(NodeProcess::said).unwrap_or_default();
        done.ok_or_else(|| ExperimentError::Node(format!("classes not in force: {}", said())))
    }

    /// Returns the number of machines whose class is in force, as the kernel says.
    pub(super) fn count_in_class(&self) -> usize {
        self.machines.iter().filter(|one| one.is_in_class()).count()
    }

    /// Lets a worker begin.
    pub(super) fn begin(&mut self, machine: usize) -> Result {
        let stdin = self.machines.get_mut(machine).and_then(|one| one.child.stdin.take());
        let written = stdin.map_or(Ok(()), |mut stdin| stdin.write_all(b"go\n"));
        written.map_err(|error| ExperimentError::io("a machine", error))
    }

    /// Waits for the end of a machine, and returns what it measured, in nanoseconds.
    pub(super) fn measured(&mut self, machine: usize) -> Result<Vec<f64>> {
        let failed = |error| ExperimentError::io("a machine", error);
        let Some(one) = self.machines.get_mut(machine) else { return Ok(Vec::new()) };
        let mut said = String::new();
        if let Some(mut stdout) = one.child.stdout.take() {
            stdout.read_to_string(&mut said).map_err(failed)?;
        }
        one.child.wait().map_err(failed)?;
        serde_json::from_str(&said)
            .map_err(|error| ExperimentError::Node(format!("a machine said {said:?}: {error}")))
    }

    /// Returns the processor that a machine was on last.
    pub(super) fn core_of(&self, machine: usize) -> Option<u32> {
        let pid = self.machines.get(machine)?.identity.pid;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        // Field 39 of proc_pid_stat(5); the first behind the name is the third.
        rest.split_whitespace().nth(39 - 3)?.parse().ok()
    }

    /// Returns a meter of the CPU time of these machines.
    pub(super) fn meter(&self, machines: &[usize]) -> CpuMeter {
        let identities = machines.iter().filter_map(|at| self.machines.get(*at));
        CpuMeter::new(identities.map(|one| CpuSource::Process(one.identity)))
    }

    /// Runs `f` inside the namespace.
    pub(super) fn inside<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        Ok(self.namespace.run(f)?)
    }

    /// Returns a socket inside that stamps datagrams, and its address.
    pub(super) fn receiver(&self) -> Result<(StampedSocket, SocketAddr)> {
        let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let bound = self.inside(|| {
            let socket = StampedSocket::bind(any, PATIENCE)?;
            let address = socket.socket().local_addr()?;
            Ok::<_, std::io::Error>((socket, address))
        })?;
        bound.map_err(|error| ExperimentError::io("a receiver", error))
    }

    /// Returns the policy: a router for each machine with a class.
    fn policy(&self) -> Policy {
        let mut policy = Policy::new(NAME);
        // Beside a hundred busy machines, what sets classes would not get a turn without.
        policy.node.reservation = Reservation::Pinned;
        policy.add_port(Port { kind: Kind::Tap, ..Port::new("up0", BitRate::from_mbps(1000)) });
        let slice = policy.add_slice(Slice::new("lab"));
        for machine in &self.machines {
            let Some(class) = machine.class.clone() else { continue };
            let process = Some(machine.identity.pid.to_string());
            let realtime = Some(RouterRealtime { process, ..class });
            policy.add_router(Router { realtime, ..Router::new(&machine.name, slice) });
        }
        policy
    }
}

impl PlacedMachine {
    fn is_in_class(&self) -> bool {
        match &self.class {
            None => true,
            Some(class) if class.is_guaranteed() => {
                let class = cpu::class_of_thread(self.identity);
                matches!(class, Ok(SchedulingClass::Deadline { .. }))
            }
            Some(_) => {
                let group = std::fs::read_to_string(format!("/proc/{}/cgroup", self.identity.pid));
                let name = format!("weir-{NAME}-{}", self.name);
                group.unwrap_or_default().lines().any(|line| line.ends_with(&name))
            }
        }
    }
}

impl Drop for PlacedMachine {
    fn drop(&mut self) {
        // It has no state to save.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// A class with a guarantee whose deadline is its period.
pub(super) fn class(kind: RealtimeKind, period: Nanos, cpu: CpuShare) -> RouterRealtime {
    RouterRealtime::new(kind, period, cpu)
}

/// A weight among normal machines.
pub(super) fn weight(weight: u32) -> RouterRealtime {
    let base = RouterRealtime::new(RealtimeKind::Normal, Nanos::ZERO, CpuShare::ZERO);
    RouterRealtime { weight, ..base }
}

fn arguments(machine: TimelyMachine) -> Vec<String> {
    match machine {
        TimelyMachine::Worker { every, work, times, to } => {
            let (every, work) = (every.to_string(), work.to_string());
            vec![
                "worker".to_owned(),
                format!("--every={every}"),
                format!("--work={work}"),
                format!("--times={times}"),
                format!("--to={to}"),
            ]
        }
        TimelyMachine::Server { work, times, at } => vec![
            "server".to_owned(),
            format!("--work={work}"),
            format!("--times={times}"),
            format!("--at={at}"),
        ],
        TimelyMachine::Web { work, bytes, at } => vec![
            "web".to_owned(),
            format!("--work={work}"),
            format!("--bytes={bytes}"),
            format!("--at={at}"),
        ],
        TimelyMachine::Bulk { length, to } => {
            vec!["bulk".to_owned(), format!("--length={length}"), format!("--to={to}")]
        }
        TimelyMachine::Sink { at } => vec!["sink".to_owned(), format!("--at={at}")],
        TimelyMachine::Echo { at } => vec!["echo".to_owned(), format!("--at={at}")],
        TimelyMachine::Neighbour => vec!["neighbour".to_owned()],
    }
}

/// The namespace, and the node's name.
const NAME: &str = "weir-timely";

/// A class comes into force within one look of the node; a loaded machine takes longer.
const APPLIED_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
