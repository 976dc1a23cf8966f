// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A figure of a text made on a real lab, by the command that a reader would type.
#![allow(clippy::unwrap_used)]

#[path = "../../../weir/tests/common/mod.rs"]
mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::soon;
use weir_result::ResultFile;

#[test]
fn a_figure_is_made_drawn_and_reported() {
    if !weir_platform::process::is_root() {
        println!("SKIPPED a_figure_is_made_drawn_and_reported: needs root");
        return;
    }
    println!("ON THE HOST");
    let folder = std::env::temp_dir().join(format!("weir-reproduce-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let weir = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-lab"));
        command.current_dir(&folder).args(["reproduce", "netback"]).args(arguments);
        command.output().unwrap()
    };
    let made = weir(&["fig7", "--quick", "--duration", "1s"]);
    let said = String::from_utf8_lossy(&made.stderr);
    // A busy machine may break a bound; then the status is 3.
    assert!(matches!(made.status.code(), Some(0 | 3)), "{said}");
    let place = folder.join("out/reproduce/netback-fig7");
    let text = std::fs::read_to_string(place.join("result.json")).unwrap();
    let result = ResultFile::from_json(&text).unwrap();
    for middle in ["before", "wrr", "hfsc"] {
        for machine in ["vm1", "vm2"] {
            let samples = &result.series()[&format!("free/{middle}/{machine}/0")].samples;
            assert!(samples.iter().sum::<f64>() > 0.0, "nothing arrived of {machine}: {said}");
        }
    }
    for file in ["figure.svg", "figure.png", "data.csv"] {
        assert!(place.join(file).exists(), "no {file}: {said}");
    }
    // What a day of runs would show must not come from seconds unseen.
    assert_eq!(weir(&["report"]).status.code(), Some(1));
    let report = weir(&["report", "--quick"]);
    assert_eq!(report.stdout, b"./docs/reproduced/netback.md\n");
    let said = String::from_utf8_lossy(&report.stderr);
    assert!(said.contains("not shown: fig5, fig6, fig8,"), "{said}");
    let page = std::fs::read_to_string(folder.join("docs/reproduced/netback.md")).unwrap();
    assert!(page.contains("## Figure 7"), "{page}");
    let finding = ["reproduced before, ", "not reproduced on this kernel, "];
    assert!(finding.iter().any(|text| page.contains(text)), "no finding about the defect: {page}");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// A sweep is eight changes, of which the first ones are made when the signal comes.
#[test]
fn an_interrupted_sweep_ends_at_once_and_leaves_nothing() {
    if !weir_platform::process::is_root() {
        println!("SKIPPED an_interrupted_sweep_ends_at_once_and_leaves_nothing: needs root");
        return;
    }
    println!("ON THE HOST");
    let folder = std::env::temp_dir().join(format!("weir-interrupted-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let left = || {
        let listed = Command::new("ip").args(["netns", "list"]).output().unwrap().stdout;
        let listed = String::from_utf8_lossy(&listed).into_owned();
        listed.lines().filter(|line| line.starts_with("netback-fig10-")).count()
    };
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir-lab"));
    command.current_dir(&folder).stdout(Stdio::null()).stderr(Stdio::piped());
    command.args(["reproduce", "netback", "fig10", "--repetitions", "1", "--duration", "8s"]);
    let mut child = command.spawn().unwrap();
    // A bridge has no priorities to change: Weir's run comes second.
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(said.any(|line| line.contains("Weir, WRR")));
    std::thread::sleep(Duration::from_secs(3));
    assert!(soon(|| left() == 4), "switch, wire and two tenants: {}", left());
    weir_platform::process::terminate(&child);
    let signalled = Instant::now();
    soon(|| child.try_wait().unwrap().is_some());
    let took = signalled.elapsed();
    // One that has not heard the signal would go on for a minute and more.
    let _ended_already = child.kill();
    let status = child.wait().unwrap();
    println!("it took {took:?} to end");
    assert!(took < ENDS_WITHIN, "{took:?}");
    assert_eq!(status.code(), Some(1), "interrupted");
    assert_eq!(left(), 0, "namespaces");
    std::fs::remove_dir_all(&folder).unwrap();
}

/// 0.3 s, most of which is the taking down of the lab; a machine whose processors stand still at
/// times takes longer, and the sweep without a signal a minute.
const ENDS_WITHIN: Duration = Duration::from_secs(10);

#[test]
fn what_does_not_go_together_is_a_wrong_command_line() {
    for words in [
        &["fig99"][..],
        &["all", "--scenario", "mine.toml"],
        &["fig8", "--scenario", "mine.toml"],
        &["a/b", "--scenario", "mine.toml"],
        &["all", "--json"],
        &["report", "--json"],
        &["report", "--duration", "1s"],
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir-lab"));
        let output = command.args(["reproduce", "netback"]).args(words).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {output:?}");
    }
}
