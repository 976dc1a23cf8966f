// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Row 14: the real hypervisor. `cargo xtask xen-lab` boots it under each scheduler and runs
//! [`crate::xen`] in its domain 0; what came of it is judged there, and again here.

use weir_experiment::prelude::*;

use crate::xen::lab_runs;

/// Boots both and takes over what they found.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    lab_runs::take_over(rec, &["credit2", "credit"], &[])
}
