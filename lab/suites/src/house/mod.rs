// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The house: what a node costs that carries as many vifs as real hosts do.

mod start;

use weir_experiment::RowPart::Plain;
use weir_experiment::{Requirement, RequirementTable};

/// The table. Its other rows are not measured, but held by `cargo xtask tidy` and by tests.
pub const TABLE: RequirementTable = RequirementTable {
    name: "house",
    rows: &[Requirement::new(
        "house",
        10,
        "a node with 16, 128 and 512 vifs starts in linear time and memory",
        &[Plain(start::show)],
    )],
};
