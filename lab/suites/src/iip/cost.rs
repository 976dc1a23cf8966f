// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of a packet under phases, beside the same scheduler paced by the link, in turns.

use weir_experiment::prelude::*;
use weir_experiment::senders::on_worker_cpu;

use crate::sched_turns::{TurnLoad, in_turns};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let runs = if rec.quick { RUNS_QUICK } else { RUNS };
    for (name, times) in
        on_worker_cpu(move || in_turns(&SUBJECTS, CLASSES, TurnLoad::Refill, runs))?
    {
        rec.keep(&name, Series::unordered("s", times))?;
    }
    for (id, [above, below], most) in BOUNDS {
        let text = format!("{above} : {below}, time on the processor a packet");
        let series = [above, below].map(str::to_owned);
        rec.claim(id, text, Rule::RatioOfMedians, Bound::at_most(most), &series)?;
    }
    Ok(())
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
const RUNS: usize = 15;
const RUNS_QUICK: usize = 5;
