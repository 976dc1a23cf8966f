// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A router's rate by its cap, and the model of that: Figs 3 and 4, Table 1.

use weir_control::identify::{Point, Residual, fit, free_run, one_step, r_squared};
use weir_experiment::prelude::*;
use weir_units::CpuShare;

use super::{BESIDE_LAB_S, Flow, flow};
use crate::routers::{Loop, RouterKind, RouterLab, Traffic, Trained, Training, below};

/// Caps set one after the other, in mixed order, under constant UDP.
#[derive(Debug)]
pub(super) struct Curve {
    /// In percent of *the flow*.
    pub(super) flows: &'static [u64],
    /// In percent of a processor, rising.
    pub(super) caps: &'static [u32],
}

impl Curve {
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
            let (offered, trained, _) = train(trial, kind, *percent, self.caps, false)?;
            keep(trial, *percent, offered, &trained)?;
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
    let (offered, trained, unseen) = train(trial, kind, 100, MODEL_CAPS, true)?;
    keep(trial, 100, offered, &trained)?;
    let segments = below(&trained.taken, trained.threshold);
    let slices: Vec<&[Point]> = segments.iter().map(Vec::as_slice).collect();
    let identified = fit(&slices).map_err(|error| ExperimentError::Node(error.to_string()))?;
    let own: Vec<Residual> =
        segments.iter().flat_map(|segment| one_step(&identified, segment)).collect();
    let unseen: Vec<Residual> =
        unseen.iter().flat_map(|segment| free_run(&identified, segment)).collect();
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

/// What came, what was trained, and, if wanted, stretches of a run that the training has not seen.
fn train(
    trial: &mut Recording<'_>,
    kind: RouterKind,
    percent: u64,
    caps: &[u32],
    unseen: bool,
) -> Result<(PacketRate, Trained, Vec<Vec<Point>>), ExperimentError> {
    trial.say(&format!("{}, {} router", Flow::Udp(percent).name(), kind.name()));
    let mut lab = RouterLab::up(Flow::Udp(percent).plan(kind))?;
    let offered = flow(&mut lab, percent)?;
    let (repetitions, samples) = runs(trial.quick);
    let (trained, _) = Traffic::udp(offered).beside(&mut lab, |lab| {
        let mut on = Loop::begin(lab, 0)?;
        let range = on.range()?;
        let caps = caps.iter().map(|percent| CpuShare::from_percent(*percent));
        let caps = caps.filter(|cap| (range.least()..=range.most()).contains(cap)).collect();
        let training = Training { caps, offered, repetitions, samples };
        let trained = training.run_above(&mut on, SEED, CpuShare::ZERO)?;
        let mut stretches = Vec::new();
        if unseen {
            let caps = trained.caps_below().collect();
            let again = Training { caps, repetitions: 1, ..training };
            stretches = below(&again.take(&mut on, SEED + 1)?.0, trained.threshold);
        }
        Ok((trained, stretches))
    })?;
    Ok((offered, trained.0, trained.1))
}

fn keep(
    trial: &mut Recording<'_>,
    percent: u64,
    offered: PacketRate,
    trained: &Trained,
) -> Result<(), ExperimentError> {
    let flow = Flow::Udp(percent).key();
    trial.keep(&format!("{flow}/offered"), Series::count("packet/s", offered.as_pps()))?;
    let threshold = trained.threshold.map_or(0.0, |cap| f64::from(cap.as_ppm()) / 1e6);
    trial.keep(&format!("{flow}/threshold"), Series::unordered("1", vec![threshold]))?;
    let of = |value: &dyn Fn(usize) -> f64| (0..trained.curve.len()).map(value).collect();
    let rate = |rate: PacketRate| float(rate.as_pps());
    let curve = &trained.curve;
    let caps = of(&|at| f64::from(curve[at].cap.as_ppm()) / 1e6);
    trial.keep(&format!("{flow}/cap"), Series::unordered("1", caps))?;
    let means = of(&|at| rate(curve[at].mean));
    trial.keep(&format!("{flow}/mean"), Series::unordered("packet/s", means))?;
    let halves = of(&|at| curve[at].interval.map_or(0.0, rate));
    trial.keep(&format!("{flow}/half-interval"), Series::unordered("packet/s", halves))
}

/// Repetitions of each cap, and samples of a second a time; the text's runs are 30 s.
const fn runs(quick: bool) -> (u16, usize) {
    if quick { (2, 2) } else { (5, 6) }
}

/// The text's and some between.
const MODEL_CAPS: &[u32] = &[5, 10, 15, 20, 25, 30, 35, 40, 45, 50, 55, 60, 80, 100];

const SEED: u64 = 5;
