// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder of an experiment's files, and the claim on its lab's name: two concurrent runs of one
//! lab would take each other's namespaces.

use std::fs;
use std::path::{Path, PathBuf};

use weir_node::{old_files, policy_store};
use weir_platform::{StateDir, Undo, journal};
use weir_report::ReportStore;

use crate::host_changes::HostChanges;
use crate::{ExperimentError, Result};

/// A folder for one run's files in the state folder. It is removed when this value is dropped. If
/// the process is killed first, the next run of the same name or `weir clean` removes it.
#[derive(Debug)]
pub struct RunFolder {
    state: StateDir,
    folder: PathBuf,
    changes: HostChanges,
}

impl RunFolder {
    /// Takes the name `lab`, and undoes what an earlier run of that name left: its node, its lab,
    /// its files.
    pub fn take(lab: &str, state: &StateDir) -> Result<Self> {
        let changes = HostChanges::open(state, &format!("run-{lab}"))?;
        let folder = state.path().join(format!("run-{lab}"));
        let mut place = Self { state: state.clone(), folder, changes };
        // Undo the node before its devices.
        journal::clean_one(state, &format!("node-{lab}"))?;
        journal::clean_one(state, &format!("lab-{lab}"))?;
        let undo = Undo::RemoveTree(place.folder.clone());
        place.answer_for(&format!("files in {}", place.folder.display()), undo)?;
        // A node begins with its policy alone, not with what an earlier one kept.
        let policy = policy_store::files(state, lab).into_iter();
        let policy = policy.chain(old_files::paths(state, lab));
        for kept in policy.chain(ReportStore::paths(state, lab)) {
            let _none = fs::remove_file(&kept);
            place.answer_for("what the node kept", Undo::Remove(kept))?;
        }
        let made = fs::create_dir_all(&place.folder);
        made.map_err(|error| ExperimentError::io(&place.folder, error))?;
        Ok(place)
    }

    /// Records that `undo` is to be done when this value is dropped.
    pub fn answer_for(&mut self, what: &str, undo: Undo) -> Result {
        Ok(self.changes.journal()?.record(what, undo)?)
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the directory of the journals.
    pub const fn state(&self) -> &StateDir {
        &self.state
    }
}
