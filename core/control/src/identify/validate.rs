// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Validation of a model on a run: residuals and R².

use alloc::vec::Vec;

use super::identified::{Identified, Point};
use crate::number::{kpps, log_cap};

/// An estimate beside its measurement: a point of the text's residual plot (Fig. 4), in thousand
/// packets a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Residual {
    /// The estimate of the model.
    pub estimated: f64,
    /// The measurement.
    pub actual: f64,
}

/// One step ahead: each rate from the one measured before it.
#[must_use]
pub fn one_step(identified: &Identified, run: &[Point]) -> Vec<Residual> {
    let step = |pair: &[Point]| {
        let estimated = next(identified, kpps(pair[0].rate), pair[0]);
        Residual { estimated, actual: kpps(pair[1].rate) }
    };
    run.windows(2).map(step).collect()
}

/// Free run: each rate from the one *estimated* before it; only the first is measured. What a model
/// must stand that is to say how a router answers to caps that nobody has tried yet.
#[must_use]
pub fn free_run(identified: &Identified, run: &[Point]) -> Vec<Residual> {
    let mut rate = run.first().map_or(0.0, |first| kpps(first.rate));
    let step = |pair: &[Point]| {
        rate = next(identified, rate, pair[0]);
        Residual { estimated: rate, actual: kpps(pair[1].rate) }
    };
    run.windows(2).map(step).collect()
}

/// The model that knows nothing: each rate is the one before. A model is worth what it is better.
#[must_use]
pub fn persistence(run: &[Point]) -> Vec<Residual> {
    let step =
        |pair: &[Point]| Residual { estimated: kpps(pair[0].rate), actual: kpps(pair[1].rate) };
    run.windows(2).map(step).collect()
}

/// 1 − (sum of squared residuals) ÷ (sum of squares around the mean): 1 is perfect, 0 no better
/// than the mean, and below 0 worse. `None` where the rate did not vary.
#[must_use]
pub fn r_squared(residuals: &[Residual]) -> Option<f64> {
    let count = f64::from(u32::try_from(residuals.len()).unwrap_or(u32::MAX));
    let mean = residuals.iter().map(|residual| residual.actual).sum::<f64>() / count;
    let square = |value: f64| value * value;
    let unexplained: f64 =
        residuals.iter().map(|residual| square(residual.actual - residual.estimated)).sum();
    let total: f64 = residuals.iter().map(|residual| square(residual.actual - mean)).sum();
    (total > 0.0).then(|| 1.0 - unexplained / total)
}

fn next(identified: &Identified, rate: f64, point: Point) -> f64 {
    let at = identified.operating_point;
    let (y, u) = (rate - at.rate_kpps, log_cap(point.cap) - at.log_cap);
    at.rate_kpps + identified.model.next(y, u)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_squared_by_hand() {
        let residual = |estimated, actual| Residual { estimated, actual };
        // Mean 2, total 2, unexplained 0.25 + 0.25.
        let residuals = [residual(1.5, 1.0), residual(2.0, 2.0), residual(2.5, 3.0)];
        assert_eq!(r_squared(&residuals), Some(0.75));
        assert_eq!(r_squared(&[residual(1.0, 2.0); 3]), None);
        assert_eq!(r_squared(&[]), None);
    }
}
