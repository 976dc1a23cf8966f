// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The edge between the integers outside and the floats inside.

/// Exact below 2⁵³, rounded above: a relative error of 10⁻¹⁶, far below any noise.
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}
