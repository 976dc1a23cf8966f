// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program that starts the broker and asks it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the path of `weir`, which is built beside the broker's program with all packages. `None`
/// skips a test, and says so.
pub(crate) fn weir(test: &str) -> Option<PathBuf> {
    let broker = Path::new(env!("CARGO_BIN_EXE_weir-broker"));
    let weir = broker.with_file_name("weir");
    if !weir.is_file() {
        println!("SKIPPED {test}: there is no {} (cargo build -p weir)", weir.display());
        return None;
    }
    // `weir broker` becomes the program beside it, and both are of this build.
    assert_eq!(help(&weir, &["broker", "run"]), help(broker, &["run"]));
    Some(weir)
}

/// Returns the help of a command without the line that has the program's name.
fn help(program: &Path, words: &[&str]) -> Vec<String> {
    let said = Command::new(program).args(words).arg("--help").output().unwrap().stdout;
    let lines = String::from_utf8(said).unwrap();
    lines.lines().filter(|line| !line.starts_with("Usage: ")).map(str::to_owned).collect()
}
