// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A model of what forwarding costs a processor: what a planner needs to know how many slices a
//! node can carry.
//!
//! For one frame size the load of a processor grows with the packet rate: CPU = a · kpps + b
//! ([`CpuLine`], equation 2 of the IIP text). One surface over all sizes has a price a packet and a
//! price a byte: CPU = b + kpps · (α + β · bytes) ([`CpuSurface`]). A forwarder that sleeps between
//! packets also pays for each time that it wakes up, which is why the cost of a packet falls with
//! the rate; the wake-ups a second can be a further term.
//!
//! CPU is in percent of one processor throughout.

use serde::{Deserialize, Serialize};

use crate::least_squares::{LeastSquaresError, LinearFit};

/// A measured load of a processor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuPoint {
    /// Packets a second, in thousands.
    pub kpps: f64,
    /// Mean size of the frames in bytes.
    pub frame_bytes: f64,
    /// Wake-ups a second, in thousands; 0 where they are not known.
    pub wakeups_k: f64,
    /// The load of the processor, percent.
    pub cpu_percent: f64,
}

/// The load of a processor at one frame size: CPU = a · kpps + b.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuLine {
    fit: LinearFit,
}

/// The load of a processor over sizes: CPU = b + kpps · (α + β · bytes) [+ γ · wake-ups].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuSurface {
    fit: LinearFit,
    with_wakeups: bool,
}

impl CpuLine {
    /// Fits the points of one frame size.
    pub fn of(points: &[CpuPoint]) -> Result<Self, LeastSquaresError> {
        let rows: Vec<Vec<f64>> = points.iter().map(|point| vec![point.kpps, 1.0]).collect();
        Ok(Self { fit: LinearFit::of(&rows, &loads(points))? })
    }

    /// Returns percent for each thousand packets a second.
    pub fn slope(&self) -> f64 {
        coefficient(&self.fit, 0)
    }

    /// Returns percent without packets.
    pub fn offset(&self) -> f64 {
        coefficient(&self.fit, 1)
    }

    /// Returns the fit: terms kpps and 1.
    pub const fn fit(&self) -> &LinearFit {
        &self.fit
    }
}

impl CpuSurface {
    /// Fits points of several sizes, with the wake-ups as a term or without.
    pub fn of(points: &[CpuPoint], with_wakeups: bool) -> Result<Self, LeastSquaresError> {
        let rows: Vec<Vec<f64>> = points.iter().map(|point| terms(point, with_wakeups)).collect();
        Ok(Self { fit: LinearFit::of(&rows, &loads(points))?, with_wakeups })
    }

    /// Returns the load at a point, percent; its own `cpu_percent` is not looked at.
    pub fn predict(&self, point: &CpuPoint) -> f64 {
        self.fit.predict(&terms(point, self.with_wakeups))
    }

    /// Returns the load at a point that is not exceeded in 97.5 % of cases.
    pub fn upper(&self, point: &CpuPoint) -> f64 {
        self.fit.upper(&terms(point, self.with_wakeups))
    }

    /// Returns the price of a thousand packets a second of a size, percent.
    pub(crate) fn price(&self, frame_bytes: f64) -> f64 {
        coefficient(&self.fit, 1) + coefficient(&self.fit, 2) * frame_bytes
    }

    /// Returns why a surface that was read cannot be used for a forecast; `None` if it can.
    pub(crate) fn flaw(&self) -> Option<String> {
        if self.with_wakeups {
            return Some("it is one of wake-ups, which nobody knows beforehand".to_owned());
        }
        self.fit.flaw(terms(&CpuPoint::default(), self.with_wakeups).len())
    }

    /// Returns the fit: terms 1, kpps, kpps · bytes, and thousands of wake-ups a second if they are
    /// one.
    pub const fn fit(&self) -> &LinearFit {
        &self.fit
    }
}

fn terms(point: &CpuPoint, with_wakeups: bool) -> Vec<f64> {
    let mut terms = vec![1.0, point.kpps, point.kpps * point.frame_bytes];
    terms.extend(with_wakeups.then_some(point.wakeups_k));
    terms
}

fn loads(points: &[CpuPoint]) -> Vec<f64> {
    points.iter().map(|point| point.cpu_percent).collect()
}

fn coefficient(fit: &LinearFit, term: usize) -> f64 {
    fit.coefficients.get(term).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(sizes: &[f64], wakeup_cost: f64) -> Vec<CpuPoint> {
        let mut points = Vec::new();
        for frame_bytes in sizes {
            for step in 1..=10 {
                let kpps = f64::from(step) * 5.0;
                // A forwarder that is busier sleeps less often.
                let wakeups_k = kpps * (-kpps / 40.0).exp();
                let cost = 4.0 + kpps * (0.3 + 0.0002 * frame_bytes) + wakeup_cost * wakeups_k;
                points.push(CpuPoint {
                    kpps,
                    frame_bytes: *frame_bytes,
                    wakeups_k,
                    cpu_percent: cost,
                });
            }
        }
        points
    }

    #[test]
    fn a_surface_is_found_and_holds_between_its_sizes() {
        let surface = CpuSurface::of(&points(&[128.0, 512.0, 1518.0], 0.0), false).unwrap();
        let [b, packet, byte] = surface.fit().coefficients[..] else { panic!("three terms") };
        assert!((b - 4.0).abs() < 1e-6 && (packet - 0.3).abs() < 1e-8);
        assert!((byte - 0.0002).abs() < 1e-9);
        for point in points(&[1024.0], 0.0) {
            assert!((surface.predict(&point) - point.cpu_percent).abs() < 1e-6);
            assert!(surface.upper(&point) >= surface.predict(&point));
        }
    }

    #[test]
    fn wake_ups_are_what_bends_the_line() {
        let bent = points(&[128.0, 1518.0], 0.8);
        let without = CpuSurface::of(&bent, false).unwrap().fit().r_square;
        let with = CpuSurface::of(&bent, true).unwrap().fit().r_square;
        assert!(without < 0.999 && with > 0.999_999, "{without} {with}");
    }

    #[test]
    fn a_line_has_slope_and_offset() {
        let line = CpuLine::of(&points(&[1000.0], 0.0)).unwrap();
        assert!((line.slope() - 0.5).abs() < 1e-9 && (line.offset() - 4.0).abs() < 1e-9);
    }
}
