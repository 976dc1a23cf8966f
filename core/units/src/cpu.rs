// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares of a processor's time.

use core::fmt;

use crate::Nanos;

/// CPU time as a share of one processor, in parts per million: 10 000 is 1 %, 1 000 000 is one
/// whole processor. A machine with several processors can be given more than one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CpuShare(u32);

impl CpuShare {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// One whole processor.
    pub const ONE: Self = Self(PPM);
    /// The largest share that can be written down: some 4294 processors.
    pub const MAX: Self = Self(u32::MAX);

    /// Makes a share of `ppm` millionths of a processor.
    #[must_use]
    pub const fn from_ppm(ppm: u32) -> Self {
        Self(ppm)
    }

    /// Makes a share of `percent` hundredths of a processor, saturating.
    #[must_use]
    pub const fn from_percent(percent: u32) -> Self {
        Self(percent.saturating_mul(PPM / 100))
    }

    /// Makes the share that `cpu` is of `span`, rounded down, at most [`Self::MAX`]; zero if `span`
    /// is zero.
    #[must_use]
    pub fn of_floor(cpu: Nanos, span: Nanos) -> Self {
        let scaled = u128::from(cpu.as_nanos()) * u128::from(PPM);
        let ppm = scaled.checked_div(u128::from(span.as_nanos())).unwrap_or(0);
        Self(u32::try_from(ppm).unwrap_or(u32::MAX))
    }

    /// Millionths of a processor.
    #[must_use]
    pub const fn as_ppm(self) -> u32 {
        self.0
    }

    /// Returns the CPU time that this share is worth within `span`, rounded down, at most
    /// [`Nanos::MAX`].
    #[must_use]
    pub fn time_in_floor(self, span: Nanos) -> Nanos {
        let time = u128::from(self.0) * u128::from(span.as_nanos()) / u128::from(PPM);
        u64::try_from(time).map_or(Nanos::MAX, Nanos::new)
    }
}

/// Exact, in percent of one processor: `12.5%`, `100%`, `0.0001%`.
impl fmt::Display for CpuShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, mut rest) = (self.0 / PPM_PER_PERCENT, self.0 % PPM_PER_PERCENT);
        if rest == 0 {
            return write!(f, "{whole}%");
        }
        let mut digits = 4;
        while rest.is_multiple_of(10) {
            rest /= 10;
            digits -= 1;
        }
        write!(f, "{whole}.{rest:0digits$}%")
    }
}

const PPM: u32 = 1_000_000;
const PPM_PER_PERCENT: u32 = PPM / 100;

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn shares_and_times_are_inverse_where_they_are_whole() {
        let (cpu, span) = (Nanos::from_micros(125), Nanos::from_millis(1));
        let share = CpuShare::of_floor(cpu, span);
        assert_eq!(share, CpuShare::from_ppm(125_000));
        assert_eq!(share.time_in_floor(span), cpu);
        assert_eq!(CpuShare::of_floor(Nanos::new(1), Nanos::new(3)).as_ppm(), 333_333);
        assert_eq!(CpuShare::from_percent(250).time_in_floor(span), Nanos::from_micros(2500));
    }

    #[test]
    fn extremes_saturate() {
        assert_eq!(CpuShare::of_floor(Nanos::MAX, Nanos::new(1)), CpuShare::MAX);
        assert_eq!(CpuShare::of_floor(Nanos::new(1), Nanos::ZERO), CpuShare::ZERO);
        assert_eq!(CpuShare::from_percent(u32::MAX), CpuShare::MAX);
        assert_eq!(CpuShare::MAX.time_in_floor(Nanos::MAX), Nanos::MAX);
    }

    #[test]
    fn display_is_exact_and_reads_back() {
        for (ppm, text) in [
            (0, "0%"),
            (1, "0.0001%"),
            (10_000, "1%"),
            (125_000, "12.5%"),
            (123_450, "12.345%"),
            (1_000_000, "100%"),
            (4_000_000, "400%"),
        ] {
            let share = CpuShare::from_ppm(ppm);
            assert_eq!(share.to_string(), text);
            assert_eq!(text.parse(), Ok(share));
        }
        assert!("12.34567%".parse::<CpuShare>().is_err());
        assert!("500000%".parse::<CpuShare>().is_err());
    }
}
