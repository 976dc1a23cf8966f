// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The conformance suite as a person runs it: one experiment on the switch, made and judged; two on
//! a plain bridge, which has no means to hold them and must be found out.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::process::Command;

use weir_result::ResultFile;

/// The suite runs and is judged on any machine; only a quiet one can decide whether it holds.
#[test]
fn an_experiment_on_the_switch_is_made_and_judged() {
    let Some((status, result)) = run("switch", "weir-t-conf", &["weights"]) else { return };
    assert!(matches!(status, 0 | 3), "exit status {status}");
    let ids: Vec<_> = result.cases().iter().map(weir_result::Case::id).collect();
    assert_eq!(ids.len(), 4, "{ids:?}");
    assert_eq!(ids.last(), Some(&"conformance.weights"));
    assert_eq!(status == 0, result.holds());
}

/// The control: what has no means to hold shares and minimums does not pass.
#[test]
fn a_bridge_breaks_fairness_and_minimum() {
    let Some((status, result)) = run("bridge", "weir-t-ctl", &["fairness", "minimum"]) else {
        return;
    };
    assert_eq!(status, 3);
    for id in ["conformance.fairness", "conformance.minimum"] {
        let case = result.cases().iter().find(|case| case.id() == id).unwrap();
        assert!(!case.holds(), "{id} holds on a bridge");
    }
}

/// Exit status and result of the suite; `None` where there is no lab to be had.
fn run(plane: &str, lab: &str, experiments: &[&str]) -> Option<(i32, ResultFile)> {
    if !weir_platform::process::is_root() {
        println!("SKIPPED conformance on {plane}: needs root");
        return None;
    }
    println!("ON THE HOST");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(lab);
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-lab"));
    command.args(["conformance", "--quick", "--on", plane, "--lab", lab, "--out"]).arg(&folder);
    command.args(experiments.iter().flat_map(|name| ["--only", name]));
    let output = command.env("WEIR_STATE", folder.join("state")).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let status = output.status.code().unwrap();
    assert_ne!(status, 1, "{said}");
    let text = std::fs::read_to_string(folder.join("result.json")).unwrap();
    let result = ResultFile::from_json(&text).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    Some((status, result))
}
