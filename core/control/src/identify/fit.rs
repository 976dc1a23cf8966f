// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first-order model of recorded runs, by least squares.

use core::fmt;

use super::identified::{Identified, OperatingPoint, Point};
use super::validate::{Residual, one_step, r_squared};
use crate::number::{kpps, log_cap};
use crate::{Model, ModelError};

/// Why no model follows from runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FitError {
    /// Fewer than 4 pairs of consecutive points.
    TooFew(usize),
    /// Rate and cap did not move, or only together.
    NotExcited,
    /// The best fit is not the model of a router.
    Model(ModelError),
}

/// Fits a and b by least squares over all pairs of consecutive points of all runs (§5.2), as
/// offsets from the means of these pairs. The points must lie below the
/// [`cap_threshold`](super::cap_threshold).
///
/// # Errors
/// Too few pairs; caps and rates that did not move enough to tell a from b; or numbers that are no
/// model.
pub fn fit(runs: &[&[Point]]) -> Result<Identified, FitError> {
    let pairs = || runs.iter().flat_map(|run| run.windows(2));
    let values =
        || pairs().map(|pair| (kpps(pair[0].rate), log_cap(pair[0].cap), kpps(pair[1].rate)));
    let count = pairs().count();
    if count < PAIRS_LEAST {
        return Err(FitError::TooFew(count));
    }
    let total = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    let rate_kpps = values().map(|(y, _, _)| y).sum::<f64>() / total;
    let operating_point =
        OperatingPoint { rate_kpps, log_cap: values().map(|(_, u, _)| u).sum::<f64>() / total };
    let (mut yy, mut yu, mut uu, mut yn, mut un) = (0.0, 0.0, 0.0, 0.0, 0.0);
    for (y, u, next) in values() {
        let (y, next) = (y - operating_point.rate_kpps, next - operating_point.rate_kpps);
        let u = u - operating_point.log_cap;
        yy += y * y;
        yu += y * u;
        uu += u * u;
        yn += y * next;
        un += u * next;
    }
    let determinant = yy * uu - yu * yu;
    // By Cauchy and Schwarz from 0, where rate and cap move together, to yy · uu.
    if uu < LOG_CAP_LEAST * LOG_CAP_LEAST * total || determinant <= COLLINEAR * yy * uu {
        return Err(FitError::NotExcited);
    }
    let a = (yn * uu - un * yu) / determinant;
    let b = (un * yy - yn * yu) / determinant;
    let model = Model::new(a, b).map_err(FitError::Model)?;
    let mut identified = Identified { model, operating_point, r_squared: 0.0, pairs: count };
    let residuals: alloc::vec::Vec<Residual> =
        runs.iter().flat_map(|run| one_step(&identified, run)).collect();
    identified.r_squared = r_squared(&residuals).unwrap_or(0.0);
    Ok(identified)
}

impl fmt::Display for FitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFew(count) => {
                write!(f, "{count} pairs of consecutive points, must be at least {PAIRS_LEAST}")
            }
            Self::NotExcited => write!(
                f,
                "caps and rates did not move enough to tell the model's a from its b: \
                 change the cap more, and more often"
            ),
            Self::Model(error) => write!(f, "what fits best is no router: {error}"),
        }
    }
}

impl core::error::Error for FitError {}

/// Two unknowns, and as many again to judge them by.
const PAIRS_LEAST: usize = 4;
/// Decades: caps that differ by less than a hundredth say nothing.
const LOG_CAP_LEAST: f64 = 0.004;
/// A part of what there could be, above what is rounding.
const COLLINEAR: f64 = 1e-9;
