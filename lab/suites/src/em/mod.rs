// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Execution Management: guaranteed connections inside virtual networks, asked for and given.

mod admission;
mod drawn;
mod oracle;
mod paths;
mod rearrangement;

use weir_experiment::RowPart::{Plain, With};
use weir_experiment::{Requirement, RequirementTable, RowPart};

/// The table.
pub const TABLE: RequirementTable = RequirementTable { name: NAME, rows: ROWS };

const NAME: &str = "em";

const ROWS: &[Requirement] = &[
    row(
        6,
        "random requests: no arc above its capacity, the smallest change named is the smallest",
        &[Plain(admission::show)],
    )
    .correctness(),
    row(
        9,
        "rearrangement solves each case that the search of all states solves",
        &[Plain(rearrangement::show)],
    )
    .correctness(),
    row(
        11,
        "paths on 10 000 nodes and 40 000 links: exact, fast with cached bounds",
        &[Plain(paths::small), With(paths::large, 0), With(paths::large, 1)],
    ),
];

const fn row(number: u32, title: &'static str, parts: &'static [RowPart]) -> Requirement {
    Requirement::new(NAME, number, title, parts)
}
