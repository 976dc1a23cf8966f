// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cost of a parallel internet's header in the kernel: reading and taking it off, beside
//! counting alone and beside a look-up by address, in turns.
//!
//! The programs are those of `bpf/classifier.bpf.c`, each step alone, and not the data plane's
//! `weir.bpf.c`: that does all of a frame at once, gates, counters and redirection included, beside
//! which a header's part cannot be told. Row 1 shows that the shipped program does the same.

use weir_experiment::prelude::*;
use weir_experiment::senders::on_worker_cpu;
use weir_traffic::{ClassifierTrial, ClassifierWay};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let runs = if rec.quick { 5 } else { 15 };
    let (times, counted, sent) = on_worker_cpu(move || in_turns(runs))?;
    for (way, times) in ClassifierWay::ALL.into_iter().zip(times) {
        rec.keep(way.name(), Series::unordered("s", times))?;
    }
    let [count, pih, mac] = ClassifierWay::ALL.map(|way| way.name().to_owned());
    let text = "number read and header taken off : counting alone, time a frame, each step alone";
    let of = [pih.clone(), count];
    rec.claim("count", text, Rule::RatioOfMedians, Bound::at_most(1.3), &of)?;
    let text = "number read and header taken off : a look-up by VLAN and address";
    rec.claim("mac", text, Rule::RatioOfMedians, Bound::at_most(1.0), &[pih, mac])?;
    let text = "frames that no program counted";
    rec.count("uncounted", text, sent.abs_diff(counted), Bound::at_most(0.0))
}

type Times = [Vec<f64>; ClassifierWay::ALL.len()];

/// The times of each way, what was counted, and the frames that there were.
fn in_turns(runs: usize) -> Result<(Times, u64, u64)> {
    let trial = ClassifierTrial::load()?;
    let mut times = Times::default();
    let (mut counted, mut sent) = (0, 0);
    for turn in 0..=runs {
        for (way, times) in ClassifierWay::ALL.into_iter().zip(&mut times) {
            let (time, all) = trial.run(way, FRAMES)?;
            (counted, sent) = (all, sent + u64::from(FRAMES));
            // The first turn warms the caches.
            if turn > 0 {
                times.push(time);
            }
        }
    }
    Ok((times, counted, sent))
}

/// So many that the end of a run, some 26 ms, is no part of it.
const FRAMES: u32 = 4_000_000;
