// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything that must hold, in the order in which a failure is cheapest to see.
//!
//! All steps run even when one fails, so that one run names everything that is wrong.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use crate::command::{cargo, output, run};
use crate::summary::{TestSummary, report};
use crate::{bench, cargo_test, correctness, fuzz, no_std, tidy, web, xen};

/// Runs all steps; `Err` names those that failed.
pub(crate) fn all() -> Result<(), String> {
    let mut steps = Steps::default();
    steps.step("tidy", tidy::check_repository);
    steps.step("format", format);
    steps.step("lints", lints);
    steps.step("no_std", no_std::prove);
    // Before the tests, some of which need what it installs.
    let mut no_page = None;
    steps.step("page", || {
        no_page = web::check()?;
        Ok(())
    });
    let mut summary = TestSummary::default();
    steps.step("tests", || {
        let (counted, outcome) = cargo_test::all();
        summary = counted;
        outcome
    });
    summary.skipped.extend(no_page.map(|reason| format!("page: {reason}")));
    // Xen's machine takes one thread and nothing in it is judged by time, so it runs beside the
    // next steps, which are not judged by time either. Tests and `verify` are, so they run alone.
    let xen = thread::spawn(|| timed(xen::check));
    steps.step("instructions", || {
        let skipped = bench::instructions::check()?;
        summary.skipped.extend(skipped.map(|reason| format!("instructions: {reason}")));
        Ok(())
    });
    steps.step("peers", || {
        let skipped = peers()?;
        summary.skipped.extend(skipped.map(|reason| format!("peers: {reason}")));
        Ok(())
    });
    steps.step("documents", documents);
    steps.step("fuzz", || fuzz::run_all(&[]));
    eprintln!("\n== xen, which began beside the steps above");
    let panicked = |_| (0.0, Err("a thread panicked".to_owned()));
    let (seconds, outcome) = xen.join().unwrap_or_else(panicked);
    let outcome = outcome.map(|skipped| {
        summary.skipped.extend(skipped.map(|reason| format!("xen: {reason}")));
    });
    steps.end("xen", seconds, outcome);
    steps.step("verify", || {
        let skipped = correctness::check()?;
        summary.skipped.extend(skipped.map(|reason| format!("verify: {reason}")));
        Ok(())
    });
    steps.report(&summary)
}

/// Checks the format of the workspace and of the two workspaces beside it.
fn format() -> Result<(), String> {
    ["Cargo.toml", "fuzz/Cargo.toml", "proof/no-std/Cargo.toml"].iter().try_for_each(|manifest| {
        run(&mut cargo(&["fmt", "--all", "--manifest-path", manifest, "--check"]))
    })
}

/// Lints the workspace, in which every feature is on, and `weir-sched` without features, as the
/// proof of the pure crates builds it.
fn lints() -> Result<(), String> {
    let denied = ["--", "-D", "warnings"];
    run(cargo(&["clippy", "--workspace", "--all-targets"]).args(denied))?;
    run(cargo(&["clippy", "--package", "weir-sched", "--no-default-features"]).args(denied))
}

/// Compiles the sources that drive peers. `Some` says why some of them were left out.
fn peers() -> Result<Option<String>, String> {
    let dpdk = output(Command::new("pkg-config").args(["--cflags", "libdpdk"])).ok();
    let has_ns3 = Path::new(NS3).exists();
    let mut left_out = Vec::new();
    let problem = |error| format!("{PEERS}: {error}");
    for entry in std::fs::read_dir(PEERS).map_err(problem)? {
        let path = entry.map_err(problem)?.path();
        let (compiler, flags) = match path.extension().and_then(|extension| extension.to_str()) {
            Some("c") => ("cc", dpdk.as_deref().ok_or("no DPDK on this machine (libdpdk-dev)")),
            Some("cc") if has_ns3 => ("c++", Ok("-std=c++17")),
            Some("cc") => ("c++", Err("no ns-3 on this machine (libns3-dev)")),
            _ => continue,
        };
        match flags {
            // Without `-w`, the libraries' own headers raise warnings.
            Ok(flags) => run(Command::new(compiler)
                .args(["-fsyntax-only", "-w"])
                .arg(path)
                .args(flags.split_whitespace()))?,
            Err(reason) => left_out.push(reason),
        }
    }
    Ok((!left_out.is_empty()).then(|| left_out.join("; ")))
}

fn documents() -> Result<(), String> {
    bench::check_page()?;
    let mut command = cargo(&["doc", "--workspace", "--no-deps"]);
    run(command.env("RUSTDOCFLAGS", "-D warnings"))
}

/// Runs `body`. Returns its duration in seconds, and its result.
fn timed<T>(body: impl FnOnce() -> T) -> (f64, T) {
    let start = Instant::now();
    let outcome = body();
    (start.elapsed().as_secs_f64(), outcome)
}

/// The steps so far, each with its duration in seconds and its outcome.
#[derive(Default)]
struct Steps(Vec<(&'static str, f64, Result<(), String>)>);

impl Steps {
    fn step(&mut self, name: &'static str, body: impl FnOnce() -> Result<(), String>) {
        eprintln!("\n== {name}");
        let (seconds, outcome) = timed(body);
        self.end(name, seconds, outcome);
    }

    fn end(&mut self, name: &'static str, seconds: f64, outcome: Result<(), String>) {
        match &outcome {
            Ok(()) => eprintln!("== {name}: holds ({seconds:.1} s)"),
            Err(message) => eprintln!("== {name}: FAILED ({seconds:.1} s): {message}"),
        }
        self.0.push((name, seconds, outcome));
    }

    fn report(&self, summary: &TestSummary) -> Result<(), String> {
        println!();
        for (name, seconds, outcome) in &self.0 {
            let verdict = if outcome.is_ok() { "holds" } else { "FAILED" };
            println!("{name:<12} {verdict:<7} {seconds:7.1} s");
        }
        report(summary);
        let failed = self.0.iter().filter_map(|(name, _, outcome)| {
            let problem = outcome.as_ref().err()?;
            Some(format!("{name}: {problem}"))
        });
        let failed: Vec<_> = failed.collect();
        if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join("; "))) }
    }
}

/// The folder of the sources that drive peers.
const PEERS: &str = "bench/peers";

/// A header of ns-3.
const NS3: &str = "/usr/include/ns3/tbf-queue-disc.h";
