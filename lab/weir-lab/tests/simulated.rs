// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows and figures of the laboratory in virtual time: `--on sim` of `verify` and `reproduce`.
//!
//! Goal: the same commands and the same results, without privileges and without a node beside the
//! program. Method: one of each kind in its quick form, run from a folder that has no `weir`.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;

use weir_result::{Case, ResultFile};

#[test]
fn rows_are_shown_under_their_own_names() {
    let (status, result) = run("verify first-light --row 6 --quick --on sim", "verify-rows");
    assert_eq!(status, Some(0), "{result}");
    let ids: Vec<&str> = result.cases().iter().map(Case::id).collect();
    assert!(ids.contains(&"first-light.6/100M/any-window"), "{ids:?}");
    assert_eq!(ids.last(), Some(&"first-light.6"));
    let (status, result) = run("verify netback --row 3 --quick --on sim", "verify-figures");
    assert_eq!(status, Some(0), "{result}");
    assert_eq!(result.cases().last().map(Case::id), Some("netback.3"));
}

#[test]
fn figures_are_made_and_drawn() {
    let (status, result) = run("reproduce netback fig7 --quick --on sim", "fig7");
    assert_eq!(status, Some(0), "{result}");
    let defect = result.cases().iter().find(|case| case.id().contains("defect-balance"));
    assert!(defect.is_some_and(Case::holds), "one starves at Xen's back end: {result}");
    let note = "panel \"processor\" is left out: its senders share a processor";
    assert!(result.notes().iter().any(|line| line.contains(note)), "{:?}", result.notes());
    for (command, name) in [
        ("reproduce jitter rtp --quick --on sim", "rtp"),
        ("reproduce jitter reno --quick --on sim", "reno"),
        ("reproduce em table2 --quick --on sim", "table2"),
    ] {
        let (status, result) = run(command, name);
        assert_eq!(status, Some(0), "{command}: {result}");
        assert!(result.series().len() > 1, "{command}");
    }
}

/// Returns exit status and result of a command.
fn run(command: &str, name: &str) -> (Option<i32>, ResultFile) {
    let place = folder(name);
    let words = command.split(' ');
    let output = Command::new(&*PROGRAM).args(words).arg("--out").arg(&place).output().unwrap();
    let text = std::fs::read_to_string(place.join("result.json"));
    assert!(text.is_ok(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    let text = text.unwrap();
    let result = ResultFile::from_json(&text).unwrap();
    std::fs::remove_dir_all(&place).unwrap();
    (output.status.code(), result)
}

/// The program where there is no node beside it. It is copied once, while no other test starts a
/// process: that would inherit the open copy, which could not be run then.
static PROGRAM: LazyLock<PathBuf> = LazyLock::new(|| {
    let program = folder("program").join("weir-lab");
    std::fs::copy(env!("CARGO_BIN_EXE_weir-lab"), &program).unwrap();
    program
});

fn folder(name: &str) -> PathBuf {
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("simulated-{name}"));
    std::fs::create_dir_all(&place).unwrap();
    place
}
