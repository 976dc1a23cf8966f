// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Benches, their result files, and what is kept of them.
//!
//! A number from yesterday, or from another machine, cannot be compared with: `--against REV`
//! builds the merge base with REV beside this tree and runs both in turn. Figures for readers are
//! kept (`--keep`: a line in `docs/performance.jsonl`) and written into a page (`--document`); the
//! crate `weir-bench` does both.

mod against;
pub(crate) mod instructions;
mod known;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::command::{self, cargo, run};
use crate::revision::{LINES, PAGE, README, commit, now};
use crate::tools::{self, bench_tool};
use known::{BenchKind, KnownBench};

/// The options of a call.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Call {
    help: bool,
    keep: bool,
    document: bool,
    against: Option<String>,
    /// The benches to run; all if empty.
    names: Vec<String>,
    /// Arguments that are passed on to the benches.
    arguments: Vec<String>,
}

impl Call {
    /// Reads `[NAME..] [--keep] [--document] [--against REV] [-- ARGUMENTS]`.
    ///
    /// # Errors
    /// An unknown option or name, or two options that contradict each other.
    pub(crate) fn parse(words: &[String]) -> Result<Self, String> {
        let mut call = Self::default();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "--help" | "-h" => call.help = true,
                "--keep" => call.keep = true,
                "--document" => call.document = true,
                "--against" => {
                    let revision = words.next().filter(|word| !word.starts_with('-'));
                    let missing = || "bench: --against wants a revision".to_owned();
                    call.against = Some(revision.ok_or_else(missing)?.clone());
                }
                "--" => call.arguments = words.by_ref().cloned().collect(),
                flag if flag.starts_with('-') => {
                    return Err(format!("bench: no option '{flag}'\n\n{}", known::help()));
                }
                name => {
                    known::named(name)?;
                    call.names.push(name.to_owned());
                }
            }
        }
        call.check()?;
        Ok(call)
    }

    fn check(&self) -> Result<(), String> {
        if self.keep && self.arguments.iter().any(|word| word == "--quick") {
            return Err("bench: --keep keeps no quick run: leave out --quick".to_owned());
        }
        if self.keep && self.against.is_some() {
            return Err("bench: --against compares two trees: leave out --keep".to_owned());
        }
        let row = self.chosen().into_iter().find(|bench| matches!(bench.kind, BenchKind::Row(_)));
        match row {
            Some(row) if self.against.is_some() && !self.names.is_empty() => {
                Err(format!("bench: {} is made on the lab: leave out --against", row.name))
            }
            _ => Ok(()),
        }
    }

    fn chosen(&self) -> Vec<&'static KnownBench> {
        let wanted = |bench: &&KnownBench| match bench.kind {
            _ if !self.names.is_empty() => self.names.iter().any(|name| name == bench.name),
            BenchKind::Row(_) => self.against.is_none(),
            BenchKind::Crate(_) => true,
        };
        known::ALL.iter().filter(wanted).collect()
    }

    /// Measures, keeps, compares or writes the page.
    ///
    /// # Errors
    /// A bench failed, for example because it broke its own bound; all others ran nevertheless. Or
    /// a build, the comparison or the page failed.
    pub(crate) fn run(&self) -> Result<(), String> {
        if self.help {
            print!("{}", known::help());
            return Ok(());
        }
        if !(self.document && self.names.is_empty() && !self.keep) {
            match &self.against {
                Some(revision) => against::compare(&self.chosen(), revision, &self.arguments)?,
                None => self.measure()?,
            }
        }
        if self.document { weir_bench(&["document", LINES, PAGE, README]) } else { Ok(()) }
    }

    fn measure(&self) -> Result<(), String> {
        let here = Path::new(".");
        // Fail now, not after an hour.
        let commit = commit(here)?;
        if self.keep && commit.ends_with("-dirty") {
            let text = "bench: --keep keeps what a commit measures: commit or stash the changes";
            return Err(text.to_owned());
        }
        let chosen = self.chosen();
        // Nothing is compiled beside a measurement.
        chosen.iter().try_for_each(|bench| bench.build())?;
        run(&mut cargo(&["build", "--quiet", "--package", "weir-bench"]))?;
        let mut failed = Vec::new();
        for bench in chosen {
            let out = PathBuf::from("out/bench").join(bench.name).join("result.json");
            // Remove an earlier result, so that only this run is kept, even if a bound is missed.
            let _older = std::fs::remove_file(&out);
            if let Err(message) = bench.run(here, &self.arguments, &out) {
                eprintln!("{message}");
                failed.push(bench.name);
            }
            if self.keep && out.exists() {
                weir_bench(&["keep", LINES, bench.name, &out.display().to_string()])?;
            }
        }
        if failed.is_empty() {
            Ok(())
        } else {
            Err(format!("bench: failed: {}", failed.join(", ")))
        }
    }
}

impl KnownBench {
    fn build(&self) -> Result<(), String> {
        match self.kind {
            BenchKind::Row(_) => tools::build(),
            BenchKind::Crate(package) => {
                let words = ["bench", "--quiet", "--no-run", "--package", package];
                run(cargo(&words).args(["--bench", self.name]))
            }
        }
    }

    /// Runs it in the tree at `top` (a row in this tree), and makes a result file of its output.
    fn run(&self, top: &Path, arguments: &[String], out: &Path) -> Result<(), String> {
        let package = match self.kind {
            BenchKind::Row(row) => return run_row(row, arguments, out),
            BenchKind::Crate(package) => package,
        };
        let (date, start) = (now()?, Instant::now());
        let lines = out.with_extension("lines");
        let problem = |error| format!("{}: {error}", lines.display());
        if let Some(folder) = lines.parent() {
            std::fs::create_dir_all(folder).map_err(problem)?;
        }
        let mut bench = cargo(&["bench", "--quiet", "--package", package]);
        bench.args(["--bench", self.name, "--"]).args(arguments).current_dir(top);
        let mut command = command::pinned(&bench)?;
        run(command.stdout(File::create(&lines).map_err(problem)?))?;
        let dashes = if arguments.is_empty() { "" } else { " -- " };
        let words = format!("./x bench {}{dashes}{}", self.name, arguments.join(" "));
        let mut collect = bench_tool();
        collect.arg("collect").arg(out).arg(words);
        collect.args([commit(top)?, date, start.elapsed().as_secs_f64().to_string()]);
        run(collect.stdin(File::open(&lines).map_err(problem)?))
    }
}

/// Runs a row of `weir-lab verify netback`. A row that does not hold is no failure, since it was
/// measured.
fn run_row(row: u32, arguments: &[String], out: &Path) -> Result<(), String> {
    let mut command = Command::new(tools::lab_path());
    command.args(["verify", "netback", "--row", &row.to_string(), "--out"]);
    command.arg(out.parent().unwrap_or(out)).args(arguments);
    command::show(&command);
    let status = command.status().map_err(|error| format!("weir-lab: {error}"))?;
    match status.code() {
        Some(0 | NOT_HELD) => Ok(()),
        _ => Err(format!("weir-lab verify netback --row {row}: {status}")),
    }
}

/// Refuses a page or a README that does not follow from the kept lines.
pub(crate) fn check_page() -> Result<(), String> {
    weir_bench(&["check", LINES, PAGE, README])
}

/// Runs `weir-bench`, which handles results, kept lines and the page.
fn weir_bench(words: &[&str]) -> Result<(), String> {
    run(bench_tool().args(words))
}

/// The exit status of `weir-lab verify` where a bound does not hold.
const NOT_HELD: i32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Call, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        Call::parse(&words)
    }

    #[test]
    fn names_options_and_arguments_are_told_apart() {
        let call = parse("sched --keep packets --document -- --classes 64 --keep").unwrap();
        assert_eq!(call.names, ["sched", "packets"]);
        assert_eq!(call.arguments, ["--classes", "64", "--keep"]);
        assert!(call.keep && call.document && call.against.is_none());
        assert_eq!(parse("sched --against main").unwrap().against.as_deref(), Some("main"));
    }

    #[test]
    fn what_is_not_known_is_named() {
        for (line, why) in [
            ("sched typo", "no bench 'typo'; there are machine, meter, packets, live_change"),
            ("sched --kep", "no option '--kep'"),
            ("sched --against", "--against wants a revision"),
            ("sched --keep -- --quick", "keeps no quick run"),
            ("sched --keep --against main", "leave out --keep"),
            ("forwarding --against main", "forwarding is made on the lab"),
        ] {
            let refused = parse(line).unwrap_err();
            assert!(refused.contains(why), "{line}: {refused}");
        }
    }

    #[test]
    fn without_a_name_all_are_run_but_rows_are_not_compared() {
        assert_eq!(parse("").unwrap().chosen().len(), known::ALL.len());
        let compared = parse("--against main").unwrap();
        assert!(compared.chosen().iter().all(|bench| matches!(bench.kind, BenchKind::Crate(_))));
    }
}
