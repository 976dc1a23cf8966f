// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of the IIP text, made again: three streams of three parallel internets at once
//! through a node with three guests.
//!
//! The runs are those of `lab/scenarios/iip/guests.toml`, which rows 8 and 12 of `weir-lab verify
//! iip` judge in part; here they are drawn ([`draw`]) and put beside the text's words and numbers
//! ([`page`]).

pub mod draw;
mod figures;
mod loads;
pub mod page;

use std::time::Duration;

use weir_experiment::prelude::*;

pub use figures::{FIGURES, IipFigure};

use crate::guests::scenario::{GuestScenario, GuestSweep, SWEEPS};
use crate::guests::sweep;

/// Makes all runs of the text, or those of one figure.
pub fn run(rec: &mut Recording<'_>, figure: Option<&IipFigure>) -> Result {
    let scenario = GuestScenario::load(rec.quick)?;
    for name in SWEEPS {
        let Some(made) = needed(&scenario, name, figure)? else { continue };
        sweep::run(rec, &scenario, &made)?;
    }
    Ok(())
}

/// Returns about how long that takes.
///
/// # Errors
/// The scenario is wrong.
pub fn length(quick: bool, figure: Option<&IipFigure>) -> Result<Duration> {
    let scenario = GuestScenario::load(quick)?;
    let trial = Duration::from_nanos(scenario.trial.as_nanos()) + BETWEEN;
    let mut all = Duration::ZERO;
    for name in SWEEPS {
        let Some(made) = needed(&scenario, name, figure)? else { continue };
        let loads = made.sizes.iter().map(|size| scenario.loads(size).len()).sum::<usize>();
        let loads = u32::try_from(loads).unwrap_or(u32::MAX);
        all += trial * loads.saturating_mul(scenario.repeats(&made));
    }
    Ok(all)
}

/// The part of a sweep that a figure needs, if any.
fn needed(
    scenario: &GuestScenario,
    name: &str,
    figure: Option<&IipFigure>,
) -> Result<Option<GuestSweep>> {
    let sweep = scenario.sweep(name)?;
    let Some(figure) = figure else { return Ok(Some(sweep)) };
    let part = figure.sweeps.contains(&name).then(|| sweep.with_sizes(figure.sizes));
    Ok(part.filter(|part| !part.sizes.is_empty()))
}

/// A guest starts, the tester waits for the last packet.
const BETWEEN: Duration = Duration::from_millis(700);
