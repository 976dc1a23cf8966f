// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loads that a search may measure: a logarithmic grid of whole packets a second.
//!
//! Two neighbours lie within the goal's width of each other, so that a search is over when its
//! bounds are neighbours, and every search between the same ends measures the same loads: results
//! of two runs are equal or differ by a known step. Steps are taken downwards from the top with
//! integers, which rounds the same on every machine.

use crate::error::SearchError;
use crate::ppm::{MILLION, Ppm};

/// Loads in packets a second, ascending, at least two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadGrid {
    loads: Vec<u64>,
}

impl LoadGrid {
    /// Returns a grid from `min` to `max` packets a second whose neighbours lie within `width` of
    /// the upper one, or 1 packet a second apart. Fails unless 0 < `min` < `max`, and with more
    /// than [`Self::LOADS_MAX`] loads.
    pub fn new(min: u64, max: u64, width: Ppm) -> Result<Self, SearchError> {
        if min == 0 || min >= max {
            return Err(SearchError::Loads { min, max });
        }
        let keep = u128::from(MILLION - width.get());
        let mut loads = vec![max];
        let mut load = max;
        while load > min {
            if loads.len() >= Self::LOADS_MAX {
                return Err(SearchError::GridTooFine { width, loads_max: Self::LOADS_MAX });
            }
            let below = (u128::from(load) * keep).div_ceil(u128::from(MILLION));
            load = u64::try_from(below).unwrap_or(load).min(load - 1).max(min);
            loads.push(load);
        }
        loads.reverse();
        Ok(Self { loads })
    }

    /// Returns the load at `index`, which is at most [`Self::top`].
    pub fn load(&self, index: usize) -> u64 {
        self.loads.get(index.min(self.top())).copied().unwrap_or(0)
    }

    /// Returns the index of the greatest load.
    pub const fn top(&self) -> usize {
        self.loads.len() - 1
    }

    /// Returns the index of the greatest load that is not above `load`; 0 if all are.
    pub fn floor(&self, load: u64) -> usize {
        self.loads.partition_point(|known| *known <= load).saturating_sub(1)
    }

    /// Says whether two loads are as close as `width` asks, or neighbours.
    pub fn is_within(&self, lower: usize, upper: usize, width: Ppm) -> bool {
        let (low, high) = (self.load(lower), self.load(upper));
        upper <= lower + 1 || !width.is_exceeded_by(high.saturating_sub(low), high)
    }

    /// Loads of a grid at most: 0.01 % of width over nine decades has 207 thousand.
    pub const LOADS_MAX: usize = 1 << 20;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_lie_within_the_width_and_both_ends_are_there() {
        for (min, max, ppm) in [(1, 1_000, 5_000), (1_000, 14_880_952, 5_000), (7, 8, 500_000)] {
            let grid = LoadGrid::new(min, max, Ppm::new(ppm)).unwrap();
            assert_eq!((grid.load(0), grid.load(grid.top())), (min, max));
            for index in 0..grid.top() {
                let (low, high) = (grid.load(index), grid.load(index + 1));
                let close = !Ppm::new(ppm).is_exceeded_by(high - low, high);
                assert!(low < high && (close || high - low == 1), "{low} {high}");
            }
        }
    }

    #[test]
    fn a_load_is_found_from_below() {
        let grid = LoadGrid::new(100, 1_000, Ppm::new(100_000)).unwrap();
        assert_eq!((grid.floor(1), grid.floor(100), grid.floor(u64::MAX)), (0, 0, grid.top()));
        for index in 0..=grid.top() {
            assert_eq!(grid.floor(grid.load(index)), index);
        }
    }

    #[test]
    fn bad_ends_and_too_fine_grids_are_refused() {
        let width = Ppm::new(100);
        assert!(LoadGrid::new(0, 1, width).is_err());
        assert!(LoadGrid::new(5, 5, width).is_err());
        assert!(LoadGrid::new(1, u64::MAX, Ppm::new(1)).is_err());
    }
}
