// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir plan`: slices onto nodes, as a table for people and as JSON.

mod text;
mod view;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use weir_plan::{PlanAnswer, PlanEffort};
use weir_platform::failure::Failure;
use weir_platform::output;

/// Place slices on nodes: whether they fit, where, with which caps and phases. Nothing is changed.
#[derive(Debug, Args)]
pub(crate) struct PlanCommand {
    /// The nodes and slices, as TOML: docs/planning.md
    file: PathBuf,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print each node, however many there are
    #[arg(long)]
    all: bool,
}

impl PlanCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let named = |error: &dyn std::fmt::Display| format!("{}: {error}", self.file.display());
        let text = fs::read_to_string(&self.file).map_err(|error| named(&error))?;
        let request = weir_plan::read_request(&text).map_err(|problems| named(&problems))?;
        let answer = weir_plan::plan(&request, &PlanEffort::default());
        if self.json {
            output::print_own(&view::answer(&request, &answer))?;
        } else {
            output::print(&text::answer(&request, &answer, self.all))?;
        }
        Ok(match answer {
            PlanAnswer::Placed(_) => ExitCode::SUCCESS,
            PlanAnswer::Refused(_) => ExitCode::from(REFUSED),
        })
    }
}

/// The exit status of a request that does not fit.
const REFUSED: u8 = 5;
