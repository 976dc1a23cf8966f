// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The caps that an actuator can set.

use core::fmt;
use core::ops::RangeInclusive;

use weir_units::CpuShare;

use crate::number::whole;

/// From the least cap to the largest, in steps of the actuator's grain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapRange {
    least: CpuShare,
    most: CpuShare,
    grain: CpuShare,
}

/// Why a range is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CapRangeError {
    /// The least cap is zero, at which a router could never show what it can do.
    NoLeast,
    /// The least cap is above the largest.
    Empty {
        /// The range.
        range: RangeInclusive<CpuShare>,
    },
    /// The step is zero.
    NoGrain,
}

impl CapRange {
    /// Caps in `range`, in multiples of `grain` (both ends are reached even where they are none).
    ///
    /// The text's range on Xen is 1 to 100 % in steps of 1 %; it chose 3 % as the least (§7.2.2).
    ///
    /// # Errors
    /// There is no such cap, or zero would be one.
    pub fn new(range: RangeInclusive<CpuShare>, grain: CpuShare) -> Result<Self, CapRangeError> {
        let (least, most) = (*range.start(), *range.end());
        if least == CpuShare::ZERO {
            return Err(CapRangeError::NoLeast);
        }
        if grain == CpuShare::ZERO {
            return Err(CapRangeError::NoGrain);
        }
        if least > most {
            return Err(CapRangeError::Empty { range });
        }
        Ok(Self { least, most, grain })
    }

    /// 1 % to a whole processor in steps of 0.1 %: where nothing else is known.
    pub const WHOLE: Self = Self {
        least: CpuShare::from_percent(1),
        most: CpuShare::ONE,
        grain: CpuShare::from_ppm(1000),
    };

    /// The least cap.
    #[must_use]
    pub const fn least(self) -> CpuShare {
        self.least
    }

    /// The largest cap.
    #[must_use]
    pub const fn most(self) -> CpuShare {
        self.most
    }

    /// The step between caps.
    #[must_use]
    pub const fn grain(self) -> CpuShare {
        self.grain
    }

    /// The cap of the range that is nearest to `cap`.
    #[must_use]
    pub fn clamp(self, cap: CpuShare) -> CpuShare {
        self.nearest(f64::from(cap.as_ppm()))
    }

    /// The cap of the range that is nearest to `ppm`.
    pub(crate) fn nearest(self, ppm: f64) -> CpuShare {
        let inside = ppm.min(f64::from(self.most.as_ppm()));
        let grain = u64::from(self.grain.as_ppm());
        let steps = whole(inside / f64::from(self.grain.as_ppm()));
        let rounded = u32::try_from(steps.saturating_mul(grain)).unwrap_or(u32::MAX);
        CpuShare::from_ppm(rounded).clamp(self.least, self.most)
    }
}

impl fmt::Display for CapRangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLeast => write!(f, "the least cap is 0%, must be above"),
            Self::Empty { range } => {
                let (least, most) = (range.start(), range.end());
                write!(f, "the least cap is {least}, must be at most the largest, {most}")
            }
            Self::NoGrain => write!(f, "the grain of caps is 0%, must be above"),
        }
    }
}

impl core::error::Error for CapRangeError {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    fn percent(percent: u32) -> CpuShare {
        CpuShare::from_percent(percent)
    }

    #[test]
    fn caps_are_rounded_to_the_grain_and_kept_in_the_range() {
        let least = CpuShare::from_ppm(25_000);
        let range = CapRange::new(least..=percent(80), percent(1)).unwrap();
        for (ppm, cap) in [(0.0, least), (34_999.0, percent(3)), (35_001.0, percent(4))] {
            assert_eq!(range.nearest(ppm), cap);
        }
        assert!([least, percent(80)].contains(&range.nearest(f64::NAN)));
        assert_eq!(range.nearest(f64::INFINITY), percent(80));
        assert_eq!(range.nearest(-1.0), least);
        assert_eq!(range.clamp(CpuShare::MAX), percent(80));
    }

    #[test]
    fn ranges_without_a_cap_are_refused() {
        let range = CapRange::new(percent(0)..=percent(1), percent(1));
        assert_eq!(range, Err(CapRangeError::NoLeast));
        let range = CapRange::new(percent(1)..=percent(1), percent(0));
        assert_eq!(range, Err(CapRangeError::NoGrain));
        let error = CapRange::new(percent(2)..=percent(1), percent(1)).unwrap_err();
        assert_eq!(error.to_string(), "the least cap is 2%, must be at most the largest, 1%");
    }
}
