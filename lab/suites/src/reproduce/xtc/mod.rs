// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments of the XTC text, made again on routers of the lab: the text's controllers, with
//! their poles on the lab's own a and b, beside Weir's two.
//!
//! The text's flow of 100 kp/s nearly filled its router. Here *the flow* is seven tenths of what
//! the router forwards of a flood, so that there is a cap threshold as there, and rates are told in
//! parts of what the router forwards of a load with its largest cap: its capacity.

mod chain;
pub mod draw;
pub mod figures;
mod flow;
pub mod page;
mod picture;
mod results;
mod shares;
mod sweep;
mod table;
#[cfg(test)]
mod tests;
mod training;

pub use figures::{FIGURES, Figure, figure};

use std::time::Duration;

use figures::FigureKind;
use weir_experiment::{ExperimentError, Recording};

use crate::routers::{Chain, RouterKind};

/// Makes a figure on a router of that kind. Series are named as [`page`] reads them.
pub fn run(
    trial: &mut Recording<'_>,
    figure: &Figure,
    kind: RouterKind,
) -> Result<(), ExperimentError> {
    match &figure.made {
        FigureKind::Curve(curve) => curve.run(trial, kind),
        FigureKind::Residuals => training::residuals(trial, kind),
        FigureKind::Sweep(sweep) => sweep.run(trial, kind),
        FigureKind::Shares(shares) => shares.run(trial, kind),
        FigureKind::Chain => chain::run(trial, kind),
    }
}

/// Returns the length of its experiment, nearly.
pub fn length(figure: &Figure, quick: bool) -> Duration {
    let seconds = match &figure.made {
        FigureKind::Curve(curve) => curve.seconds(quick),
        FigureKind::Residuals => training::residual_seconds(quick),
        FigureKind::Sweep(sweep) => sweep.seconds(quick),
        FigureKind::Shares(shares) => shares.seconds(quick),
        FigureKind::Chain => Chain::of(quick).seconds(),
    };
    Duration::from_secs(seconds)
}
