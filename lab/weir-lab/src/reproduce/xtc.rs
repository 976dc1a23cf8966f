// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab reproduce xtc`.

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use weir_experiment::ExperimentError;
use weir_platform::failure::{Failure, UsageError};
use weir_platform::output::print;
use weir_suites::reproduce::xtc::{self, FIGURES, Figure, draw, page};
use weir_suites::routers::RouterKind;

use super::figure_set::{ALL, REPORT, duration_text, make_all, record, results, simulate, unknown};
use crate::output::Output;
use crate::run_on::RunOn;
use crate::sim_options::SimOptions;

/// Packet rates held by feedback: fig3 to fig18, fig20, table1, table2.
#[derive(Debug, Args)]
pub(crate) struct ReproduceXtc {
    /// fig3 to fig18, fig20, table1, table2; all of them; report: a page of the results
    figure: String,
    /// Kind of the lab's router: process or namespace [default: process]
    #[arg(long, value_name = "KIND", value_parser = kind)]
    router: Option<RouterKind>,
    /// Place of the runs; sim: in virtual time, which has table1, table2, fig5 to fig18, fig20
    #[arg(long, value_name = "PLACE", default_value = "lab")]
    on: RunOn,
    #[command(flatten)]
    sim: SimOptions,
    #[command(flatten)]
    output: Output,
}

impl ReproduceXtc {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        self.sim.check(self.on)?;
        let figure = self.figure.as_str();
        let several = [ALL, REPORT].contains(&figure);
        if !several && !FIGURES.iter().any(|known| known.name == figure) {
            let names = FIGURES.iter().map(|known| known.name);
            return Err(UsageError(unknown("figure", figure, names)).into());
        }
        if several && self.output.json {
            let wrong = format!("--json: '{figure}' makes more than one result");
            return Err(UsageError(wrong).into());
        }
        if self.on == RunOn::Sim {
            if let Some(router) = self.router {
                let wrong = format!("--router {}: it is of the lab; not --on sim", router.name());
                return Err(UsageError(wrong).into());
            }
            return simulate("xtc", figure, (&self.sim, &self.output));
        }
        match figure {
            REPORT => self.report(),
            ALL => self.all(),
            figure => self.one(xtc::figure(figure)?, &self.output),
        }
    }

    fn all(&self) -> Result<ExitCode, Failure> {
        let length = |figure: &Figure| (figure.name, xtc::length(figure, self.output.quick));
        make_all(&FIGURES.each_ref().map(length), |name| {
            let figure = xtc::figure(name)?;
            self.one(figure, &self.output.part(&self.place(figure)))
        })
    }

    fn one(&self, figure: &Figure, output: &Output) -> Result<ExitCode, Failure> {
        let length = duration_text(xtc::length(figure, output.quick));
        Output::say(&format!("{}: {}, takes {length}", figure.name, figure.title));
        let result = record(output, |trial| xtc::run(trial, figure, self.router()))?;
        let name = format!("reproduce/{}", self.place(figure));
        draw::write(figure, &result, &output.folder(&name))?;
        if !output.json {
            print(&page::table(figure, &result))?;
        }
        // Nothing is judged, so a result without cases is no failure.
        output.finish(&name, &result)?;
        Ok(ExitCode::SUCCESS)
    }

    /// Writes the page and its pictures from the results of `all` or of single figures.
    fn report(&self) -> Result<ExitCode, Failure> {
        let made =
            results(&self.output, FIGURES.each_ref().map(|one| (one.name, self.place(one))))?;
        let with = |(name, result)| Ok((xtc::figure(name)?, result));
        let made = made.into_iter().map(with).collect::<Result<Vec<_>, ExperimentError>>()?;
        let page = page::write(Path::new("."), &made)?;
        print(&format!("{}\n", page.display()))?;
        Ok(ExitCode::SUCCESS)
    }

    fn router(&self) -> RouterKind {
        self.router.unwrap_or(RouterKind::Process)
    }

    /// The folder of a figure's result among the others; results of the two kinds are not mixed.
    fn place(&self, figure: &Figure) -> String {
        match self.router() {
            RouterKind::Process => format!("xtc-{}", figure.name),
            RouterKind::Namespace => format!("xtc-{}-namespace", figure.name),
        }
    }
}

fn kind(text: &str) -> Result<RouterKind, String> {
    let found = RouterKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| format!("'{text}': {}", RouterKind::ALL.map(RouterKind::name).join(" or ")))
}
