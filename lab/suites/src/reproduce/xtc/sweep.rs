// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One router held at one set-point after another, by one contender after another: Figs 5 to 14.
//!
//! Each run begins anew from the largest cap; the controllers know the router by one training. A
//! disturbance comes after a run's samples, and the run goes on.

use weir_experiment::prelude::*;
use weir_units::CpuShare;

use super::{BESIDE_LAB_S, Flow};
use crate::routers::{
    Contender, Disturbance, Known, Loop, ProbePath, Probed, RouterKind, RouterLab, RouterSample,
    capacity, hold, probing,
};

/// What is swept.
#[derive(Debug)]
pub(super) struct Sweep {
    /// What comes, one lab for each.
    pub(super) flows: &'static [Flow],
    /// Who holds the router.
    pub(super) contenders: &'static [Contender],
    /// At how many percent of its capacity.
    pub(super) percents: &'static [u64],
    /// The same where runs are quick.
    pub(super) quick_percents: &'static [u64],
    /// What the figure shows of each run.
    pub(super) shows: &'static [Metric],
    /// Whether a process comes that takes 15 % of the cap then assigned.
    pub(super) disturbed: bool,
}

/// What is shown of a run, over its set-points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    /// The mean rate.
    Achieved,
    /// The text's relative RMSE: around the achieved mean, by that.
    Deviation,
    /// The mean rate beside the disturbance.
    Disturbed,
    /// The probe's mean round-trip time.
    RoundTrip,
    /// Probes that did not come back, or were not sent in time.
    Lost,
}

impl Sweep {
    /// Whether a probe goes along.
    pub(super) fn is_probed(&self) -> bool {
        self.shows.iter().any(|metric| matches!(metric, Metric::RoundTrip | Metric::Lost))
    }

    /// The set-points, in percent of the capacity.
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
            let mut lab = RouterLab::up(flow.plan(kind))?;
            let load = flow.load(&mut lab)?;
            let quick = trial.quick;
            let (seen, _) = load.beside(&mut lab, |lab| self.measure(lab, quick))?;
            self.keep(trial, &flow.key(), &seen)?;
        }
        Ok(())
    }

    fn measure(&self, lab: &mut RouterLab, quick: bool) -> Result<Seen, ExperimentError> {
        let capacity = capacity(lab)?;
        let known = Known::learn(&mut Loop::begin(lab, 0)?, capacity)?;
        let mut runs = Vec::new();
        for contender in self.contenders {
            for percent in self.points(quick) {
                let set_point = PacketRate::from_pps(capacity.as_pps() * percent / 100);
                let run = Run { contender: *contender, percent: *percent, set_point };
                let work = |lab: &mut RouterLab| self.held(lab, &known, &run, quick);
                let (held, probed) = if self.is_probed() {
                    let (held, probed) = probing(lab, 0, ProbePath::Own, work)?;
                    (held, Some(probed))
                } else {
                    (work(lab)?, None)
                };
                runs.push((run, held, probed));
            }
        }
        Ok(Seen { capacity, model: [known.model().a(), known.model().b()], runs })
    }

    fn held(
        &self,
        lab: &mut RouterLab,
        known: &Known,
        run: &Run,
        quick: bool,
    ) -> Result<Held, ExperimentError> {
        let [settle, judged] = samples(quick);
        let mut on = Loop::begin(lab, 0)?;
        on.decide_every(run.contender.period())?;
        let controller = known.controller(run.contender, on.range()?, run.set_point)?;
        let mut held = hold(&mut on, controller, run.set_point, settle + judged)?;
        held.drain(..settle.min(held.len()));
        let mut disturbed = Vec::new();
        if self.disturbed {
            let assigned = held.last().map_or(CpuShare::ZERO, |one| one.cap);
            let share = part(assigned, DISTURBANCE_PERCENT);
            let _disturbance = Disturbance::of(lab, 0, share)?;
            let mut on = Loop::begin(lab, 0)?;
            on.decide_every(run.contender.period())?;
            let controller = known.controller(run.contender, on.range()?, run.set_point)?;
            disturbed = hold(&mut on, controller, run.set_point, settle + judged)?;
            disturbed.drain(..settle.min(disturbed.len()));
        }
        Ok(Held { held, disturbed })
    }

    fn keep(
        &self,
        trial: &mut Recording<'_>,
        flow: &str,
        seen: &Seen,
    ) -> Result<(), ExperimentError> {
        let capacity = Series::count("packet/s", seen.capacity.as_pps());
        trial.keep(&format!("{flow}/capacity"), capacity)?;
        trial.keep(&format!("{flow}/model"), Series::unordered("1", seen.model.to_vec()))?;
        for (run, held, probed) in &seen.runs {
            let id = |part: &str| format!("{flow}/{}/{}%/{part}", run.contender.key(), run.percent);
            let set_point = Series::count("packet/s", run.set_point.as_pps());
            trial.keep(&id("set-point"), set_point)?;
            for (name, taken) in [("", &held.held), ("disturbed-", &held.disturbed)] {
                if taken.is_empty() {
                    continue;
                }
                let rates = taken.iter().map(RouterSample::rate).collect();
                trial.keep(&id(&format!("{name}rate")), Series::sampled("packet/s", 1.0, rates))?;
                let caps = taken.iter().map(|one| f64::from(one.cap.as_ppm()) / 1e6).collect();
                trial.keep(&id(&format!("{name}cap")), Series::sampled("1", 1.0, caps))?;
            }
            if let Some(probed) = probed {
                trial.keep(&id("rtt"), Series::unordered("s", probed.times_s.clone()))?;
                trial.keep(&id("probes"), Series::count("1", probed.due))?;
                trial.keep(&id("probes-failed"), Series::count("1", probed.failed()))?;
            }
        }
        Ok(())
    }
}

/// One flow's runs.
struct Seen {
    capacity: PacketRate,
    /// a and b of the lab's own model.
    model: [f64; 2],
    runs: Vec<(Run, Held, Option<Probed>)>,
}

struct Run {
    contender: Contender,
    percent: u64,
    set_point: PacketRate,
}

/// Periods once it may have settled; then beside the disturbance.
struct Held {
    held: Vec<RouterSample>,
    disturbed: Vec<RouterSample>,
}

fn part(share: CpuShare, percent: u32) -> CpuShare {
    let ppm = u64::from(share.as_ppm()) * u64::from(percent) / 100;
    CpuShare::from_ppm(u32::try_from(ppm).unwrap_or(u32::MAX))
}

/// Samples of a second in which a run may settle, and that are judged; the text's runs are 120 s.
const fn samples(quick: bool) -> [usize; 2] {
    if quick { [3, 5] } else { [10, 50] }
}

/// The text's (§7.1).
const DISTURBANCE_PERCENT: u32 = 15;

/// 14 caps, two samples each.
const TRAINING_S: u64 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_share_is_rounded_down() {
        assert_eq!(part(CpuShare::from_percent(20), 15), CpuShare::from_percent(3));
        assert_eq!(part(CpuShare::from_ppm(3), 15), CpuShare::ZERO);
    }
}
