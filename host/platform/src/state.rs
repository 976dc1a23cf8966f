// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The folder where Weir records its changes of the host: `/run/weir`, or `$WEIR_STATE`.

use std::fs;
use std::path::{Path, PathBuf};

/// The state folder. It is made when something is written and goes when nothing is left in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir(PathBuf);

impl StateDir {
    /// Returns `$WEIR_STATE` if it is set, else `/run/weir`, which a reboot empties.
    pub fn from_env() -> Self {
        let given = std::env::var_os("WEIR_STATE").map_or_else(|| DEFAULT.into(), PathBuf::from);
        // Journals hold paths in it, and `weir clean` may run in another folder. Fails only for an
        // empty path, or if the working folder is gone; then it stays as it is.
        Self(std::path::absolute(&given).unwrap_or(given))
    }

    /// Makes the state folder at this path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Returns the folder for files that outlive a reboot: this one, or `/var/lib/weir` if this one
    /// is below `/run`, which a reboot empties.
    pub fn lasting(&self) -> &Path {
        if self.0.starts_with("/run") { Path::new(LASTING) } else { &self.0 }
    }

    /// Returns the path of the control socket of the node `name`.
    #[must_use]
    pub fn node_socket(&self, name: &str) -> PathBuf {
        self.0.join(format!("node-{name}.sock"))
    }

    /// Returns the folder of the undo journals.
    pub fn journals(&self) -> PathBuf {
        self.0.join("journal")
    }

    /// Removes the folders that are empty.
    pub(crate) fn remove_if_empty(&self) {
        // Fails exactly where something is left, and then it should.
        let _ = fs::remove_dir(self.journals());
        let _ = fs::remove_dir(&self.0);
    }
}

/// Cleared at boot, as the changes themselves are.
const DEFAULT: &str = "/run/weir";

/// The folder of live changes and service records.
const LASTING: &str = "/var/lib/weir";
