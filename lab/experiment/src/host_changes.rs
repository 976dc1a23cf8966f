// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of the host for as long as a trial needs them.

use std::time::Duration;

use weir_platform::StateDir;
use weir_platform::host::{self, Change};
use weir_platform::journal::{self, Journal};
use weir_platform::run::Host;

use crate::ExperimentError;

/// Undone when this value is gone, or with `weir clean`.
#[derive(Debug)]
pub struct HostChanges {
    /// Taken when this value is dropped.
    journal: Option<Journal>,
}

impl HostChanges {
    /// Makes the changes that `wanted` tells of, in a journal of this name. What an earlier run
    /// left in it is undone before `wanted` is asked.
    pub fn make(name: &str, wanted: impl FnOnce() -> Vec<Change>) -> Result<Self, ExperimentError> {
        let (mut journal, _left) = journal::open_clean(&StateDir::from_env(), name, PATIENCE)?;
        host::apply(&mut journal, &wanted())?;
        Ok(Self { journal: Some(journal) })
    }

    /// The journal, for what is changed later.
    pub fn journal(&mut self) -> Result<&mut Journal, ExperimentError> {
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
