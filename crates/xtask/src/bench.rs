// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Benches, their result files, and the comparison with the merge base.
//!
//! A number of yesterday, or of another machine, is no measure: `--against REV` builds the merge
//! base with REV beside this tree and runs both in turn. What is to be read by people is kept
//! (`--keep`: a line in `docs/performance.jsonl`) and written into a page (`--document`).

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::command::{self, cargo, output, run};
use crate::tools;

/// `bench [NAME..] [--keep] [--document] [--against REV] [-- ARGUMENTS]`: all benches, or those
/// named; with `--document` and no name none.
pub(crate) fn bench(arguments: &[String]) -> Result<(), String> {
    let (ours, theirs) = split(arguments);
    let has = |flag: &str| ours.iter().any(|argument| argument == flag);
    let (keep, document) = (has("--keep"), has("--document"));
    let ours: Vec<String> = ours
        .iter()
        .filter(|word| !["--keep", "--document"].contains(&word.as_str()))
        .cloned()
        .collect();
    if !(document && ours.is_empty()) {
        measure(&ours, theirs, keep)?;
    }
    if document { performance(&["document", LINES, PAGE]) } else { Ok(()) }
}

/// Whether the page is what follows from the lines.
pub(crate) fn check_page() -> Result<(), String> {
    performance(&["check", LINES, PAGE])
}

fn measure(ours: &[String], theirs: &[String], keep: bool) -> Result<(), String> {
    let against = ours.iter().position(|argument| argument == "--against");
    let revision = match against {
        None => None,
        Some(at) => Some(ours.get(at + 1).ok_or("bench: --against wants a revision")?),
    };
    let given = |at: usize| against.is_some_and(|flag| at == flag || at == flag + 1);
    let names: Vec<_> = (0..ours.len()).filter(|at| !given(*at)).map(|at| &ours[at]).collect();
    let mut all = benches(Path::new("crates"))?;
    if revision.is_none() {
        all.extend(ROWS.iter().map(|(name, row)| Bench {
            package: "weir".to_owned(),
            name: (*name).to_owned(),
            row: Some(*row),
        }));
    }
    let chosen: Vec<_> =
        all.into_iter().filter(|b| names.is_empty() || names.contains(&&b.name)).collect();
    if chosen.is_empty() {
        return Err(format!("bench: no bench named {names:?}"));
    }
    match revision {
        None => chosen.iter().try_for_each(|bench| {
            let out = PathBuf::from("out/bench").join(&bench.name).join("result.json");
            // What is kept is of this run, also where it does not hold.
            let _older = std::fs::remove_file(&out);
            let outcome = bench.run(Path::new("."), theirs, &out);
            if keep && out.exists() {
                performance(&["append", LINES, &bench.name, &out.display().to_string()])?;
            }
            outcome
        }),
        Some(revision) => compare(&chosen, revision, theirs),
    }
}

/// One bench of one crate.
struct Bench {
    package: String,
    name: String,
    /// It is this row of `weir verify netback`: it needs the lab, and so root.
    row: Option<u32>,
}

impl Bench {
    /// Runs it in the tree at `top`, and makes a result file of what it prints.
    fn run(&self, top: &Path, arguments: &[String], out: &Path) -> Result<(), String> {
        if let Some(row) = self.row {
            return run_row(row, arguments, out);
        }
        let (date, start) = (now()?, Instant::now());
        let lines = out.with_extension("lines");
        let problem = |error| format!("{}: {error}", lines.display());
        if let Some(folder) = lines.parent() {
            std::fs::create_dir_all(folder).map_err(problem)?;
        }
        let mut command = cargo(&["bench", "--quiet", "--package", &self.package]);
        command.args(["--bench", &self.name, "--"]).args(arguments).current_dir(top);
        run(command.stdout(File::create(&lines).map_err(problem)?))?;
        let words = format!("./x bench {} {}", self.name, arguments.join(" "));
        let mut collect = cargo(&["run", "--quiet", "--package", "weir-result", "--example"]);
        collect.args(["collect", "--"]).arg(out).arg(words.trim_end());
        collect.args([commit(top)?, date, start.elapsed().as_secs_f64().to_string()]);
        run(collect.stdin(File::open(&lines).map_err(problem)?))
    }
}

/// A row that does not hold was measured nevertheless.
fn run_row(row: u32, arguments: &[String], out: &Path) -> Result<(), String> {
    tools::build_weir()?;
    let mut command = Command::new(tools::weir_path());
    command.args(["verify", "netback", "--row", &row.to_string(), "--out"]);
    command.arg(out.parent().unwrap_or(out)).args(arguments);
    command::show(&command);
    let status = command.status().map_err(|error| format!("weir: {error}"))?;
    match status.code() {
        Some(0 | NOT_HELD) => Ok(()),
        _ => Err(format!("weir verify netback --row {row}: {status}")),
    }
}

/// Runs the example that knows the kept lines and the page.
fn performance(words: &[&str]) -> Result<(), String> {
    let mut command = cargo(&["run", "--quiet", "--package", "weir-result", "--example"]);
    run(command.args(["performance", "--"]).args(words))
}

/// Base and head in turn, so that a machine that slows down slows both.
fn compare(benches: &[Bench], revision: &str, arguments: &[String]) -> Result<(), String> {
    let base = output(Command::new("git").args(["merge-base", "HEAD", revision]))?;
    let tree = PathBuf::from("target/bench-base");
    let mut add = Command::new("git");
    add.args(["worktree", "add", "--force", "--detach"]).arg(&tree).arg(base.trim());
    run(&mut add)?;
    let outcome = benches.iter().try_for_each(|bench| {
        let file = |side: &str, round: u32| {
            command::root().join(format!("out/bench/{}/{side}-{round}.json", bench.name))
        };
        for round in 0..ROUNDS {
            bench.run(&tree, arguments, &file("base", round))?;
            bench.run(Path::new("."), arguments, &file("head", round))?;
        }
        let mut compare = cargo(&["run", "--quiet", "--package", "weir-result", "--example"]);
        compare.args(["compare", "--"]).args((0..ROUNDS).map(|round| file("base", round)));
        run(compare.arg("--").args((0..ROUNDS).map(|round| file("head", round))))
    });
    let mut remove = Command::new("git");
    let removed = run(remove.args(["worktree", "remove", "--force"]).arg(&tree));
    outcome.and(removed)
}

/// The benches of all crates, by their files.
fn benches(crates: &Path) -> Result<Vec<Bench>, String> {
    let mut benches = Vec::new();
    for package in list(crates)? {
        let folder = package.join("benches");
        for file in if folder.is_dir() { list(&folder)? } else { Vec::new() } {
            if file.extension().is_some_and(|extension| extension == "rs") {
                let name = last(&file.with_extension(""));
                benches.push(Bench { package: last(&package), name, row: None });
            }
        }
    }
    Ok(benches)
}

fn list(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let problem = |error| format!("{}: {error}", folder.display());
    let entries = std::fs::read_dir(folder).map_err(problem)?;
    let mut paths: Vec<_> = entries.filter_map(|entry| entry.ok().map(|e| e.path())).collect();
    paths.sort();
    Ok(paths)
}

fn last(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// The arguments before and behind `--`.
fn split(arguments: &[String]) -> (&[String], &[String]) {
    let middle = arguments.iter().position(|argument| argument == "--");
    middle.map_or((arguments, &[]), |at| (&arguments[..at], &arguments[at + 1..]))
}

/// The commit that is checked out at `top`, with `-dirty` where the tree differs from it.
pub(crate) fn commit(top: &Path) -> Result<String, String> {
    let git = |arguments: &[&str]| output(Command::new("git").current_dir(top).args(arguments));
    let head = git(&["rev-parse", "HEAD"])?;
    let dirty = !git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Ok(format!("{}{}", head.trim(), if dirty { "-dirty" } else { "" }))
}

/// The time in UTC as RFC 3339 writes it.
fn now() -> Result<String, String> {
    let mut date = Command::new("date");
    date.args(["--utc", "+%Y-%m-%dT%H:%M:%SZ"]).stdin(Stdio::null());
    Ok(output(&mut date)?.trim().to_string())
}

/// Benches that are rows of `weir verify netback`.
const ROWS: &[(&str, u32)] = &[("forwarding", 7), ("accuracy", 8), ("rte_sched", 6)];

/// The exit status of `weir verify` where a bound does not hold.
const NOT_HELD: i32 = 3;

const LINES: &str = "docs/performance.jsonl";
const PAGE: &str = "docs/performance.md";

/// Turns of base and head.
const ROUNDS: u32 = 3;
