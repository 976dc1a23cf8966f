// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder of an experiment's files, and the claim on its lab's name: two concurrent runs of one
//! lab would take each other's namespaces.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_node::{old_files, policy_store};
use weir_platform::journal::{self, Journal};
use weir_platform::run::Host;
use weir_platform::{StateDir, Undo};
use weir_report::ReportStore;

use crate::ExperimentError;

/// A folder for one run's files in the state folder, gone with this value. If the process is killed
/// first, the next run of the same name or `weir clean` removes it.
#[derive(Debug)]
pub struct RunFolder {
    state: StateDir,
    folder: PathBuf,
    /// Taken when this value is dropped.
    journal: Option<Journal>,
}

impl RunFolder {
    /// Takes the name `lab`, and undoes what an earlier run of that name left: its node, its lab,
    /// its files.
    pub fn take(lab: &str, state: &StateDir) -> Result<Self, ExperimentError> {
        let (journal, _left) = journal::open_clean(state, &format!("run-{lab}"), PATIENCE)?;
        let folder = state.path().join(format!("run-{lab}"));
        let mut place = Self { state: state.clone(), folder, journal: Some(journal) };
        // The node before its devices.
        journal::clean_one(state, &format!("node-{lab}"))?;
        journal::clean_one(state, &format!("lab-{lab}"))?;
        let undo = Undo::RemoveTree(place.folder.clone());
        place.answer_for(&format!("files in {}", place.folder.display()), undo)?;
        let policy =
            policy_store::files(state, lab).into_iter().chain(old_files::paths(state, lab));
        for kept in ReportStore::paths(state, lab).into_iter().chain(policy) {
            // Of an earlier run: this one begins with its policy alone.
            let _none = fs::remove_file(&kept);
            place.answer_for("what the node kept", Undo::Remove(kept))?;
        }
        let made = fs::create_dir_all(&place.folder);
        made.map_err(|error| ExperimentError::io(&place.folder, error))?;
        Ok(place)
    }

    /// Notes that `undo` is to be done when this value goes.
    pub fn answer_for(&mut self, what: &str, undo: Undo) -> Result<(), ExperimentError> {
        self.journal.as_mut().map_or(Ok(()), |journal| Ok(journal.record(what, undo)?))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the directory of the journals.
    pub const fn state(&self) -> &StateDir {
        &self.state
    }
}

impl Drop for RunFolder {
    fn drop(&mut self) {
        if let Some(journal) = self.journal.take() {
            // What cannot be removed stays in the journal, for `weir clean`.
            let _report = journal.undo_all(&Host::default());
        }
    }
}

/// A run that was killed a moment ago may still have a command under way that holds its lock.
const PATIENCE: Duration = Duration::from_secs(2);
