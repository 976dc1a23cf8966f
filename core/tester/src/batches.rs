// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How often a forwarder wakes up at a load, so that its price a wake-up can be part of a forecast.
//!
//! **Problem.** A thread that sleeps between packets handles all that came meanwhile at once. The
//! busier its processor is, the more packets share a wake-up, and the less a packet costs: CPU over
//! packets is no line. Wake-ups as a term of their own explain the bend, but nobody knows them
//! beforehand.
//!
//! **Idea.** From the packet that wakes it until it sleeps again a thread takes a time d, and then
//! it waits for the next packet, 1/k on average at k packets a second. So it wakes up
//! k / (1 + k · d) times a second: with every packet at low loads, 1/d times at high ones. The
//! kernel counts c wake-ups for each. Both are fitted to counted wake-ups alone: processor time is
//! not looked at.

use crate::model::CpuPoint;

/// The wake-ups of a thread by its load: c · k / (1 + k · d).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchModel {
    /// Counted wake-ups for each time that the thread goes to work.
    pub wakeups: f64,
    /// The time from a wake-up until the thread sleeps again, ms.
    pub awake_ms: f64,
}

impl BatchModel {
    /// Fits counted wake-ups; `None` if none were counted.
    pub fn of(points: &[CpuPoint]) -> Option<Self> {
        let candidates = (0..STEPS).map(|step| {
            let awake_ms = AWAKE_MIN_MS * RATIO.powi(step);
            let shape = |point: &CpuPoint| point.kpps / (1.0 + point.kpps * awake_ms);
            let sum = |of: &dyn Fn(&CpuPoint) -> f64| points.iter().map(of).sum::<f64>();
            let square = sum(&|point| shape(point).powi(2));
            let wakeups = sum(&|point| shape(point) * point.wakeups_k) / square;
            let error = sum(&|point| (point.wakeups_k - wakeups * shape(point)).powi(2));
            (error, Self { wakeups, awake_ms })
        });
        let best = candidates.min_by(|(one, _), (other, _)| one.total_cmp(other));
        best.map(|(_, model)| model).filter(|model| model.wakeups > 0.0)
    }

    /// Returns the points as they would be if they had the wake-ups of the model.
    #[must_use]
    pub fn applied_to(&self, points: &[CpuPoint]) -> Vec<CpuPoint> {
        let wakeups = |kpps: f64| self.wakeups * kpps / (1.0 + kpps * self.awake_ms);
        let applied = |point: &CpuPoint| CpuPoint { wakeups_k: wakeups(point.kpps), ..*point };
        points.iter().map(applied).collect()
    }
}

/// The least time awake that is tried: 1 µs. Each further one is 2 % longer, up to 20 ms.
const AWAKE_MIN_MS: f64 = 0.001;
const RATIO: f64 = 1.02;
const STEPS: i32 = 500;

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: two wake-ups each time, awake for 0.1 ms: 10 kpps wake it 5000 times a second.
    #[test]
    fn wake_ups_are_found_again_and_predicted() {
        let counted = |kpps: f64| CpuPoint {
            kpps,
            wakeups_k: 2.0 * kpps / (1.0 + kpps * 0.1),
            ..CpuPoint::default()
        };
        let points: Vec<CpuPoint> = (1..=10).map(|step| counted(f64::from(step) * 5.0)).collect();
        let model = BatchModel::of(&points).unwrap();
        assert!((model.awake_ms / 0.1 - 1.0).abs() < 0.02, "{model:?}");
        let unknown = CpuPoint { kpps: 10.0, ..CpuPoint::default() };
        let [found] = model.applied_to(&[unknown])[..] else { panic!("one point") };
        assert!((found.wakeups_k - 10.0).abs() < 0.1, "{found:?}");
    }

    #[test]
    fn without_wake_ups_there_is_no_model() {
        let point = CpuPoint { kpps: 5.0, cpu_percent: 3.0, ..CpuPoint::default() };
        assert_eq!(BatchModel::of(&[point; 3]), None);
        assert_eq!(BatchModel::of(&[]), None);
    }
}
