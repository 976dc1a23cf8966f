// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The training of a router of the lab (§5): caps in mixed order under constant load, the cap
//! threshold, the model of what lies below it, and how good that is on a run it has not seen.

use weir_control::identify::{
    CurvePoint, Identified, Point, TrainingPlan, cap_threshold, curve, fit,
};
use weir_experiment::ExperimentError;
use weir_units::{CpuShare, Nanos, PacketRate};

use super::lab::RouterLab;
use super::sampling::{Loop, RouterSample};

/// The mean rate of each run, with its cap.
type Runs = Vec<(CpuShare, PacketRate)>;

/// What is run.
#[derive(Clone, Debug)]
pub(crate) struct Training {
    /// The caps to train on, rising.
    pub(crate) caps: Vec<CpuShare>,
    /// What comes meanwhile.
    pub(crate) offered: PacketRate,
    /// How often each cap is set.
    pub(crate) repetitions: u16,
    /// Samples under a cap before the next one.
    pub(crate) samples: usize,
}

/// What came of it.
#[derive(Clone, Debug)]
pub(crate) struct Trained {
    /// Every period, in order.
    pub(crate) taken: Vec<RouterSample>,
    /// Mean rates by cap, with their intervals (Fig. 3).
    pub(crate) curve: Vec<CurvePoint>,
    /// From this cap on the rate does not change; none: it does up to the largest.
    pub(crate) threshold: Option<CpuShare>,
    /// The model of what is below.
    pub(crate) identified: Identified,
}

impl Training {
    /// Runs it, in the order that follows from `seed`, under the load that the caller sees to. The
    /// model is of the caps from `least` on.
    pub(crate) fn run_above(
        &self,
        on: &mut Loop<'_>,
        seed: u64,
        least: CpuShare,
    ) -> Result<Trained, ExperimentError> {
        let (taken, runs) = self.take(on, seed)?;
        let curve = curve(&runs);
        // The text's 1 kp/s is a hundredth of what it offered.
        let tolerance = PacketRate::from_pps((self.offered.as_pps() / 100).max(1));
        let threshold = cap_threshold(&curve, tolerance);
        let segments: Vec<Vec<Point>> = taken
            .split(|one| one.cap < least)
            .flat_map(|stretch| below(stretch, threshold))
            .collect();
        let slices: Vec<&[Point]> = segments.iter().map(Vec::as_slice).collect();
        let identified = fit(&slices).map_err(|error| ExperimentError::Node(error.to_string()))?;
        Ok(Trained { taken, curve, threshold, identified })
    }

    /// Runs it without making anything of it: every period, and the mean rate of each run.
    pub(crate) fn take(
        &self,
        on: &mut Loop<'_>,
        seed: u64,
    ) -> Result<(Vec<RouterSample>, Runs), ExperimentError> {
        let period = Nanos::from_secs(1);
        let plan =
            TrainingPlan::new(self.caps.clone(), vec![self.offered], self.repetitions, period);
        let plan = plan.map_err(|error| ExperimentError::Node(error.to_string()))?;
        let (mut taken, mut runs) = (Vec::new(), Vec::new());
        for step in plan.steps(seed) {
            let under = on.hold(step.cap, self.samples)?;
            runs.push((step.cap, mean(&under)));
            taken.extend(under);
        }
        Ok((taken, runs))
    }
}

impl Trained {
    /// The caps below the threshold.
    pub(crate) fn caps_below(&self) -> impl Iterator<Item = CpuShare> + '_ {
        let caps = self.curve.iter().map(|point| point.cap);
        caps.filter(|cap| self.threshold.is_none_or(|threshold| *cap < threshold))
    }
}

/// Stretches of periods whose caps are all below the threshold, as the fit takes them: the rate of
/// a period with the cap of the one after it.
pub(crate) fn below(taken: &[RouterSample], threshold: Option<CpuShare>) -> Vec<Vec<Point>> {
    let is_below = |one: &RouterSample| threshold.is_none_or(|threshold| one.cap < threshold);
    let stretches = taken.split(|one| !is_below(one)).filter(|stretch| stretch.len() > 1);
    let points = |stretch: &[RouterSample]| {
        let caps = stretch.iter().skip(1).chain(stretch.last()).map(|one| one.cap);
        stretch.iter().zip(caps).map(|(one, cap)| Point { rate: one.sample.rate(), cap }).collect()
    };
    stretches.map(points).collect()
}

/// What the first router of a lab forwards with its largest cap.
pub(crate) fn capacity(lab: &mut RouterLab) -> Result<PacketRate, ExperimentError> {
    let mut on = Loop::begin(lab, 0)?;
    let most = on.range()?.most();
    on.hold(most, 1)?;
    Ok(mean(&on.hold(most, CAPACITY_SAMPLES)?))
}

/// Packets by time, over all of them.
pub(crate) fn mean(taken: &[RouterSample]) -> PacketRate {
    let packets: u64 = taken.iter().map(|one| one.sample.packets).sum();
    let nanos: u64 = taken.iter().map(|one| one.sample.span.as_nanos()).sum();
    let all = weir_control::Sample { packets, span: Nanos::new(nanos), ..Default::default() };
    all.rate()
}

const CAPACITY_SAMPLES: usize = 3;

#[cfg(test)]
mod tests {
    use weir_control::Sample;

    use super::*;

    fn taken(percent: u32, packets: u64) -> RouterSample {
        let span = Nanos::from_secs(1);
        let sample = Sample { span, packets, ..Sample::default() };
        RouterSample { sample, cap: CpuShare::from_percent(percent), limit: None, reason: None }
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
    }
}
