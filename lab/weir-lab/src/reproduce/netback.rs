// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab reproduce netback`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use weir_experiment::{ExperimentError, Recording};
use weir_platform::failure::{Failure, UsageError};
use weir_platform::output::print;
use weir_suites::reproduce::{
    self, NETBACK, Scenario, VARIANTS, Variant, figure, judge, report, runner,
};
use weir_suites::sim;
use weir_units::Nanos;

use super::figure_set::{
    ALL, REPORT, duration_text, make_all, make_each, record, results, unknown,
};
use crate::output::Output;
use crate::run_on::RunOn;
use crate::sim_options::SimOptions;

/// Packet scheduling across virtual interfaces: fig5 to fig12, and what the text left open.
#[derive(Debug, Args)]
pub(crate) struct ReproduceNetback {
    /// fig5 to fig12, tenants, sizes, gigabit; all of them; report: a page of the results; with
    /// --scenario a name of your own
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
    /// Place of the runs; sim: in virtual time, without root, as far as this has the parts
    #[arg(long, value_name = "PLACE", default_value = "lab")]
    on: RunOn,
    #[command(flatten)]
    sim: SimOptions,
    #[command(flatten)]
    output: Output,
}

impl ReproduceNetback {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        self.sim.check(self.on)?;
        self.check()?;
        match self.figure.as_str() {
            REPORT => self.report(),
            ALL => self.all(),
            figure => self.one(figure, &self.output),
        }
    }

    /// Refuses options that contradict each other, before any run is made.
    fn check(&self) -> Result<(), Failure> {
        let figure = self.figure.as_str();
        let is_known = NETBACK.iter().any(|(name, _)| *name == figure);
        let is_several = [ALL, REPORT].contains(&figure);
        let wrong = match (&self.scenario, is_known || is_several) {
            // Its result would be mistaken for the figure's.
            (Some(_), true) => format!("--scenario: '{figure}' is taken; give it another name"),
            (Some(_), false) if !is_plain(figure) => {
                let most = NAME_MAX;
                format!("'{figure}': a name of 1 to {most} letters, digits and -")
            }
            (None, false) => unknown("figure", figure, NETBACK.iter().map(|(name, _)| *name)),
            _ if is_several && self.output.json => {
                format!("--json: '{figure}' makes more than one result")
            }
            _ if figure == REPORT && self.on == RunOn::Sim => {
                "report: its page is of results on the lab; not --on sim".into()
            }
            _ if figure == REPORT && (self.repetitions.is_some() || self.duration.is_some()) => {
                "report: it makes no runs, so it takes no --repetitions and no --duration".into()
            }
            _ => return Ok(()),
        };
        Err(UsageError(wrong).into())
    }

    fn all(&self) -> Result<ExitCode, Failure> {
        if self.on == RunOn::Sim {
            let names = NETBACK.into_iter().map(|(figure, _)| figure);
            return make_each(names, |figure| {
                self.one(figure, &self.output.part(&self.on.folder(&place(figure))))
            });
        }
        let length =
            |(figure, _): (&'static str, _)| Ok((figure, runner::length(&self.scenario(figure)?)));
        let figures = NETBACK.into_iter().map(length).collect::<Result<Vec<_>, Failure>>()?;
        make_all(&figures, |figure| self.one(figure, &self.output.part(&place(figure))))
    }

    fn one(&self, figure: &str, output: &Output) -> Result<ExitCode, Failure> {
        let scenario = self.scenario(figure)?;
        if self.on == RunOn::Sim {
            return self.simulate(figure, scenario, output);
        }
        Output::say(&format!("{figure} takes {}", duration_text(runner::length(&scenario))));
        let lab = format!("netback-{figure}");
        let at = reproduce::RunPlace { lab: &lab, prefix: "", variants: &VARIANTS };
        // The samples are kept even if they cannot be judged.
        let mut judged = Ok(());
        let result = record(output, |trial| {
            runner::run(trial, &scenario, at)?;
            judged = judge::judge(trial, &scenario, at);
            report::note(trial, &scenario);
            Ok(())
        })?;
        let name = format!("reproduce/{}", place(figure));
        figure::write(&result, &scenario, Variant::Before.name(), &output.folder(&name))?;
        if !output.json {
            println!("{result}");
        }
        let status = output.finish(&name, &result)?;
        judged?;
        Ok(status)
    }

    /// Makes a figure in virtual time, with a note for each part that virtual time lacks.
    fn simulate(
        &self,
        figure: &str,
        scenario: Scenario,
        output: &Output,
    ) -> Result<ExitCode, Failure> {
        let lab = format!("netback-{figure}");
        let name = format!("reproduce/{}", self.on.folder(&place(figure)));
        let record = |rec: &mut Recording<'_>| {
            rec.set_sim(self.sim.arm(output, &name));
            Ok(sim::record_figure(rec, scenario, &lab)?)
        };
        let (result, scenario) = output.measure(record)?;
        let before = runner::BEFORE_IN_VIRTUAL_TIME;
        figure::write(&result, &scenario, before, &output.folder(&name))?;
        if !output.json {
            println!("{result}");
        }
        output.finish(&name, &result)
    }

    fn scenario(&self, figure: &str) -> Result<Scenario, Failure> {
        let mut scenario = match &self.scenario {
            None => reproduce::netback(figure)?,
            Some(path) => {
                let name = path.display().to_string();
                let text =
                    weir_platform::text::read(path).map_err(|error| format!("{name}: {error}"))?;
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

    /// Writes the page and its pictures from the results of `all` or of single figures.
    fn report(&self) -> Result<ExitCode, Failure> {
        let made = results(&self.output, NETBACK.map(|(figure, _)| (figure, place(figure))))?;
        let with = |(figure, result)| Ok((figure, reproduce::netback(figure)?, result));
        let figures = made.into_iter().map(with).collect::<Result<Vec<_>, ExperimentError>>()?;
        let page = report::write(std::path::Path::new("."), &figures)?;
        print(&format!("{}\n", page.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The folder of a figure's result among the others.
fn place(figure: &str) -> String {
    format!("netback-{figure}")
}

fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('-')
}

/// Longest name of a user's scenario: its lab is called `netback-NAME`.
const NAME_MAX: usize = 16;
