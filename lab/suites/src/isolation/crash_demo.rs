// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab demo`, killed at ten moments from its first millisecond to the middle of its second
//! half.

use weir_experiment::prelude::*;

use super::crash_lab::{CrashLab, DEMO_LAB};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>, lab: &CrashLab) -> Result {
    let out = lab.program.output();
    let out = out.to_string_lossy();
    let arguments = ["demo", "--lab", DEMO_LAB, "--duration", "3s", "--out", &out];
    let state = lab.program.state();
    let has = |path: &str| state.join(path).exists();
    let started = || true;
    let builds_lab = || has(&format!("journal/lab-{DEMO_LAB}.jsonl"));
    let takes_devices = || has(&format!("journal/node-{DEMO_LAB}.jsonl"));
    let forwards = || has(&format!("node-{DEMO_LAB}.sock"));
    // Those that have to sit through the first half are few, since that takes 3 s each.
    lab.kill_at(
        rec,
        "demo",
        &arguments,
        &[
            (&started, 1),
            (&builds_lab, 0),
            (&builds_lab, 40),
            (&builds_lab, 120),
            (&builds_lab, 300),
            (&builds_lab, 1500),
            (&takes_devices, 0),
            (&takes_devices, 60),
            (&forwards, 0),
            (&forwards, 1500),
        ],
    )
}
