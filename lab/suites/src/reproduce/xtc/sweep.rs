// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One router held at one set-point after another, by one contender after another: Figs 5 to 14.
//!
//! Each run begins anew from the largest cap. The controllers know the router from one training. A
//! disturbance begins after a run's samples, and the run goes on.

use weir_experiment::prelude::*;
use weir_units::CpuShare;

use super::flow::{BESIDE_LAB_S, FigureFlow};
use crate::routers::{
    Contender, Disturbance, ProbePath, ProbeResult, RouterKind, RouterKnowledge, RouterLab,
    RouterSample, part, probing,
};

/// A sweep over set-points.
#[derive(Debug)]
pub(super) struct SetPointSweep {
    /// The loads, each on a lab of its own.
    pub(super) flows: &'static [FigureFlow],
    /// The controllers that hold the router.
    pub(super) contenders: &'static [Contender],
    /// The set-points, in percent of the router's capacity.
    pub(super) percents: &'static [u64],
    /// The percents of quick runs.
    pub(super) quick_percents: &'static [u64],
    /// The values of each run that the figure shows.
    pub(super) shows: &'static [Metric],
    /// True if each run ends with a process that takes 15 % of the cap assigned until then.
    pub(super) disturbed: bool,
}

/// A value of a run, shown over its set-points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    /// The mean rate.
    Achieved,
    /// The text's relative RMSE: around the achieved mean, divided by it.
    Deviation,
    /// The mean rate during the disturbance.
    Disturbed,
    /// The probe's mean round-trip time.
    RoundTrip,
    /// The part of the probes without an answer, or not sent in time.
    Lost,
}

impl SetPointSweep {
    /// Returns true if a probe accompanies the flow.
    pub(super) fn is_probed(&self) -> bool {
        self.shows.iter().any(|metric| matches!(metric, Metric::RoundTrip | Metric::Lost))
    }

    /// Returns the set-points, in percent of the capacity.
    pub(super) const fn points(&self, quick: bool) -> &'static [u64] {
        if quick { self.quick_percents } else { self.percents }
    }

    pub(super) fn seconds(&self, quick: bool) -> u64 {
        let runs = (self.contenders.len() * self.points(quick).len()) as u64;
        let [settle, judged] = samples(quick);
        let each = (settle + judged) as u64 * if self.disturbed { 2 } else { 1 };
        self.flows.len() as u64 * (runs * each + TRAINING_S + BESIDE_LAB_S)
    }

    pub(super) fn run(
        &self,
        trial: &mut Recording<'_>,
        kind: RouterKind,
    ) -> Result<(), ExperimentError> {
        for flow in self.flows {
            trial.say(&format!("{}, {} router", flow.name(), kind.name()));
            let quick = trial.quick;
            let bench = flow.bench(kind);
            let (capacity, (model, runs)) =
                bench.run(|lab, capacity| self.measure(lab, capacity, quick))?;
            let flow = flow.key();
            let capacity = Series::count("packet/s", capacity.as_pps());
            trial.keep(&format!("{flow}/capacity"), capacity)?;
            trial.keep(&format!("{flow}/model"), Series::unordered("1", model.to_vec()))?;
            runs.iter().try_for_each(|run| run.keep(trial, &flow))?;
        }
        Ok(())
    }

    /// Returns a and b of the lab's own model, and the runs.
    fn measure(
        &self,
        lab: &mut RouterLab,
        capacity: PacketRate,
        quick: bool,
    ) -> Result<([f64; 2], Vec<SweepRun>), ExperimentError> {
        let known = RouterKnowledge::learn(lab, capacity)?;
        let mut runs = Vec::new();
        for contender in self.contenders.iter().copied() {
            for percent in self.points(quick).iter().copied() {
                let set_point = part(capacity, percent);
                let work = |lab: &mut RouterLab| {
                    known.hold(lab, contender, contender.period(), set_point)?;
                    self.watch(lab, quick)
                };
                let ([held, disturbed], probed) = if self.is_probed() {
                    let (taken, probed) = probing(lab, 0, ProbePath::Own, work)?;
                    (taken, Some(probed))
                } else {
                    (work(lab)?, None)
                };
                runs.push(SweepRun { contender, percent, set_point, held, disturbed, probed });
            }
        }
        Ok((known.model(), runs))
    }

    /// Returns the samples after the time for settling, then those during the disturbance.
    fn watch(
        &self,
        lab: &mut RouterLab,
        quick: bool,
    ) -> Result<[Vec<RouterSample>; 2], ExperimentError> {
        let [settle, judged] = samples(quick);
        lab.watch(0, settle)?;
        let held = lab.watch(0, judged)?;
        if !self.disturbed {
            return Ok([held, Vec::new()]);
        }
        let share = part_of(lab.cap(0)?, DISTURBANCE_PERCENT);
        let _disturbance = Disturbance::of(lab, 0, share)?;
        lab.watch(0, settle)?;
        Ok([held, lab.watch(0, judged)?])
    }
}

/// One run: a set-point under one contender.
struct SweepRun {
    contender: Contender,
    percent: u64,
    set_point: PacketRate,
    held: Vec<RouterSample>,
    disturbed: Vec<RouterSample>,
    probed: Option<ProbeResult>,
}

impl SweepRun {
    fn keep(&self, trial: &mut Recording<'_>, flow: &str) -> Result<(), ExperimentError> {
        let id = |part: &str| format!("{flow}/{}/{}%/{part}", self.contender.key(), self.percent);
        trial.keep(&id("set-point"), Series::count("packet/s", self.set_point.as_pps()))?;
        for (name, taken) in [("", &self.held), ("disturbed-", &self.disturbed)] {
            if taken.is_empty() {
                continue;
            }
            let rates = taken.iter().map(RouterSample::rate).collect();
            trial.keep(&id(&format!("{name}rate")), Series::sampled("packet/s", 1.0, rates))?;
            let caps = taken.iter().map(|one| f64::from(one.cap.as_ppm()) / 1e6).collect();
            trial.keep(&id(&format!("{name}cap")), Series::sampled("1", 1.0, caps))?;
        }
        if let Some(probed) = &self.probed {
            trial.keep(&id("rtt"), Series::unordered("s", probed.times_s.clone()))?;
            trial.keep(&id("probes"), Series::count("1", probed.due))?;
            trial.keep(&id("probes-failed"), Series::count("1", probed.failed()))?;
        }
        Ok(())
    }
}

fn part_of(share: CpuShare, percent: u32) -> CpuShare {
    let ppm = u64::from(share.as_ppm()) * u64::from(percent) / 100;
    CpuShare::from_ppm(u32::try_from(ppm).unwrap_or(u32::MAX))
}

/// Returns the number of samples of a second in which a run may settle, and of those that are
/// judged; the text's runs are 120 s long.
const fn samples(quick: bool) -> [usize; 2] {
    if quick { [3, 5] } else { [10, 50] }
}

/// The size of the text's disturbance (§7.1).
const DISTURBANCE_PERCENT: u32 = 15;

/// The length of the training: 14 caps, two samples each.
const TRAINING_S: u64 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_share_is_rounded_down() {
        assert_eq!(part_of(CpuShare::from_percent(20), 15), CpuShare::from_percent(3));
        assert_eq!(part_of(CpuShare::from_ppm(3), 15), CpuShare::ZERO);
    }
}
