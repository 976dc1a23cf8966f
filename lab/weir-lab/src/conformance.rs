// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab conformance`: what a data plane holds, experiment by experiment.

use std::process::ExitCode;
use std::time::Instant;

use clap::Args;
use clap::builder::PossibleValuesParser;
use weir_experiment::product;
use weir_experiment::{ExperimentError, Recording};
use weir_platform::output::print;
use weir_result::ResultFile;
use weir_suites::conformance::{DataPlane, EXPERIMENTS, Experiment, Line, plane, table};

use crate::output::{Output, origin};
use crate::{Failure, Usage};

/// Run one suite of isolation experiments on a data plane.
#[derive(Debug, Args)]
pub(crate) struct Conformance {
    /// The data plane; without one, planes and experiments are listed
    #[arg(long, value_name = "PLANE", value_parser = planes())]
    on: Option<String>,
    /// Only this experiment; may be repeated
    #[arg(long, value_name = "NAME", value_parser = experiments())]
    only: Vec<String>,
    /// Name of the lab: runs of different names can be made at the same time
    #[arg(long, value_name = "NAME", default_value = "conf")]
    lab: String,
    #[command(flatten)]
    output: Output,
}

impl Conformance {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let mut planes = plane::all();
        let Some(name) = &self.on else {
            list(&planes)?;
            return Ok(ExitCode::SUCCESS);
        };
        let unknown = || Usage(format!("no data plane '{name}'"));
        let index = planes.iter().position(|plane| plane.name() == name).ok_or_else(unknown)?;
        let plane = planes.swap_remove(index);
        self.make(plane, &self.experiments())
    }

    fn make(
        &self,
        mut plane: Box<dyn DataPlane>,
        experiments: &[&Experiment],
    ) -> Result<ExitCode, Failure> {
        let started = Instant::now();
        let mut say = Output::say;
        product::path()?;
        let mut trial = Recording::new(ResultFile::new(origin()), self.output.quick, &mut say);
        let mut lines = Vec::new();
        let mut first_error = None;
        for experiment in experiments {
            // One experiment that cannot be made must not hide the others.
            match experiment.run(&mut trial, plane.as_mut(), &self.lab) {
                Ok(line) => lines.push(line),
                Err(ExperimentError::Interrupted) => {
                    return Err(ExperimentError::Interrupted.into());
                }
                Err(error) => {
                    let text = format!("conformance.{}: not made: {error}", experiment.name);
                    trial.say(&text);
                    trial.result.add_note(text.clone());
                    lines.push(Line::not_made(experiment.name, error.to_string()));
                    first_error.get_or_insert(text);
                }
            }
        }
        let mut result = trial.result;
        result.set_duration_s(started.elapsed().as_secs_f64());
        if !self.output.json {
            print(&format!("\n{}\n", table(&lines)))?;
        }
        let status = self.output.finish(&format!("conformance/{}", plane.name()), &result)?;
        if let Some(first) = first_error {
            return Err(first.into());
        }
        if result.cases().is_empty() {
            // Nothing judged is nothing shown: a script must not take it for a success.
            return Err(format!("{}: all of these experiments were skipped", plane.name()).into());
        }
        Ok(status)
    }

    fn experiments(&self) -> Vec<&'static Experiment> {
        let wanted = |experiment: &&Experiment| {
            self.only.is_empty() || self.only.iter().any(|name| name == experiment.name)
        };
        EXPERIMENTS.iter().filter(wanted).collect()
    }
}

fn planes() -> PossibleValuesParser {
    plane::all().iter().map(|plane| plane.name()).collect::<Vec<_>>().into()
}

fn experiments() -> PossibleValuesParser {
    EXPERIMENTS.iter().map(|experiment| experiment.name).collect::<Vec<_>>().into()
}

fn list(planes: &[Box<dyn DataPlane>]) -> std::io::Result<()> {
    let mut text = String::from("data planes\n");
    for plane in planes {
        text += &format!("  {:14} {}\n", plane.name(), plane.about());
    }
    text += "experiments\n";
    for experiment in EXPERIMENTS {
        text += &format!("  {:14} {}\n", experiment.name, experiment.title);
    }
    print(&text)
}
