// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab sim`: runs in virtual time.

use std::collections::BTreeSet;
use std::process::ExitCode;

use clap::{Args, Subcommand};
use weir_experiment::Recording;
use weir_suites::swarm::{self, SwarmMutant, SwarmSpec};

use crate::output::Output;
use weir_platform::failure::{Failure, UsageError};

/// Runs in virtual time.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Break the daemon's logic: random policies, loads, faults, changes, crashes
    Swarm(Swarm),
}

/// Break the daemon's logic: random policies, loads, faults, changes, crashes.
#[derive(Debug, Args)]
pub(crate) struct Swarm {
    /// Number of seeds; each is one run
    #[arg(long, value_name = "COUNT", default_value_t = 300)]
    seeds: u64,
    /// First seed
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Plant this fault in the harness
    #[arg(long, value_name = "NAME")]
    mutant: Option<SwarmMutant>,
    /// Only these events of a single seed, by position, or `none`: what a failure prints
    #[arg(long, value_name = "EVENTS")]
    keep: Option<String>,
    #[command(flatten)]
    output: Output,
}

impl SimCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Swarm(command) => command.run(),
        }
    }
}

impl Swarm {
    fn run(self) -> Result<ExitCode, Failure> {
        let kept = self.kept()?;
        let seeds = if self.output.quick { self.seeds.min(QUICK_SEEDS) } else { self.seeds };
        let end = self.from.saturating_add(seeds);
        let spec = SwarmSpec { seeds: self.from..end, mutant: self.mutant, kept };
        let run = |rec: &mut Recording<'_>| Ok(swarm::record(rec, &spec)?);
        let (result, failure) = self.output.measure(run)?;
        if let Some(failure) = failure {
            eprintln!("{failure}");
        }
        if !self.output.json {
            println!("{result}");
        }
        self.output.finish("sim/swarm", &result)
    }

    fn kept(&self) -> Result<Option<BTreeSet<usize>>, Failure> {
        let Some(text) = &self.keep else { return Ok(None) };
        if self.seeds != 1 {
            let text = format!("--keep is for one seed, --seeds says {}", self.seeds);
            return Err(UsageError(text).into());
        }
        if text == "none" {
            return Ok(Some(BTreeSet::new()));
        }
        let number = |part: &str| {
            part.parse().map_err(|_| UsageError(format!("--keep: {part:?} is no position")))
        };
        Ok(Some(text.split(',').map(number).collect::<Result<_, _>>()?))
    }
}

/// Seeds of a quick run, at most.
const QUICK_SEEDS: u64 = 20;
