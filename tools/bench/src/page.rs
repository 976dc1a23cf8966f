// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of all benches: the last run of each, in which no number is written by hand.

pub(crate) mod excerpt;
mod limits;
mod table;

use std::fmt::Write as _;

use weir_result::Machine;

use crate::kept::KeptLines;

/// Returns the text of the page.
pub(crate) fn document(lines: &KeptLines) -> String {
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
        let _ = write!(
            text,
            "`{}`\n{date}, {}, {cpu}, {cores} processors, {memory_mib} MiB,\n\
             commit {commit}.\n\n",
            line.command, line.kernel
        );
        text += &table::figures(&line.series);
        text += &table::settings(&line.settings);
        text += &table::cases(&line.cases, &line.pairs);
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
`./x bench --document` writes this page. A figure is a median, with the least and the greatest
sample and their number behind it. Where a machine is shared figures move from run to run, so that
one is worth what stands beside it in the same run: where two were measured in turns, a claim on
their ratio is held against the ratio in each of the turns.
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
         is the part of the worker's time that the kernel spent for it, `frames-a-turn` what it\n\
         sent by each turn of its loop in which something moved.",
    ),
    (
        "accuracy",
        "Limits beside TBF and HTB",
        "The same burst (1 ms at the rate, two frames at least) and the same bytes of queue\n\
         (20 ms) for all. `error` is of the rate under saturation, `delay-p99` is at 95 % load,\n\
         evenly spaced, from generator to sink: medians over windows of 100 ms, which stalls of\n\
         the machine do not fill. `long` is of all the time, stalls included; `full` while the\n\
         queue is full. `weir` is the default, which is held against the others; `weir-spin`\n\
         has `idle = \"spin\"`.",
    ),
    (
        "rte_sched",
        "Schedulers beside DPDK's rte_sched",
        "A packet out and in again, on one processor, in turns; rows are the load and classes.\n\
         `rte_sched` is the library as Debian builds it, for any x86-64, without huge pages.",
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
