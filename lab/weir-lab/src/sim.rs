// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab sim`: runs in virtual time.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use weir_experiment::Recording;
use weir_suites::sim::SimScenario;
use weir_suites::swarm::{self, SwarmMutant, SwarmSpec};

use crate::output::Output;
use crate::sim_options::SimOptions;
use weir_platform::failure::{Failure, UsageError};

/// Runs in virtual time.
#[derive(Debug, Subcommand)]
pub(crate) enum SimCommand {
    /// Run a scenario file of the laboratory in virtual time
    Run(RunScenario),
    /// Break the daemon's logic: random policies, loads, faults, changes, crashes
    Swarm(Swarm),
}

/// Run a scenario file of the laboratory in virtual time.
#[derive(Debug, Args)]
pub(crate) struct RunScenario {
    /// The scenario: an experiment of the conformance suite, a figure, a sender through shapers
    file: PathBuf,
    #[command(flatten)]
    sim: SimOptions,
    #[command(flatten)]
    output: Output,
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
            Self::Run(command) => command.run(),
            Self::Swarm(command) => command.run(),
        }
    }
}

impl RunScenario {
    fn run(self) -> Result<ExitCode, Failure> {
        let (file, name) = (self.file.display().to_string(), name_of(&self.file));
        let text =
            weir_platform::text::read(&self.file).map_err(|error| format!("{file}: {error}"))?;
        let scenario = SimScenario::read(&file, &text)?;
        let folder = format!("sim/{name}");
        let run = |rec: &mut Recording<'_>| {
            rec.set_sim(self.sim.arm(&self.output, &folder));
            Ok(scenario.run(rec, &name)?)
        };
        let (result, ()) = self.output.measure(run)?;
        if !self.output.json {
            println!("{result}");
        }
        if result.cases().is_empty() {
            // A run that judges nothing must not look like a success.
            return Err(format!("{file}: nothing of it was judged").into());
        }
        self.output.finish(&folder, &result)
    }
}

/// Returns a scenario's name for folders and series: its file's name, in which each character other
/// than letters, digits and `-` becomes `-`.
fn name_of(file: &Path) -> String {
    let stem = file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    stem.unwrap_or_default().chars().take(NAME_MAX).map(plain).collect()
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

/// Most seeds of a quick run.
const QUICK_SEEDS: u64 = 20;

/// Most characters of a scenario's name.
const NAME_MAX: usize = 32;
