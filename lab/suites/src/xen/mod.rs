// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests of a real Xen, held to packet rates by `xl` caps alone: what `cargo xtask xen-lab` runs
//! in domain 0. Under RTDS they get real-time classes instead ([`show_classes`]).
//!
//! Senders in domain 0 offer each guest more than twice what it is held at. What a guest forwards
//! is counted on its devices; what it may use is its cap. QEMU counts time in instructions: a
//! packet costs fifty times what it costs on a real processor, and rates are in units of what the
//! guest did without a cap in the same run.

mod bench;
mod capacity;
mod classes;
mod discover;
mod hold;
pub(crate) mod lab_runs;
mod load;
mod picture;
mod spec;
mod training;

use bench::GuestBench;
pub use classes::{XenClassesSpec, show_classes};
use discover::XenHost;
use spec::ROW;
pub use spec::{GuestLoad, XenSpec};
use weir_experiment::prelude::*;

/// Runs it: discovery, capacity, training (unless it is to be quick), set-points, and the way back.
pub fn show(trial: &mut Recording<'_>, spec: &XenSpec) -> Result<(), ExperimentError> {
    let xen = discover::discover(spec)?;
    let id = format!("{ROW}/{}", xen.scheduler);
    let before = trial.result.cases().len();
    trial.say(&format!("{id}: {xen}"));
    discovered(trial, &id, &xen)?;
    let caps = xen.caps()?;
    let outcome = GuestBench::with(&xen, spec, |bench| {
        let capacity = capacity::measure(trial, &id, bench)?;
        let trained = match trial.quick {
            true => Vec::new(),
            false => training::run(trial, &id, bench, spec)?,
        };
        hold::run(trial, &id, bench, &hold::HoldPlan { capacity, trained }, spec)
    });
    // The bench has gone back; what is looked at here is the hypervisor, not what Weir believes.
    let same = xen.caps()? == caps;
    outcome?;
    let text = "every guest has the cap it had";
    trial.count(format!("{id}/back"), text, u64::from(same), Bound::equal(1.0))?;
    trial.judge_parts(before, &id, "guests of a real Xen are held by their caps").map(drop)
}

fn discovered(trial: &mut Recording<'_>, id: &str, xen: &XenHost) -> Result<(), ExperimentError> {
    let counts = xen.guests.iter().map(|guest| float(guest.vifs.len() as u64)).collect();
    let (name, text) = (format!("{id}/vifs"), "interfaces found of each guest");
    let counts = Series::unordered("1", counts);
    trial.claim_samples(name, text, counts, Rule::Min, Bound::equal(2.0))
}
