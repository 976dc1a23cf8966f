// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ordinary least squares for a handful of terms (Draper and Smith, *Applied Regression Analysis*,
//! chapter 5): coefficients, their standard errors, R², and bounds of a prediction.
//!
//! The normal equations are solved by Gauss-Jordan elimination on columns scaled to unit length,
//! which is exact enough for four terms of one magnitude and a few hundred points.

use serde::{Deserialize, Serialize};

/// A fitted linear function of some terms.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinearFit {
    /// A coefficient for each term.
    pub coefficients: Vec<f64>,
    /// The standard error of each coefficient.
    pub errors: Vec<f64>,
    /// The part of the variance that the fit explains, against the mean alone.
    pub r_square: f64,
    /// Root of the residual variance.
    pub deviation: f64,
    /// Points less terms.
    pub freedom: u32,
    /// (XᵀX)⁻¹, row by row.
    inverse: Vec<Vec<f64>>,
}

/// Why there is no fit.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeastSquaresError {
    /// Not more points than terms: nothing is left to judge by.
    #[error("{points} points are too few for {terms} terms: at least one more is needed")]
    TooFew {
        /// Points.
        points: usize,
        /// Terms.
        terms: usize,
    },
    /// Points of different numbers of terms, or a value that is not finite.
    #[error("point {point} has another number of terms than the first, or is not finite")]
    Point {
        /// Index of the point.
        point: usize,
    },
    /// Terms that depend on each other at these points.
    #[error("the terms depend on each other at these points")]
    Singular,
}

impl LinearFit {
    /// Fits `values` as a linear function of the terms of each point.
    pub fn of(points: &[Vec<f64>], values: &[f64]) -> Result<Self, LeastSquaresError> {
        let terms = points.first().map_or(0, Vec::len);
        let count = points.len().min(values.len());
        if terms == 0 || count <= terms {
            return Err(LeastSquaresError::TooFew { points: count, terms });
        }
        for (point, (row, value)) in points.iter().zip(values).enumerate() {
            if row.len() != terms || !value.is_finite() || row.iter().any(|x| !x.is_finite()) {
                return Err(LeastSquaresError::Point { point });
            }
        }
        let scale: Vec<f64> = (0..terms)
            .map(|term| points.iter().map(|row| row[term] * row[term]).sum::<f64>().sqrt())
            .collect();
        if scale.contains(&0.0) {
            return Err(LeastSquaresError::Singular);
        }
        let inverse = inverse_of_normal(points, &scale).ok_or(LeastSquaresError::Singular)?;
        let moments: Vec<f64> = (0..terms)
            .map(|term| points.iter().zip(values).map(|(row, y)| row[term] * y).sum())
            .collect();
        let coefficients: Vec<f64> = inverse.iter().map(|row| dot(row, &moments)).collect();
        let residual: f64 =
            points.iter().zip(values).map(|(row, y)| (y - dot(row, &coefficients)).powi(2)).sum();
        let mean = values.iter().sum::<f64>() / number(count);
        let total: f64 = values.iter().map(|y| (y - mean).powi(2)).sum();
        let variance = residual / number(count - terms);
        let errors = (0..terms).map(|term| (variance * inverse[term][term]).sqrt()).collect();
        Ok(Self {
            coefficients,
            errors,
            r_square: if total > 0.0 { 1.0 - residual / total } else { 1.0 },
            deviation: variance.sqrt(),
            freedom: u32::try_from(count - terms).unwrap_or(u32::MAX),
            inverse,
        })
    }

    /// Returns the value at a point.
    pub fn predict(&self, point: &[f64]) -> f64 {
        dot(&self.coefficients, point)
    }

    /// Returns the value at a point that one more measurement stays below in 97.5 % of cases: the
    /// upper end of the 95 % prediction interval.
    pub fn upper(&self, point: &[f64]) -> f64 {
        let spread: f64 = self.inverse.iter().zip(point).map(|(row, x)| x * dot(row, point)).sum();
        let deviation = self.deviation * (1.0 + spread.max(0.0)).sqrt();
        self.predict(point) + student_975(self.freedom) * deviation
    }

    /// Returns why a fit that was read is not a fit of `terms` terms; `None` if it is.
    pub(crate) fn flaw(&self, terms: usize) -> Option<String> {
        for (name, values) in [("coefficients", &self.coefficients), ("errors", &self.errors)] {
            if values.len() != terms {
                return Some(format!("{} {name} of {terms} terms", values.len()));
            }
        }
        if self.inverse.len() != terms || self.inverse.iter().any(|row| row.len() != terms) {
            return Some(format!("inverse is not {terms} by {terms}"));
        }
        if self.freedom == 0 || self.deviation < 0.0 || self.r_square > 1.0 {
            return Some("no fit has such freedom, deviation or r_square".to_owned());
        }
        let each =
            self.coefficients.iter().chain(&self.errors).chain(self.inverse.iter().flatten());
        let finite = each.chain([&self.deviation, &self.r_square]).all(|value| value.is_finite());
        (!finite).then(|| "a number is not finite".to_owned())
    }

    /// Returns half the width of the 95 % interval of a coefficient.
    pub fn interval(&self, term: usize) -> f64 {
        self.errors.get(term).map_or(f64::NAN, |error| student_975(self.freedom) * error)
    }
}

/// Returns (XᵀX)⁻¹; `None` if it is singular to the precision of a double.
fn inverse_of_normal(points: &[Vec<f64>], scale: &[f64]) -> Option<Vec<Vec<f64>>> {
    let terms = scale.len();
    let mut rows: Vec<Vec<f64>> = (0..terms)
        .map(|a| {
            let normal = (0..terms)
                .map(|b| points.iter().map(|row| row[a] / scale[a] * (row[b] / scale[b])).sum());
            let unit = (0..terms).map(|b| if a == b { 1.0 } else { 0.0 });
            normal.chain(unit).collect()
        })
        .collect();
    for pivot in 0..terms {
        let best = (pivot..terms)
            .max_by(|a, b| rows[*a][pivot].abs().total_cmp(&rows[*b][pivot].abs()))?;
        rows.swap(pivot, best);
        let head = rows[pivot][pivot];
        if head.abs() < SINGULAR {
            return None;
        }
        rows[pivot].iter_mut().for_each(|value| *value /= head);
        let chosen = rows[pivot].clone();
        for (index, row) in rows.iter_mut().enumerate().filter(|(index, _)| *index != pivot) {
            debug_assert_ne!(index, pivot, "the chosen row stays as it is");
            let factor = row[pivot];
            row.iter_mut().zip(&chosen).for_each(|(value, other)| *value -= factor * other);
        }
    }
    let unscaled = |a: usize, b: usize| rows[a][terms + b] / (scale[a] * scale[b]);
    Some((0..terms).map(|a| (0..terms).map(|b| unscaled(a, b)).collect()).collect())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// Returns the 97.5 % quantile of Student's distribution. Beyond the table the expansion of Cornish
/// and Fisher to its second term (Abramowitz and Stegun 26.7.5), right to 0.003 from 11 on.
fn student_975(freedom: u32) -> f64 {
    let index = usize::try_from(freedom).unwrap_or(usize::MAX);
    if let Some(value) = STUDENT.get(index.wrapping_sub(1)) {
        return *value;
    }
    let (z, n) = (1.959_964_f64, f64::from(freedom.max(1)));
    let first = (z.powi(3) + z) / 4.0;
    let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
    z + first / n + second / (n * n)
}

#[expect(clippy::cast_precision_loss, reason = "a fit has far fewer than 2^53 points")]
const fn number(count: usize) -> f64 {
    count as f64
}

/// Freedoms 1 to 10.
const STUDENT: [f64; 10] = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228];
/// Pivots of unit columns below this are rounding.
const SINGULAR: f64 = 1e-12;

#[cfg(test)]
mod tests {
    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs().max(1.0)
    }

    #[test]
    fn an_exact_line_is_found() {
        let points: Vec<Vec<f64>> = (0..9).map(|x| vec![1.0, f64::from(x)]).collect();
        let values: Vec<f64> = (0..9).map(|x| 3.0 + 0.5 * f64::from(x)).collect();
        let fit = LinearFit::of(&points, &values).unwrap();
        assert!(near(fit.coefficients[0], 3.0) && near(fit.coefficients[1], 0.5), "{fit:?}");
        assert!(near(fit.r_square, 1.0) && fit.deviation < 1e-9);
        assert!((fit.upper(&[1.0, 20.0]) - 13.0).abs() < 1e-6);
    }

    /// Anscombe's first quartet (1973): published to two digits.
    #[test]
    fn a_known_regression_is_reproduced() {
        let x = [10., 8., 13., 9., 11., 14., 6., 4., 12., 7., 5.];
        let y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68];
        let points: Vec<Vec<f64>> = x.iter().map(|x| vec![1.0, *x]).collect();
        let fit = LinearFit::of(&points, &y).unwrap();
        assert!((fit.coefficients[0] - 3.00).abs() < 0.01);
        assert!((fit.coefficients[1] - 0.50).abs() < 0.001);
        assert!((fit.r_square - 0.667).abs() < 0.001);
        assert!((fit.errors[0] - 1.125).abs() < 0.001 && (fit.errors[1] - 0.118).abs() < 0.001);
        assert!((fit.deviation - 1.237).abs() < 0.001);
    }

    #[test]
    fn what_has_no_fit_is_refused() {
        let row = |x: f64| vec![1.0, x];
        let two = [row(1.0), row(2.0)];
        assert!(matches!(LinearFit::of(&two, &[1.0, 2.0]), Err(LeastSquaresError::TooFew { .. })));
        let same = [row(1.0), row(1.0), row(1.0)];
        assert_eq!(LinearFit::of(&same, &[1.0, 2.0, 3.0]), Err(LeastSquaresError::Singular));
        let zero = [row(0.0), row(0.0), row(0.0)];
        assert_eq!(LinearFit::of(&zero, &[1.0, 2.0, 3.0]), Err(LeastSquaresError::Singular));
        let bad = [row(1.0), row(f64::NAN), row(2.0)];
        assert_eq!(LinearFit::of(&bad, &[1., 2., 3.]), Err(LeastSquaresError::Point { point: 1 }));
        let uneven = [row(1.0), vec![1.0], row(2.0)];
        assert_eq!(
            LinearFit::of(&uneven, &[1., 2., 3.]),
            Err(LeastSquaresError::Point { point: 1 })
        );
    }

    #[test]
    fn the_quantiles_go_on_behind_the_table() {
        for (freedom, expected) in [(1, 12.706), (10, 2.228), (11, 2.201), (30, 2.042), (99, 1.984)]
        {
            assert!((student_975(freedom) - expected).abs() < 3e-3, "{freedom}");
        }
    }

    /// A file may hold anything: what does not fit together is named before it is used.
    #[test]
    fn a_fit_that_was_tampered_with_has_a_flaw() {
        let rows: Vec<Vec<f64>> = (1..6).map(|x| vec![1.0, f64::from(x)]).collect();
        let fit = LinearFit::of(&rows, &[1.0, 2.0, 3.5, 4.0, 5.0]).unwrap();
        assert_eq!(fit.flaw(2), None);
        assert_eq!(fit.flaw(3).unwrap(), "2 coefficients of 3 terms");
        let mut short = fit.clone();
        short.inverse[1].pop();
        assert_eq!(short.flaw(2).unwrap(), "inverse is not 2 by 2");
        let infinite = LinearFit { coefficients: vec![1.0, f64::NAN], ..fit.clone() };
        assert_eq!(infinite.flaw(2).unwrap(), "a number is not finite");
        let impossible = LinearFit { freedom: 0, ..fit };
        assert!(impossible.flaw(2).unwrap().starts_with("no fit has such freedom"));
    }
}
