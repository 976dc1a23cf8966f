// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Schemathesis, which sends what it makes of an OpenAPI document, valid or not, and compares each
//! answer with the document.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use weir_experiment::prelude::*;

/// Tells what a row lacks without it.
pub(crate) const LACKS: &str =
    "not installed: pip install schemathesis, or name it in WEIR_SCHEMATHESIS";

/// Returns the program, `WEIR_SCHEMATHESIS` or that of the path; none if there is none.
pub(crate) fn program() -> Option<PathBuf> {
    let given = std::env::var_os("WEIR_SCHEMATHESIS");
    let program = given.map_or_else(|| PathBuf::from("schemathesis"), PathBuf::from);
    Command::new(&program).arg("--version").output().is_ok().then_some(program)
}

/// Returns the command that tests the service whose document is at that address, quickly or with
/// more requests of each operation. It leaves a folder where it runs, which is below `folder`.
pub(crate) fn command(program: &Path, folder: &Path, url: &str, quick: bool) -> Command {
    let examples = if quick { "10" } else { "60" };
    let mut command = Command::new(program);
    command.current_dir(folder).args(["run", url, "--max-examples", examples]);
    command.args(["--checks", "not_a_server_error,status_code_conformance"]);
    command.args(["--checks", "content_type_conformance,response_schema_conformance"]);
    command.args(["--request-timeout", "10", "--seed", "1", "--no-color"]);
    command
}

/// Claims that it found nothing: each answer is as the document says, and none a failure.
pub(crate) fn judge(rec: &mut Recording<'_>, output: &Output) -> Result {
    let name = "schemathesis";
    let said = String::from_utf8_lossy(&output.stdout);
    if !output.status.success() {
        rec.say(&format!("{name}: {said}"));
    }
    let last = said.lines().rev().find(|line| line.contains("generated")).unwrap_or_default();
    let what = format!("schemathesis finds something ({})", last.trim());
    rec.none(name, what, u64::from(!output.status.success()))
}
