// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node as a product: live change, its interface for programs and people, its life.

mod doctor;
mod explain;
mod growth;
mod hostile;
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

use super::{Row, Show, Table};

/// The table.
pub const TABLE: Table = Table { name: NAME, rows: ROWS };

const NAME: &str = "node";

const ROWS: &[Row] = &[
    row(1, "1000 changes, vifs come and go: nobody loses a packet", live::show),
    row(2, "the API under load does not disturb the data plane", load::show),
    row(3, "hostile requests: no failure, no growth, a clear refusal", hostile::show),
    row(4, "a tenant reaches no other tenant's vifs", roles::show),
    row(5, "restart, upgrade and crash leave the traffic alone", life::show).and(&[hotplug::show]),
    row(6, "the page in a browser: all sizes, no findings", page::show),
    row(7, "24 h in fast-forward and a real soak: nothing grows", hours::show).and(&[soak::show]),
    row(8, "report, undo, explain, doctor, package", undo::show)
        .and(&[report::show, doctor::show, package::show])
        .divided(&[explain::show]),
];

const fn row(number: u32, title: &'static str, show: Show) -> Row {
    Row::new(NAME, number, title, show)
}
