// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The built programs, and the rewriting of goldens.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::command::{cargo, run, show};
use crate::revision;

/// Builds `weir` and `weir-lab` for release and runs one of them. `weir` and `lab` take the
/// arguments alone; every other name is a command of `weir-lab`. The status is the program's own.
pub(crate) fn program(name: &str, arguments: &[String]) -> ExitCode {
    if let Err(message) = build() {
        eprintln!("xtask: {message}");
        return ExitCode::FAILURE;
    }
    let mut command = Command::new(if name == "weir" { weir_path() } else { lab_path() });
    command.args((!matches!(name, "weir" | "lab")).then_some(name)).args(arguments);
    show(&command);
    match command.status() {
        Ok(status) => {
            // No code: a signal ended it. Any code of a Unix process fits in a byte.
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            ExitCode::from(code.unwrap_or(1))
        }
        Err(error) => {
            eprintln!("xtask: {name}: {error}");
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

/// Builds `weir`, `weir-broker`, `weir-cni` and `weir-lab` for release, from one commit.
pub(crate) fn build() -> Result<(), String> {
    // Every result names the commit that made it; outside of a repository there is none.
    let commit = revision::commit(Path::new(".")).unwrap_or_else(|_| "unknown".to_string());
    let packages = ["weir", "weir-broker", "weir-cni", "weir-lab"];
    let packages = packages.into_iter().flat_map(|name| ["--package", name]);
    run(cargo(&["build", "--release"]).args(packages).env("WEIR_COMMIT", commit))
}

/// The shipped program, built for release.
pub(crate) fn weir_path() -> PathBuf {
    release("weir")
}

/// The broker's program, built for release.
pub(crate) fn broker_path() -> PathBuf {
    release("weir-broker")
}

/// The CNI plug-in, built for release.
pub(crate) fn cni_path() -> PathBuf {
    release("weir-cni")
}

/// The laboratory, built for release.
pub(crate) fn lab_path() -> PathBuf {
    release("weir-lab")
}

/// The folder of the programs that `cargo test --workspace` builds: the code of the shipped ones,
/// less optimized, with its assertions and checks of overflow.
pub(crate) fn tested_programs() -> PathBuf {
    built("debug")
}

fn release(name: &str) -> PathBuf {
    built("release").join(name)
}

fn built(profile: &str) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    PathBuf::from(target).join(profile)
}

/// Returns a command of `weir-bench`, which handles results, kept lines and the page.
pub(crate) fn bench_tool() -> Command {
    cargo(&["run", "--quiet", "--package", "weir-bench", "--"])
}
