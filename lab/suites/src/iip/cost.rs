// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of a packet under phases, beside the same scheduler paced by the link, in turns.

use rustix::time::{ClockId, clock_gettime};
use weir_experiment::prelude::*;
use weir_experiment::senders::on_worker_cpu;
use weir_sched::load::{Load, Subject};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let runs = if rec.quick { RUNS_QUICK } else { RUNS };
    for (name, times) in on_worker_cpu(move || in_turns(runs))? {
        rec.keep(&name, Series::unordered("s", times))?;
    }
    for (id, [above, below], most) in BOUNDS {
        let text = format!("{above} : {below}, time on the processor a packet");
        let series = [above, below].map(str::to_owned);
        rec.claim(id, text, Rule::RatioOfMedians, Bound::at_most(most), &series)?;
    }
    Ok(())
}

type Times = Vec<(String, Vec<f64>)>;

fn in_turns(runs: usize) -> Result<Times> {
    let mut loads: Vec<(&str, Box<dyn Load>)> = Vec::new();
    for name in SUBJECTS {
        let refused = |why: String| ExperimentError::Node(format!("{name}: {why}"));
        let subject = Subject::named(name).ok_or_else(|| refused("no such subject".to_owned()))?;
        loads.push((name, subject.load(CLASSES).map_err(|error| refused(error.to_string()))?));
    }
    let mut times: Times = SUBJECTS.iter().map(|name| ((*name).to_owned(), Vec::new())).collect();
    for turn in 0..=runs {
        for ((name, load), (_, times)) in loads.iter_mut().zip(&mut times) {
            let start = clock_gettime(ClockId::ThreadCPUTime);
            let moved = load.refill(PACKETS);
            let spent = clock_gettime(ClockId::ThreadCPUTime) - start;
            if moved < PACKETS {
                let message = format!("{name}: {moved} packets of {PACKETS} came");
                return Err(ExperimentError::Node(message));
            }
            let nanos = u64::try_from(spent.tv_sec * 1_000_000_000 + spent.tv_nsec).unwrap_or(0);
            // The first turn brings memory and queues to where they stay.
            if turn > 0 {
                times.push(float(nanos) * 1e-9 / float(moved));
            }
        }
    }
    Ok(times)
}

const PACED_DRR: &str = "paced-drr";
const DRR_3: &str = "cyclic-drr-3";
const DRR_64: &str = "cyclic-drr-64";
const BORROW: &str = "cyclic-drr-64-borrow";
const PACED_HFSC: &str = "paced-hfsc";
const HFSC_3: &str = "cyclic-hfsc-3";
const SUBJECTS: [&str; 6] = [PACED_DRR, DRR_3, DRR_64, BORROW, PACED_HFSC, HFSC_3];
const BOUNDS: [(&str, [&str; 2], f64); 4] = [
    ("drr", [DRR_3, PACED_DRR], 2.2),
    ("hfsc", [HFSC_3, PACED_HFSC], 1.3),
    ("owners", [DRR_64, DRR_3], 1.2),
    ("borrowing", [BORROW, DRR_64], 3.0),
];
const CLASSES: u32 = 64;
const PACKETS: u64 = 1_000_000;
const RUNS: usize = 15;
const RUNS_QUICK: usize = 5;
