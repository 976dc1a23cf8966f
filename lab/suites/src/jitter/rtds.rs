// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Row 6: guests of a real Xen under RTDS. `cargo xtask xen-lab --scheduler rtds` builds the
//! hypervisor, boots it, and runs [`crate::xen::show_classes`] in its domain 0.

use weir_experiment::prelude::*;

use crate::xen::lab_runs;

/// Boots it and takes over what was found.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    lab_runs::take_over(rec, &["rtds"], &["--scheduler", "rtds"])
}
