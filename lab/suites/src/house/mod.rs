// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The house: the cost of a node that carries as many vifs as real hosts do.

mod start;

use weir_experiment::RowPart::Plain;
use weir_experiment::{Requirement, RequirementTable};

/// The table. Only row 10 is measured here; other rows are held elsewhere:
///
/// - 1 and 4 by `cargo tree` and `cargo xtask lines`;
/// - 5 by `cargo xtask tidy`;
/// - 6 by `weir-lab verify sim --row 10`;
/// - 7 by `./x bench live_change`, and 8 by `./x bench instructions`;
/// - 9 by the test `host/ports/tests/load.rs`.
pub const TABLE: RequirementTable = RequirementTable {
    name: "house",
    rows: &[Requirement::new(
        "house",
        10,
        "a node with 16, 128 and 512 vifs starts in linear time and memory",
        &[Plain(start::show)],
    )],
};
