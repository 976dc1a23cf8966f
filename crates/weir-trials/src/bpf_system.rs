// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A BPF file system for the nodes of a trial, on machines whose service manager mounts none: what
//! outlives a node's process is kept on it.

use std::time::Duration;

use weir_host::host::{self, Change};
use weir_host::journal::{self, Journal};
use weir_host::run::{Command, Host};
use weir_host::{StateDir, Undo};
use weir_ports::Pins;

use crate::TrialError;

/// It is gone when this value is, or with `weir clean`.
#[derive(Debug)]
pub(crate) struct BpfSystem {
    /// Taken when this value is dropped; `None` where the machine has one.
    journal: Option<Journal>,
}

impl BpfSystem {
    /// Mounts one in the state folder, unless nodes of it find one already.
    pub(crate) fn take() -> Result<Self, TrialError> {
        let state = StateDir::from_env();
        if Pins::of(state.path(), "trial").is_some() {
            return Ok(Self { journal: None });
        }
        let (mut journal, _left) = journal::open_clean(&state, "bpf-system", PATIENCE)?;
        let folder = Pins::own_system(state.path()).display().to_string();
        let change = Change {
            what: format!("{folder}: a BPF file system"),
            run: vec![
                Command::new("mkdir", ["-p", folder.as_str()]),
                Command::new("mount", ["-t", "bpf", "bpf", folder.as_str()]),
            ],
            undo: Undo::Run(vec![
                Command::new("umount", [folder.as_str()]),
                Command::new("rmdir", [folder.as_str()]),
            ]),
        };
        host::apply(&mut journal, &[change])?;
        Ok(Self { journal: Some(journal) })
    }
}

impl Drop for BpfSystem {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            // What cannot be undone stays in the journal, for `weir clean`.
            let _report = journal.undo_all(&Host::default());
        }
    }
}

/// A run that was killed a moment ago may still have a command under way that holds its lock.
const PATIENCE: Duration = Duration::from_secs(2);
