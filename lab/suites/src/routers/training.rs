// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The training of a router of the lab (§5): caps in mixed order under constant load, the cap
//! threshold, the model of the caps below it, and the quality of the model on an unseen run.

use std::time::Instant;

use weir_control::identify::{
    CurvePoint, Identified, Point, TrainingPlan, cap_threshold, curve, fit,
};
use weir_experiment::prelude::*;
use weir_units::CpuShare;

use super::lab::RouterLab;
use super::plan::Plan;
use super::sample::{RouterSample, mean, mean_used};
use super::traffic::{Flowed, RouterLoad, RouterTraffic};

/// The mean rate of each run, with its cap.
type Runs = Vec<(CpuShare, PacketRate)>;

/// The value that percents of caps refer to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CapUnit {
    /// A processor, as in the text.
    Processor,
    /// The part of a processor that the router uses for the offered load. Only caps below that
    /// change its rate, and a router that costs little uses less than half of a processor.
    Load,
}

/// A training under constant UDP.
#[derive(Clone, Debug)]
pub(crate) struct Training {
    /// The value that percents refer to.
    pub(crate) unit: CapUnit,
    /// The caps to train on, in percent, rising.
    pub(crate) percents: Vec<u32>,
    /// The least cap that the model covers, in percent.
    pub(crate) least_percent: u32,
    /// The number of times that each cap is set.
    pub(crate) repetitions: u16,
    /// Samples under a cap before the next one.
    pub(crate) samples: usize,
    /// True if a run follows that the fit does not use.
    pub(crate) unseen: bool,
}

/// The result of a training.
#[derive(Clone, Debug)]
pub(crate) struct Trained {
    /// Every period, in order.
    pub(crate) taken: Vec<RouterSample>,
    /// Mean rates by cap, with their intervals (Fig. 3).
    pub(crate) curve: Vec<CurvePoint>,
    /// The cap above which the rate does not change; `None`: it changes up to the largest cap.
    pub(crate) threshold: Option<CpuShare>,
    /// The model of the caps below the threshold.
    pub(crate) identified: Identified,
}

/// A training on a lab of its own, and a run that the fit does not use.
pub(crate) struct TrainingRun {
    /// The rate under a flood, with the largest cap.
    pub(crate) flood: PacketRate,
    pub(crate) offered: PacketRate,
    /// The value that percents of caps refer to.
    pub(crate) whole: CpuShare,
    pub(crate) trained: Trained,
    /// The length of the training.
    pub(crate) seconds: f64,
    /// The run that the fit does not use, under caps below the threshold.
    pub(crate) unseen: Vec<RouterSample>,
    pub(crate) flowed: Flowed,
}

impl Training {
    /// Trains a router of that kind. The flow is that percentage of seven tenths of the rate that
    /// the router forwards under a flood.
    pub(crate) fn run(
        &self,
        plan: Plan,
        flow_percent: u64,
        seed: u64,
    ) -> Result<TrainingRun, ExperimentError> {
        let mut lab = RouterLab::up(plan)?;
        let flood = RouterTraffic::one(RouterLoad::Udp(None));
        let (flood, _) = flood.beside(&mut lab, |lab| lab.capacity(0))?;
        let offered = PacketRate::from_pps(flood.as_pps() * 7 / 10 * flow_percent / 100);
        let traffic = RouterTraffic::one(RouterLoad::Udp(Some(offered.as_pps())));
        let ((trained, whole, seconds, unseen), flowed) = traffic.beside(&mut lab, |lab| {
            let whole = self.whole(lab)?;
            let started = Instant::now();
            let trained = self.train(lab, whole, offered, seed)?;
            let seconds = started.elapsed().as_secs_f64();
            let least = percent_of(whole, self.least_percent);
            let caps = trained.caps_below().filter(|cap| *cap >= least).collect();
            let unseen = match self.unseen {
                true => self.take(lab, caps, 1, seed + 1)?.0,
                false => Vec::new(),
            };
            Ok((trained, whole, seconds, unseen))
        })?;
        Ok(TrainingRun { flood, offered, whole, trained, seconds, unseen, flowed })
    }

    /// Returns the value that percents of caps refer to, measured if it has to be.
    fn whole(&self, lab: &mut RouterLab) -> Result<CpuShare, ExperimentError> {
        if self.unit == CapUnit::Processor {
            return Ok(CpuShare::ONE);
        }
        let used = mean_used(&lab.at_capacity(0)?).filter(|used| *used > CpuShare::ZERO);
        let none = "no meter says what the router takes of a processor";
        used.ok_or_else(|| ExperimentError::Node(none.to_owned()))
    }

    /// Trains the first router of a lab by caps that are percents of `whole`, in an order that
    /// follows from `seed`. The caller provides the load.
    pub(crate) fn train(
        &self,
        lab: &mut RouterLab,
        whole: CpuShare,
        offered: PacketRate,
        seed: u64,
    ) -> Result<Trained, ExperimentError> {
        let caps = self.percents.iter().map(|percent| percent_of(whole, *percent)).collect();
        let least = percent_of(whole, self.least_percent);
        let (taken, runs) = self.take(lab, caps, self.repetitions, seed)?;
        let curve = curve(&runs);
        // The text's 1 kp/s is a hundredth of what it offered.
        let tolerance = PacketRate::from_pps((offered.as_pps() / 100).max(1));
        let threshold = cap_threshold(&curve, tolerance);
        let segments: Vec<Vec<Point>> = taken
            .split(|one| one.cap < least)
            .flat_map(|stretch| below(stretch, threshold))
            .collect();
        let identified = fit_all(&segments)?;
        Ok(Trained { taken, curve, threshold, identified })
    }

    /// Takes all samples. Returns them with the mean rate of each run.
    fn take(
        &self,
        lab: &mut RouterLab,
        caps: Vec<CpuShare>,
        repetitions: u16,
        seed: u64,
    ) -> Result<(Vec<RouterSample>, Runs), ExperimentError> {
        // Only the order of the plan's steps is used.
        let (offered, length) = (vec![PacketRate::ZERO], Nanos::from_secs(1));
        let plan = TrainingPlan::new(caps, offered, repetitions, length);
        let plan = plan.map_err(|error| ExperimentError::Node(error.to_string()))?;
        let (mut taken, mut runs) = (Vec::new(), Vec::new());
        for step in plan.steps(seed) {
            let under = lab.hold_cap(0, step.cap, self.samples)?;
            // The cap in force, which the router's largest and least cap bound.
            let cap = under.first().map_or(step.cap, |one| one.cap);
            runs.push((cap, mean(&under)));
            taken.extend(under);
        }
        Ok((taken, runs))
    }
}

/// Returns that part of a cap, rounded down.
fn percent_of(whole: CpuShare, percent: u32) -> CpuShare {
    let ppm = u64::from(whole.as_ppm()) * u64::from(percent) / 100;
    CpuShare::from_ppm(u32::try_from(ppm).unwrap_or(u32::MAX))
}

/// Fits a model to stretches of periods.
pub(crate) fn fit_all(stretches: &[Vec<Point>]) -> Result<Identified, ExperimentError> {
    let slices: Vec<&[Point]> = stretches.iter().map(Vec::as_slice).collect();
    fit(&slices).map_err(|error| ExperimentError::Node(error.to_string()))
}

impl Trained {
    /// Returns the caps below the threshold.
    pub(crate) fn caps_below(&self) -> impl Iterator<Item = CpuShare> + '_ {
        let caps = self.curve.iter().map(|point| point.cap);
        caps.filter(|cap| self.threshold.is_none_or(|threshold| *cap < threshold))
    }
}

/// Returns the stretches of periods whose caps are all below the threshold, in the form that the
/// fit takes: the rate of a period with the cap of the next one.
pub(crate) fn below(taken: &[RouterSample], threshold: Option<CpuShare>) -> Vec<Vec<Point>> {
    let is_below = |one: &RouterSample| threshold.is_none_or(|threshold| one.cap < threshold);
    let stretches = taken.split(|one| !is_below(one)).filter(|stretch| stretch.len() > 1);
    let points = |stretch: &[RouterSample]| {
        let caps = stretch.iter().skip(1).chain(stretch.last()).map(|one| one.cap);
        stretch.iter().zip(caps).map(|(one, cap)| Point { rate: one.sample.rate(), cap }).collect()
    };
    stretches.map(points).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(percent: u32, packets: u64) -> RouterSample {
        RouterSample::of(Nanos::from_secs(1), packets, CpuShare::from_percent(percent))
    }

    #[test]
    fn a_rate_stands_with_the_cap_that_comes_after_it() {
        let run = [taken(10, 100), taken(20, 200), taken(80, 800), taken(30, 300), taken(40, 400)];
        let found = below(&run, Some(CpuShare::from_percent(80)));
        let point = |rate, percent| Point {
            rate: PacketRate::from_pps(rate),
            cap: CpuShare::from_percent(percent),
        };
        let expected = [vec![point(100, 20), point(200, 20)], vec![point(300, 40), point(400, 40)]];
        assert_eq!(found, expected);
        assert_eq!(below(&run, None).len(), 1);
        assert_eq!(below(&run[..1], None).len(), 0, "one period says nothing of a change");
        assert_eq!(mean(&run), PacketRate::from_pps(360));
        assert_eq!(mean(&[]), PacketRate::ZERO);
        assert_eq!(percent_of(CpuShare::from_percent(33), 20).as_ppm(), 66_000);
    }
}
