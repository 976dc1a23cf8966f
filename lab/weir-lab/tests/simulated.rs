// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows and figures of the laboratory in virtual time: `--on sim` of `verify` and `reproduce`.
//!
//! Goal: the same commands and the same results, without privileges and without a node beside the
//! program. Method: one of each kind in its quick form, run from a folder that has no `weir`.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

use weir_result::{Case, MACHINE, ResultFile};

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

/// Goal: the seed in a result is all that it takes to repeat it, and another seed is another run.
#[test]
fn a_seed_is_a_result() {
    for (command, of_seed) in [
        ("verify sim --row 8 --quick --on sim", "sim.8/hash"),
        ("verify first-light --row 6 --quick --on sim", "first-light.6/100M/bits-each-ms"),
        ("conformance --only fairness --quick --on sim", "fairness/"),
        ("reproduce jitter rtp --quick --on sim", "credit/late-p50"),
        ("reproduce netback fig7 --quick --on sim", "before"),
    ] {
        let of = |option: &str| {
            let (_, result) = run(&format!("{command}{option}"), "seed");
            // The time that others took from the machine is no sample of virtual time.
            let samples = result.series().iter().filter(|(name, _)| !name.contains(MACHINE));
            let samples = samples.map(|(name, series)| (name.clone(), series.samples.clone()));
            (samples.collect::<BTreeMap<_, _>>(), result.notes().to_vec())
        };
        let ((seven, notes), (eight, _)) = (of(" --seed 7"), of(" --seed 8"));
        assert_eq!((&seven, &notes), (&of(" --seed 7").0, &of(" --seed 7").1), "{command}");
        assert!(notes.iter().any(|note| note == "virtual time, seed 7"), "{command}: {notes:?}");
        let differs = |(name, samples): (&String, &Vec<f64>)| {
            name.contains(of_seed) && eight.get(name) != Some(samples)
        };
        assert!(seven.iter().any(differs), "{command}: {:?}", seven.keys());
        let (zero, notes) = of("");
        assert_eq!(zero, of(" --seed 0").0, "{command}");
        assert!(notes.iter().any(|note| note == "virtual time, seed 0"), "{command}: {notes:?}");
    }
}

/// Goal: captures lie beside the result, one for each run, and can be read.
#[test]
fn captures_are_read() {
    for (command, files) in [
        ("verify first-light --row 6 --quick --on sim --pcap", 5),
        ("conformance --only minimum --quick --on sim --pcap", 1),
        ("reproduce netback fig7 --quick --on sim --pcap", 4),
    ] {
        let place = folder("captures");
        run_in(command, &place);
        let all = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path());
        let all: Vec<PathBuf> =
            all.filter(|path| path.extension().is_some_and(|end| end == "pcapng")).collect();
        assert_eq!(all.len(), files, "{command}: {all:?}");
        for path in all {
            let times = times(&std::fs::read(&path).unwrap());
            assert!(times.len() > 100, "{}: {} frames", path.display(), times.len());
            assert!(times.is_sorted(), "{}", path.display());
        }
        std::fs::remove_dir_all(&place).unwrap();
    }
}

/// Returns the times of the packets of a pcapng file.
fn times(mut file: &[u8]) -> Vec<u64> {
    let word =
        |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[4 * at..4 * at + 4].try_into().unwrap());
    assert_eq!((word(file, 0), word(file, 2)), (0x0a0d_0d0a, 0x1a2b_3c4d), "a section");
    let mut times = Vec::new();
    while !file.is_empty() {
        let (block, rest) = file.split_at(word(file, 1) as usize);
        let length = block.len();
        assert_eq!(word(block, length / 4 - 1) as usize, length, "the length again at its end");
        // An enhanced packet.
        if word(block, 0) == 6 {
            assert!((60..=1514).contains(&word(block, 5)) && word(block, 5) == word(block, 6));
            times.push(u64::from(word(block, 3)) << 32 | u64::from(word(block, 4)));
        }
        file = rest;
    }
    times
}

/// Returns exit status and result of a command.
fn run(command: &str, name: &str) -> (Option<i32>, ResultFile) {
    let place = folder(name);
    let made = run_in(command, &place);
    std::fs::remove_dir_all(&place).unwrap();
    made
}

/// Makes a result in a folder.
fn run_in(command: &str, place: &Path) -> (Option<i32>, ResultFile) {
    let words = command.split(' ');
    let output = Command::new(&*PROGRAM).args(words).arg("--out").arg(place).output().unwrap();
    let text = std::fs::read_to_string(place.join("result.json"));
    assert!(text.is_ok(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    (output.status.code(), ResultFile::from_json(&text.unwrap()).unwrap())
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
