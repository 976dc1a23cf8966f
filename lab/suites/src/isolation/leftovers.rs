// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Left-overs of a killed program on the host: a snapshot before, another one after, and the part
//! of the difference that the program can have caused.
//!
//! Others may be at work on this machine. Namespaces are told apart by the prefix of their names,
//! files by their folders, processes by the state folder in their environment; a BPF object is a
//! left-over if no living process has it open.

use std::fs;
use std::path::PathBuf;

use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_experiment::weir_program::WeirProgram;
use weir_platform::bpf::{self, BpfKind};
use weir_platform::run::Host;
use weir_platform::snapshot::Snapshot;
use weir_platform::{StateDir, process};

/// The host before something that is to leave no trace.
pub(super) struct HostBefore {
    state: StateDir,
    temporary: PathBuf,
    prefix: String,
    snapshot: Snapshot,
}

impl HostBefore {
    /// Looks at the host. `prefix` is what the names of all namespaces begin with that the program
    /// makes or runs in.
    pub(super) fn of(program: &WeirProgram, prefix: &str) -> Result<Self> {
        let state = StateDir::at(program.state());
        let snapshot = Snapshot::take_inside(&Host::default(), &state, prefix)?;
        let (temporary, prefix) = (program.temporary(), prefix.to_owned());
        Ok(Self { state, temporary, prefix, snapshot })
    }

    /// Returns the difference from before, once the kernel had time to remove things.
    pub(super) fn left(&self) -> Result<Vec<String>> {
        let is_clean = || Ok(self.now()?.is_empty().then(Vec::new));
        clock::wait_for(PATIENCE, POLL, is_clean)?.map_or_else(|| self.now(), Ok)
    }

    /// Returns the difference at this moment.
    pub(super) fn now(&self) -> Result<Vec<String>> {
        let now = Snapshot::take_inside(&Host::default(), &self.state, &self.prefix)?;
        let difference = now.since(&self.snapshot).only(|line| self.is_ours(line));
        let orphans = orphans();
        let gone = difference.gone.into_iter().filter(|line| !line.starts_with("bpf-"));
        let mut left: Vec<String> = gone.map(|line| format!("- {line}")).collect();
        let is_left = |line: &String| !line.starts_with("bpf-") || orphans.contains(line);
        left.extend(difference.new.into_iter().filter(is_left).map(|line| format!("+ {line}")));
        let files = fs::read_dir(&self.temporary).into_iter().flatten().flatten();
        left.extend(files.map(|entry| format!("+ file {}", entry.path().display())));
        let entry = format!("WEIR_STATE={}", self.state.path().display());
        let running = process::with_environment(&entry);
        left.extend(running.iter().map(|process| format!("+ process {}", process.pid)));
        Ok(left)
    }

    fn is_ours(&self, line: &str) -> bool {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            "file" | "pin" | "bpf-program" | "bpf-map" | "bpf-link" => true,
            "cgroup" => rest.contains("weir"),
            // Told by their environment.
            "process" => false,
            _ => rest.starts_with(&self.prefix),
        }
    }
}

/// BPF objects that no process has open, as lines of a snapshot.
fn orphans() -> Vec<String> {
    let held = bpf::held();
    let kinds = [(BpfKind::Program, "program"), (BpfKind::Map, "map"), (BpfKind::Link, "link")];
    let lines = kinds.into_iter().flat_map(|(kind, word)| {
        let objects =
            bpf::list(kind).into_iter().filter(|object| !held.contains(&(kind, object.id)));
        objects
            .map(move |object| format!("bpf-{word} {} {}", object.id, object.name))
            .collect::<Vec<_>>()
    });
    lines.collect()
}

/// The kernel takes a deleted namespace apart in the background: 0.1 s, more on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// The interval at which the host is compared.
const POLL: Duration = Duration::from_millis(30);
