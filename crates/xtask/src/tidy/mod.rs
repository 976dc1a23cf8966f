// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Style as a program. Strict: there is no list of exceptions.

use std::process::Command;

use crate::command;

/// Checks every file that git knows.
pub(crate) fn check_repository() -> Result<(), String> {
    let listed = command::output(Command::new("git").arg("ls-files"))?;
    let mut problems = 0;
    for path in listed.lines() {
        let Ok(text) = std::fs::read_to_string(path) else { continue };
        let source = [".rs", ".c", ".h", ".ts", ".sh"].iter().any(|end| path.ends_with(end));
        if source && !text.lines().take(2).any(|line| line.contains("SPDX-License-Identifier:")) {
            eprintln!("{path}:1: no SPDX line");
            problems += 1;
        }
        for (index, line) in text.lines().enumerate() {
            if source && line.chars().count() > 100 {
                eprintln!("{path}:{}: {} columns, at most 100", index + 1, line.chars().count());
                problems += 1;
            }
        }
    }
    if problems == 0 { Ok(()) } else { Err(format!("tidy: {problems} problems")) }
}
