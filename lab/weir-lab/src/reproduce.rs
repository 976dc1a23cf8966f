// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab reproduce`: the experiments of a text, before and after.

mod xtc;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, Subcommand};
use weir_experiment::product;
use weir_experiment::{ExperimentError, Recording};
use weir_platform::output::print;
use weir_result::ResultFile;
use weir_suites::reproduce::{self, NETBACK, Scenario, VARIANTS, figure, judge, report, runner};
use weir_units::Nanos;

use crate::output::{Output, origin};
use weir_platform::failure::{Failure, UsageError};

/// Make the experiments of a text again, before and after.
#[derive(Debug, Subcommand)]
pub(crate) enum Reproduce {
    /// Packet scheduling across virtual interfaces: fig5 to fig12, and what the text left open
    Netback(Netback),
    /// Packet rates held by feedback: fig3 to fig18, fig20, table1, table2
    Xtc(xtc::ReproduceXtc),
}

/// Packet scheduling across virtual interfaces: fig5 to fig12, and what the text left open.
#[derive(Debug, Args)]
pub(crate) struct Netback {
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
    #[command(flatten)]
    output: Output,
}

impl Reproduce {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Netback(command) => command.run(),
            Self::Xtc(command) => command.run(),
        }
    }
}

impl Netback {
    fn run(self) -> Result<ExitCode, Failure> {
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
            // Its result would be taken for the figure's.
            (Some(_), true) => format!("--scenario: '{figure}' is taken; give it another name"),
            (Some(_), false) if !is_plain(figure) => {
                let most = NAME_MAX;
                format!("'{figure}': a name of 1 to {most} letters, digits and -")
            }
            (None, false) => {
                let names: Vec<&str> = NETBACK.iter().map(|(name, _)| *name).collect();
                format!("no figure '{figure}': {}, {ALL} or {REPORT}", names.join(", "))
            }
            _ if is_several && self.output.json => {
                format!("--json: '{figure}' makes more than one result")
            }
            _ if figure == REPORT && (self.repetitions.is_some() || self.duration.is_some()) => {
                "report: it makes no runs, so it takes no --repetitions and no --duration".into()
            }
            _ => return Ok(()),
        };
        Err(UsageError(wrong).into())
    }

    /// One after the other, so that one that cannot be made does not hide the others.
    fn all(&self) -> Result<ExitCode, Failure> {
        let scenarios: Result<Vec<_>, _> =
            NETBACK.iter().map(|(figure, _)| self.scenario(figure)).collect();
        let lengths = scenarios?.iter().map(runner::length).sum();
        Output::say(&format!("{} figures take {} in all", NETBACK.len(), told(lengths)));
        let (mut status, mut failures) = (ExitCode::SUCCESS, Vec::new());
        for (figure, _) in NETBACK {
            let output = self.output.part(&place(figure));
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
        Output::say(&format!("{figure} takes {}", told(runner::length(&scenario))));
        let started = Instant::now();
        let mut say = Output::say;
        product::path()?;
        let mut trial = Recording::new(ResultFile::new(origin()), output.quick, &mut say);
        let lab = format!("netback-{figure}");
        let at = reproduce::Place { lab: &lab, prefix: "", variants: &VARIANTS };
        runner::run(&mut trial, &scenario, at)?;
        // What was measured is kept, whatever can be said of it.
        let judged = judge::judge(&mut trial, &scenario, at);
        report::note(&mut trial, &scenario);
        let mut result = trial.result;
        result.set_duration_s(started.elapsed().as_secs_f64());
        let name = format!("reproduce/{}", place(figure));
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

    /// The page and its pictures, from what `all` or single figures left.
    fn report(&self) -> Result<ExitCode, Failure> {
        let made = results(&self.output, NETBACK.map(|(figure, _)| (figure, place(figure))))?;
        let with = |(figure, result)| Ok((figure, reproduce::netback(figure)?, result));
        let figures = made.into_iter().map(with).collect::<Result<Vec<_>, ExperimentError>>()?;
        let page = report::write(std::path::Path::new("."), &figures)?;
        print(&format!("{}\n", page.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

/// The results of these figures, each with its folder among the others; those that were not made
/// are told. Quick ones are for a quick report alone.
fn results<const N: usize>(
    output: &Output,
    figures: [(&'static str, String); N],
) -> Result<Vec<(&'static str, ResultFile)>, Failure> {
    let from = output.folder("reproduce");
    let (mut made, mut missing) = (Vec::new(), Vec::new());
    for (figure, folder) in figures {
        let path = from.join(folder).join("result.json");
        let Ok(text) = std::fs::read_to_string(&path) else {
            missing.push(figure);
            continue;
        };
        let result =
            ResultFile::from_json(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        if !output.quick && result.origin().command.contains(" --quick") {
            let path = path.display();
            return Err(format!("{path}: made with --quick; so must its report be").into());
        }
        made.push((figure, result));
    }
    if !missing.is_empty() {
        let missing = missing.join(", ");
        Output::say(&format!("not in {}, so not shown: {missing}", from.display()));
    }
    Ok(made)
}

/// The folder of a figure's result among the others.
fn place(figure: &str) -> String {
    format!("netback-{figure}")
}

fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain) && !name.starts_with('-')
}

/// A length in hours and minutes, or in seconds.
fn told(length: Duration) -> String {
    match length.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7_200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h {} min", seconds / 3_600, seconds % 3_600 / 60),
    }
}

fn is_interruption(failure: &Failure) -> bool {
    matches!(failure.downcast_ref::<ExperimentError>(), Some(ExperimentError::Interrupted))
}

const ALL: &str = "all";
const REPORT: &str = "report";

/// Longest name of a user's scenario: its lab is called `netback-NAME`.
const NAME_MAX: usize = 16;
