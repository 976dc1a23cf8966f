// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts, times and rates in each other's terms, each with its rounding.

use weir_units::Nanos;

/// Returns `value · numerator ÷ denominator`, rounded down, saturating; 0 by 0.
#[must_use]
pub fn scaled(value: u64, numerator: u64, denominator: u64) -> u64 {
    let product = u128::from(value) * u128::from(numerator);
    let scaled = product.checked_div(u128::from(denominator)).unwrap_or(0);
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// Packets of `pps` packets a second within `time`, rounded down.
#[must_use]
pub fn packets_in(pps: u64, time: Nanos) -> u64 {
    scaled(pps, time.as_nanos(), 1_000_000_000)
}

/// Returns the time that so many packets take, rounded up.
pub(crate) fn duration_of(packets: u64, pps: u64) -> Nanos {
    let ns = (u128::from(packets) * 1_000_000_000).div_ceil(u128::from(pps.max(1)));
    Nanos::new(u64::try_from(ns).unwrap_or(u64::MAX))
}

/// Returns a count as a float.
#[expect(clippy::cast_precision_loss, reason = "counts of a suite stay below 2^53")]
pub(crate) const fn float(count: u64) -> f64 {
    count as f64
}

/// Returns a time in seconds.
pub(crate) fn seconds(time: Nanos) -> f64 {
    float(time.as_nanos()) / 1e9
}
