// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ways to hold a router at a rate that are compared with each other: the text's, with its poles on
//! the lab's own a and b, and Weir's two.

use weir_control::identify::{CurvePoint, Identified};
use weir_control::{
    CapRange, Combined, CombinedConfig, Controller, DeadZone, FeedForward, FeedForwardConfig,
    FixedCap, FixedMap, Gains, Model, Pi, PiConfig, Poles,
};
use weir_experiment::prelude::*;
use weir_units::CpuShare;

use super::sampling::{Loop, RouterSample};
use super::training::{Trained, Training};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Weir's default: a limit at ingress, under a ceiling.
    Combined,
    /// Weir's controller of the cap alone.
    FeedForward,
    /// The text's PI by its poles, with that least cap.
    Pi(LeastCap),
    /// The text's dead-beat, with that least cap.
    DeadBeat(LeastCap),
    /// The text's static map from rate to cap (Table 1).
    Fixed,
}

/// The text's `cap_min`, in percent of a processor (§7.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastCap(pub u32);

impl LeastCap {
    /// The least that Xen takes.
    pub const DEFAULT: Self = Self(1);
    /// What the text chose.
    pub const CHOSEN: Self = Self(3);
}

impl Contender {
    /// Its name, as in a legend.
    pub fn name(self) -> String {
        let least = |name: &str, least: LeastCap| match least {
            LeastCap::DEFAULT => name.to_owned(),
            LeastCap(percent) => format!("{name}, least cap {percent} %"),
        };
        match self {
            Self::Combined => "Weir, bucket".to_owned(),
            Self::FeedForward => "Weir, cap alone".to_owned(),
            Self::Pi(cap) => least("PI", cap),
            Self::DeadBeat(cap) => least("dead-beat", cap),
            Self::Fixed => "Fixed Cap".to_owned(),
        }
    }

    /// Its name, as in identifiers.
    pub fn key(self) -> String {
        match self {
            Self::Combined => "weir".to_owned(),
            Self::FeedForward => "weir-cap".to_owned(),
            Self::Pi(LeastCap(percent)) => format!("pi-{percent}"),
            Self::DeadBeat(LeastCap(percent)) => format!("dead-beat-{percent}"),
            Self::Fixed => "fixed".to_owned(),
        }
    }

    /// From one decision to the next, as it is best.
    pub(crate) const fn period(self) -> Nanos {
        match self {
            Self::FeedForward => PERIOD_CAP_ALONE,
            _ => PERIOD_TEXT,
        }
    }
}

/// What controllers are made of that need a training.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    map: FixedMap,
    identified: Identified,
}

impl Known {
    /// Caps from the least to the largest, and what each gives; the model's caps begin at 5 %, as
    /// the text's.
    pub(crate) fn learn(on: &mut Loop<'_>, offered: PacketRate) -> Result<Self, ExperimentError> {
        let range = on.range()?;
        let percents = [1, 2, 3, 5, 8, 12, 18, 27, 40, 50, 60, 70, 85, 100];
        let caps = percents.map(CpuShare::from_percent).into_iter();
        let caps = caps.filter(|cap| (range.least()..=range.most()).contains(cap)).collect();
        let training = Training { caps, offered, repetitions: 1, samples: 2 };
        let least = CpuShare::from_percent(MODEL_PERCENT);
        Self::of(&training.run_above(on, SEED, least)?)
    }

    fn of(trained: &Trained) -> Result<Self, ExperimentError> {
        let map = FixedMap::new(rising(&trained.curve));
        let map = map.map_err(|error| ExperimentError::Node(error.to_string()))?;
        Ok(Self { map, identified: trained.identified })
    }

    /// The text's a and b, of this router.
    pub(crate) const fn model(&self) -> Model {
        self.identified.model
    }

    /// A controller that knows nothing else, starting from the largest cap.
    pub(crate) fn controller(
        &self,
        contender: Contender,
        range: CapRange,
        set_point: PacketRate,
    ) -> Result<Box<dyn Controller + Send>, ExperimentError> {
        let start = range.most();
        let pi = |gains, least| {
            let (range, dead_zone) = (above(range, least)?, DeadZone::PUBLISHED);
            let config = PiConfig { gains, range, dead_zone };
            Ok::<Box<dyn Controller + Send>, ExperimentError>(Box::new(Pi::new(
                config, set_point, start,
            )))
        };
        Ok(match contender {
            Contender::Combined => {
                Box::new(Combined::new(CombinedConfig::new(range), set_point, start))
            }
            Contender::FeedForward => cap_alone(range, set_point),
            Contender::Pi(least) => {
                let (re, im) = POLES;
                let poles = Poles::pair(re, im);
                let poles = poles.map_err(|error| ExperimentError::Node(error.to_string()))?;
                pi(Gains::place(self.model(), poles), least)?
            }
            Contender::DeadBeat(least) => pi(Gains::dead_beat(self.model()), least)?,
            Contender::Fixed => Box::new(FixedCap::new(self.map.clone(), range, set_point)),
        })
    }
}

/// Weir's controller of the cap alone, which needs no training, starting from the largest cap.
pub(crate) fn cap_alone(range: CapRange, set_point: PacketRate) -> Box<dyn Controller + Send> {
    Box::new(FeedForward::new(FeedForwardConfig::new(range), set_point, range.most()))
}

/// Has a controller hold a set-point for so many samples, from the largest cap on.
pub(crate) fn hold(
    on: &mut Loop<'_>,
    controller: Box<dyn Controller + Send>,
    set_point: PacketRate,
    samples: usize,
) -> Result<Vec<RouterSample>, ExperimentError> {
    on.free()?;
    on.activate(controller, set_point)?;
    on.follow(samples)
}

/// The caps of a range from the least one of a contender on.
fn above(range: CapRange, LeastCap(percent): LeastCap) -> Result<CapRange, ExperimentError> {
    let least = CpuShare::from_percent(percent).clamp(range.least(), range.most());
    let range = CapRange::new(least..=range.most(), range.grain());
    range.map_err(|error| ExperimentError::Node(error.to_string()))
}

/// The points of a curve as a map takes them: a cap that gives no more than a smaller one is left
/// out.
fn rising(curve: &[CurvePoint]) -> Vec<(PacketRate, CpuShare)> {
    let mut points: Vec<(PacketRate, CpuShare)> = Vec::new();
    for point in curve {
        if points.last().is_none_or(|(rate, _)| *rate < point.mean) {
            points.push((point.mean, point.cap));
        }
    }
    points
}

/// The text's sampling period (§5.1).
pub(crate) const PERIOD_TEXT: Nanos = Nanos::from_secs(1);

/// What packets cost changes from second to second, so that what one second misses is made good in
/// it. Shorter periods have a larger least cap ([`weir_platform::cap::QuotaShape`]): 3 % at this.
const PERIOD_CAP_ALONE: Nanos = Nanos::from_millis(100);

/// The published pair: real part, imaginary part.
const POLES: (f64, f64) = (0.2445, 0.3766);

/// The model's caps, as the text's training has them.
const MODEL_PERCENT: u32 = 5;
const SEED: u64 = 7;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_leaves_out_caps_that_give_no_more() {
        let point = |percent, rate| CurvePoint {
            cap: CpuShare::from_percent(percent),
            mean: PacketRate::from_pps(rate),
            interval: None,
            runs: 1,
        };
        let points = rising(&[point(1, 10), point(2, 8), point(3, 20), point(4, 20)]);
        assert_eq!(points.len(), 2);
        assert!(FixedMap::new(points).is_ok());
    }

    #[test]
    fn a_least_cap_narrows_the_range_and_never_leaves_it() {
        let range = CapRange::WHOLE;
        assert_eq!(above(range, LeastCap(3)).unwrap().least(), CpuShare::from_percent(3));
        assert_eq!(above(range, LeastCap(0)).unwrap().least(), range.least());
        assert_eq!(above(range, LeastCap(400)).unwrap().least(), range.most());
    }
}
