// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exact decimal numbers.

use alloc::format;
use core::fmt;
use core::str::FromStr;

/// A number, in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Decimal(pub i64);

impl FromStr for Decimal {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
        let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        if !plain(whole) || !plain(fraction) || fraction.len() > 6 || whole.len() > 12 {
            return Err(());
        }
        let millionths: i64 = format!("{whole}{fraction:0<6}").parse().map_err(|_| ())?;
        Ok(Self(if negative { -millionths } else { millionths }))
    }
}

/// Writes the exact number: `0.0915`, `-63.0051`, `5`.
impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, value) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let unit = ONE.unsigned_abs();
        let fraction = format!("{:06}", value % unit);
        match fraction.trim_end_matches('0') {
            "" => write!(f, "{sign}{}", value / unit),
            rest => write!(f, "{sign}{}.{rest}", value / unit),
        }
    }
}

/// One, in millionths.
pub(crate) const ONE: i64 = 1_000_000;

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use super::*;

    #[test]
    fn decimals_are_exact_both_ways() {
        for text in ["0.0915", "63.0051", "-0.5", "0", "5", "1000000"] {
            assert_eq!(text.parse::<Decimal>().unwrap().to_string(), text);
        }
        for wrong in ["", "-", ".5", "1.", "1e3", "0.1234567", "1234567890123", "+1", "1.-5"] {
            assert!(wrong.parse::<Decimal>().is_err(), "{wrong}");
        }
    }
}
