// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments of the Jitter text, made again: those of its shaper in virtual time, the same
//! senders through Xen's own bucket, a token bucket, a pacer, the text's smooth window under its
//! linear controller, and the window that ships; those of its scheduler on this machine
//! ([`timely`]).
//!
//! The scenarios of the shaper are those of rows 7 and 8 of `weir-lab verify jitter`, which judges
//! them; here they are drawn ([`draw`]) and put beside the text's words ([`page`]).

pub mod draw;
pub mod page;
mod results;
pub mod timely;

use weir_experiment::prelude::*;
use weir_result::ResultFile;

use crate::jitter::scenario::ShapedScenario;
use crate::jitter::smooth;

/// An experiment that was made: its name, its scenario, its result.
pub type MadeExperiment = (&'static str, ShapedScenario, ResultFile);

/// Makes an experiment. Series are named as [`page`] reads them.
pub fn run(trial: &mut Recording<'_>, name: &str, scenario: &ShapedScenario) -> Result {
    smooth::record(trial, name, scenario)
}
