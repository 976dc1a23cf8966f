// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir reproduce`: the experiments of a text, before and after.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use weir_result::ResultFile;
use weir_trials::reproduce::{self, NETBACK, Scenario, VARIANTS, figure, judge, report, runner};
use weir_trials::{Trial, TrialError};
use weir_units::Nanos;

use crate::Failure;
use crate::output::{Output, origin};

/// Make the experiments of a text again, before and after.
#[derive(Debug, Subcommand)]
pub(crate) enum Reproduce {
    /// Packet scheduling across virtual interfaces: fig5 to fig12, and what the text left open
    Netback(Netback),
}

/// Packet scheduling across virtual interfaces: fig5 to fig12, and what the text left open.
#[derive(Debug, Args)]
pub(crate) struct Netback {
    /// fig5 to fig12, tenants, sizes, gigabit; all; report: a page of the results
    figure: String,
    /// How often each run is made [default: as the scenario says]
    #[arg(long, value_name = "NUMBER")]
    repetitions: Option<u32>,
    /// Length of each run [default: as the scenario says]
    #[arg(long, value_name = "TIME")]
    duration: Option<Nanos>,
    /// A scenario of your own instead of the figure's; see docs/reproduce.md
    #[arg(long, value_name = "FILE")]
    scenario: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

impl Reproduce {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Netback(command) => command.run(),
        }
    }
}

impl Netback {
    fn run(self) -> Result<ExitCode, Failure> {
        match self.figure.as_str() {
            "report" => self.report(),
            "all" => self.all(),
            figure => self.one(figure, &self.output),
        }
    }

    /// One after the other, so that one that cannot be made does not hide the others.
    fn all(&self) -> Result<ExitCode, Failure> {
        let (mut status, mut failures) = (ExitCode::SUCCESS, Vec::new());
        for (figure, _) in NETBACK {
            let output = self.output.part(figure);
            match self.one(figure, &output) {
                Ok(done) if done == ExitCode::SUCCESS => {}
                Ok(done) => status = done,
                Err(failure) if is_interruption(&failure) => return Err(failure),
                Err(failure) => failures.push(format!("{figure}: {failure}")),
            }
        }
        match failures.first() {
            None => Ok(status),
            Some(first) => Err(format!("{} figures were not made; {first}", failures.len()).into()),
        }
    }

    fn one(&self, figure: &str, output: &Output) -> Result<ExitCode, Failure> {
        let scenario = self.scenario(figure)?;
        let started = Instant::now();
        let mut say = Output::say;
        let mut trial = Trial::new(ResultFile::new(origin()), output.quick, &mut say);
        let lab = format!("netback-{figure}");
        let at = reproduce::Place { lab: &lab, prefix: "", variants: &VARIANTS };
        runner::run(&mut trial, &scenario, at)?;
        // What was measured is kept, whatever can be said of it.
        let judged = judge::judge(&mut trial, &scenario, at);
        report::note(&mut trial, &scenario);
        let mut result = trial.result;
        result.set_duration_s(started.elapsed().as_secs_f64());
        let name = format!("reproduce/netback-{figure}");
        figure::write(&result, &scenario, &output.folder(&name))?;
        if !output.json {
            println!("{result}");
        }
        let status = output.finish(&name, &result)?;
        judged?;
        Ok(status)
    }

    fn scenario(&self, figure: &str) -> Result<Scenario, Failure> {
        let mut scenario = match &self.scenario {
            None => reproduce::netback(figure)?,
            Some(path) => {
                let name = path.display().to_string();
                let text =
                    weir_host::text::read(path).map_err(|error| format!("{name}: {error}"))?;
                Scenario::parse(&name, &text)?
            }
        };
        if self.output.quick {
            scenario = scenario.quickly();
        }
        if let Some(repetitions) = self.repetitions {
            scenario.repetitions = repetitions;
        }
        if let Some(duration) = self.duration {
            scenario = scenario.lasting(Duration::from_nanos(duration.as_nanos()));
        }
        Ok(scenario.checked(figure)?)
    }

    /// The page and its pictures, from what `all` or single figures left.
    fn report(&self) -> Result<ExitCode, Failure> {
        let from = self.output.folder("reproduce");
        let mut figures = Vec::new();
        for (figure, _) in NETBACK {
            let path = from.join(format!("netback-{figure}")).join("result.json");
            let Ok(text) = std::fs::read_to_string(&path) else { continue };
            let result = ResultFile::from_json(&text)
                .map_err(|error| format!("{}: {error}", path.display()))?;
            figures.push((figure, reproduce::netback(figure)?, result));
        }
        report::write(std::path::Path::new("."), &figures)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn is_interruption(failure: &Failure) -> bool {
    matches!(failure.downcast_ref::<TrialError>(), Some(TrialError::Interrupted))
}
