// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The steadiness of a rate.

use weir_units::PacketRate;

use crate::number::float;

/// The text's relative RMSE (§7.1): the root mean square of the deviations from the *achieved*
/// mean, divided by that mean. It says how much a rate swings, not how far it is from where it
/// should be. `None` of no rates, or of rates that are all zero.
///
/// ```
/// use weir_control::relative_rmse;
/// use weir_units::PacketRate;
///
/// let rates = [9_000, 11_000].map(PacketRate::from_pps);
/// assert_eq!(relative_rmse(&rates), Some(0.1));
/// ```
#[must_use]
pub fn relative_rmse(rates: &[PacketRate]) -> Option<f64> {
    let count = float(u64::try_from(rates.len()).ok().filter(|count| *count > 0)?);
    let values = || rates.iter().map(|rate| float(rate.as_pps()));
    let mean = values().sum::<f64>() / count;
    let square = values().map(|value| (value - mean) * (value - mean)).sum::<f64>() / count;
    (mean > 0.0).then(|| libm::sqrt(square) / mean)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_rate_has_none_and_no_rate_is_no_number() {
        assert_eq!(relative_rmse(&[PacketRate::from_pps(5); 3]), Some(0.0));
        assert_eq!(relative_rmse(&[]), None);
        assert_eq!(relative_rmse(&[PacketRate::ZERO; 3]), None);
    }
}
