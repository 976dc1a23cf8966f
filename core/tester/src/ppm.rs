// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A ratio in parts per million: exact in comparisons, fine enough for loss ratios.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A ratio in parts per million, 0 to 1 000 000. Written `0.5%` or `5000ppm`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Ppm(u32);

impl Ppm {
    /// No part at all.
    pub const ZERO: Self = Self(0);

    /// Returns a ratio of `ppm` parts per million; more than a million is a million.
    pub const fn new(ppm: u32) -> Self {
        Self(if ppm > MILLION { MILLION } else { ppm })
    }

    /// Returns the parts per million.
    pub const fn get(self) -> u32 {
        self.0
    }

    /// Returns whether `part` of `whole` is more than this ratio. Of nothing, nothing is more.
    pub const fn is_exceeded_by(self, part: u64, whole: u64) -> bool {
        part as u128 * MILLION as u128 > whole as u128 * self.0 as u128
    }

    /// Returns the ratio as a number between 0 and 1.
    pub fn as_float(self) -> f64 {
        f64::from(self.0) / f64::from(MILLION)
    }
}

impl fmt::Display for Ppm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000, self.0 % 10_000);
        let digits = format!("{rest:04}");
        match digits.trim_end_matches('0') {
            "" => write!(f, "{whole}%"),
            digits => write!(f, "{whole}.{digits}%"),
        }
    }
}

impl FromStr for Ppm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let refuse = || format!("ratio {text:?} is not 0% to 100%, or 0ppm to 1000000ppm");
        if let Some(ppm) = text.strip_suffix("ppm") {
            let ppm = ppm.parse().ok().filter(|ppm| *ppm <= MILLION);
            return ppm.map(Self).ok_or_else(refuse);
        }
        let percent = match text.strip_suffix('%') {
            Some(percent) => percent,
            None if text == "0" => text,
            None => return Err(refuse()),
        };
        let (whole, fraction) = percent.split_once('.').unwrap_or((percent, ""));
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if whole.is_empty() || fraction.len() > 4 || !digits(whole) || !digits(fraction) {
            return Err(refuse());
        }
        let ppm = format!("{whole}{fraction:0<4}").parse().ok().filter(|ppm| *ppm <= MILLION);
        ppm.map(Self).ok_or_else(refuse)
    }
}

/// The whole, in parts per million.
pub(crate) const MILLION: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_read_and_written() {
        for (text, ppm, written) in [
            ("0", 0, "0%"),
            ("0.5%", 5_000, "0.5%"),
            ("100%", MILLION, "100%"),
            ("0.0001%", 1, "0.0001%"),
            ("250ppm", 250, "0.025%"),
        ] {
            let ratio: Ppm = text.parse().unwrap();
            assert_eq!((ratio.get(), ratio.to_string().as_str()), (ppm, written), "{text}");
        }
        for bad in ["", "%", "1", "101%", "-1%", "1.00001%", "1000001ppm", "0.5", ".5%", "1e2%"] {
            assert!(bad.parse::<Ppm>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_ratio_is_compared_exactly() {
        let half = Ppm::new(500_000);
        assert!(!half.is_exceeded_by(1, 2));
        assert!(half.is_exceeded_by(u64::MAX / 2 + 1, u64::MAX));
        assert!(!half.is_exceeded_by(u64::MAX / 2, u64::MAX));
        assert!(!Ppm::ZERO.is_exceeded_by(0, 0));
        assert!(Ppm::ZERO.is_exceeded_by(1, u64::MAX));
    }
}
