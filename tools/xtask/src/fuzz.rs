// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Short runs of the fuzz targets in `fuzz/`, a workspace of its own.
//!
//! LLVM flags make the stable compiler add libFuzzer's instrumentation, so no nightly toolchain and
//! no cargo-fuzz is needed.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::command::{cargo, output, run};

/// Runs every target in `fuzz/fuzz_targets` for the given seconds each; 30 without an argument.
pub(crate) fn run_all(arguments: &[String]) -> Result<(), String> {
    let seconds = match arguments.first() {
        None => SECONDS,
        Some(text) => text.parse().map_err(|_| format!("fuzz: '{text}' is no count of seconds"))?,
    };
    let targets = targets(Path::new("fuzz/fuzz_targets"))?;
    if targets.is_empty() {
        return Err("fuzz/fuzz_targets: no target".to_string());
    }
    let host = host_triple()?;
    let mut build = cargo(&["build", "--release", "--manifest-path", "fuzz/Cargo.toml"]);
    run(build.args(["--target", &host]).env("RUSTFLAGS", FLAGS))?;
    let failed: Vec<String> = run_each(targets, |target| run_one(target, &host, seconds));
    if failed.is_empty() { Ok(()) } else { Err(format!("fuzz: failed: {}", failed.join(", "))) }
}

/// Runs the targets, as many at once as there are processors, since each is one thread. Returns
/// those that failed.
fn run_each(targets: Vec<String>, run: impl Fn(&str) -> Result<(), String> + Sync) -> Vec<String> {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let waiting = Mutex::new(targets.into_iter());
    let failed = Mutex::new(Vec::new());
    let take = || {
        while let Some(target) = locked(&waiting).next() {
            if let Err(message) = run(&target) {
                eprintln!("{message}");
                locked(&failed).push(target);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..processors {
            scope.spawn(take);
        }
    });
    locked(&failed).split_off(0)
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_one(target: &str, host: &str, seconds: u32) -> Result<(), String> {
    let corpus = PathBuf::from("fuzz/corpus").join(target);
    let artifacts = PathBuf::from("fuzz/artifacts").join(target);
    for directory in [&corpus, &artifacts] {
        std::fs::create_dir_all(directory)
            .map_err(|error| format!("{}: {error}", directory.display()))?;
    }
    let program = PathBuf::from("fuzz/target").join(host).join("release").join(target);
    let mut command = Command::new(program);
    command.arg(&corpus);
    // Inputs worth keeping are under version control; new finds go to the first directory.
    let seeds = PathBuf::from("fuzz/seeds").join(target);
    if seeds.is_dir() {
        command.arg(seeds);
    }
    command.arg(format!("-artifact_prefix={}/", artifacts.display()));
    command.arg(format!("-max_total_time={seconds}"));
    command.args(["-verbosity=0", "-print_final_stats=1"]);
    run(&mut command)
}

/// Returns the names of the targets: the files of the directory without their extension, sorted.
fn targets(directory: &Path) -> Result<Vec<String>, String> {
    let problem = |error| format!("{}: {error}", directory.display());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(problem)? {
        let path = entry.map_err(problem)?.path();
        if path.extension().is_some_and(|extension| extension == "rs") {
            names.extend(path.file_stem().map(|stem| stem.to_string_lossy().into_owned()));
        }
    }
    names.sort();
    Ok(names)
}

fn host_triple() -> Result<String, String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_string).ok_or_else(|| "rustc -vV: no line 'host: '".to_string())
}

/// The default time of each target: long enough for some millions of small inputs.
const SECONDS: u32 = 30;

/// The flags of cargo-fuzz, without the sanitizers, which need a nightly compiler.
const FLAGS: &str = "-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares \
    --cfg fuzzing -Ccodegen-units=1 -Cdebug-assertions -Coverflow-checks";
