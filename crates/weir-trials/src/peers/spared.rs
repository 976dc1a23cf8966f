// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The forwarder's processor without the kernel's own threads, whoever forwards: a node has it so
//! by itself, and its peers are to have the same.

use std::time::Duration;

use weir_host::StateDir;
use weir_host::host::{self, spare_cpu};
use weir_host::journal::{self, Journal};
use weir_host::run::Host;

use crate::TrialError;
use crate::specs::worker_cpu;

/// The threads are back when this value is gone, or with `weir clean`.
#[derive(Debug)]
pub(crate) struct Spared {
    /// Taken when this value is dropped.
    journal: Option<Journal>,
}

impl Spared {
    /// Moves them off the worker's processor. Nodes that start meanwhile find nothing to move.
    pub(crate) fn take() -> Result<Self, TrialError> {
        let state = StateDir::from_env();
        let (mut journal, _left) = journal::open_clean(&state, "spared-processor", PATIENCE)?;
        host::apply(&mut journal, &spare_cpu(worker_cpu()))?;
        Ok(Self { journal: Some(journal) })
    }
}

impl Drop for Spared {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            // What cannot be moved back stays in the journal, for `weir clean`.
            let _report = journal.undo_all(&Host::default());
        }
    }
}

/// A run that was killed a moment ago may still have a command under way that holds its lock.
const PATIENCE: Duration = Duration::from_secs(2);
