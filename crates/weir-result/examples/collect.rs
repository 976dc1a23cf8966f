// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Makes a result file of what a bench prints: `collect OUT COMMAND COMMIT START SECONDS`.
//!
//! Lines come from standard input. `{"series": "hfsc/1024/refill", "unit": "s", "samples": [1e-7]}`
//! is a series; one with `"at_most"` or `"at_least"` besides is also a case on the median of its
//! samples. Other lines are passed through. Exit status 3 if a case does not hold.

use std::error::Error;
use std::io::BufRead;
use std::path::Path;
use std::process::ExitCode;

use serde::Deserialize;
use weir_result::{Bound, Claim, Machine, Origin, ResultFile, Rule, Series, quantity};

/// A line of a bench.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    series: String,
    unit: String,
    samples: Vec<f64>,
    at_most: Option<f64>,
    at_least: Option<f64>,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [out, command, commit, start, seconds] = arguments.as_slice() else {
        eprintln!("usage: collect OUT COMMAND COMMIT START SECONDS < LINES");
        return Ok(ExitCode::from(2));
    };
    let mut result = ResultFile::new(Origin {
        command: command.clone(),
        machine: machine(),
        kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
        commit: commit.clone(),
        start: start.clone(),
    });
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        if line.starts_with('{') {
            add(&mut result, serde_json::from_str(&line).map_err(|e| format!("{line}: {e}"))?)?;
        } else {
            println!("{line}");
        }
    }
    result.set_duration_s(seconds.parse()?);
    if let Some(folder) = Path::new(out).parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(out, result.to_json())?;
    if !result.cases().is_empty() {
        print!("{result}");
    }
    println!("{out}");
    // A bench without a bound is a measurement, and has succeeded.
    let fine = result.cases().is_empty() || result.holds();
    Ok(ExitCode::from(if fine { 0 } else { 3 }))
}

fn add(result: &mut ResultFile, line: Line) -> Result<(), Box<dyn Error>> {
    let Line { series, unit, samples, at_most, at_least } = line;
    let median = Rule::Median.apply(&[&samples])?;
    println!("{series:<40} {:>16}", quantity(median, &unit));
    result.add_series(&series, Series::unordered(unit, samples))?;
    let bounds = [at_most.map(Bound::at_most), at_least.map(Bound::at_least)];
    if let Some(bound) = bounds.into_iter().flatten().next() {
        let claim = Claim::new(format!("bench.{series}"), "median", Rule::Median, bound);
        result.judge(claim.of(&[series]))?;
    }
    Ok(())
}

fn machine() -> Machine {
    let value = |text: &str, key: &str| {
        let line = text.lines().find(|line| line.starts_with(key));
        let value = line.and_then(|line| line.split_once(':')).map_or("", |(_, value)| value);
        value.trim().to_string()
    };
    let memory = value(&read("/proc/meminfo"), "MemTotal");
    let kib: u64 = memory.trim_end_matches("kB").trim().parse().unwrap_or(0);
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    Machine {
        cpu: value(&read("/proc/cpuinfo"), "model name"),
        cores: u32::try_from(cores).unwrap_or(u32::MAX),
        memory_mib: kib / 1024,
    }
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}
