// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A cap as the kernel's bandwidth controller takes it: a quota of time in each period. Pure.
//!
//! The kernel requires a quota of at least 1 ms and a period of at most 1 s, so a small cap needs a
//! long period. But in a long period a capped router pauses for long. So the period is short as
//! long as the quota then is large enough, and grows for smaller caps.
//!
//! Source: Linux, Documentation/scheduler/sched-bwc.rst.

use weir_control::{CapRange, CapRangeError};
use weir_units::{CpuShare, Nanos};

use super::actuator::PERIODS_LEAST;

/// A quota of time in each period, in microseconds as the kernel takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// CPU time, over all processors.
    pub quota_us: u64,
    /// The period.
    pub period_us: u64,
}

impl Quota {
    /// Returns it as a share of a processor, rounded down; [`CpuShare::ZERO`] if the period is
    /// zero.
    #[must_use]
    pub fn share(self) -> CpuShare {
        let nanos = |us: u64| Nanos::new(us.saturating_mul(1000));
        CpuShare::of_floor(nanos(self.quota_us), nanos(self.period_us))
    }
}

/// Maps a cap to a quota and a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaShape {
    base_us: u64,
    range: CapRange,
}

impl QuotaShape {
    /// Makes the shape for a router that is sampled every `sampling`, with caps up to `most`.
    /// Periods are [`PERIOD_US`], or a third of the sampling period if that is shorter. The period
    /// of the least cap, too, is at most that third.
    ///
    /// Sampled every second, the least cap is 1 %; every 100 ms, 3.0001 %; every 10 ms, 30.0031 %.
    ///
    /// # Errors
    /// The sampling period is below 3 ms: no cap of one processor would be left; or `most` is below
    /// the least cap.
    pub fn for_sampling(sampling: Nanos, most: CpuShare) -> Result<Self, CapRangeError> {
        let third_us = sampling.as_nanos() / 1000 / PERIODS_LEAST;
        let longest_us = third_us.min(PERIOD_US_MAX);
        // Rounded up, so that its period is never longer than the longest.
        let ppm = (QUOTA_US_MIN * PPM).checked_div(longest_us).map_or(u64::MAX, |ppm| ppm + 1);
        let least = CpuShare::from_ppm(u32::try_from(ppm).unwrap_or(u32::MAX));
        let least = if longest_us == PERIOD_US_MAX { LEAST } else { least };
        let range = CapRange::new(least..=most, GRAIN)?;
        Ok(Self { base_us: longest_us.min(PERIOD_US), range })
    }

    /// Returns the range of caps that it can express.
    #[must_use]
    pub const fn range(&self) -> CapRange {
        self.range
    }

    /// Returns its longest period, which is that of the least cap.
    #[must_use]
    pub fn longest(&self) -> Nanos {
        Nanos::new(self.of(self.range.least()).period_us * 1000)
    }

    /// Returns the quota of the cap in the range that is nearest to `cap`.
    #[must_use]
    pub fn of(&self, cap: CpuShare) -> Quota {
        let ppm = u64::from(self.range.clamp(cap).as_ppm());
        let quota_us = ppm * self.base_us / PPM;
        if quota_us >= QUOTA_US_MIN {
            return Quota { quota_us, period_us: self.base_us };
        }
        Quota { quota_us: QUOTA_US_MIN, period_us: QUOTA_US_MIN * PPM / ppm.max(1) }
    }
}

/// The kernel's least quota, in microseconds.
pub const QUOTA_US_MIN: u64 = 1000;

/// The usual period of a cap, in microseconds. At 10 ms the rate of a user-space forwarder varied
/// by 2 to 6 % from one 100 ms sample to the next; at 100 ms and a cap of 1 %, by 170 %.
pub const PERIOD_US: u64 = 10_000;

/// The longest period, in microseconds: with a longer one a router's queue overflows during the
/// pause.
pub const PERIOD_US_MAX: u64 = 100_000;

/// The least cap of the longest period.
const LEAST: CpuShare = CpuShare::from_percent(1);

/// The step of caps: one microsecond of a 10 ms period.
const GRAIN: CpuShare = CpuShare::from_ppm(100);
const PPM: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(sampling_ms: u64) -> QuotaShape {
        QuotaShape::for_sampling(Nanos::from_millis(sampling_ms), CpuShare::from_percent(200))
            .unwrap()
    }

    #[test]
    fn the_period_is_short_until_the_quota_would_be_too_small() {
        let of = |percent| shape(1000).of(CpuShare::from_percent(percent));
        assert_eq!(of(50), Quota { quota_us: 5000, period_us: 10_000 });
        assert_eq!(of(200), Quota { quota_us: 20_000, period_us: 10_000 });
        assert_eq!(of(10), Quota { quota_us: 1000, period_us: 10_000 });
        assert_eq!(of(3), Quota { quota_us: 1000, period_us: 33_333 });
        assert_eq!(of(0), Quota { quota_us: 1000, period_us: 100_000 });
        assert_eq!(of(1000), of(200));
    }

    /// Goal: for every sampling period, the quota is within a microsecond of the cap, the kernel
    /// accepts quota and period, and the period is at most a third of the sampling period.
    #[test]
    fn every_quota_is_one_that_the_kernel_takes_and_its_share_is_the_cap() {
        for sampling_ms in [4, 10, 33, 100, 299, 300, 1000] {
            let shape = shape(sampling_ms);
            let third_us = sampling_ms * 1000 / 3;
            assert!(shape.longest().as_nanos() <= third_us * 1000);
            for ppm in (0..2_100_000).step_by(1777) {
                let cap = shape.range().clamp(CpuShare::from_ppm(ppm));
                let quota = shape.of(cap);
                assert!(quota.quota_us >= 1000 && quota.period_us >= 1000, "{quota:?}");
                assert!(quota.period_us <= third_us.min(100_000), "{sampling_ms} ms: {quota:?}");
                let off = i64::from(quota.share().as_ppm()) - i64::from(cap.as_ppm());
                let microsecond = i64::try_from(1_000_000 / shape.base_us).unwrap();
                assert!((-microsecond..=microsecond).contains(&off), "{cap} as {quota:?}: {off}");
            }
        }
    }

    #[test]
    fn what_cannot_be_sampled_so_fast_is_refused() {
        for sampling in [Nanos::new(0), Nanos::from_micros(2999)] {
            let range = QuotaShape::for_sampling(sampling, CpuShare::ONE);
            assert!(matches!(range, Err(CapRangeError::Empty { .. })), "{range:?}");
        }
        assert_eq!(shape(10).range().least(), CpuShare::from_ppm(300_031));
        assert_eq!(Quota { quota_us: 5, period_us: 0 }.share(), CpuShare::ZERO);
    }
}
