// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Child processes: shown before they run, judged by their exit status.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The top of the repository, from where this crate was built.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.ancestors().nth(2).unwrap_or(manifest).to_path_buf()
}

/// Returns a command of `cargo` with these arguments: the same `cargo` that runs this program.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments);
    command
}

/// Binds the command to one processor, so that its thread does not move while it is measured: to
/// the last processor that this process may use, which gets the fewest interrupts. Variables of the
/// environment that were set for the command are not kept.
pub(crate) fn pinned(command: &Command) -> Result<Command, String> {
    let path = "/proc/self/status";
    let status = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let last = list.and_then(|list| list.trim().rsplit(['-', ',']).next());
    let last = last.ok_or_else(|| format!("{path}: no list of processors"))?;
    let mut pinned = Command::new("taskset");
    pinned.args(["-c", last]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        pinned.current_dir(folder);
    }
    Ok(pinned)
}

/// Shows the command, runs it, and refuses any status but 0.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    show(command);
    let status = command.status().map_err(|error| format!("{}: {error}", name(command)))?;
    if status.success() { Ok(()) } else { Err(format!("{}: {status}", line(command))) }
}

/// Runs a command that must succeed, and returns its standard output.
pub(crate) fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{}: {error}", name(command)))?;
    if !output.status.success() {
        let reason = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{}: {}: {}", line(command), output.status, reason.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Prints the command as a person would type it.
pub(crate) fn show(command: &Command) {
    eprintln!("$ {}", line(command));
}

fn line(command: &Command) -> String {
    let mut line = name(command);
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

fn name(command: &Command) -> String {
    let program = Path::new(command.get_program());
    program.file_name().unwrap_or_else(|| command.get_program()).to_string_lossy().into_owned()
}
