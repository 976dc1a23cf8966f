// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A router's rate by its cap, and the model of that: Figs 3 and 4, Table 1.

use weir_control::identify::{CurvePoint, Point, Residual, free_run, one_step, r_squared};
use weir_experiment::prelude::*;

use super::flow::{BESIDE_LAB_S, FigureFlow};
use crate::routers::{CapUnit, RouterKind, Training, TrainingRun, below, fit_all};

/// Caps set one after the other, in mixed order, under constant UDP.
#[derive(Debug)]
pub(super) struct CapCurve {
    /// In percent of *the flow*.
    pub(super) flows: &'static [u64],
    /// In percent of a processor, rising.
    pub(super) caps: &'static [u32],
}

impl CapCurve {
    pub(super) fn seconds(&self, quick: bool) -> u64 {
        let (repetitions, samples) = runs(quick);
        let each = u64::from(repetitions) * samples as u64;
        self.flows.len() as u64 * (self.caps.len() as u64 * each + BESIDE_LAB_S)
    }

    pub(super) fn run(
        &self,
        trial: &mut Recording<'_>,
        kind: RouterKind,
    ) -> Result<(), ExperimentError> {
        for percent in self.flows {
            let seen = train(trial, kind, *percent, self.caps, false)?;
            keep(trial, *percent, &seen)?;
        }
        Ok(())
    }
}

/// The model beside what was measured: on the runs that it was made of, as the text shows it, and
/// on a run that it has not seen.
pub(super) fn residuals(
    trial: &mut Recording<'_>,
    kind: RouterKind,
) -> Result<(), ExperimentError> {
    let seen = train(trial, kind, 100, MODEL_CAPS, true)?;
    keep(trial, 100, &seen)?;
    let threshold = seen.trained.threshold;
    let segments = below(&seen.trained.taken, threshold);
    let identified = fit_all(&segments)?;
    let step = |segment: &Vec<Point>| one_step(&identified, segment);
    let own: Vec<Residual> = segments.iter().flat_map(step).collect();
    let run = |segment: &Vec<Point>| free_run(&identified, segment);
    let unseen: Vec<Residual> = below(&seen.unseen, threshold).iter().flat_map(run).collect();
    let model = vec![identified.model.a(), identified.model.b()];
    trial.keep("model", Series::unordered("1", model))?;
    let at = identified.operating_point;
    trial.keep("operating-point", Series::unordered("1", vec![at.rate_kpps, at.log_cap]))?;
    for (name, residuals) in [("own", own), ("unseen", unseen)] {
        let kpps = |of: fn(&Residual) -> f64| residuals.iter().map(|one| of(one) * 1e3).collect();
        let series = |values| Series::unordered("packet/s", values);
        trial.keep(&format!("{name}/estimated"), series(kpps(|one| one.estimated)))?;
        trial.keep(&format!("{name}/actual"), series(kpps(|one| one.actual)))?;
        // Where the rate did not vary, nothing is explained.
        let explained = vec![r_squared(&residuals).unwrap_or(0.0)];
        trial.keep(&format!("{name}/r2"), Series::unordered("1", explained))?;
    }
    Ok(())
}

pub(super) fn residual_seconds(quick: bool) -> u64 {
    let (repetitions, samples) = runs(quick);
    MODEL_CAPS.len() as u64 * (u64::from(repetitions) + 1) * samples as u64 + BESIDE_LAB_S
}

/// Trains a router under that part of the flow.
fn train(
    trial: &mut Recording<'_>,
    kind: RouterKind,
    percent: u64,
    caps: &[u32],
    unseen: bool,
) -> Result<TrainingRun, ExperimentError> {
    let flow = FigureFlow::Udp(percent);
    trial.say(&format!("{}, {} router", flow.name(), kind.name()));
    let (repetitions, samples) = runs(trial.quick);
    let (unit, percents, least_percent) = (CapUnit::Processor, caps.to_vec(), 0);
    let training = Training { unit, percents, least_percent, repetitions, samples, unseen };
    training.run(flow.bench(kind).plan, percent, SEED)
}

fn keep(
    trial: &mut Recording<'_>,
    percent: u64,
    seen: &TrainingRun,
) -> Result<(), ExperimentError> {
    let (flow, trained) = (FigureFlow::Udp(percent).key(), &seen.trained);
    trial.keep(&format!("{flow}/offered"), Series::count("packet/s", seen.offered.as_pps()))?;
    let threshold = trained.threshold.map_or(0.0, |cap| f64::from(cap.as_ppm()) / 1e6);
    trial.keep(&format!("{flow}/threshold"), Series::unordered("1", vec![threshold]))?;
    let rate = |rate: PacketRate| float(rate.as_pps());
    let mut keep = |name: &str, unit: &str, value: &dyn Fn(&CurvePoint) -> f64| {
        let values = trained.curve.iter().map(value).collect();
        trial.keep(&format!("{flow}/{name}"), Series::unordered(unit, values))
    };
    keep("cap", "1", &|point| f64::from(point.cap.as_ppm()) / 1e6)?;
    keep("mean", "packet/s", &|point| rate(point.mean))?;
    keep("half-interval", "packet/s", &|point| point.interval.map_or(0.0, rate))
}

/// Repetitions of each cap, and samples of a second a time; the text's runs are 30 s.
const fn runs(quick: bool) -> (u16, usize) {
    if quick { (2, 2) } else { (5, 6) }
}

/// The text's and some between.
const MODEL_CAPS: &[u32] = &[5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 80, 100];

const SEED: u64 = 5;
