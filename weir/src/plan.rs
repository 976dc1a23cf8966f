// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir plan`: slices onto nodes, as a table for people and as JSON; and plans on running nodes,
//! applied and measured.

mod apply;
mod change_set;
mod delay;
#[cfg(test)]
mod fake_node;
mod file;
mod journal;
mod recover;
mod running;
mod text;
mod verdict;
mod verified;
mod verify;
mod view;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use weir_plan::PlanAnswer;
use weir_platform::failure::{Failure, UsageError};
use weir_platform::output;

use self::file::{REFUSED, answer, read};

/// Place slices on nodes: whether they fit, where, with which caps and phases. Nothing is changed.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct PlanCommand {
    #[command(subcommand)]
    command: Option<PlanOnNodes>,
    /// The nodes and slices, as TOML: docs/planning.md
    file: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print each node, however many there are
    #[arg(long)]
    all: bool,
}

/// A plan on running nodes.
#[derive(Debug, Subcommand)]
enum PlanOnNodes {
    /// Bring a plan to its running nodes: all of it, or nothing
    Apply(apply::PlanApply),
    /// Take back what an apply that was cut off had changed, or make the rest of it
    Recover(recover::PlanRecover),
    /// Measure on the running nodes whether what was planned is held
    Verify(verify::PlanVerify),
}

impl PlanCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self.command {
            Some(PlanOnNodes::Apply(command)) => return command.run(),
            Some(PlanOnNodes::Recover(command)) => return command.run(),
            Some(PlanOnNodes::Verify(command)) => return command.run(),
            None => {}
        }
        let file = self.file.ok_or_else(|| {
            UsageError("weir plan takes a FILE, or one of apply, recover and verify".to_owned())
        })?;
        let request = read(&file)?;
        let answer = answer(&request);
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
