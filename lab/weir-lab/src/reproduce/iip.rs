// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab reproduce iip`.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use weir_platform::failure::{Failure, UsageError};
use weir_platform::output::print;
use weir_suites::reproduce::iip::{self, FIGURES, IipFigure, draw, page};

use super::figure_set::{ALL, REPORT, duration_text, record, results, simulate, unknown};
use crate::output::Output;
use crate::run_on::RunOn;
use crate::sim_options::SimOptions;

/// Three parallel internets through one node: fig5 to fig12, table1, and what the text left open.
#[derive(Debug, Args)]
pub(crate) struct ReproduceIip {
    /// fig5 to fig12, table1, phases, hops; all of them from the same runs; report: a page of these
    figure: String,
    /// Place of the runs; sim: in virtual time, which has all
    #[arg(long, value_name = "PLACE", default_value = "lab")]
    on: RunOn,
    #[command(flatten)]
    sim: SimOptions,
    #[command(flatten)]
    output: Output,
}

impl ReproduceIip {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        self.sim.check(self.on)?;
        let figure = FIGURES.iter().find(|known| known.name == self.figure);
        if self.on == RunOn::Sim {
            return simulate("iip", &self.figure, (&self.sim, &self.output));
        }
        match (self.figure.as_str(), figure) {
            (_, Some(figure)) => self.make(Some(figure)),
            (ALL, _) => self.make(None),
            (REPORT, _) => self.report(),
            (wrong, _) => {
                let names = FIGURES.iter().map(|known| known.name);
                Err(UsageError(unknown("figure", wrong, names)).into())
            }
        }
    }

    fn make(&self, figure: Option<&IipFigure>) -> Result<ExitCode, Failure> {
        let length = duration_text(iip::length(self.output.quick, figure)?);
        Output::say(&format!("iip {}: takes {length}", self.figure));
        let result = record(&self.output, |rec| iip::run(rec, figure))?;
        let shown: Vec<&IipFigure> =
            figure.map_or_else(|| FIGURES.iter().collect(), |figure| vec![figure]);
        let name = format!("reproduce/{}", place(&self.figure));
        draw::write(&shown, &result, &self.output.folder(&name))?;
        if !self.output.json {
            for figure in shown {
                print(&format!("\n{}: {}\n\n", figure.name, figure.title))?;
                print(&page::table(figure, &result))?;
            }
        }
        // Nothing is judged, so a result without cases is no failure.
        self.output.finish(&name, &result)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Writes the page and its pictures from the result of `all`.
    fn report(&self) -> Result<ExitCode, Failure> {
        let made = results(&self.output, [(ALL, place(ALL))])?;
        let page = page::write(Path::new("."), made.first().map(|(_, result)| result))?;
        print(&format!("{}\n", page.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The folder of a result among the others.
fn place(name: &str) -> String {
    format!("iip-{name}")
}
