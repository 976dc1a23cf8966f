// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node and a demonstration that are killed, ended or not confirmed: nothing stays behind.

use weir_experiment::prelude::*;

use super::crash_lab::CrashLab;
use super::{crash_demo, crash_node};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let lab = CrashLab::up()?;
    crash_node::show(rec, &lab)?;
    crash_demo::show(rec, &lab)?;
    lab.rig.down()
}
