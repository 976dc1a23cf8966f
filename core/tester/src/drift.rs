// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Watches in production whether a node's CPU model still holds.
//!
//! A model is fitted once, on an idle machine. Then come kernels, microcode, drivers, neighbours in
//! the cache, and a plan that rests on it may promise too much. So a node compares its worker's
//! processor time with the model's forecast at the load that it really has.
//!
//! One window proves nothing: 2.5 % of sound windows lie above the model's own 95 % interval, and a
//! machine stands still now and then. A drift is told once [`DRIFT_WINDOWS`] windows in a row lie
//! outside the interval, on the same side, by more than [`DRIFT_POINTS`]; by chance alone that
//! happens once in 4 · 10⁹ windows. It ends once as many in a row do not. Windows without packets,
//! and loads that the model was not measured with, are no evidence for either.

use crate::cpu_model::CpuModel;
use crate::model::CpuPoint;
use crate::scale::float;

/// The load of a worker over some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuWindow {
    /// Its length, nanoseconds.
    pub span_ns: u64,
    /// Frames forwarded.
    pub packets: u64,
    /// Their bytes, with checksums.
    pub bytes: u64,
    /// Processor time of the worker, nanoseconds.
    pub cpu_ns: u64,
}

/// The relation of a worker's processor time to its model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DriftSide {
    /// It is as the model says.
    #[default]
    Within,
    /// It takes more: plans that rest on the model promise too much.
    Above,
    /// It takes less: plans leave room unused.
    Below,
}

/// One window beside the model, percent of a processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DriftReading {
    /// The measured processor time.
    pub measured: f64,
    /// The forecast; `None` beyond what the model was measured with, or without packets.
    pub forecast: Option<CpuForecast>,
    /// The load.
    pub point: CpuPoint,
}

/// A forecast with the bounds beyond which a window counts as drifted, percent of a processor.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CpuForecast {
    /// The expected processor time.
    pub expected: f64,
    /// The least that counts as expected.
    pub least: f64,
    /// The most that counts as expected.
    pub most: f64,
}

/// The watch over one model.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuDriftWatch {
    told: DriftSide,
    latest: DriftSide,
    /// Windows in a row that were as the latest.
    streak: u32,
}

impl CpuDriftWatch {
    /// Compares a window with the model.
    pub fn record(&mut self, model: &CpuModel, window: &CpuWindow) -> DriftReading {
        let reading = DriftReading::of(model, window);
        if let Some(side) = reading.side() {
            self.streak = if side == self.latest { self.streak.saturating_add(1) } else { 1 };
            self.latest = side;
            if self.streak >= DRIFT_WINDOWS {
                self.told = side;
            }
        }
        reading
    }

    /// Returns the side on which it drifted, if it has.
    pub const fn side(&self) -> DriftSide {
        self.told
    }
}

impl DriftReading {
    fn of(model: &CpuModel, window: &CpuWindow) -> Self {
        let span = float(window.span_ns.max(1));
        let frame_bytes = float(window.bytes) / float(window.packets.max(1));
        // Packets a nanosecond to thousands a second.
        let kpps = float(window.packets) * 1e6 / span;
        let point = CpuPoint { kpps, frame_bytes, ..CpuPoint::default() };
        let measured = float(window.cpu_ns) * 100.0 / span;
        let known = model.upper(kpps, frame_bytes).filter(|_| window.packets > 0);
        let forecast = known.map(|above_constant| {
            let expected = model.surface.predict(&point).max(0.0);
            let upper = model.constant() + above_constant;
            let half = (upper - expected).max(0.0) + DRIFT_POINTS;
            CpuForecast { expected, least: expected - half, most: expected + half }
        });
        Self { measured, forecast, point }
    }

    fn side(&self) -> Option<DriftSide> {
        let CpuForecast { least, most, .. } = self.forecast?;
        Some(match self.measured {
            measured if measured > most => DriftSide::Above,
            measured if measured < least => DriftSide::Below,
            _ => DriftSide::Within,
        })
    }
}

/// Windows in a row that make a drift, and that end one.
pub const DRIFT_WINDOWS: u32 = 6;
/// Points of a processor beyond the model's interval, as much as a plan may be exceeded by.
pub const DRIFT_POINTS: f64 = 3.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::CpuSurface;

    /// Returns a model of 2 % and half a per cent for a thousand packets, at 100 to 1500 bytes, up
    /// to 40 kpps.
    fn model() -> CpuModel {
        let points: Vec<CpuPoint> = [100.0, 1500.0]
            .into_iter()
            .flat_map(|frame_bytes| {
                [1.0, 20.0, 40.0].map(|kpps| CpuPoint {
                    kpps,
                    frame_bytes,
                    wakeups_k: 0.0,
                    cpu_percent: 2.0 + kpps / 2.0,
                })
            })
            .collect();
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

    /// Returns ten seconds at so many packets a second, of 1000 bytes, at so many percent.
    fn window(pps: u64, percent: u64) -> CpuWindow {
        let span_ns = 10_000_000_000;
        let packets = pps * 10;
        CpuWindow { span_ns, packets, bytes: packets * 1000, cpu_ns: span_ns / 100 * percent }
    }

    #[test]
    fn only_windows_in_a_row_beyond_the_bound_are_a_drift() {
        let (model, mut watch) = (model(), CpuDriftWatch::default());
        let reading = watch.record(&model, &window(20_000, 12));
        let forecast = reading.forecast.unwrap();
        assert!((forecast.expected - 12.0).abs() < 1e-6 && (forecast.most - 15.0).abs() < 1e-6);
        // 15 % are the bound: 14 % never drift, 16 % do, and one sound window starts anew.
        for _ in 0..20 {
            watch.record(&model, &window(20_000, 14));
        }
        assert_eq!(watch.side(), DriftSide::Within);
        for percent in [16, 16, 16, 16, 16, 14, 16, 16, 16, 16, 16] {
            watch.record(&model, &window(20_000, percent));
            assert_eq!(watch.side(), DriftSide::Within);
        }
        watch.record(&model, &window(20_000, 16));
        assert_eq!(watch.side(), DriftSide::Above);
        for _ in 0..5 {
            watch.record(&model, &window(20_000, 12));
        }
        assert_eq!(watch.side(), DriftSide::Above, "five sound windows do not end it");
        watch.record(&model, &window(20_000, 12));
        assert_eq!(watch.side(), DriftSide::Within);
        for _ in 0..6 {
            watch.record(&model, &window(20_000, 8));
        }
        assert_eq!(watch.side(), DriftSide::Below);
    }

    #[test]
    fn loads_that_the_model_does_not_know_are_no_evidence() {
        let (model, mut watch) = (model(), CpuDriftWatch::default());
        for _ in 0..20 {
            assert_eq!(watch.record(&model, &window(50_000, 90)).forecast, None);
            assert_eq!(watch.record(&model, &window(0, 90)).forecast, None);
        }
        assert_eq!(watch.side(), DriftSide::Within);
        for _ in 0..6 {
            watch.record(&model, &window(20_000, 40));
        }
        watch.record(&model, &window(50_000, 10));
        assert_eq!(watch.side(), DriftSide::Above, "nor do they end a drift");
    }
}
