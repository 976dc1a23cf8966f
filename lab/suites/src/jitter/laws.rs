// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The laws of the smooth window over random parameters and arrivals, and faults that they catch.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use weir_experiment::prelude::*;
use weir_sched::SmoothShaper;
use weir_sim::{FaultyShaper, ShaperAudit, ShaperFault, ShaperLaw, audit_random};
use weir_units::Instant;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let (seeds, packets) = if rec.quick { (40, 20_000) } else { (1000, 1_000_000) };
    let audits = in_parallel(seeds, |seed| {
        audit_random(seed, packets, |config| SmoothShaper::new(config, Instant::ZERO))
    });
    for law in ShaperLaw::ALL {
        let broken = audits.iter().map(|audit| audit.violations(law)).sum();
        let id = format!("law/{}", law.name());
        rec.count(id, "packets that break the law", broken, Bound::at_most(0.0))?;
    }
    let sums = [0, 1, 2, 3].map(|of| audits.iter().map(|audit| audit.counts()[of]).sum::<u64>());
    let least = |share: u64| Bound::at_least(float(seeds * packets / share));
    rec.count("packets", "packets that were checked", sums[0], least(1))?;
    rec.count("refused", "packets of those that were refused at entry", sums[1], least(100))?;
    rec.count("late", "packets of those that used the credit up", sums[2], least(100))?;
    // All are missing if the shaper tells none.
    let told = audits.iter().map(|audit| audit.miscounted().unwrap_or(u64::MAX));
    let miscounted = told.fold(0, u64::saturating_add);
    let text = "late packets that the shaper itself counts otherwise";
    rec.count("late-counted", text, miscounted, Bound::at_most(0.0))?;
    let text = "overloads that lasted long enough to judge the window";
    rec.count("overloads", text, sums[3], Bound::at_least(float(seeds / 10)))?;
    for (fault, law) in ShaperFault::CAUGHT_BY {
        let of = |seed| audit_random(seed, 20_000, |config| FaultyShaper::new(&config, fault));
        let caught = in_parallel(40, of).iter().map(|audit| audit.violations(law)).sum();
        let id = format!("fault/{fault:?}").to_lowercase();
        let text = format!("packets with which the law of {} catches the fault", law.name());
        rec.count(id, text, caught, Bound::at_least(1.0))?;
    }
    Ok(())
}

/// Audits seeds from 0 on, on all processors.
fn in_parallel(seeds: u64, audit: impl Fn(u64) -> ShaperAudit + Sync) -> Vec<ShaperAudit> {
    let next = AtomicU64::new(0);
    let work = || {
        let take = || Some(next.fetch_add(1, Ordering::Relaxed)).filter(|seed| *seed < seeds);
        std::iter::from_fn(take).map(&audit).collect::<Vec<_>>()
    };
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let all: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        all.into_iter().flat_map(|thread| thread.join().unwrap_or_default()).collect()
    })
}
