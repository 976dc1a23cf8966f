// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab reproduce em`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use weir_platform::failure::{Failure, UsageError};
use weir_platform::output::print;
use weir_result::ResultFile;
use weir_suites::reproduce::em;
use weir_suites::reproduce::em_figures::EmFigure;

use super::figure_set::{ALL, REPORT, make_all, record, results, simulate, unknown};
use crate::output::Output;
use crate::run_on::RunOn;
use crate::sim_options::SimOptions;

/// Requests for guaranteed connections, what tunnels carry, and both beside a controller of flows
/// and MPLS.
#[derive(Debug, Args)]
pub(crate) struct ReproduceEm {
    /// fig2 to fig4, table1 to table3; comparison: beside a controller and MPLS; all of them;
    /// report: a page of the results
    what: String,
    /// Place of the runs; sim: in virtual time, which has table2 and table3
    #[arg(long, value_name = "PLACE", default_value = "lab")]
    on: RunOn,
    #[command(flatten)]
    sim: SimOptions,
    #[command(flatten)]
    output: Output,
}

impl ReproduceEm {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        self.sim.check(self.on)?;
        let known = names().find(|name| *name == self.what);
        if [ALL, REPORT].contains(&self.what.as_str()) && self.output.json {
            let wrong = format!("--json: '{}' makes more than one result", self.what);
            return Err(UsageError(wrong).into());
        }
        if self.on == RunOn::Sim {
            return simulate("em", &self.what, (&self.sim, &self.output));
        }
        match (self.what.as_str(), known) {
            (_, Some(name)) => one(name, &self.output),
            (ALL, _) => {
                let figures = EmFigure::ALL.map(|figure| (figure.name, figure.length));
                let comparison = (COMPARISON, Duration::from_secs(240));
                let all: Vec<_> = figures.into_iter().chain([comparison]).collect();
                make_all(&all, |name| one(name, &self.output.part(&place(name))))
            }
            (REPORT, _) => self.report(),
            (wrong, _) => Err(UsageError(unknown("experiment", wrong, names())).into()),
        }
    }

    /// Writes the page from the results of `all` or of single experiments.
    fn report(&self) -> Result<ExitCode, Failure> {
        let made = results(&self.output, names().map(|name| (name, place(name))))?;
        let of = |name: &str| made.iter().find(|(own, _)| *own == name).map(|(_, result)| result);
        let figures = EmFigure::ALL.iter();
        let figures = figures.filter_map(|figure| Some((*figure, of(figure.name)?.clone())));
        let figures: Vec<(EmFigure, ResultFile)> = figures.collect();
        // A guest has an emulated processor and makes quick runs only.
        let mut quick = self.output.clone();
        quick.quick = true;
        let guest = results(&quick, [(GUEST, place(GUEST))])?;
        let guest = guest.first().map(|(_, result)| result);
        let page = em::write(Path::new("."), &figures, of(COMPARISON), guest)?;
        print(&format!("{}\n", page.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn one(name: &'static str, output: &Output) -> Result<ExitCode, Failure> {
    let figure = EmFigure::ALL.into_iter().find(|figure| figure.name == name);
    let result = match figure {
        Some(figure) => record(output, |rec| figure.run(rec))?,
        None => record(output, em::run)?,
    };
    if !output.json {
        let table = match figure {
            Some(figure) => figure.head().to_owned() + &figure.rows(&result),
            None => em::table(&result),
        };
        print(&table)?;
    }
    output.finish(&format!("reproduce/{}", place(name)), &result)
}

fn names() -> impl Iterator<Item = &'static str> {
    EmFigure::ALL.map(|figure| figure.name).into_iter().chain([COMPARISON])
}

/// The folder of a result among the others.
fn place(name: &str) -> String {
    format!("em-{name}")
}

const COMPARISON: &str = "comparison";

/// The name of the comparison's result that a guest left.
const GUEST: &str = "comparison-guest";
