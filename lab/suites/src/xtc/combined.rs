// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One router of each kind held at set-points from a hundredth of its capacity up by a running
//! node, as it does by default: by a limit at ingress, under a cap that is a ceiling (row 3).
//!
//! Capacity is what the router forwards with its largest cap under the same load: half of the UDP
//! or the TCP that gets through where as much comes as there is. The set-points follow each other,
//! after a second in which the router forwards what waited in it before. What is judged is counted
//! beside the node, at its ends of the router's devices. A packet passes in one sample or in the
//! next: at a hundredth of a capacity one is 1 % of a sample, so a sample that is off by no more
//! than one is on the set-point.

use weir_experiment::prelude::*;
use weir_policy::ControllerKind;

use super::parts::{self, HeldSamples};
use crate::routers::{BenchLoad, RouterBench, RouterSample, part};

/// Shows the row on bench number `bench`.
pub(super) fn show(rec: &mut Recording<'_>, bench: usize) -> Result<(), ExperimentError> {
    let bench = RouterBench::numbered("xtc-combined", BenchLoad::HalfUdp, bench);
    let bench = bench.forwarded_by_the_node();
    let points: &[u64] =
        if rec.quick { &[1, 10, 50, 100] } else { &[1, 2, 5, 10, 20, 40, 60, 80, 100] };
    let (capacity, seen) = bench.run(|lab, capacity| {
        let first = part(capacity, points.first().copied().unwrap_or(1));
        lab.hold(0, ControllerKind::Combined, first)?;
        lab.watch(0, SETTLE)?;
        let at = |percent: &u64| {
            let (percent, set_point) = (*percent, part(capacity, *percent));
            lab.hold(0, ControllerKind::Combined, set_point)?;
            let taken = lab.watch(0, SAMPLES)?;
            let held = HeldSamples { controller: "combined", percent, set_point, taken };
            Ok((held, lab.status(0)?.latest))
        };
        points.iter().map(at).collect::<Result<Vec<_>, ExperimentError>>()
    })?;
    let (held, latest): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
    for line in latest.into_iter().flatten() {
        let place = rec.name(&bench.name());
        rec.result.add_note(format!("{place}: {line}"));
    }
    parts::keep(rec, &bench.name(), capacity, &held)?;
    judge(rec, &bench.name(), &held)
}

fn judge(rec: &mut Recording<'_>, name: &str, held: &[HeldSamples]) -> Result<(), ExperimentError> {
    let id = |part: &str| format!("{name}/{part}");
    let of = |value: &dyn Fn(&HeldSamples) -> f64| held.iter().map(value).collect::<Vec<f64>>();
    let worst = of(&|held| {
        let off = |one: &RouterSample| beyond_one(one, held).abs();
        held.taken.iter().skip(1).map(off).fold(0.0, f64::max)
    });
    let over =
        of(&|held| held.taken.iter().map(|one| beyond_one(one, held)).fold(f64::MIN, f64::max));
    let within = of(&|held| {
        let judged = held.taken.get(1..).unwrap_or_default();
        let within = judged.iter().filter(|one| beyond_one(one, held).abs() <= ERROR).count();
        float(within as u64) / float(judged.len().max(1) as u64)
    });
    let percents = of(&|held| float(held.percent));
    rec.say(&format!(
        "{name}: set-points {percents:?} %: off by {worst:.4?}, over {over:.4?}; within 1 % \
         {within:.3?} of all samples"
    ));
    let series = |values| Series::unordered("1", values);
    rec.keep(&id("within"), series(within))?;
    let text = format!("combined: {name}: rate beside the set-point, from the second sample on");
    rec.claim_samples(id("error"), text, series(worst), Rule::Max, Bound::at_most(ERROR))?;
    let text = format!("combined: {name}: above the set-point in any sample");
    rec.claim_samples(id("overshoot"), text, series(over), Rule::Max, Bound::at_most(0.02))
}

/// Returns the error of a sample beyond one packet, relative to the packets that it should have.
pub(super) fn beyond_one(one: &RouterSample, held: &HeldSamples) -> f64 {
    let due = held.wanted() * float(one.sample.span.as_nanos()) / 1e9;
    let off = float(one.sample.packets) - due;
    off.signum() * (off.abs() - 1.0).max(0.0) / due.max(1.0)
}

/// The largest error, as a part of the set-point.
const ERROR: f64 = 0.01;

/// A second, in which what waited goes and TCP finds its rate; and what is judged.
pub(super) const SETTLE: usize = 10;
pub(super) const SAMPLES: usize = 30;
