// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rates of bits and of packets, and the conversions between rate, time and amount.
//!
//! A conversion is computed in 128 bits where it needs them ([`mul_add_div`]), so nothing overflows
//! on the way, and rounds once, in the direction that is safe for a limit: times up, amounts down.

use core::fmt;

use crate::{ByteCount, Nanos, mul_add_div};

/// Bits a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

/// Packets a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketRate(u64);

impl BitRate {
    /// Nothing passes.
    pub const ZERO: Self = Self(0);

    /// Makes a rate of `bps` bits a second.
    #[must_use]
    pub const fn from_bps(bps: u64) -> Self {
        Self(bps)
    }

    /// Makes a rate of `mbps` million bits a second, saturating.
    #[must_use]
    pub const fn from_mbps(mbps: u64) -> Self {
        Self(mbps.saturating_mul(1_000_000))
    }

    /// Returns the bits a second.
    #[must_use]
    pub const fn as_bps(self) -> u64 {
        self.0
    }

    /// Tells whether it is zero.
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns the time that `bytes` take at this rate, rounded up; [`Nanos::MAX`] at rate zero.
    #[must_use]
    pub const fn time_for_ceil(self, bytes: ByteCount) -> Nanos {
        let (whole, rest) = mul_add_div(bytes.get(), BIT_NANOS_PER_BYTE_SECOND, 0, self.0);
        Nanos::new(whole.saturating_add((rest > 0) as u64))
    }

    /// Returns the whole bytes that pass in `time`, rounded down.
    #[must_use]
    pub const fn bytes_in_floor(self, time: Nanos) -> ByteCount {
        ByteCount::new(mul_add_div(self.0, time.as_nanos(), 0, BIT_NANOS_PER_BYTE_SECOND).0)
    }

    /// Returns the sum; `None` above `u64::MAX` bits a second.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
}

impl PacketRate {
    /// Nothing passes.
    pub const ZERO: Self = Self(0);

    /// Makes a rate of `pps` packets a second.
    #[must_use]
    pub const fn from_pps(pps: u64) -> Self {
        Self(pps)
    }

    /// Returns the packets a second.
    #[must_use]
    pub const fn as_pps(self) -> u64 {
        self.0
    }

    /// Returns the sum; `None` above `u64::MAX` packets a second.
    #[must_use]
    pub const fn checked_add(self, other: Self) -> Option<Self> {
        match self.0.checked_add(other.0) {
            Some(sum) => Some(Self(sum)),
            None => None,
        }
    }
}

/// Shows the value in the largest unit in which it is an integer: `100Mbit`, `1500kbit`, `7bit`.
impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0bit"),
            n if n % 1_000_000_000 == 0 => write!(f, "{}Gbit", n / 1_000_000_000),
            n if n % 1_000_000 == 0 => write!(f, "{}Mbit", n / 1_000_000),
            n if n % 1_000 == 0 => write!(f, "{}kbit", n / 1_000),
            n => write!(f, "{n}bit"),
        }
    }
}

/// Shows the value in the largest unit in which it is an integer: `100kpps`, `1500pps`.
impl fmt::Display for PacketRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("0pps"),
            n if n % 1_000_000 == 0 => write!(f, "{}Mpps", n / 1_000_000),
            n if n % 1_000 == 0 => write!(f, "{}kpps", n / 1_000),
            n => write!(f, "{n}pps"),
        }
    }
}

/// 8 bits a byte × 10⁹ ns a second: bytes × this ÷ (bits a second) = nanoseconds.
pub const BIT_NANOS_PER_BYTE_SECOND: u64 = 8 * 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_rounded_up_and_amounts_down() {
        let rate = BitRate::from_mbps(3000);
        assert_eq!(rate.time_for_ceil(ByteCount::new(1)), Nanos::new(3));
        assert_eq!(rate.time_for_ceil(ByteCount::new(3)), Nanos::new(8));
        assert_eq!(rate.bytes_in_floor(Nanos::new(7)), ByteCount::new(2));
        assert_eq!(rate.bytes_in_floor(Nanos::new(8)), ByteCount::new(3));
    }

    /// Goal: exactly the amount passes in the time computed for it, and less in a nanosecond less.
    /// Method: amounts and rates at which a byte takes at least a nanosecond.
    #[test]
    fn time_and_amount_are_inverse() {
        for bps in [1, 7, 999, 64_000, 1_000_003, 999_999_937, 8_000_000_000] {
            let rate = BitRate::from_bps(bps);
            for bytes in [1, 2, 64, 1517, 65_535] {
                let amount = ByteCount::new(bytes);
                let time = rate.time_for_ceil(amount);
                assert_eq!(rate.bytes_in_floor(time), amount);
                let before = time.saturating_sub(Nanos::new(1));
                assert!(rate.bytes_in_floor(before) < amount, "{rate}: {amount} in {before}");
            }
        }
    }

    #[test]
    fn extremes_saturate() {
        assert_eq!(BitRate::ZERO.time_for_ceil(ByteCount::ZERO), Nanos::MAX);
        assert_eq!(BitRate::from_bps(1).time_for_ceil(ByteCount::new(u64::MAX)), Nanos::MAX);
        assert_eq!(BitRate::from_bps(u64::MAX).bytes_in_floor(Nanos::MAX).get(), u64::MAX);
        assert_eq!(BitRate::from_bps(u64::MAX).checked_add(BitRate::from_bps(1)), None);
        assert_eq!(
            PacketRate::from_pps(2).checked_add(PacketRate::from_pps(3)),
            Some(PacketRate(5))
        );
    }
}
