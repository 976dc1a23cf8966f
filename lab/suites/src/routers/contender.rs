// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The compared ways to hold a router at a rate: the text's controllers, with its poles on the
//! lab's own a and b, and Weir's two.

use weir_control::Model;
use weir_control::identify::CurvePoint;
use weir_experiment::prelude::*;
use weir_policy::{ControllerKind, Decimal, RouterModel, XtcState};
use weir_units::CpuShare;

use super::lab::RouterLab;
use super::training::{CapUnit, Training};

/// A way to hold a router at a rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contender {
    /// Weir's default: a limit at ingress, under a ceiling.
    Combined,
    /// Weir's controller of the cap alone.
    FeedForward,
    /// The text's PI by its poles, with a least cap.
    Pi(LeastCap),
    /// The text's dead-beat, with a least cap.
    DeadBeat(LeastCap),
    /// The text's static map from rate to cap (Table 1).
    Fixed,
}

/// The text's `cap_min`, in percent of a processor (§7.2.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeastCap(pub u32);

impl LeastCap {
    /// The least cap that Xen accepts.
    pub const DEFAULT: Self = Self(1);
    /// The text's choice.
    pub const CHOSEN: Self = Self(3);
}

impl Contender {
    /// Returns the contender's name in a legend.
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

    /// Returns the contender's name in identifiers.
    pub fn key(self) -> String {
        match self {
            Self::Combined => "weir".to_owned(),
            Self::FeedForward => "weir-cap".to_owned(),
            Self::Pi(LeastCap(percent)) => format!("pi-{percent}"),
            Self::DeadBeat(LeastCap(percent)) => format!("dead-beat-{percent}"),
            Self::Fixed => "fixed".to_owned(),
        }
    }

    const fn controller(self) -> ControllerKind {
        match self {
            Self::Combined => ControllerKind::Combined,
            Self::FeedForward => ControllerKind::FeedForward,
            Self::Pi(_) => ControllerKind::Pi,
            Self::DeadBeat(_) => ControllerKind::DeadBeat,
            Self::Fixed => ControllerKind::Fixed,
        }
    }

    /// Returns the best time from one decision to the next.
    pub(crate) const fn period(self) -> Nanos {
        match self {
            Self::FeedForward => PERIOD_CAP_ALONE,
            _ => PERIOD_TEXT,
        }
    }
}

/// The knowledge of controllers that need a training of the router; the others need none.
#[derive(Clone, Debug, Default)]
pub(crate) struct RouterKnowledge {
    map: Vec<(PacketRate, CpuShare)>,
    model: Option<Model>,
}

impl RouterKnowledge {
    /// Learns the rate under caps from the least to the largest. The model's caps begin at 5 %, as
    /// in the text.
    pub(crate) fn learn(lab: &mut RouterLab, offered: PacketRate) -> Result<Self, ExperimentError> {
        let percents = vec![1, 2, 3, 5, 8, 12, 18, 27, 40, 50, 60, 70, 85, 100];
        let training = Training {
            unit: CapUnit::Processor,
            percents,
            least_percent: MODEL_PERCENT,
            repetitions: 1,
            samples: 2,
            unseen: false,
        };
        let trained = training.train(lab, CpuShare::ONE, offered, SEED)?;
        Ok(Self { map: rising(&trained.curve), model: Some(trained.identified.model) })
    }

    /// Returns the text's a and b, for this router.
    pub(crate) fn model(&self) -> [f64; 2] {
        self.model.map_or([f64::NAN; 2], |model| [model.a(), model.b()])
    }

    /// Has the node hold the first router of a lab at a rate, from its largest cap on, deciding
    /// every `period`.
    pub(crate) fn hold(
        &self,
        lab: &mut RouterLab,
        contender: Contender,
        period: Nanos,
        set_point: PacketRate,
    ) -> Result<(), ExperimentError> {
        // The text's controllers have a least cap and a dead zone of their own.
        let (least, zone) = match contender {
            Contender::Pi(least) | Contender::DeadBeat(least) => (Some(least), Some(DEAD_ZONE)),
            Contender::Combined | Contender::FeedForward | Contender::Fixed => (None, None),
        };
        lab.release(0)?;
        lab.control(0, |xtc| {
            xtc.controller = contender.controller();
            xtc.cap_min = least.map(|LeastCap(percent)| CpuShare::from_percent(percent));
            xtc.dead_zone = zone;
            xtc.model = self
                .model
                .map(|model| RouterModel { a: decimal(model.a()), b: decimal(model.b()) });
            xtc.map.clone_from(&self.map);
            (xtc.period, xtc.set_point, xtc.state) = (period, Some(set_point), XtcState::Active);
        })?;
        // Fails if the node could not take the router, which then has no cap.
        lab.cap(0).map(drop)
    }
}

/// Rounds to six digits.
#[expect(clippy::cast_possible_truncation, reason = "it saturates")]
fn decimal(value: f64) -> Decimal {
    Decimal((value * 1e6).round() as i64)
}

/// Returns the points of a curve for a map, without caps that give no more than a smaller one.
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

/// The cost of a packet changes from second to second: the error of a second is compensated within
/// it. Shorter periods have a larger least cap ([`weir_platform::cap::QuotaShape`]): 3 % at this
/// one.
const PERIOD_CAP_ALONE: Nanos = Nanos::from_millis(100);

/// The text's dead zone: errors of a tenth of the set-point do not move the cap.
const DEAD_ZONE: u32 = 100;

/// The least cap of the model, as in the text's training.
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
        assert!(weir_control::FixedMap::new(points).is_ok());
    }
}
