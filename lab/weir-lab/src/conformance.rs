// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab conformance`: what a data plane holds, experiment by experiment.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use clap::builder::PossibleValuesParser;
use weir_experiment::product;
use weir_experiment::{ExperimentError, Recording};
use weir_platform::output::print;
use weir_result::ResultFile;
use weir_suites::conformance::{
    Experiment, ExperimentLine, Laboratory, PLANES, Plane, compare, experiments, names,
    nothing_beside, table,
};

use crate::output::{Output, origin};
use weir_platform::failure::{Failure, UsageError};

/// Run one suite of isolation experiments on a data plane.
#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// The data plane; without one, planes and experiments are listed
    #[arg(long, value_name = "PLANE", value_parser = planes())]
    on: Option<String>,
    /// Only this experiment; may be repeated
    #[arg(long, value_name = "NAME", value_parser = experiment_names())]
    only: Vec<String>,
    /// A result on another data plane: shares are compared with the median of all these
    #[arg(long, value_name = "FILE")]
    against: Vec<PathBuf>,
    /// Name of the lab: runs of different names can be made at the same time
    #[arg(long, value_name = "NAME", default_value = "conf")]
    lab: String,
    #[command(flatten)]
    output: Output,
}

impl Conformance {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Some(name) = &self.on else {
            list()?;
            return Ok(ExitCode::SUCCESS);
        };
        let unknown = || UsageError(format!("no data plane '{name}'"));
        let plane = PLANES.iter().find(|plane| plane.name == name).ok_or_else(unknown)?;
        self.make(plane, &self.experiments()?)
    }

    fn make(&self, plane: &Plane, experiments: &[Experiment]) -> Result<ExitCode, Failure> {
        let started = Instant::now();
        let mut say = Output::say;
        if plane.is_on_the_wire() {
            product::path()?;
        }
        let mut trial = Recording::new(ResultFile::new(origin()), self.output.quick, &mut say);
        let mut lines = Vec::new();
        let mut beside = nothing_beside;
        let mut laboratory = Laboratory { plane, name: &self.lab, beside: &mut beside };
        let mut first_error = None;
        for experiment in experiments {
            // One experiment that cannot be made must not hide the others.
            match experiment.run(&mut trial, &mut laboratory) {
                Ok(line) => lines.push(line),
                Err(ExperimentError::Interrupted) => {
                    return Err(ExperimentError::Interrupted.into());
                }
                Err(error) => {
                    let text = format!("conformance.{}: not made: {error}", experiment.name());
                    trial.say(&text);
                    trial.result.add_note(text.clone());
                    lines.push(ExperimentLine::not_made(experiment.name(), error.to_string()));
                    first_error.get_or_insert(text);
                }
            }
        }
        if !self.against.is_empty() {
            compare(&mut trial, &self.others()?)?;
        }
        let mut result = trial.result;
        result.set_duration_s(started.elapsed().as_secs_f64());
        if !self.output.json {
            print(&format!("\n{}\n", table(&lines)))?;
        }
        let status = self.output.finish(&format!("conformance/{}", plane.name), &result)?;
        if let Some(first) = first_error {
            return Err(first.into());
        }
        if result.cases().is_empty() {
            // Nothing judged is nothing shown: a script must not take it for a success.
            return Err(format!("{}: all of these experiments were skipped", plane.name).into());
        }
        Ok(status)
    }

    /// Reads the results to compare with.
    fn others(&self) -> Result<Vec<ResultFile>, Failure> {
        let read = |path: &PathBuf| {
            let text =
                std::fs::read_to_string(path).map_err(|error| ExperimentError::io(path, error))?;
            Ok(ResultFile::from_json(&text).map_err(ExperimentError::from)?)
        };
        self.against.iter().map(read).collect()
    }

    fn experiments(&self) -> Result<Vec<Experiment>, ExperimentError> {
        let mut wanted = experiments()?;
        wanted.retain(|experiment| {
            self.only.is_empty() || self.only.iter().any(|name| name == experiment.name())
        });
        Ok(wanted)
    }
}

fn planes() -> PossibleValuesParser {
    PLANES.iter().map(|plane| plane.name).collect::<Vec<_>>().into()
}

fn experiment_names() -> PossibleValuesParser {
    names().collect::<Vec<_>>().into()
}

fn list() -> Result<(), Failure> {
    let mut text = String::from("data planes\n");
    for plane in PLANES {
        text += &format!("  {:14} {}\n", plane.name, plane.about);
    }
    text += "experiments\n";
    for experiment in experiments()? {
        text += &format!("  {:14} {}\n", experiment.name(), experiment.scenario.title);
    }
    Ok(print(&text)?)
}
