// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab reproduce xtc`.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;
use weir_experiment::product;
use weir_experiment::{ExperimentError, Recording};
use weir_platform::output::print;
use weir_result::ResultFile;
use weir_suites::reproduce::xtc::{self, FIGURES, Figure, draw, page};
use weir_suites::routers::RouterKind;

use super::{ALL, REPORT, is_interruption, results, told};
use crate::output::{Output, origin};
use weir_platform::failure::{Failure, UsageError};

/// Packet rates held by feedback: fig3 to fig18, fig20, table1, table2.
#[derive(Debug, Args)]
pub(crate) struct ReproduceXtc {
    /// fig3 to fig18, fig20, table1, table2; all of them; report: a page of the results
    figure: String,
    /// What the router is: process or namespace
    #[arg(long, value_name = "KIND", default_value = "process", value_parser = kind)]
    router: RouterKind,
    #[command(flatten)]
    output: Output,
}

impl ReproduceXtc {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let figure = self.figure.as_str();
        let several = [ALL, REPORT].contains(&figure);
        if !several && !FIGURES.iter().any(|known| known.name == figure) {
            let names: Vec<&str> = FIGURES.iter().map(|known| known.name).collect();
            let wrong = format!("no figure '{figure}': {}, {ALL} or {REPORT}", names.join(", "));
            return Err(UsageError(wrong).into());
        }
        if several && self.output.json {
            let wrong = format!("--json: '{figure}' makes more than one result");
            return Err(UsageError(wrong).into());
        }
        match figure {
            REPORT => self.report(),
            ALL => self.all(),
            figure => self.one(xtc::figure(figure)?, &self.output),
        }
    }

    /// One after the other, so that one that cannot be made does not hide the others.
    fn all(&self) -> Result<ExitCode, Failure> {
        let lengths: Duration =
            FIGURES.iter().map(|figure| xtc::length(figure, self.output.quick)).sum();
        Output::say(&format!("{} figures take {} in all", FIGURES.len(), told(lengths)));
        let mut failures = Vec::new();
        for figure in &FIGURES {
            match self.one(figure, &self.output.part(&self.place(figure))) {
                Ok(_) => {}
                Err(failure) if is_interruption(&failure) => return Err(failure),
                Err(failure) => failures.push(format!("{}: {failure}", figure.name)),
            }
        }
        match failures.first() {
            None => Ok(ExitCode::SUCCESS),
            Some(first) => Err(format!("{} figures were not made; {first}", failures.len()).into()),
        }
    }

    fn one(&self, figure: &Figure, output: &Output) -> Result<ExitCode, Failure> {
        let length = told(xtc::length(figure, output.quick));
        Output::say(&format!("{}: {}, takes {length}", figure.name, figure.title));
        let started = Instant::now();
        let mut say = Output::say;
        product::path()?;
        let mut trial = Recording::new(ResultFile::new(origin()), output.quick, &mut say);
        xtc::run(&mut trial, figure, self.router)?;
        let mut result = trial.result;
        result.set_duration_s(started.elapsed().as_secs_f64());
        let name = format!("reproduce/{}", self.place(figure));
        draw::write(figure, &result, &output.folder(&name))?;
        if !output.json {
            print(&page::table(figure, &result))?;
        }
        // Nothing is judged, so that the status is none of a verdict.
        output.finish(&name, &result)?;
        Ok(ExitCode::SUCCESS)
    }

    /// The page and its pictures, from what `all` or single figures left.
    fn report(&self) -> Result<ExitCode, Failure> {
        let made =
            results(&self.output, FIGURES.each_ref().map(|one| (one.name, self.place(one))))?;
        let with = |(name, result)| Ok((xtc::figure(name)?, result));
        let made = made.into_iter().map(with).collect::<Result<Vec<_>, ExperimentError>>()?;
        let page = page::write(Path::new("."), &made)?;
        print(&format!("{}\n", page.display()))?;
        Ok(ExitCode::SUCCESS)
    }

    /// The folder of a figure's result among the others; results of the two kinds are not mixed.
    fn place(&self, figure: &Figure) -> String {
        match self.router {
            RouterKind::Process => format!("xtc-{}", figure.name),
            RouterKind::Namespace => format!("xtc-{}-namespace", figure.name),
        }
    }
}

fn kind(text: &str) -> Result<RouterKind, String> {
    let found = RouterKind::ALL.into_iter().find(|kind| kind.name() == text);
    found.ok_or_else(|| format!("'{text}': {}", RouterKind::ALL.map(RouterKind::name).join(" or ")))
}
