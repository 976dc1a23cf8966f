// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The built program, and the rewriting of goldens.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::bench;
use crate::command::{cargo, run, show};

/// Builds `weir` for release and runs it: `demo` and `verify` with their name in front, `weir` with
/// the arguments alone. The status is the program's own.
pub(crate) fn weir(name: &str, arguments: &[String]) -> ExitCode {
    let subcommand = if name == "weir" { None } else { Some(name) };
    if let Err(message) = build_weir() {
        eprintln!("xtask: {message}");
        return ExitCode::FAILURE;
    }
    let mut command = Command::new(weir_path());
    command.args(subcommand).args(arguments);
    show(&command);
    match command.status() {
        Ok(status) => {
            // No code: a signal ended it. Any code of a Unix process fits in a byte.
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            ExitCode::from(code.unwrap_or(1))
        }
        Err(error) => {
            eprintln!("xtask: weir: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Runs the tests with `WEIR_BLESS=1`, under which a test that compares with a stored text writes
/// it instead, and shows what changed. The commit says why each change is right.
pub(crate) fn bless(arguments: &[String]) -> Result<(), String> {
    let mut command = cargo(&["test"]);
    if arguments.is_empty() {
        command.arg("--workspace");
    }
    run(command.args(arguments).env("WEIR_BLESS", "1"))?;
    run(Command::new("git").args(["--no-pager", "diff", "--stat"]))
}

pub(crate) fn build_weir() -> Result<(), String> {
    // Every result names the commit that made it; outside of a repository there is none.
    let commit = bench::commit(Path::new(".")).unwrap_or_else(|_| "unknown".to_string());
    let mut build = cargo(&["build", "--release", "--package", "weir"]);
    run(build.env("WEIR_COMMIT", commit))
}

pub(crate) fn weir_path() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    PathBuf::from(target).join("release").join("weir")
}
