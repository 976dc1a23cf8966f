// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab reproduce jitter`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use weir_experiment::ExperimentError;
use weir_platform::failure::{Failure, UsageError};
use weir_platform::output::print;
use weir_suites::jitter::scenario::{SHAPED, ShapedScenario};
use weir_suites::reproduce::jitter::{self, draw, page};

use super::figure_set::{ALL, REPORT, make_all, record, results, unknown};
use crate::output::Output;

/// Delay that a shaper keeps even: RTP video, web pages and bulk at 2 Mb/s.
#[derive(Debug, Args)]
pub(crate) struct ReproduceJitter {
    /// rtp-85, rtp-100, http-8k, http-16k, reno, cubic; all of them; report: a page of the results
    experiment: String,
    #[command(flatten)]
    output: Output,
}

impl ReproduceJitter {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        let names = SHAPED.map(|(name, _)| name);
        let known = names.into_iter().find(|name| *name == self.experiment);
        if [ALL, REPORT].contains(&self.experiment.as_str()) && self.output.json {
            let wrong = format!("--json: '{}' makes more than one result", self.experiment);
            return Err(UsageError(wrong).into());
        }
        match (self.experiment.as_str(), known) {
            (_, Some(name)) => one(name, &self.output),
            (ALL, _) => {
                // Virtual time: a second or two each.
                let lengths = names.map(|name| (name, Duration::from_secs(2)));
                make_all(&lengths, |name| one(name, &self.output.part(&place(name))))
            }
            (REPORT, _) => self.report(),
            (wrong, _) => Err(UsageError(unknown("experiment", wrong, names)).into()),
        }
    }

    /// The page and its pictures, from what `all` or single experiments left.
    fn report(&self) -> Result<ExitCode, Failure> {
        let made = results(&self.output, SHAPED.map(|(name, _)| (name, place(name))))?;
        let with = |(name, result)| Ok((name, ShapedScenario::named(name)?, result));
        let made = made.into_iter().map(with).collect::<Result<Vec<_>, ExperimentError>>()?;
        let page = page::write(Path::new("."), &made)?;
        print(&format!("{}\n", page.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn one(name: &'static str, output: &Output) -> Result<ExitCode, Failure> {
    let scenario = ShapedScenario::named(name)?;
    Output::say(&format!("{name}: {}", scenario.title));
    let result = record(output, |trial| jitter::run(trial, name, &scenario))?;
    let folder = format!("reproduce/{}", place(name));
    draw::write(name, &scenario, &result, &output.folder(&folder))?;
    if !output.json {
        print(&page::table(name, &scenario, &result))?;
    }
    // Nothing is judged, so that the status is none of a verdict.
    output.finish(&folder, &result)?;
    Ok(ExitCode::SUCCESS)
}

/// The folder of an experiment's result among the others.
fn place(name: &str) -> String {
    format!("jitter-{name}")
}
