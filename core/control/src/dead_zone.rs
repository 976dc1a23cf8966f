// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors that are not worth a call of the actuator.

use weir_units::PacketRate;

/// A share of the set-point. While the error is no larger, the last cap stays (§6): fewer calls,
/// at the price of precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeadZone {
    ppm: u32,
}

impl DeadZone {
    /// Every error moves the cap.
    pub const OFF: Self = Self { ppm: 0 };
    /// The text's: 10 % of the set-point.
    pub const PUBLISHED: Self = Self { ppm: 100_000 };

    /// `ppm` millionths of the set-point, at most all of it.
    #[must_use]
    pub const fn from_ppm(ppm: u32) -> Self {
        Self { ppm: if ppm < 1_000_000 { ppm } else { 1_000_000 } }
    }

    /// Returns true if a router at `rate` needs no action.
    #[must_use]
    pub fn holds(self, set_point: PacketRate, rate: PacketRate) -> bool {
        let error = u128::from(set_point.as_pps().abs_diff(rate.as_pps())) * 1_000_000;
        self.ppm > 0 && error <= u128::from(set_point.as_pps()) * u128::from(self.ppm)
    }

    /// Returns the share as a fraction.
    pub(crate) fn fraction(self) -> f64 {
        f64::from(self.ppm) / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_zone_has_two_sides_and_includes_its_ends() {
        let set_point = PacketRate::from_pps(50_000);
        for (rate, holds) in [(44_999, false), (45_000, true), (55_000, true), (55_001, false)] {
            let rate = PacketRate::from_pps(rate);
            assert_eq!(DeadZone::PUBLISHED.holds(set_point, rate), holds, "{rate}");
            assert!(!DeadZone::OFF.holds(set_point, rate));
        }
        assert!(!DeadZone::OFF.holds(set_point, set_point), "off is off");
        assert!(DeadZone::from_ppm(u32::MAX).holds(set_point, PacketRate::ZERO));
    }
}
