// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The list of all benches.

use std::fmt::Write;

/// One bench.
#[derive(Debug)]
pub(super) struct KnownBench {
    /// The name on the command line, in the result's path and in the kept lines.
    pub(super) name: &'static str,
    pub(super) kind: BenchKind,
    /// Its rough duration after the build.
    time: &'static str,
    about: &'static str,
}

/// The kind of program that runs a bench.
#[derive(Debug)]
pub(super) enum BenchKind {
    /// `benches/NAME.rs` of this crate: one processor, no lab.
    Crate(&'static str),
    /// This row of `weir-lab verify netback`: it needs the lab, and therefore root.
    Row(u32),
}

/// All benches, those that need least first.
pub(super) const ALL: &[KnownBench] = &[
    bench("machine", "weir-ports", "5 s", "what a clock, a system call, a miss and a copy cost"),
    bench(
        "meter",
        "weir-platform",
        "10 s",
        "the kernel's counters of 2000 interfaces, and CPU time",
    ),
    bench("packets", "weir-switch", "25 s", "the switch between ports in memory, stage by stage"),
    bench(
        "live_change",
        "weir-node",
        "1 min",
        "a live change of one rate at 1000 vifs, to the disk",
    ),
    bench("sched", "weir-sched", "10 min", "every scheduler at 1 to 1 M classes"),
    row("rte_sched", 6, "5 min", "schedulers beside DPDK's (needs libdpdk-dev)"),
    row("forwarding", 7, "5 min", "packets a second beside bridge, HTB, Open vSwitch"),
    row("accuracy", 8, "25 min", "rate error and delay beside TBF and HTB"),
];

/// Returns the bench of that name.
///
/// # Errors
/// No bench has that name; the error lists all names.
pub(super) fn named(name: &str) -> Result<&'static KnownBench, String> {
    let names: Vec<_> = ALL.iter().map(|bench| bench.name).collect();
    let unknown = || format!("bench: no bench '{name}'; there are {}", names.join(", "));
    ALL.iter().find(|bench| bench.name == name).ok_or_else(unknown)
}

/// Returns the text of `./x bench --help`.
pub(super) fn help() -> String {
    let mut text = String::from(HEAD);
    for KnownBench { name, kind, time, about } in ALL {
        let root = if matches!(kind, BenchKind::Row(_)) { "; root" } else { "" };
        let _ = writeln!(text, "  {name:<11} {time:>7}  {about}{root}");
    }
    text + TAIL
}

const fn bench(
    name: &'static str,
    package: &'static str,
    time: &'static str,
    about: &'static str,
) -> KnownBench {
    KnownBench { name, kind: BenchKind::Crate(package), time, about }
}

const fn row(name: &'static str, row: u32, time: &'static str, about: &'static str) -> KnownBench {
    KnownBench { name, kind: BenchKind::Row(row), time, about }
}

const HEAD: &str = "\
usage: ./x bench [NAME..] [--keep] [--document] [--against REV] [-- ARGUMENTS]

Runs the benches that are named, or all, one after the other, and prints the median of each figure
with the least and the greatest sample. Nothing else should run meanwhile. All that is to be built
is built before the first one starts.

Benches, and about how long each takes:
";

const TAIL: &str = "
Options:
  --keep         add each run to docs/performance.jsonl, one line of JSON; refused for a tree with
                 changes, for --quick, and for a figure with fewer than 5 samples
  --document     write docs/performance.md from the last line of each bench; alone it measures
                 nothing
  --against REV  run each bench in turn with the merge base of REV, and print both and the ratio
  -- ARGUMENTS   for the benches: `-- --quick` for a row, `-- --classes 4096 hfsc` for sched,
                 `-- 1` (seconds) for packets

`./x bench instructions [--keep]` counts what the pure benches execute for a packet, under
callgrind, and refuses more than bench/instructions.txt has; `--keep` writes that file.

Every run leaves its samples in out/bench/NAME/result.json (docs/results.md).
Examples:
  ./x bench machine                        what this machine is like, kept nowhere else
  ./x bench packets --against main         did a change make the switch faster?
  ./x bench forwarding --keep --document   measure a row and renew its part of the page
";

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::command;

    #[test]
    fn all_files_of_benches_are_known_and_all_known_exist() {
        let mut found = Vec::new();
        let folders = ["core", "host", "node", "lab"].map(|folder| command::root().join(folder));
        for package in folders.iter().flat_map(|folder| std::fs::read_dir(folder).unwrap()) {
            let package = package.unwrap();
            let Ok(files) = std::fs::read_dir(package.path().join("benches")) else { continue };
            for file in files {
                let name = PathBuf::from(file.unwrap().file_name()).with_extension("");
                let package = format!("weir-{}", package.file_name().to_str().unwrap());
                found.push([package, name.into_os_string().into_string().unwrap()]);
            }
        }
        let files = |bench: &KnownBench| match bench.kind {
            BenchKind::Crate(package) => Some([package, bench.name].map(str::to_owned)),
            BenchKind::Row(_) => None,
        };
        let mut known: Vec<_> = ALL.iter().filter_map(files).collect();
        found.sort();
        known.sort();
        assert_eq!(found, known);
    }

    #[test]
    fn the_help_names_each_bench_and_fits_the_terminal() {
        let help = help();
        for bench in ALL {
            assert!(help.contains(&format!("  {} ", bench.name)), "{}", bench.name);
        }
        assert!(help.lines().all(|line| line.chars().count() <= 100));
    }
}
