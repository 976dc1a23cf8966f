// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Units as people write them: `100Mbit`, `1.5Gbit`, `20kpps`, `64KiB`, `3ms`, `12.5%`.
//!
//! A quantity is a number and a unit, with at most one space between them. The number may have a
//! decimal fraction if the quantity is whole in its base unit (bits a second, bytes, nanoseconds).
//! A number without a unit is refused: nobody can tell what `rate = 100` means.

use alloc::string::{String, ToString};
use core::fmt;
use core::str::FromStr;

use crate::{BitRate, ByteCount, CpuShare, Nanos, PacketRate};

/// The text is not a quantity of the wanted kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseUnitError {
    text: String,
    wanted: &'static str,
}

impl fmt::Display for ParseUnitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not {}", self.text, self.wanted)
    }
}

impl core::error::Error for ParseUnitError {}

impl FromStr for BitRate {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let wanted = "a bit rate, such as 100Mbit, 1.5Gbit or 640kbit";
        scaled(text, BIT_RATES, wanted).map(Self::from_bps)
    }
}

impl FromStr for PacketRate {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        scaled(text, PACKET_RATES, "a packet rate, such as 20kpps or 1500pps").map(Self::from_pps)
    }
}

impl FromStr for ByteCount {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        scaled(text, BYTE_COUNTS, "a size, such as 1518B, 64KiB or 2MB").map(Self::new)
    }
}

impl FromStr for Nanos {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        scaled(text, TIMES, "a time, such as 3ms, 250us or 1s").map(Self::new)
    }
}

impl FromStr for CpuShare {
    type Err = ParseUnitError;
    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        let wanted = "a share of a processor, such as 12.5% or 150%";
        let ppm = u32::try_from(scaled(text, CPU_SHARES, wanted)?);
        ppm.map(Self::from_ppm).map_err(|_| ParseUnitError { text: text.to_string(), wanted })
    }
}

/// Returns the value of `text` in the base unit.
///
/// # Errors
/// The unit is not one of `units`, or the value is not a whole number of 64 bits.
fn scaled(text: &str, units: &[(&str, u64)], wanted: &'static str) -> Result<u64, ParseUnitError> {
    let error = || ParseUnitError { text: text.to_string(), wanted };
    let split = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(error)?;
    let (number, unit) = text.split_at(split);
    let unit = unit.strip_prefix(' ').unwrap_or(unit);
    let (_, scale) = units.iter().find(|(name, _)| *name == unit).ok_or_else(error)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    // A second point would be in the fraction. `parse` below checks the part before the point.
    let digits = fraction.bytes().all(|c| c.is_ascii_digit());
    if number.ends_with('.') || !digits || fraction.len() > MAX_FRACTION_DIGITS {
        return Err(error());
    }
    let whole: u64 = whole.parse().map_err(|_| error())?;
    let parts = fraction.bytes().fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    let divisor = fraction.bytes().fold(1u64, |product, _| product * 10);
    let fraction = u128::from(parts) * u128::from(*scale);
    if fraction % u128::from(divisor) != 0 {
        return Err(error());
    }
    let fraction = u64::try_from(fraction / u128::from(divisor)).map_err(|_| error())?;
    whole.checked_mul(*scale).and_then(|base| base.checked_add(fraction)).ok_or_else(error)
}

/// The largest scale is 10¹² (`Tbit`): a further digit could only be a zero.
const MAX_FRACTION_DIGITS: usize = 12;

const BIT_RATES: &[(&str, u64)] = &[
    ("bit", 1),
    ("kbit", 1_000),
    ("Mbit", 1_000_000),
    ("Gbit", 1_000_000_000),
    ("Tbit", 1_000_000_000_000),
];
const PACKET_RATES: &[(&str, u64)] = &[("pps", 1), ("kpps", 1_000), ("Mpps", 1_000_000)];
const BYTE_COUNTS: &[(&str, u64)] =
    &[("B", 1), ("kB", 1_000), ("MB", 1_000_000), ("KiB", 1 << 10), ("MiB", 1 << 20)];
const CPU_SHARES: &[(&str, u64)] = &[("%", 10_000)];
const TIMES: &[(&str, u64)] = &[("ns", 1), ("us", 1_000), ("ms", 1_000_000), ("s", 1_000_000_000)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_read_as_written() {
        assert_eq!("100Mbit".parse(), Ok(BitRate::from_mbps(100)));
        assert_eq!("1.5Gbit".parse(), Ok(BitRate::from_mbps(1500)));
        assert_eq!("1.000000000001Tbit".parse(), Ok(BitRate::from_bps(1_000_000_000_001)));
        assert!("1.0000000000001Tbit".parse::<BitRate>().is_err());
        assert_eq!("20 kpps".parse(), Ok(PacketRate::from_pps(20_000)));
        assert_eq!("64KiB".parse(), Ok(ByteCount::new(65_536)));
        assert_eq!("0.25ms".parse(), Ok(Nanos::from_micros(250)));
    }

    #[test]
    fn what_is_no_quantity_is_refused_with_its_text() {
        for text in ["", "100", "Mbit", "1.Mbit", ".5Mbit", "1.5bit", "1 Mb", "-1Mbit", "1..2kbit"]
        {
            let error = text.parse::<BitRate>().unwrap_err();
            assert!(error.to_string().starts_with(&alloc::format!("\"{text}\" is not a bit rate")));
        }
        assert!("99999999999999999999bit".parse::<BitRate>().is_err());
        assert!("99999999999Gbit".parse::<BitRate>().is_err());
    }

    #[test]
    fn display_reads_back() {
        for bps in [0, 1, 999, 1_000, 1_500, 100_000_000, 1_500_000_000, 12_345_678] {
            let rate = BitRate::from_bps(bps);
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
    }
}
