// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fixed Cap: a map from set-point to cap, and no feedback.
//!
//! *Role*: the baseline (§7.1): how much of a variation is the cap's own, and what feedback is
//! worth when something disturbs. *Synopsis*: [`FixedCap::new`]. *Cost*: a search in the map when
//! the set-point changes. *What it does not do*: look at a sample.

use alloc::vec::Vec;
use core::fmt;

use weir_units::{CpuShare, Instant, PacketRate};

use crate::action::LastRequest;
use crate::number::float;
use crate::{Action, ActionReason, CapRange, Controller, Sample, Settings};

/// Caps by the rate that each gave, measured beforehand. Straight lines lie between them, and the
/// nearest one beyond the ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FixedMap {
    points: Vec<(PacketRate, CpuShare)>,
}

/// Why a list is no map.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FixedMapError {
    /// No points, or more than [`FixedMap::POINTS_MAX`].
    Count(usize),
    /// A rate that is not above the one before it.
    Order {
        /// Its place, counted from 0.
        index: usize,
    },
}

/// The controller that follows a [`FixedMap`].
#[derive(Clone, Debug)]
pub struct FixedCap {
    map: FixedMap,
    range: CapRange,
    set_point: PacketRate,
    cap: CpuShare,
    /// True while the cap of another controller stays, until the set-point changes.
    adopted: bool,
    last_request: LastRequest,
}

impl FixedMap {
    /// The most points of a map.
    pub const POINTS_MAX: usize = 256;

    /// A map through these points, by rising rate.
    ///
    /// # Errors
    /// None, too many, or out of order.
    pub fn new(points: Vec<(PacketRate, CpuShare)>) -> Result<Self, FixedMapError> {
        if points.is_empty() || points.len() > Self::POINTS_MAX {
            return Err(FixedMapError::Count(points.len()));
        }
        let fault = points.windows(2).position(|pair| pair[0].0 >= pair[1].0);
        match fault {
            Some(index) => Err(FixedMapError::Order { index: index + 1 }),
            None => Ok(Self { points }),
        }
    }

    /// The cap for a set-point, in parts per million.
    fn ppm(&self, set_point: PacketRate) -> f64 {
        let ppm = |cap: CpuShare| f64::from(cap.as_ppm());
        let above = self.points.partition_point(|(rate, _)| *rate < set_point);
        let (Some(&(high, upper)), Some(&(low, lower))) =
            (self.points.get(above), above.checked_sub(1).and_then(|at| self.points.get(at)))
        else {
            let end = if above == 0 { self.points.first() } else { self.points.last() };
            return end.map_or(0.0, |(_, cap)| ppm(*cap));
        };
        let part = float(set_point.as_pps() - low.as_pps()) / float(high.as_pps() - low.as_pps());
        ppm(lower) + part * (ppm(upper) - ppm(lower))
    }
}

impl FixedCap {
    /// Makes a controller that sets the cap of the map for `set_point`.
    #[must_use]
    pub fn new(map: FixedMap, range: CapRange, set_point: PacketRate) -> Self {
        let cap = range.nearest(map.ppm(set_point));
        Self { map, range, set_point, cap, adopted: false, last_request: LastRequest::default() }
    }

    fn action(&mut self, at: Instant) -> Action {
        let reason = if self.adopted { ActionReason::Adopted } else { ActionReason::Map };
        self.last_request.act(at, self.cap, None, reason)
    }
}

impl Controller for FixedCap {
    fn name(&self) -> &'static str {
        "fixed"
    }

    fn set_point(&self) -> PacketRate {
        self.set_point
    }

    fn step(&mut self, now: Instant, _: &Sample) -> Action {
        self.action(now)
    }

    fn change_set_point(&mut self, now: Instant, set_point: PacketRate) -> Action {
        self.set_point = set_point;
        self.cap = self.range.nearest(self.map.ppm(set_point));
        self.adopted = false;
        self.action(now)
    }

    /// The cap stays until the set-point changes: the map knows better only where nothing disturbs.
    fn adopt(&mut self, _: Instant, in_force: Settings, sample: Option<&Sample>) {
        self.cap = self.range.clamp(in_force.binding(sample));
        self.adopted = true;
        self.last_request.forget();
    }
}

impl fmt::Display for FixedMapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => {
                write!(f, "a map of {count} points, must have 1 to {}", FixedMap::POINTS_MAX)
            }
            Self::Order { index } => {
                write!(f, "the rate of point {index} is not above the one before it")
            }
        }
    }
}

impl core::error::Error for FixedMapError {}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn kpps(kpps: u64) -> PacketRate {
        PacketRate::from_pps(kpps * 1000)
    }

    /// The first lines of the text's Table 1.
    fn table_1() -> FixedMap {
        let percent = CpuShare::from_percent;
        let points = [(16, 5), (32, 10), (50, 15), (65, 20), (77, 25), (85, 30)];
        FixedMap::new(points.map(|(rate, cap)| (kpps(rate), percent(cap))).to_vec()).unwrap()
    }

    #[test]
    fn caps_are_those_of_the_table_and_lines_between() {
        let percent = CpuShare::from_percent;
        let range = CapRange::new(percent(1)..=percent(100), percent(1)).unwrap();
        let mut fixed = FixedCap::new(table_1(), range, kpps(50));
        let now = Instant::ZERO;
        assert_eq!(fixed.step(now, &Sample::default()).cap, percent(15));
        for (rate, cap) in [(16, 5), (24, 8), (1, 5), (85, 30), (1000, 30)] {
            assert_eq!(fixed.change_set_point(now, kpps(rate)).cap, percent(cap), "{rate}");
        }
    }

    #[test]
    fn an_adopted_cap_stays_until_the_set_point_changes() {
        let percent = CpuShare::from_percent;
        let range = CapRange::new(percent(1)..=percent(100), percent(1)).unwrap();
        let mut fixed = FixedCap::new(table_1(), range, kpps(50));
        fixed.adopt(Instant::ZERO, Settings::capped(percent(18)), None);
        let action = fixed.step(Instant::ZERO, &Sample::default());
        assert_eq!((action.cap, action.reason), (percent(18), ActionReason::Adopted));
        let action = fixed.change_set_point(Instant::ZERO, kpps(50));
        assert_eq!(
            (action.cap, action.reason, action.changed),
            (percent(15), ActionReason::Map, true)
        );
    }

    #[test]
    fn what_is_no_map_is_refused() {
        assert_eq!(FixedMap::new(vec![]), Err(FixedMapError::Count(0)));
        let twice = vec![(kpps(1), CpuShare::ONE), (kpps(1), CpuShare::ONE)];
        assert_eq!(FixedMap::new(twice), Err(FixedMapError::Order { index: 1 }));
        let many = (0..257).map(|rate| (kpps(rate), CpuShare::ONE)).collect();
        assert_eq!(FixedMap::new(many), Err(FixedMapError::Count(257)));
    }
}
