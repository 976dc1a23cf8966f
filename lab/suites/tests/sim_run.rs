// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenario files in virtual time, as `weir-lab sim run` runs them.
//!
//! Method: the quick form of one file of each kind, its cases compared with those that are on
//! record. `WEIR_BLESS=1` records them anew: say why they changed.
#![allow(clippy::unwrap_used)]

use std::fmt::Write;
use std::path::{Path, PathBuf};

use weir_experiment::{Recording, SimArm};
use weir_result::{Origin, ResultFile};
use weir_suites::sim::SimScenario;

#[test]
fn files_give_the_cases_on_record() {
    let mut found = String::new();
    for (file, seed) in [
        ("conformance/minimum.toml", 0),
        ("netback/fig7.toml", 7),
        ("netback/fig9.toml", 0),
        ("jitter/rtp-85.toml", 0),
    ] {
        let arm = SimArm { seed, ..SimArm::default() };
        let result = run(&text(file), "test", &arm).unwrap();
        let _ = writeln!(found, "{file}, seed {seed}");
        for case in result.cases() {
            let verdict = if case.holds() { "holds" } else { "DOES NOT HOLD" };
            let _ = writeln!(found, "  {} {:.6} {verdict}", case.id(), case.value());
        }
        for note in result.notes() {
            let _ = writeln!(found, "  {note}");
        }
    }
    let path = place("tests/sim_run.txt");
    if std::env::var_os("WEIR_BLESS").is_some() {
        std::fs::write(&path, &found).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), found, "{}", path.display());
}

/// Goal: a seed gives one result, and another seed another one.
#[test]
fn a_seed_is_a_result() {
    let of = |seed| {
        let arm = SimArm { seed, ..SimArm::default() };
        run(&text("netback/fig7.toml"), "test", &arm).unwrap().to_json()
    };
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

/// Goal: what virtual time has not is refused by its name.
#[test]
fn what_is_not_there_is_named() {
    let refused = |text: &str, arm: &SimArm| run(text, "test", arm).unwrap_err().to_string();
    let plain = SimArm::default();
    let topology = refused(&text("demo.toml"), &plain);
    assert!(
        topology.contains("scenario test: the topology of a lab, without traffic"),
        "{topology}"
    );
    let other = refused(&text("em/broker.toml"), &plain);
    assert!(other.contains("a scenario of no such kind; virtual time has scenarios with `group`"));
    let wrong = refused("panel = 3", &plain);
    assert!(wrong.starts_with("scenario test: "), "{wrong}");
    let folder = std::env::temp_dir().join(format!("weir-sim-{}", std::process::id()));
    let captures = SimArm { captures: Some(folder), ..SimArm::default() };
    let shaped = refused(&text("jitter/rtp-85.toml"), &captures);
    assert_eq!(
        shaped,
        "a capture of packets through shapers: needs frames: they have lengths alone"
    );
    let seeded = SimArm { seed: 7, ..SimArm::default() };
    let seeded = refused(&text("jitter/rtp-85.toml"), &seeded);
    assert!(seeded.starts_with("seed 7: needs something random"), "{seeded}");
    let shared =
        text("netback/fig7.toml").replace("name = \"vm1\" }", "name = \"vm1\", nice = 3 }");
    let shared = refused(&shared, &plain);
    assert!(shared.contains("panel \"free\" is left out: its senders share a processor (`nice`)"));
    let first =
        text("netback/fig7.toml").replace("name = \"vm1\" }", "name = \"vm1\", nice = -3 }");
    let first = refused(&first, &plain);
    assert!(first.contains("panel \"free\" is left out: its senders share"), "{first}");
}

/// Goal: nothing of a figure is ignored: what Xen's back end is not modelled with leaves it out,
/// with a note, and Weir's part is still judged.
#[test]
fn what_the_back_end_has_not_is_left_out() {
    let figure = text("netback/fig6.toml");
    let with = |more: &str| {
        let text = figure.replacen("name = \"vm1\",", &format!("name = \"vm1\", {more},"), 1);
        assert_ne!(text, figure);
        run(&text, "test", &SimArm::default()).unwrap()
    };
    for (more, why) in [
        ("credit = \"60kB\"", "`credit` is of another bucket than that of Xen's back end"),
        ("frame_min = 1000", "a sender at Xen's back end has frames of one length"),
    ] {
        let result = with(more);
        let note = format!("before is left out: {why}");
        assert!(result.notes().contains(&note), "{more}: {:?}", result.notes());
        let series = || result.series().keys();
        assert!(series().any(|name| name.contains("/hfsc/")), "{more}");
        assert!(!series().any(|name| name.contains("/before/")), "{more}");
    }
}

/// Goal: a capture has the frames that left, and can be read.
#[test]
fn a_capture_has_what_left() {
    let folder = std::env::temp_dir().join(format!("weir-sim-capture-{}", std::process::id()));
    let arm = SimArm { captures: Some(folder.clone()), ..SimArm::default() };
    let result = run(&text("conformance/minimum.toml"), "test", &arm).unwrap();
    let files: Vec<PathBuf> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let bytes = std::fs::read(&files[0]).unwrap();
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a], "a section of pcapng");
    assert!(bytes.len() > 10 << 20 && bytes.len() <= (64 << 20) + (1 << 20), "{}", bytes.len());
    let probes = bytes.windows(6).filter(|six| *six == b"\x88\xb5WSIM").count();
    assert!(probes > 10_000, "{probes}");
    assert!(result.notes().is_empty(), "it fits: {:?}", result.notes());
    std::fs::remove_dir_all(&folder).unwrap();
}

fn run(
    text: &str,
    name: &str,
    arm: &SimArm,
) -> Result<ResultFile, weir_experiment::ExperimentError> {
    let mut silent = |_: &str| {};
    let mut rec = Recording::new(ResultFile::new(Origin::default()), true, &mut silent);
    rec.sim = arm.clone();
    SimScenario::read(name, text)?.run(&mut rec, name)?;
    Ok(rec.result)
}

fn text(file: &str) -> String {
    std::fs::read_to_string(place("../scenarios").join(file)).unwrap()
}

fn place(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}
