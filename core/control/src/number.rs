// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The edge between the integers outside and the floats inside.

use weir_units::{CpuShare, PacketRate};

/// Thousands of packets a second, the text's unit of a rate.
pub(crate) fn kpps(rate: PacketRate) -> f64 {
    float(rate.as_pps()) / 1000.0
}

/// log10 of a cap in percent, the text's u. A cap of nothing counts as a millionth of a processor.
pub(crate) fn log_cap(cap: CpuShare) -> f64 {
    libm::log10(f64::from(cap.as_ppm().max(1)) / PPM_PER_PERCENT)
}

/// The share in parts per million that has this log10 of percent: inverse of [`log_cap`].
pub(crate) fn ppm_of_log(log: f64) -> f64 {
    libm::exp10(log) * PPM_PER_PERCENT
}

/// Exact below 2⁵³, rounded above: a relative error of 10⁻¹⁶, far below any noise.
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

/// Rounded to the nearest, saturating; zero for what is no number.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, and that is meant"
)]
pub(crate) fn whole(value: f64) -> u64 {
    libm::round(value) as u64
}

pub(crate) const PPM_PER_PERCENT: f64 = 10_000.0;
