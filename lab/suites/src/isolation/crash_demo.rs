// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab demo`, killed at ten moments from its first millisecond to the middle of its second
//! half.

use std::path::Path;
use std::thread;

use weir_experiment::prelude::*;

use super::crash::{Counts, DEMO_LAB, Ground, LIMIT};

/// The event after which the time begins to run.
#[derive(Clone, Copy)]
enum CrashSign {
    /// The process.
    Started,
    /// The lab is being built.
    Lab,
    /// The node is taking its devices.
    Node,
    /// The node forwards.
    Forwards,
}

/// Shows the part. After every other kill `weir clean` cleans; after the others the next
/// demonstration has to.
pub(super) fn show(rec: &mut Recording<'_>, ground: &Ground) -> Result<(), ExperimentError> {
    let mut counts = Counts::default();
    let out = ground.program.output();
    let out = out.to_string_lossy();
    let arguments = ["demo", "--lab", DEMO_LAB, "--duration", "3s", "--out", &out];
    let mut is_dirty = false;
    for (index, (sign, delay_ms)) in MOMENTS.iter().enumerate() {
        let mut demo = ground.program.start(&arguments)?;
        let state = ground.program.state();
        let seen = demo.shows(LIMIT, |_| sign.is_there(&state));
        if is_dirty {
            counts.failed_starts.push(f64::from(u8::from(!seen)));
        }
        if seen {
            thread::sleep(Duration::from_millis(*delay_ms));
        }
        if !seen || !demo.is_alive() {
            // It has said why; a demonstration that ended was not killed.
            let ended = demo.end_within(Duration::ZERO)?;
            counts.failed_ends.push(1.0);
            rec.say(&format!("demo, moment {index}: {:?}: {}", ended.status, ended.said));
        } else {
            demo.kill()?;
            counts.times.push(1.0);
        }
        is_dirty = index % 2 == 0;
        if !is_dirty {
            ground.clean(rec, &mut counts)?;
        }
    }
    counts.judge(rec, "demo", 10)
}

impl CrashSign {
    fn is_there(self, state: &Path) -> bool {
        let has = |path: String| state.join(path).exists();
        match self {
            Self::Started => true,
            Self::Lab => has(format!("journal/lab-{DEMO_LAB}.jsonl")),
            Self::Node => has(format!("journal/node-{DEMO_LAB}.jsonl")),
            Self::Forwards => has(format!("node-{DEMO_LAB}.sock")),
        }
    }
}

/// In pairs: the second of a pair begins on what the first left. The ones that have to sit through
/// the first half are few, since that takes 3 s each.
const MOMENTS: [(CrashSign, u64); 10] = [
    (CrashSign::Started, 1),
    (CrashSign::Lab, 0),
    (CrashSign::Lab, 40),
    (CrashSign::Lab, 120),
    (CrashSign::Lab, 300),
    (CrashSign::Lab, 1500),
    (CrashSign::Node, 0),
    (CrashSign::Node, 60),
    (CrashSign::Forwards, 0),
    (CrashSign::Forwards, 1500),
];
