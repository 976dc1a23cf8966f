// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir lab` and `weir clean`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use weir_host::StateDir;
use weir_host::delay_line::{self, Pair};
use weir_host::journal::{self, Scope, UndoReport};
use weir_host::lab::{self, Topology};

use crate::{Failure, output};

/// A network of namespaces on this machine.
#[derive(Debug, Subcommand)]
pub(crate) enum Lab {
    /// Build it, or repair what is up of it
    Up {
        /// The topology
        file: PathBuf,
    },
    /// Take it down
    Down {
        /// The topology
        file: PathBuf,
    },
    /// Delay frames between devices of this namespace, until ended
    #[command(hide = true)]
    DelayLine {
        /// FROM,TO,DELAY,DELAY_BACK
        #[arg(required = true)]
        pairs: Vec<Pair>,
    },
    /// What is up of it
    Status {
        /// The topology
        file: PathBuf,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// Undo what runs that were killed left behind.
#[derive(Debug, Args)]
pub(crate) struct Clean {
    /// Labs that were brought up to stay, too
    #[arg(long)]
    all: bool,
}

impl Lab {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let state = StateDir::from_env();
        match self {
            Self::Up { file } => {
                let topology = read(&file)?;
                let name = topology.name.clone();
                lab::Lab::up(topology, &state)?.keep()?;
                println!("lab {name} is up");
            }
            Self::Down { file } => {
                return Ok(report(&lab::down(&read(&file)?.name, &state)?));
            }
            Self::DelayLine { pairs } => delay_line::run(&pairs)?,
            Self::Status { file, json } => {
                let status = lab::status(&read(&file)?)?;
                if json {
                    output::print_json(&status)?;
                } else {
                    output::print(&status.to_string())?;
                }
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Clean {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let scope = if self.all { Scope::All } else { Scope::Stale };
        Ok(report(&journal::clean(&StateDir::from_env(), scope)?))
    }
}

fn read(file: &Path) -> Result<Topology, Failure> {
    let text =
        weir_host::text::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    Topology::parse(&text).map_err(|problems| format!("{}:\n{problems}", file.display()).into())
}

fn report(report: &UndoReport) -> ExitCode {
    for what in &report.undone {
        println!("undone: {what}");
    }
    for what in &report.left {
        println!("left: {what}");
    }
    for what in &report.failed {
        eprintln!("not undone: {what}");
    }
    if report.failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
