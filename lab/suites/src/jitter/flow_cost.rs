// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Row 16: the processor time that flow queues add to a packet, beside one queue a class without
//! CoDel, in turns.
//!
//! `greedy` is the case of row 12: the packets of a class are of 16 flows that never run empty. In
//! the others each packet is a flow, which begins and ends with it: the most that flow queues can
//! cost. No allocation is counted by `core/switch/tests/allocations.rs`.

use weir_experiment::prelude::*;
use weir_experiment::senders::on_worker_cpu;

use crate::sched_turns::{TurnLoad, in_turns};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let runs = if rec.quick { RUNS_QUICK } else { RUNS };
    for (subjects, load, name) in CASES {
        for classes in CLASSES {
            let times = on_worker_cpu(move || in_turns(&subjects, classes, load, runs))?;
            let more = more_ns(&times);
            for (subject, times) in times {
                rec.keep(&format!("{name}/{classes}/{subject}"), Series::unordered("s", times))?;
            }
            let id = format!("{name}/{classes}/more");
            let more = Series::unordered("ns", more);
            if classes > CLASSES_JUDGED {
                rec.keep(&id, more)?;
                continue;
            }
            let text = format!("{name}, {classes} classes: time of a packet that flow queues add");
            rec.claim_samples(id, text, more, Rule::Median, Bound::at_most(MORE_NS))?;
        }
    }
    Ok(())
}

/// The difference of the second and the first, turn by turn, in nanoseconds.
fn more_ns(times: &[(String, Vec<f64>)]) -> Vec<f64> {
    let [(_, without), (_, with)] = times else { return Vec::new() };
    without.iter().zip(with).map(|(without, with)| (with - without) * 1e9).collect()
}

const CASES: [([&str; 2], TurnLoad, &str); 3] = [
    (["drr-32", "drr-32-flows"], TurnLoad::Refill, "greedy"),
    (["drr", "drr-flows"], TurnLoad::Refill, "refill"),
    (["drr", "drr-flows"], TurnLoad::Random, "random"),
];
const CLASSES: [u32; 2] = [64, 4096];
/// Beyond these the states of all classes are in no first cache, and what a packet costs is what
/// memory takes.
const CLASSES_JUDGED: u32 = 64;
const MORE_NS: f64 = 40.0;
const RUNS: usize = 15;
const RUNS_QUICK: usize = 5;
