// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Row 2: one router of each kind, under UDP and under TCP, is held by its cap alone at set-points
//! from a tenth of its capacity up.
//!
//! Capacity is the rate that the router forwards with its largest cap under the same load. Each
//! set-point begins anew from that cap, with a controller that knows nothing of the router but its
//! training, if it needs one. Samples of a second are judged. In a second the text's controllers
//! decide once and Weir's ten times; Weir's, deciding once, is shown beside them.

use weir_experiment::prelude::*;

use super::parts::{HeldSamples, MEAN_OF, SETTLE};
use crate::routers::{
    BenchLoad, Contender, LeastCap, PERIOD_TEXT, RouterBench, RouterKind, RouterKnowledge, part,
};

/// Shows the row on bench number `bench`.
pub(super) fn show(rec: &mut Recording<'_>, bench: usize) -> Result<(), ExperimentError> {
    let bench = RouterBench::numbered("xtc-alone", BenchLoad::HalfUdp, bench);
    let points: &[u64] = if rec.quick { &[30] } else { &[10, 20, 40, 60, 85] };
    let (capacity, held) = bench.run(|lab, capacity| {
        let known = RouterKnowledge::learn(lab, capacity)?;
        let mut held = Vec::new();
        for percent in points.iter().copied() {
            let set_point = part(capacity, percent);
            for (controller, contender, period) in CONTROLLERS {
                known.hold(lab, contender, period, set_point)?;
                let taken = lab.watch(0, SETTLE + MEAN_OF)?;
                held.push(HeldSamples { controller, percent, set_point, taken });
            }
        }
        Ok(held)
    })?;
    super::parts::keep(rec, &bench.name(), capacity, &held)?;
    judge(rec, &bench, &held)
}

fn judge(
    rec: &mut Recording<'_>,
    bench: &RouterBench,
    held: &[HeldSamples],
) -> Result<(), ExperimentError> {
    let id = |part: &str| format!("{}/{part}", bench.name());
    let band = match bench.kind {
        RouterKind::Process => 0.05,
        RouterKind::Namespace => 0.1,
    };
    for (controller, ..) in CONTROLLERS {
        let mine = || held.iter().filter(|held| held.controller == controller);
        let of = |value: &dyn Fn(&HeldSamples) -> f64| mine().map(value).collect::<Vec<f64>>();
        let errors = of(&|held| (held.mean() / held.wanted() - 1.0).abs());
        let settled = of(&|held| held.settled(band));
        let deviation = of(&HeldSamples::deviation);
        rec.say(&format!(
            "{} {controller}: mean off by {errors:.4?}, settled after {settled:?}, relative RMSE \
             {deviation:.4?}",
            bench.name()
        ));
        for (name, unit, samples) in
            [("mean-error", "1", errors), ("settled", "1", settled), ("rmse", "1", deviation)]
        {
            let name = id(&format!("{controller}/{name}"));
            rec.keep(&name, Series::unordered(unit, samples))?;
        }
    }
    let mut claim = |part: &str, text: &str, rule, bound, names: &[String]| {
        let text = format!("{}, decided every 100 ms: {text}", bench.name());
        rec.claim(id(part), text, rule, bound, names)
    };
    let mean = [id("weir/mean-error")];
    claim("mean", "10-s mean beside the set-point", Rule::Max, Bound::at_most(0.02), &mean)?;
    let settled = [id("weir/settled")];
    claim("settling", "samples of 1 s until settled", Rule::Max, Bound::at_most(5.0), &settled)?;
    let both = [id("weir/rmse"), id("fixed/rmse")];
    let text = "relative RMSE, Weir's : Fixed Cap's";
    claim("rmse", text, Rule::GreatestRatio, Bound::at_most(1.2), &both)
}

/// The controllers to compare, with their periods. Weir's is there twice: at its own period, and
/// deciding as rarely as the text's.
const CONTROLLERS: [(&str, Contender, Nanos); 5] = [
    ("weir", Contender::FeedForward, Contender::FeedForward.period()),
    ("weir-each-second", Contender::FeedForward, PERIOD_TEXT),
    ("pi", Contender::Pi(LeastCap::DEFAULT), PERIOD_TEXT),
    ("dead-beat", Contender::DeadBeat(LeastCap::DEFAULT), PERIOD_TEXT),
    ("fixed", Contender::Fixed, PERIOD_TEXT),
];
