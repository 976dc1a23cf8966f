// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The training on a process router and on a namespace router (§5): small UDP packets, caps in
//! steps, samples of 1 s. The model is judged on a run that the fit does not use.
//!
//! The load is seven tenths of what the router forwards of a flood, so that from some cap on the
//! rate equals the load. The caps are percents of the processor time that the router uses for that
//! load. The text's model is a straight line over the logarithm of the cap. A router whose rate is
//! proportional to its cap follows one only over a part of the range, so the model's caps begin at
//! [`LEAST_PERCENT`] %. The fit over all caps is kept beside it.

use std::path::Path;

use weir_control::identify::{Point, Residual, free_run, one_step, persistence, r_squared};
use weir_experiment::pictures::save_picture;
use weir_experiment::prelude::*;
use weir_plot::{PointSet, Points, Svg};

use super::parts;
use crate::routers::{
    BenchLoad, CapUnit, RouterBench, RouterKind, Training, TrainingRun, below, fit_all,
};

/// Shows the row on a router of that kind.
pub(super) fn show(rec: &mut Recording<'_>, kind: usize) -> Result<(), ExperimentError> {
    let kind = RouterKind::ALL[kind];
    let (repetitions, samples) = if rec.quick { (1, 2) } else { (3, 3) };
    let percents = (1..=12).map(|step| 8 * step).chain([110, 125, 150]).collect();
    let (unit, least_percent) = (CapUnit::Load, LEAST_PERCENT);
    let training = Training { unit, percents, least_percent, repetitions, samples, unseen: true };
    let bench = RouterBench::new("xtc-training", kind, BenchLoad::Flow(100));
    let seen = training.run(bench.plan, 100, SEED)?;
    judge(rec, kind, &seen)?;
    draw(kind, &seen)?;
    rec.result.add_note(format!("{}: pictures are in {PICTURES}", rec.id()));
    Ok(())
}

fn judge(
    rec: &mut Recording<'_>,
    kind: RouterKind,
    seen: &TrainingRun,
) -> Result<(), ExperimentError> {
    let id = |part: &str| format!("{}/{part}", kind.name());
    let trained = &seen.trained;
    parts::keep_taken(rec, &id("training"), &trained.taken)?;
    parts::keep_taken(rec, &id("held-out"), &seen.unseen)?;
    for (name, rate) in [("capacity", seen.flood), ("offered", seen.offered)] {
        rec.keep(&id(name), Series::count("packet/s", rate.as_pps()))?;
    }
    rec.keep(&id("whole"), Series::unordered("1", vec![parts::share(seen.whole)]))?;
    let threshold = trained.threshold.map_or(0.0, parts::share);
    rec.keep(&id("cap-threshold"), Series::unordered("1", vec![threshold]))?;
    let model = trained.identified.model;
    rec.keep(&id("model"), Series::unordered("1", vec![model.a(), model.b()]))?;
    let below: Vec<f64> = trained.caps_below().map(parts::share).collect();
    let caps = Series::unordered("1", below);
    for (part, text, series, rule, bound) in [
        (
            "seconds",
            "length of the training",
            Series::unordered("s", vec![seen.seconds]),
            Rule::Max,
            Bound::at_most(180.0),
        ),
        ("caps", "caps below the cap threshold", caps, Rule::Count, Bound::at_least(6.0)),
    ] {
        rec.claim_samples(id(part), format!("{}: {text}", kind.name()), series, rule, bound)?;
    }
    judge_model(rec, kind, seen)?;
    parts::judge_meter(rec, &id("meter"), &seen.flowed)
}

/// Judges the model on the unseen run, beside the model that repeats the rate before.
fn judge_model(
    rec: &mut Recording<'_>,
    kind: RouterKind,
    seen: &TrainingRun,
) -> Result<(), ExperimentError> {
    let id = |part: &str| format!("{}/{part}", kind.name());
    let points: Vec<Point> = below(&seen.unseen, None).into_iter().flatten().collect();
    let free = free_run(&seen.trained.identified, &points);
    let kpps = |of: fn(&Residual) -> f64| free.iter().map(|one| of(one) * 1e3).collect();
    rec.keep(&id("free-run/estimated"), Series::unordered("packet/s", kpps(|r| r.estimated)))?;
    rec.keep(&id("free-run/actual"), Series::unordered("packet/s", kpps(|r| r.actual)))?;
    // The fit over all caps below the threshold, from the least one on.
    let all = fit_all(&below(&seen.trained.taken, seen.trained.threshold)).ok();
    let kinds = [
        ("free-run-r2", r_squared(&free)),
        ("one-step-r2", r_squared(&one_step(&seen.trained.identified, &points))),
        ("persistence-r2", r_squared(&persistence(&points))),
        ("all-caps-fit-r2", all.map(|identified| identified.r_squared)),
    ];
    for (name, value) in kinds {
        // If the rate did not vary, nothing is explained.
        let value = value.unwrap_or(0.0);
        rec.say(&format!("{}: {value:.4}", id(name)));
        rec.keep(&id(name), Series::unordered("1", vec![value]))?;
    }
    if kind == RouterKind::Process {
        let text = "R² of the free run on a run that the fit has not seen";
        let bound = Bound::at_least(R_SQUARED);
        let name = id("free-run-r2");
        rec.claim(&name, text, Rule::Min, bound, &[&name])?;
    }
    Ok(())
}

/// Draws Figs 3 and 4 of the text: rate by cap, and the model's rates beside the measured ones.
fn draw(kind: RouterKind, seen: &TrainingRun) -> Result<(), ExperimentError> {
    let rate = |rate: PacketRate| float(rate.as_pps());
    let curve = &seen.trained.curve;
    let points = curve.iter().map(|p| (100.0 * parts::share(p.cap), rate(p.mean))).collect();
    let halves = curve.iter().map(|p| p.interval.map_or(0.0, rate)).collect();
    let name = format!("{} router, mean and 95 % interval", kind.name());
    let axis = |name: &str, unit: &str| (name.to_owned(), unit.to_owned());
    let by_cap = Points {
        title: format!("Rate by cap, {} offered", seen.offered),
        x: axis("cap", "%"),
        y: axis("forwarded", "packet/s"),
        diagonal: false,
        sets: vec![PointSet::line(name, points).within(halves)],
    };
    let held_out: Vec<Point> = below(&seen.unseen, None).into_iter().flatten().collect();
    let residuals = free_run(&seen.trained.identified, &held_out);
    let points = residuals.iter().map(|r| (r.actual.max(0.0) * 1e3, r.estimated.max(0.0) * 1e3));
    let name = format!("{} router, free run on a run not seen", kind.name());
    let beside = Points {
        title: "What the model says beside what was measured".to_owned(),
        x: axis("measured", "packet/s"),
        y: axis("estimated", "packet/s"),
        diagonal: true,
        sets: vec![PointSet::scatter(name, points.collect())],
    };
    let save = |what: &str, svg: &Svg| {
        save_picture(Path::new(PICTURES), &format!("{what}-{}", kind.name()), svg, 2.0)
    };
    save("rate-by-cap", &by_cap.draw()?)?;
    save("residuals", &beside.draw()?)
}

/// The least cap of the model; see above.
const LEAST_PERCENT: u32 = 24;
const R_SQUARED: f64 = 0.95;
const SEED: u64 = 20_261_122;
const PICTURES: &str = "out/xtc";
