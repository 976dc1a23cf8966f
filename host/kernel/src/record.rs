// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The record of what was made, in the state folder.
//!
//! It is written before a plan is applied, with the setup before and the one to come, and again
//! when the plan is done. A process that finds a plan under way knows that each object may have the
//! values of either.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_kernel_plan::KernelSetup;
use weir_platform::StateDir;

use crate::counters::LeafBase;
use crate::error::KernelPlaneError;

/// The record of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KernelRecord {
    /// The setup in force, or to come.
    pub(crate) setup: KernelSetup,
    /// The setup before, while a plan is under way.
    #[serde(default)]
    pub(crate) before: Option<KernelSetup>,
    /// The bases of queues that were made again.
    #[serde(default)]
    pub(crate) bases: Vec<LeafBase>,
    /// The devices of the policy in force, present or not.
    #[serde(default)]
    pub(crate) devices: BTreeSet<String>,
    /// The numbers of the devices with trees, to find a renamed device.
    #[serde(default)]
    pub(crate) numbers: BTreeMap<String, u32>,
}

impl KernelRecord {
    /// Returns the path of a node's record.
    pub(crate) fn path(state: &StateDir, node: &str) -> PathBuf {
        state.path().join(format!("kernel-{node}.json"))
    }

    /// Reads the record. Returns `None` if there is none, or if it cannot be read.
    pub(crate) fn read(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    /// Writes the record: whole, or not at all.
    pub(crate) fn write(&self, path: &Path) -> Result<(), KernelPlaneError> {
        let failed = |error| KernelPlaneError::io("write", path, error);
        let bytes = serde_json::to_vec(self).map_err(|error| failed(io::Error::other(error)))?;
        let new = path.with_extension("new");
        let write = || {
            let mut file = File::create(&new)?;
            file.write_all(&bytes)?;
            file.sync_data()?;
            fs::rename(&new, path)
        };
        write().map_err(failed)
    }

    /// Returns all objects that may be there: those of the setup, and those of the one before.
    pub(crate) fn all(&self) -> KernelSetup {
        let mut all = self.setup.clone();
        let Some(before) = &self.before else { return all };
        for (owner, number) in &before.owners {
            all.owners.entry(owner.clone()).or_insert(*number);
        }
        let rest = before.objects.iter().filter(|object| self.setup.find(object.key()).is_none());
        all.objects.extend(rest.cloned());
        all
    }
}
