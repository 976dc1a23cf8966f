// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of the host as lines of its tools, before and after.

use weir_experiment::prelude::*;
use weir_platform::run::Command;

/// Returns the lines that these commands print on the switch node, sorted.
pub(super) fn host_lines(rig: &Testbed, commands: &[&str]) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for line in commands {
        let said = rig.ask("sw", Command::line(line))?;
        all.extend(said.lines().map(|one| one.trim_end().to_owned()));
    }
    all.sort();
    Ok(all)
}

/// Counts the lines that are in one of them alone.
pub(super) fn differences(before: &[String], after: &[String]) -> u64 {
    let gone = before.iter().filter(|line| !after.contains(line)).count();
    let new = after.iter().filter(|line| !before.contains(line)).count();
    (gone + new) as u64
}
