// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The CPU model of one node, as it is kept: the surface, with who fitted it, when and on what.
//!
//! A model holds for the hardware and for the rates that it was fitted on. Both are part of it, so
//! that whoever uses it can tell.

use serde::{Deserialize, Serialize};

use crate::model::{CpuPoint, CpuSurface};
use crate::procedures::SuiteResult;
use crate::report::cpu_points;

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
    /// The largest measured rate, thousand packets a second. Beyond it the model is a guess.
    pub kpps_max: f64,
    /// The fitted surface.
    pub surface: CpuSurface,
}

impl CpuModel {
    /// The version that is written.
    pub const VERSION: u32 = 1;

    /// The points of a measurement that a model is fitted to: loads up to the throughput.
    pub fn points(suite: &SuiteResult) -> Vec<CpuPoint> {
        suite.sizes.iter().flat_map(cpu_points).collect()
    }

    /// The processor time at a rate and a mean size of frames that is not exceeded in 97.5 % of
    /// cases, percent of a processor; `None` beyond the measured rates.
    pub fn upper(&self, kpps: f64, frame_bytes: f64) -> Option<f64> {
        let point = CpuPoint { kpps, frame_bytes, ..CpuPoint::default() };
        (kpps <= self.kpps_max).then(|| self.surface.upper(&point).max(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_ends_where_its_points_end() {
        let point = |kpps: f64, frame_bytes: f64| CpuPoint {
            kpps,
            frame_bytes,
            wakeups_k: 0.0,
            cpu_percent: 2.0 + kpps * (0.5 + 0.001 * frame_bytes),
        };
        let each = [128.0, 1518.0].into_iter();
        let points = each.flat_map(|bytes| [1.0, 5.0, 10.0].map(|kpps| point(kpps, bytes)));
        let surface = CpuSurface::of(&points.collect::<Vec<_>>(), false).unwrap();
        let text = || "x".to_owned();
        let model = CpuModel {
            version: CpuModel::VERSION,
            node: text(),
            fitted_by: text(),
            fitted_at: text(),
            processor: text(),
            cores: 2,
            kpps_max: 10.0,
            surface,
        };
        let upper = model.upper(8.0, 1000.0).unwrap();
        assert!((upper - 14.0).abs() < 1e-6, "2 + 8 · 1.5: {upper}");
        assert_eq!(model.upper(10.1, 1000.0), None);
    }
}
