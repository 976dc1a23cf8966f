// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Runs base and head in turn, so that a machine that slows down slows both.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::known::KnownBench;
use crate::command::{self, output, run};
use crate::tools::bench_tool;

/// Runs the benches in the merge base with `revision` and in this tree, and prints the ratios.
///
/// # Errors
/// There is no such revision, or a build or a bench failed. The base's work tree is removed in any
/// case.
pub(super) fn compare(
    benches: &[&KnownBench],
    revision: &str,
    arguments: &[String],
) -> Result<(), String> {
    let base = output(Command::new("git").args(["merge-base", "HEAD", revision]))?;
    let tree = PathBuf::from(TREE);
    clear(&tree)?;
    run(git(&["worktree", "add", "--detach"]).arg(&tree).arg(base.trim()))?;
    let outcome = benches.iter().try_for_each(|bench| in_turn(bench, &tree, arguments));
    let cleared = clear(&tree);
    outcome.and(cleared)
}

fn in_turn(bench: &KnownBench, tree: &Path, arguments: &[String]) -> Result<(), String> {
    let file = |side: &str, round: u32| {
        command::root().join(format!("out/bench/{}/{side}-{round}.json", bench.name))
    };
    for round in 0..ROUNDS {
        bench.run(tree, arguments, &file("base", round))?;
        bench.run(Path::new("."), arguments, &file("head", round))?;
    }
    let mut compare = bench_tool();
    compare.arg("compare").args((0..ROUNDS).map(|round| file("base", round)));
    run(compare.arg("--").args((0..ROUNDS).map(|round| file("head", round))))
}

/// Removes the work tree, also one that an interrupted run left behind, as a folder, as an entry
/// in git's list or as both.
fn clear(tree: &Path) -> Result<(), String> {
    // This fails if there is none.
    let _none = git(&["worktree", "remove", "--force"]).arg(tree).output();
    if tree.exists() {
        std::fs::remove_dir_all(tree).map_err(|error| format!("{}: {error}", tree.display()))?;
    }
    output(&mut git(&["worktree", "prune"])).map(drop)
}

fn git(words: &[&str]) -> Command {
    let mut git = Command::new("git");
    git.args(words);
    git
}

const TREE: &str = "target/bench-base";

/// Turns of base and head.
const ROUNDS: u32 = 3;
