// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of the host for as long as an experiment needs them.

use std::time::Duration;

use weir_platform::StateDir;
use weir_platform::host::{self, Change};
use weir_platform::journal::{self, Journal};
use weir_platform::run::Host;

use crate::{ExperimentError, Result};

/// Changes that are undone when this value is dropped. If the process is killed first, the next run
/// of the same name or `weir clean` undoes them.
#[derive(Debug)]
pub struct HostChanges {
    /// Taken when this value is dropped.
    journal: Option<Journal>,
}

impl HostChanges {
    /// Opens the journal of this name, and undoes what an earlier run left in it.
    pub(crate) fn open(state: &StateDir, name: &str) -> Result<Self> {
        let (journal, _left) = journal::open_clean(state, name, PATIENCE)?;
        Ok(Self { journal: Some(journal) })
    }

    /// Makes the changes that `wanted` returns once an earlier run is undone, in a journal of this
    /// name.
    pub fn make(name: &str, wanted: impl FnOnce() -> Vec<Change>) -> Result<Self> {
        let mut changes = Self::open(&StateDir::from_env(), name)?;
        host::apply(changes.journal()?, &wanted())?;
        Ok(changes)
    }

    /// Returns the journal, for later changes.
    pub fn journal(&mut self) -> Result<&mut Journal> {
        let gone = || ExperimentError::Node("the journal is closed".to_owned());
        self.journal.as_mut().ok_or_else(gone)
    }
}

impl Drop for HostChanges {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            // What cannot be undone stays in the journal, for `weir clean`.
            let _report = journal.undo_all(&Host::default());
        }
    }
}

/// A run that was killed a moment ago may still have a command under way that holds its lock.
const PATIENCE: Duration = Duration::from_secs(2);
