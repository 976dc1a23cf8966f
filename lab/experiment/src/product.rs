// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The programs under test: `weir` and `weir-broker` beside the running `weir-lab`, of the same
//! build.
//!
//! An experiment says something about a program only if it ran that program. A lab that picks up
//! an older `weir` would report figures of code that nobody is looking at, so another build is
//! refused.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::{ExperimentError, Result};

/// Sets the version that `weir` and `weir-broker` must have, as `--version` prints it after their
/// name. Only the first call counts; without one, every version is accepted.
pub fn expect_version(version: &'static str) {
    // A second call is a programming error and changes nothing.
    let _ = EXPECTED.set(version);
}

/// The path of `weir`, looked for beside this program.
pub fn path() -> Result<&'static Path> {
    found("weir", &WEIR)
}

/// The path of `weir-broker`, looked for beside this program. `weir broker` executes it.
pub fn broker_path() -> Result<&'static Path> {
    found("weir-broker", &BROKER)
}

/// Looks for a program once, and refuses one of another build.
fn found(name: &str, known: &'static OnceLock<PathBuf>) -> Result<&'static Path> {
    if let Some(found) = known.get() {
        return Ok(found);
    }
    let own = own_path()?;
    // The executable of a test is one folder below the programs.
    let folders = own.ancestors().skip(1).take(2);
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    let found = found.ok_or_else(|| ExperimentError::NoProduct(own.with_file_name(name)))?;
    check_version(name, &found)?;
    Ok(known.get_or_init(|| found))
}

/// The path of this program.
pub fn own_path() -> Result<PathBuf> {
    std::env::current_exe().map_err(|error| ExperimentError::io("weir-lab", error))
}

fn check_version(name: &str, path: &Path) -> Result {
    let Some(expected) = EXPECTED.get() else { return Ok(()) };
    let asked = Command::new(path).arg("--version").output();
    let asked = asked.map_err(|error| ExperimentError::io(path, error))?;
    let said = String::from_utf8_lossy(&asked.stdout);
    let version = said.trim().strip_prefix(name).unwrap_or_default().trim_start();
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

static WEIR: OnceLock<PathBuf> = OnceLock::new();

static BROKER: OnceLock<PathBuf> = OnceLock::new();
