// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Jitter: packets that leave at the right time, not only at the right rate.

mod admission;
mod bulk;
mod flow_queues;
mod flow_runs;
mod laws;
mod shaped;
mod smooth;
mod steps;

use weir_experiment::RowPart::{Plain, With};
use weir_experiment::{Requirement, RequirementTable, RowPart};

/// The table.
pub const TABLE: RequirementTable = RequirementTable { name: NAME, rows: ROWS };

const NAME: &str = "jitter";

const ROWS: &[Requirement] = &[
    row(
        5,
        "what is admitted holds its deadlines, and no cap breaks a guarantee",
        &[Plain(admission::show)],
    )
    .correctness(),
    row(
        7,
        "at 2 Mb/s the smooth window holds rate and delay, beside Xen's own bucket",
        &[
            With(smooth::show, 0),
            With(smooth::show, 1),
            With(smooth::show, 2),
            With(smooth::show, 3),
        ],
    )
    .correctness(),
    row(
        8,
        "bulk TCP fills the allocation at an even delay",
        &[With(bulk::show, 0), With(bulk::show, 1)],
    )
    .correctness(),
    row(
        9,
        "the smooth window follows steps of load at any rate, beside the text's PID",
        &[With(steps::show, 0), With(steps::show, 1), With(steps::show, 2), With(steps::show, 3)],
    )
    .correctness(),
    row(10, "no arrival breaks a law of the smooth window", &[Plain(laws::show)]).correctness(),
    row(
        12,
        "flow queues keep delay low inside a share, and guarantees exact",
        &[
            With(flow_queues::show, 0),
            With(flow_queues::show, 1),
            With(flow_queues::show, 2),
            Plain(flow_queues::guarantees),
        ],
    )
    .correctness(),
];

const fn row(number: u32, title: &'static str, parts: &'static [RowPart]) -> Requirement {
    Requirement::new(NAME, number, title, parts)
}

#[cfg(test)]
mod tests {
    use weir_experiment::Recording;
    use weir_result::{Case, Machine, Origin, ResultFile};

    use super::*;

    /// Goal: rows in virtual time hold on any machine, busy or not.
    #[test]
    fn rows_in_virtual_time_hold() {
        let text = || "test".to_owned();
        let origin = Origin {
            command: text(),
            machine: Machine::default(),
            kernel: text(),
            commit: text(),
            start: text(),
        };
        let mut silent = |_: &str| {};
        let mut rec = Recording::new(ResultFile::new(origin), true, &mut silent);
        for row in ROWS.iter().filter(|row| row.correctness) {
            row.run(&mut rec).unwrap();
        }
        let cases = rec.result.cases();
        let broken: Vec<&Case> = cases.iter().filter(|case| !case.holds()).collect();
        assert!(broken.is_empty() && cases.len() > 30, "{broken:#?}");
    }
}
