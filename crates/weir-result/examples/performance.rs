// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of all benches, in two files that are committed: a line of JSON for each run, and a
//! document with the last run of each bench, in which no number is written by hand.
//!
//! `performance append LINES NAME RESULT` adds the run in the result file RESULT as bench NAME;
//! `performance document LINES OUT` writes the document; `performance check LINES OUT` compares.

#[path = "performance/limits.rs"]
mod limits;
#[path = "performance/table.rs"]
mod table;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::process::ExitCode;

use serde::{Deserialize, Serialize};
use weir_result::{Case, Machine, ResultFile, Rule};

/// One run of one bench: a line.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Line {
    bench: String,
    command: String,
    machine: Machine,
    kernel: String,
    commit: String,
    start: String,
    series: BTreeMap<String, Summary>,
    cases: Vec<Case>,
    notes: Vec<String>,
}

/// What a line keeps of a series.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Summary {
    unit: String,
    samples: usize,
    least: f64,
    median: f64,
    greatest: f64,
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["append", lines, name, result] => append(lines, name, result)?,
        ["document", lines, out] => fs::write(out, document(&read(lines)?))?,
        ["check", lines, out] => {
            let found = fs::read_to_string(out).map_err(|error| format!("{out}: {error}"))?;
            if found != document(&read(lines)?) {
                return Err(format!("{out} is not what follows from {lines}").into());
            }
        }
        _ => {
            eprintln!("usage: performance append LINES NAME RESULT | document|check LINES OUT");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn append(lines: &str, name: &str, result: &str) -> Result<(), Box<dyn Error>> {
    let text = fs::read_to_string(result).map_err(|error| format!("{result}: {error}"))?;
    let file = ResultFile::from_json(&text).map_err(|error| format!("{result}: {error}"))?;
    let mut series = BTreeMap::new();
    for (name, raw) in file.series() {
        // What a case recomputes from its parts is no figure.
        if raw.samples.is_empty() || name.ends_with("/parts") {
            continue;
        }
        let of = |rule: Rule| rule.apply(&[&raw.samples]);
        let (least, median, greatest) = (of(Rule::Min)?, of(Rule::Median)?, of(Rule::Max)?);
        let (unit, samples) = (raw.unit.clone(), raw.samples.len());
        series.insert(name.clone(), Summary { unit, samples, least, median, greatest });
    }
    // The rest is as the file has it.
    let whole: serde_json::Value = serde_json::from_str(&text)?;
    let word = |key: &str| whole[key].as_str().unwrap_or_default().to_owned();
    let line = Line {
        bench: name.to_owned(),
        command: word("command"),
        machine: serde_json::from_value(whole["machine"].clone())?,
        kernel: word("kernel"),
        commit: word("commit"),
        start: word("start"),
        series,
        cases: file.cases().to_vec(),
        notes: serde_json::from_value(whole["notes"].clone())?,
    };
    let mut out = fs::OpenOptions::new().create(true).append(true).open(lines)?;
    writeln!(out, "{}", serde_json::to_string(&line)?)?;
    Ok(())
}

/// The last line of each bench.
fn read(path: &str) -> Result<BTreeMap<String, Line>, Box<dyn Error>> {
    let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let mut last = BTreeMap::new();
    for (number, text) in (1..).zip(text.lines()) {
        let line: Line =
            serde_json::from_str(text).map_err(|error| format!("{path}:{number}: {error}"))?;
        last.insert(line.bench.clone(), line);
    }
    Ok(last)
}

fn document(lines: &BTreeMap<String, Line>) -> String {
    let mut text = INTRODUCTION.to_owned();
    text += &limits::text(lines);
    for (name, title, about) in BENCHES {
        let Some(line) = lines.get(*name) else {
            let _ = write!(text, "\n## {title}\n\n{about}\n\nNot measured yet.\n");
            continue;
        };
        let _ = write!(text, "\n## {title}\n\n{about}\n\n");
        let Machine { cpu, cores, memory_mib } = &line.machine;
        let date = line.start.split('T').next().unwrap_or_default();
        let commit = line.commit.get(..12).unwrap_or(&line.commit);
        let dirty = if line.commit.ends_with("-dirty") { ", with changes" } else { "" };
        let _ = write!(
            text,
            "`{}`\n{date}, {}, {cpu}, {cores} processors, {memory_mib} MiB,\n\
             commit {commit}{dirty}.\n\n",
            line.command, line.kernel
        );
        text += &table::figures(&line.series);
        text += &table::cases(&line.cases);
        for note in &line.notes {
            let _ = write!(text, "\n{note}\n");
        }
    }
    text
}

const INTRODUCTION: &str = "\
# Performance

Generated from [performance.jsonl](performance.jsonl), which has a line for each run that was kept;
no number here is written by hand. `./x bench NAME --keep` measures and adds a line,
`./x bench --document` writes this page. Figures are medians. Where a machine is shared they move
from run to run, so that a figure is worth what stands beside it in the same run.
";

/// In the order of the document: name, title, what it is about.
const BENCHES: &[(&str, &str, &str)] = &[
    (
        "forwarding",
        "Forwarding beside bridge, HTB and Open vSwitch",
        "64-byte frames from 16 tenants over the same veth pairs. *Apart*: who forwards has a\n\
         processor of its own, the generator another. *Together*: everything on one processor,\n\
         the generator included. `per-cpu` is packets by all processor time but the generator's\n\
         own, soft interrupts included; `generator` is that own part, in processors; `in-kernel`\n\
         is the part of the worker's time that the kernel spent for it.",
    ),
    (
        "accuracy",
        "Limits beside TBF and HTB",
        "The same burst (1 ms at the rate, two frames at least) and the same bytes of queue\n\
         (20 ms) for all. `error` is of the rate under saturation, `delay` is at 95 % load,\n\
         evenly spaced, `full` while the queue is full; both from generator to sink.",
    ),
    (
        "rte_sched",
        "Schedulers beside DPDK's rte_sched",
        "A packet out and in again, on one processor, in turns; rows are the load and classes.",
    ),
    (
        "sched",
        "Schedulers",
        "A packet in and out again in batches of 32; columns are classes, all of them active.",
    ),
    (
        "packets",
        "The switch between ports in memory",
        "1024 vifs in 32 slices under HFSC: classify, police and enqueue (`receive`), schedule\n\
         and hand out (`transmit`), both together as a rate (`both`). Cycles are of the clock\n\
         that the kernel states.",
    ),
    (
        "machine",
        "What the machine charges",
        "One of each: reading the clock, a system call, a load that waits for the one before from\n\
         so much memory, a copy between chunks that are in no cache.",
    ),
];
