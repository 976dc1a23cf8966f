// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node as a product: live change, its interface for programs and people, its life.

mod doctor;
mod explain;
mod growth;
pub(crate) mod hostile;
mod hotplug;
mod hours;
mod life;
mod live;
mod load;
mod losses;
mod package;
mod page;
mod report;
mod roles;
mod soak;
mod undo;

use weir_experiment::RowPart::{Divided, Plain};
use weir_experiment::{Requirement, RequirementTable, RowPart};

/// The table.
pub const TABLE: RequirementTable = RequirementTable { name: NAME, rows: ROWS };

const NAME: &str = "node";

const ROWS: &[Requirement] = &[
    row(1, "1000 changes, vifs come and go: nobody loses a packet", &[Plain(live::show)]),
    row(2, "the API under load does not disturb the data plane", &[Plain(load::show)]),
    row(3, "hostile requests: no failure, no growth, a clear refusal", &[Plain(hostile::show)]),
    row(4, "a tenant reaches no other tenant's vifs", &[Plain(roles::show)]),
    row(
        5,
        "restart, upgrade and crash leave the traffic alone",
        &[Plain(life::show), Plain(hotplug::show)],
    ),
    row(6, "the page in a browser: all sizes, no findings", &[Plain(page::show)]),
    row(
        7,
        "24 h in fast-forward and a real soak: nothing grows",
        &[Plain(hours::show), Plain(soak::show)],
    ),
    row(
        8,
        "report, undo, explain, doctor, package",
        &[
            Plain(undo::show),
            Plain(report::show),
            Plain(doctor::show),
            Plain(package::show),
            Divided(explain::show),
        ],
    ),
];

const fn row(number: u32, title: &'static str, parts: &'static [RowPart]) -> Requirement {
    Requirement::new(NAME, number, title, parts)
}
