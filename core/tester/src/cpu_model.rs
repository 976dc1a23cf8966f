// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU model of one node, as it is kept: the surface, with who fitted it, when and on what.
//!
//! A model holds for the hardware, the frame sizes and the rates that it was fitted on. All are
//! part of it, so that whoever uses it can tell. A link carries fewer large frames a second than
//! small ones, so that each size has a largest rate of its own.
//!
//! The surface's constant, what the node takes as soon as it forwards, is a price of the node and
//! not of a flow: several flows pay it once ([`CpuModel::base`]).

use serde::{Deserialize, Serialize};

use crate::model::{CpuPoint, CpuSurface};
use crate::report::cpu_points;
use crate::suite::SuiteResult;

/// A model of what forwarding costs a node's processors.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuModel {
    /// Version of this form: [`CpuModel::VERSION`].
    pub version: u32,
    /// Name of the node, as who measured it says.
    pub node: String,
    /// The command that fitted it, with the version of the program.
    pub fitted_by: String,
    /// Start of the measurement, as a date of RFC 3339.
    pub fitted_at: String,
    /// Model name of the machine's processor.
    pub processor: String,
    /// Logical processors of the machine.
    pub cores: u32,
    /// The measured sizes, ascending, with the largest rate of each. Beyond them the model is a
    /// guess.
    pub measured: Vec<MeasuredSize>,
    /// The fitted surface, without wake-ups.
    pub surface: CpuSurface,
}

/// A frame size of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MeasuredSize {
    /// Mean size of the frames in bytes, with checksum.
    pub frame_bytes: f64,
    /// The largest measured rate, thousand packets a second.
    pub kpps_max: f64,
}

impl CpuModel {
    /// The version that is written.
    pub const VERSION: u32 = 2;

    /// Returns the points of a measurement that a model is fitted to: loads up to the throughput.
    pub fn points(suite: &SuiteResult) -> Vec<CpuPoint> {
        suite.sizes.iter().flat_map(cpu_points).collect()
    }

    /// Returns the sizes of points, with the largest rate of each.
    pub fn sizes(points: &[CpuPoint]) -> Vec<MeasuredSize> {
        let mut sizes: Vec<MeasuredSize> = Vec::new();
        for CpuPoint { kpps, frame_bytes, .. } in points {
            let same = |one: &&mut MeasuredSize| (one.frame_bytes - frame_bytes).abs() < 0.5;
            match sizes.iter_mut().find(same) {
                Some(size) => size.kpps_max = size.kpps_max.max(*kpps),
                None => sizes.push(MeasuredSize { frame_bytes: *frame_bytes, kpps_max: *kpps }),
            }
        }
        sizes.sort_by(|a, b| a.frame_bytes.total_cmp(&b.frame_bytes));
        sizes
    }

    /// Returns why a model that was read cannot be used; `None` if it can.
    pub fn flaw(&self) -> Option<String> {
        if self.version != Self::VERSION {
            return Some(format!("version is {}, {} is known", self.version, Self::VERSION));
        }
        if let Some(flaw) = self.surface.flaw() {
            return Some(format!("surface: {flaw}"));
        }
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let sound = |one: &MeasuredSize| positive(one.frame_bytes) && positive(one.kpps_max);
        let ascends = |two: &[MeasuredSize]| two[0].frame_bytes < two[1].frame_bytes;
        if self.measured.is_empty() || !self.measured.iter().all(sound) {
            return Some("measured: it needs sizes and rates above 0".to_owned());
        }
        if !self.measured.windows(2).all(ascends) {
            return Some("measured: the sizes do not ascend".to_owned());
        }
        let price = |one: &MeasuredSize| self.surface.price(one.frame_bytes);
        let free = self.measured.iter().find(|one| price(one) <= 0.0)?;
        let bytes = free.frame_bytes;
        Some(format!("surface: {:.3} % for 1000 frames of {bytes} bytes", price(free)))
    }

    /// Returns the processor time of a node that forwards, whatever it forwards, percent of a
    /// processor.
    ///
    /// A fit may have a constant below zero: a load that bends upwards, or noise at small rates. No
    /// node gives processor time back, so that such a node's base is zero.
    pub fn base(&self) -> f64 {
        self.constant().max(0.0)
    }

    /// Returns the processor time at a rate and a mean size of frames that is not exceeded in 97.5
    /// % of cases, beyond the [base](Self::base), percent of a processor; `None` beyond the
    /// measured rates and sizes.
    ///
    /// The constant is taken off as it was fitted, also below zero: each of several flows would
    /// count it as a discount otherwise, though the node has it once, if at all.
    pub fn upper(&self, kpps: f64, frame_bytes: f64) -> Option<f64> {
        let point = CpuPoint { kpps, frame_bytes, ..CpuPoint::default() };
        let known = self.kpps_max(frame_bytes).is_some_and(|most| kpps <= most);
        known.then(|| (self.surface.upper(&point) - self.constant()).max(0.0))
    }

    /// Returns the surface's constant as it was fitted.
    pub(crate) fn constant(&self) -> f64 {
        self.surface.predict(&CpuPoint::default())
    }

    /// Returns the largest measured rate of frames of a mean size, thousand packets a second:
    /// between two measured sizes the smaller of their rates, `None` beyond them.
    pub fn kpps_max(&self, frame_bytes: f64) -> Option<f64> {
        let at_most = self.measured.iter().rev().find(|one| one.frame_bytes <= frame_bytes + 0.5);
        let at_least = self.measured.iter().find(|one| one.frame_bytes >= frame_bytes - 0.5);
        Some(at_most?.kpps_max.min(at_least?.kpps_max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model() -> CpuModel {
        let point = |kpps: f64, frame_bytes: f64| CpuPoint {
            kpps,
            frame_bytes,
            wakeups_k: 0.0,
            cpu_percent: 2.0 + kpps * (0.5 + 0.001 * frame_bytes),
        };
        let each = [(1518.0, 10.0), (128.0, 50.0)].into_iter();
        let points =
            each.flat_map(|(bytes, most)| [1.0, most / 2.0, most].map(|x| point(x, bytes)));
        let points: Vec<_> = points.collect();
        let text = || "x".to_owned();
        CpuModel {
            version: CpuModel::VERSION,
            node: text(),
            fitted_by: text(),
            fitted_at: text(),
            processor: text(),
            cores: 2,
            measured: CpuModel::sizes(&points),
            surface: CpuSurface::of(&points, false).unwrap(),
        }
    }

    #[test]
    fn a_model_ends_where_its_points_end() {
        let model = model();
        assert_eq!(model.flaw(), None);
        let upper = model.upper(8.0, 1000.0).unwrap();
        assert!((model.base() - 2.0).abs() < 1e-6 && (upper - 12.0).abs() < 1e-6, "8 · 1.5");
        assert_eq!(model.upper(10.1, 1000.0), None, "1518 bytes were measured up to 10");
        assert!(model.upper(50.0, 128.0).is_some() && model.upper(50.1, 128.0).is_none());
        assert!(model.upper(1.0, 64.0).is_none() && model.upper(1.0, 1600.0).is_none());
    }

    /// Goal: several flows of a node whose loads bend upwards are not forecast below what such a
    /// node takes, though the fitted constant is below zero.
    #[test]
    fn a_constant_below_zero_is_no_discount() {
        let load = |kpps: f64| kpps.powi(2) / 50.0;
        let point = |kpps: f64, frame_bytes: f64| CpuPoint {
            kpps,
            frame_bytes,
            wakeups_k: 0.0,
            cpu_percent: load(kpps),
        };
        let rates: Vec<f64> = (1..=10).map(|step| f64::from(step) * 5.0).collect();
        let points: Vec<_> = [128.0, 1518.0]
            .into_iter()
            .flat_map(|bytes| rates.iter().map(move |kpps| point(*kpps, bytes)))
            .collect();
        let measured = CpuModel::sizes(&points);
        let surface = CpuSurface::of(&points, false).unwrap();
        let model = CpuModel { measured, surface, ..model() };
        assert!(model.constant() < -1.0 && model.base().abs() < 1e-9, "{}", model.constant());
        for flows in [1.0, 2.0, 5.0, 10.0] {
            let each = model.upper(50.0 / flows, 128.0).unwrap();
            let sum = model.base() + flows * each;
            assert!(sum >= load(50.0), "{flows} flows: {sum} below {}", load(50.0));
        }
        assert!(model.upper(0.0, 128.0).unwrap() > 0.0, "the interval has a width everywhere");
    }

    #[test]
    fn a_broken_model_is_none() {
        let broken = |change: &dyn Fn(&mut CpuModel)| {
            let mut model = model();
            change(&mut model);
            model.flaw().unwrap()
        };
        assert_eq!(broken(&|model| model.version = 1), "version is 1, 2 is known");
        let none = "measured: it needs sizes and rates above 0";
        assert_eq!(broken(&|model| model.measured.clear()), none);
        assert_eq!(broken(&|model| model.measured[0].kpps_max = f64::INFINITY), none);
        assert_eq!(broken(&|model| model.measured[0].frame_bytes = f64::NAN), none);
        let order = broken(&|model| model.measured[1].frame_bytes = 64.0);
        assert_eq!(order, "measured: the sizes do not ascend");
        // With wake-ups as a term, loads that fall with the rate, and too few points.
        let point = |kpps: f64, frame_bytes: f64, slope: f64| CpuPoint {
            kpps,
            frame_bytes,
            wakeups_k: kpps * kpps,
            cpu_percent: 9.0 + slope * kpps,
        };
        let surface = |slope: f64, woken: bool| {
            let points: Vec<_> = [128.0, 1518.0]
                .into_iter()
                .flat_map(|bytes| [1.0, 5.0, 10.0].map(|kpps| point(kpps, bytes, slope)))
                .collect();
            CpuSurface::of(&points, woken).unwrap()
        };
        let woken = broken(&|model| model.surface = surface(0.5, true));
        assert_eq!(woken, "surface: it is one of wake-ups, which nobody knows beforehand");
        let falls = broken(&|model| model.surface = surface(-0.5, false));
        assert_eq!(falls, "surface: -0.500 % for 1000 frames of 128 bytes");
    }
}
