// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab conformance`: runs the suite's experiments on a data plane and judges each.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use clap::builder::PossibleValuesParser;
use weir_experiment::{ExperimentError, Recording, product};
use weir_platform::machine;
use weir_platform::output::print;
use weir_result::ResultFile;
use weir_suites::conformance::matrix::{MatrixColumn, with_column};
use weir_suites::conformance::{
    ExperimentLine, ExperimentVerdict, Laboratory, PLANES, Plane, compare, experiments, names,
    nothing_beside, table,
};
use weir_units::BitRate;

use crate::output::Output;
use crate::sim_options::SimOptions;
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
    /// Scale each run down so that its tenants are not promised more than RATE together, and judge
    /// it to 5 %: for a machine without the speed for more, such as a guest without acceleration
    #[arg(long, value_name = "RATE")]
    rates_max: Option<BitRate>,
    /// Keep the outcome as the data plane's column of the matrix in FILE (docs/conformance.jsonl)
    #[arg(long, value_name = "FILE", requires = "on")]
    matrix: Option<PathBuf>,
    #[command(flatten)]
    sim: SimOptions,
    #[command(flatten)]
    output: Output,
}

impl Conformance {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let Some(name) = &self.on else {
            self.sim.refuse("the list")?;
            list()?;
            return Ok(ExitCode::SUCCESS);
        };
        let unknown = || UsageError(format!("no data plane '{name}'"));
        let plane = PLANES.iter().find(|plane| plane.name == name).ok_or_else(unknown)?;
        let folder = format!("conformance/{}", plane.name);
        if plane.is_on_the_wire() {
            self.sim.refuse(&format!("--on {name}"))?;
            product::path()?;
        }
        let run = |rec: &mut Recording<'_>| {
            if !plane.is_on_the_wire() {
                rec.set_sim(self.sim.arm(&self.output, &folder));
            }
            self.measure(rec, plane)
        };
        let (result, lines) = self.output.measure(run)?;
        if !self.output.json {
            print(&format!("\n{}\n", table(&lines)))?;
        }
        if let Some(file) = &self.matrix {
            self.keep(file, plane, &lines)?;
        }
        let status = self.output.finish(&folder, &result)?;
        for ExperimentLine { experiment, verdict, .. } in &lines {
            if let ExperimentVerdict::NotMade(why) = verdict {
                return Err(format!("conformance.{experiment}: not made: {why}").into());
            }
        }
        if result.cases().is_empty() {
            // A run that judges nothing must not look like a success.
            return Err(format!("{}: all of these experiments were skipped", plane.name).into());
        }
        Ok(status)
    }

    /// Runs the experiments. An experiment that fails to run does not keep the others from running.
    fn measure(
        &self,
        rec: &mut Recording<'_>,
        plane: &Plane,
    ) -> Result<Vec<ExperimentLine>, Failure> {
        let mut beside = nothing_beside;
        let place = Laboratory::new(plane, &self.lab, &mut beside, rec.sim.clone());
        let mut laboratory = Laboratory { rates_max: self.rates_max, ..place };
        let mut lines = Vec::new();
        for experiment in experiments()? {
            let name = experiment.name();
            if !self.only.is_empty() && !self.only.iter().any(|only| only == name) {
                continue;
            }
            lines.push(match experiment.run(rec, &mut laboratory) {
                Ok(line) => line,
                Err(ExperimentError::Interrupted) => {
                    return Err(ExperimentError::Interrupted.into());
                }
                Err(error) => {
                    let text = format!("conformance.{name}: not made: {error}");
                    rec.say(&text);
                    rec.result.add_note(text);
                    ExperimentLine::not_made(name, error.to_string())
                }
            });
        }
        if !self.against.is_empty() {
            compare(rec, &self.others()?)?;
        }
        Ok(lines)
    }

    /// Writes the outcome into the matrix.
    fn keep(&self, file: &Path, plane: &Plane, lines: &[ExperimentLine]) -> Result<(), Failure> {
        let column = MatrixColumn {
            plane: plane.name.to_owned(),
            kernel: machine::kernel().split('.').take(2).collect::<Vec<_>>().join("."),
            quick: self.output.quick,
            rates_max_bps: self.rates_max.map(BitRate::as_bps),
            lines: lines.to_vec(),
        };
        let text = match std::fs::read_to_string(file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            read => read.map_err(|error| ExperimentError::io(file, error))?,
        };
        let text = with_column(&text, column)
            .map_err(|error| format!("{}: no matrix: {error}", file.display()))?;
        Ok(std::fs::write(file, text).map_err(|error| ExperimentError::io(file, error))?)
    }

    /// Reads the results of other data planes, for comparison.
    fn others(&self) -> Result<Vec<ResultFile>, Failure> {
        let read = |path: &PathBuf| {
            let text =
                std::fs::read_to_string(path).map_err(|error| ExperimentError::io(path, error))?;
            Ok(ResultFile::from_json(&text).map_err(ExperimentError::from)?)
        };
        self.against.iter().map(read).collect()
    }
}

fn planes() -> PossibleValuesParser {
    PLANES.iter().map(|plane| plane.name).collect::<Vec<_>>().into()
}

fn experiment_names() -> PossibleValuesParser {
    names().collect::<Vec<_>>().into()
}

/// Prints all data planes and experiments.
fn list() -> Result<(), Failure> {
    let mut text = String::from("data planes\n");
    for plane in PLANES {
        text += &format!("  {:14} {}\n", plane.name, plane.about);
    }
    text += "experiments\n";
    for experiment in experiments()? {
        text += &format!("  {:14} {}\n", experiment.name(), experiment.title);
    }
    Ok(print(&text)?)
}
