// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lab: a network of namespaces and veth pairs on one machine, built from a topology and
//! removed without a trace.
//!
//! A lab is entirely inside namespaces of its own, so deleting these removes it. The undo journal
//! `lab-NAME` lists them. [`Lab::up`] is idempotent: it adopts existing parts and makes missing
//! ones.

mod build;
mod delay;
pub mod delay_line;
mod parse;
mod status;
mod topology;

use std::ffi::OsString;
use std::process::Child;
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

pub use status::{Item, State, Status};
pub use topology::{
    Bridge, Cidr, End, HEADER_BYTES, Topology, TopologyLink, TopologyNode, default_burst,
};

use weir_platform::error::HostError;
use weir_platform::inspect;
use weir_platform::journal::{Journal, UndoReport};
use weir_platform::netns::{self, Namespace};
use weir_platform::run::{Command, Host, LIMIT, Platform, RunError};
use weir_platform::state::StateDir;
use weir_platform::undo::Undo;

/// A lab that is up and owned by this process. It is taken down when this value is dropped, unless
/// it was [kept](Lab::keep).
#[derive(Debug)]
pub struct Lab {
    topology: Topology,
    /// The undo journal; `None` once `down` or `keep` took it.
    journal: Option<Journal>,
    /// The delay lines, if this process started them.
    line: Option<Child>,
}

impl Lab {
    /// Brings the lab up, or repairs one that is up in part.
    pub fn up(topology: Topology, state: &StateDir) -> Result<Self, HostError> {
        let own = std::env::current_exe();
        let own = own.map_err(|error| HostError::io("find", "this program", error))?;
        Self::up_with(topology, state, &[own.into(), "lab".into(), "delay-line".into()])
    }

    /// Brings the lab up as [`Lab::up`] does, for programs other than `weir-lab`. The command
    /// `delay_line` replaces `weir-lab lab delay-line`, and must run [`delay_line::run`].
    pub fn up_with(
        topology: Topology,
        state: &StateDir,
        delay_line: &[OsString],
    ) -> Result<Self, HostError> {
        let journal = Journal::open(state, &journal_name(&topology.name), PATIENCE)?;
        let mark = journal.mark();
        let mut lab = Self { topology, journal: Some(journal), line: None };
        match lab.make(delay_line) {
            Ok(()) => Ok(lab),
            Err(error) => Err(lab.give_up(mark, error)),
        }
    }

    /// Leaves the lab up when this process ends, until [`down`].
    pub fn keep(mut self) -> Result<(), HostError> {
        self.journal.take().map_or(Ok(()), |mut journal| journal.keep())
    }

    /// Takes the lab down.
    pub fn down(mut self) -> Result<UndoReport, HostError> {
        self.take_down()
    }

    /// Returns the state of each of its parts.
    pub fn status(&self) -> Result<Status, HostError> {
        status(&self.topology)
    }

    /// Returns the topology.
    pub const fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Opens the namespace of the node of that name.
    pub fn namespace(&self, node: &str) -> Result<Namespace, HostError> {
        let lab = &self.topology.name;
        let node = self.topology.node(node);
        let node = node.ok_or_else(|| HostError::Refused(format!("lab {lab}: no such node")))?;
        Namespace::open(&self.topology.namespace(node))
    }

    fn make(&mut self, delay_line: &[OsString]) -> Result<(), HostError> {
        let (built, delays) = delay::expand(&self.topology);
        let Some(journal) = &mut self.journal else { return Ok(()) };
        let host = journal.host();
        make_namespaces(&built, journal)?;
        let topology = &built;
        let actual = read_actual(topology, &host)?;
        at_each_node(topology, |node| host.run(&build::quiet(topology, node)).map(drop))?;
        for command in build::make_links(topology, &actual) {
            // Deleting one end of a pair deletes the other, which a later command then misses.
            host.run(&command).or_else(|error| error.is_gone().then(String::new).ok_or(error))?;
        }
        at_each_node(topology, |node| {
            host.run(&build::configure(topology, node, &actual))?;
            host.run(&build::shape(topology, node, delays.netem))?;
            let mut rest = build::offloads(topology, node);
            rest.extend(build::sysctls(topology, node));
            rest.iter().try_for_each(|command| host.run(command).map(drop))
        })?;
        self.line = delay::start(topology, &delays, delay_line)?;
        Ok(())
    }

    /// Undoes the changes of a failed `up`. Returns its error, with the changes that could not be
    /// undone.
    fn give_up(mut self, mark: u64, error: HostError) -> HostError {
        let Some(mut journal) = self.journal.take() else { return error };
        let host = journal.host();
        let undone = journal.undo_since(&host, mark);
        let undone = match undone {
            Ok(report) if journal.is_empty() => journal.undo_all(&host).map(|_| report),
            Ok(report) => journal.keep().map(|()| report),
            Err(error) => Err(error),
        };
        match undone {
            Ok(report) if report.failed.is_empty() => error,
            Ok(report) => {
                HostError::Refused(format!("{error}; left: {}", report.failed.join("; ")))
            }
            Err(undo) => HostError::Refused(format!("{error}; and undoing it failed: {undo}")),
        }
    }

    fn take_down(&mut self) -> Result<UndoReport, HostError> {
        let Some(journal) = self.journal.take() else { return Ok(UndoReport::default()) };
        let host = journal.host();
        let report = journal.undo_all(&host);
        if let Some(mut line) = self.line.take() {
            // The process ended with its namespace. Waiting for it removes its entry from the
            // process table.
            let _ = line.kill();
            let _ = line.wait();
        }
        report
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            eprintln!("lab {}: {error}; `weir clean` tries again", self.topology.name);
        }
    }
}

/// Takes down the lab of that name, whoever brought it up.
pub fn down(name: &str, state: &StateDir) -> Result<UndoReport, HostError> {
    let journal = Journal::open(state, &journal_name(name), PATIENCE)?;
    let host = journal.host();
    journal.undo_all(&host)
}

/// Returns the state of each part of a lab, also of one that another process brought up.
pub fn status(topology: &Topology) -> Result<Status, HostError> {
    let host = Host::default();
    let (built, delays) = delay::expand(topology);
    let actual = read_actual(&built, &host)?;
    let mut qdiscs = Vec::new();
    for node in &built.nodes {
        let namespace = built.namespace(node);
        let there = netns::is_whole(&namespace);
        qdiscs.push(if there { inspect::qdiscs(&host, Some(&namespace))? } else { Vec::new() });
    }
    let mut status = Status::compare(&built, &actual, &qdiscs, delays.netem);
    for pair in &delays.pairs {
        status.add_line(pair, delay::is_running(&built, &delays));
    }
    Ok(status)
}

/// Makes the namespaces that are missing, all by one command.
fn make_namespaces(topology: &Topology, journal: &mut Journal) -> Result<(), HostError> {
    let mut lines = Vec::new();
    for node in &topology.nodes {
        let name = topology.namespace(node);
        let undo = Undo::DeleteNamespace(name.clone());
        let (ours, exists) = (journal.holds(&undo), netns::exists(&name));
        if exists && !ours {
            return Err(HostError::Refused(format!(
                "namespace {name} is there already and not of lab {}: delete it, or name the lab \
                 otherwise",
                topology.name
            )));
        }
        if exists && netns::is_whole(&name) {
            continue;
        }
        if exists {
            // Removes a partial namespace of an `ip netns add` that was killed.
            lines.push(format!("netns del {name}"));
        }
        if !ours {
            journal.record(&format!("ip netns add {name}"), undo)?;
        }
        lines.push(format!("netns add {name}"));
    }
    let limit = LIMIT + NODE_LIMIT * u32::try_from(lines.len()).unwrap_or(u32::MAX);
    journal.host().run(&Command::batch("ip", lines).limit(limit))?;
    Ok(())
}

/// Calls `work` for each node, for several nodes at a time, since most of the time is spent on
/// starting commands. Returns the error of the first node that failed.
fn at_each_node(
    topology: &Topology,
    work: impl Fn(usize) -> Result<(), RunError> + Sync,
) -> Result<(), RunError> {
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..workers)
            .map(|first| {
                let work = &work;
                let nodes = (first..topology.nodes.len()).step_by(workers);
                scope.spawn(move || nodes.map(|node| (node, work(node))).find(|(_, r)| r.is_err()))
            })
            .collect();
        // A panic in `work` continues in the caller.
        let join = |thread: ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        let failed = threads.into_iter().filter_map(join).min_by_key(|(node, _)| *node);
        failed.map_or(Ok(()), |(_, result)| result)
    })
}

fn read_actual(topology: &Topology, host: &Host) -> Result<build::Actual, HostError> {
    let mut actual = Vec::new();
    for node in &topology.nodes {
        let name = topology.namespace(node);
        let there = netns::is_whole(&name);
        actual.push(if there { inspect::links(host, Some(&name))? } else { Vec::new() });
    }
    Ok(actual)
}

/// Returns the name of a lab's journal.
fn journal_name(lab: &str) -> String {
    format!("lab-{lab}")
}

/// The time limit for making a namespace: ten times the time that it takes on a busy machine.
const NODE_LIMIT: Duration = Duration::from_millis(100);

/// The time for which another process may work on the same lab.
const PATIENCE: Duration = Duration::from_secs(10);
