// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Table `xtc`: a packet rate for every router, held by feedback, row by row.

mod chain;
mod changes;
mod combined;
mod disturbed;
mod faults;
mod held;
mod load;
mod parts;
mod policing;
mod probe;
mod shares;
mod training;
mod xen;

use weir_experiment::RowPart::{Plain, With};
use weir_experiment::prelude::*;
use weir_experiment::{Requirement, RequirementTable, RowPart};

/// The table.
pub const TABLE: RequirementTable = RequirementTable { name: NAME, rows: ROWS };

const NAME: &str = "xtc";

const ROWS: &[Requirement] = &[
    row(
        1,
        "three minutes of training give a model that holds",
        &[With(training::show, 0), With(training::show, 1)],
    ),
    row(
        2,
        "the cap alone holds a rate, beside PI, dead-beat and Fixed Cap",
        &on_each_bench(held::show),
    ),
    row(
        3,
        "limit and ceiling hold every rate from the second sample on",
        &on_each_bench(combined::show),
    ),
    row(
        4,
        "a disturbance worth 15 % of the assigned CPU is rejected",
        &[
            With(disturbed::alone, 0),
            With(disturbed::combined, 0),
            With(disturbed::alone, 2),
            With(disturbed::combined, 2),
        ],
    ),
    row(
        5,
        "probes come back in time, beside TCP and beside a flood",
        &[
            With(probe::show, 0),
            With(probe::show, 1),
            With(probe::show, 2),
            With(probe::show, 3),
            Plain(probe::alone),
        ],
    ),
    row(
        6,
        "six TCP routers share in proportion to their set-points",
        &[Plain(shares::proportions)],
    ),
    row(7, "a UDP flood beside TCP takes nothing from it", &[Plain(shares::coexistence)]),
    row(8, "one flow gets as much as ten", &[Plain(shares::fairness)]),
    row(9, "a chain of three nodes loses and delays no more at its end", &[Plain(chain::show)]),
    row(10, "1000 instances at 10 Hz cost a twentieth of a core", &[Plain(load::show)]),
    row(
        11,
        "dead zone, self-tuning, bumpless transfer, the manager's verbs",
        &[Plain(changes::show)],
    )
    .correctness()
    .in_virtual_time(),
    row(12, "contention comes and goes, a router misbehaves and reforms", &[Plain(policing::show)])
        .correctness()
        .in_virtual_time(),
    row(13, "every fault is named, caps stay safe, nobody has to help", &[Plain(faults::show)])
        .correctness()
        .in_virtual_time(),
    row(14, "guests of a real Xen are held by their caps", &[Plain(xen::show)]),
];

/// Makes a part for each of the two kinds of router, under UDP and under TCP.
const fn on_each_bench(run: PartOf) -> [RowPart; 4] {
    [With(run, 0), With(run, 1), With(run, 2), With(run, 3)]
}

type PartOf = fn(&mut Recording<'_>, usize) -> Result<(), ExperimentError>;

const fn row(number: u32, title: &'static str, parts: &'static [RowPart]) -> Requirement {
    Requirement::new(NAME, number, title, parts)
}
