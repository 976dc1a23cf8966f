// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program under test: the `weir` beside the running `weir-lab`, of the same build.
//!
//! An experiment says something about a program only if it ran that program. A lab that picks up
//! an older `weir` would report figures of code that nobody is looking at, so another build is
//! refused.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{ExperimentError, Result};

/// Names the version that `weir` must have, as `weir --version` prints it after its name. Only the
/// first call counts; without one, every version is taken.
pub fn expect_version(version: &'static str) {
    // A second call is a mistake of ours, and the first one holds.
    let _ = EXPECTED.set(version);
}

/// The path of `weir`, looked for beside this program.
pub fn path() -> Result<&'static Path> {
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let own = own_path()?;
    // A test is one folder below the programs.
    let folders = own.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join("weir")).find(|path| path.is_file());
    let found = found.ok_or_else(|| ExperimentError::NoProduct(own.with_file_name("weir")))?;
    check_version(&found)?;
    Ok(FOUND.get_or_init(|| found))
}

/// The path of this program.
pub fn own_path() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| ExperimentError::io("weir-lab", error))
}

fn check_version(path: &Path) -> Result {
    let Some(expected) = EXPECTED.get() else { return Ok(()) };
    let asked = Command::new(path).arg("--version").output();
    let asked = asked.map_err(|error| ExperimentError::io(path, error))?;
    let said = String::from_utf8_lossy(&asked.stdout);
    let version = said.trim().strip_prefix("weir ").unwrap_or_default();
    if version == *expected {
        return Ok(());
    }
    Err(ExperimentError::OtherBuild {
        path: path.to_owned(),
        version: version.to_owned(),
        expected: (*expected).to_owned(),
    })
}

static EXPECTED: OnceLock<&str> = OnceLock::new();

static FOUND: OnceLock<PathBuf> = OnceLock::new();
