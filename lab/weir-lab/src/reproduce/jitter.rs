// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab reproduce jitter`.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use weir_platform::failure::{Failure, UsageError};
use weir_platform::output::print;
use weir_suites::jitter::scenario::{SHAPED, ShapedScenario};
use weir_suites::reproduce::jitter::timely::TimelyExperiment;
use weir_suites::reproduce::jitter::{self, draw, page};
use weir_suites::sim::SimFigure;

use super::figure_set::{
    ALL, REPORT, WITH_FRAMES, duration_text, make_all, make_each, not_simulated, record, results,
    simulate, unknown,
};
use crate::output::Output;
use crate::run_on::RunOn;
use crate::sim_options::SimOptions;

/// Processor time and delay at the right moment: activation, ping, iperf, RTP and shares beside
/// neighbours; RTP video, web pages and bulk through a shaper of 2 Mb/s.
#[derive(Debug, Args)]
pub(crate) struct ReproduceJitter {
    /// activation, ping, iperf, rtp, shares; rtp-85, rtp-100, http-8k, http-16k, reno; all of
    /// them; report: a page of the results
    experiment: String,
    /// Place of the runs; sim: in virtual time, which has rtp and shares, and the shaper always
    #[arg(long, value_name = "PLACE", default_value = "lab")]
    on: RunOn,
    #[command(flatten)]
    sim: SimOptions,
    #[command(flatten)]
    output: Output,
}

impl ReproduceJitter {
    pub(super) fn run(self) -> Result<ExitCode, Failure> {
        self.sim.check(self.on)?;
        let known = names().find(|name| *name == self.experiment);
        if [ALL, REPORT].contains(&self.experiment.as_str()) && self.output.json {
            let wrong = format!("--json: '{}' makes more than one result", self.experiment);
            return Err(UsageError(wrong).into());
        }
        if self.on == RunOn::Sim {
            return self.simulate();
        }
        match (self.experiment.as_str(), known) {
            (_, Some(name)) => one(name, &self.output),
            (ALL, _) => {
                // Virtual time: a second or two each.
                let shaped = SHAPED.map(|(name, _)| (name, Duration::from_secs(2)));
                let timely = TimelyExperiment::ALL.map(|one| (one.name, one.length));
                let lengths: Vec<_> = timely.into_iter().chain(shaped).collect();
                make_all(&lengths, |name| one(name, &self.output.part(&place(name))))
            }
            (REPORT, _) => self.report(),
            (wrong, _) => Err(UsageError(unknown("experiment", wrong, names())).into()),
        }
    }

    /// Makes experiments in virtual time. Those of the shaper run nowhere else.
    fn simulate(&self) -> Result<ExitCode, Failure> {
        let (wanted, sim, output) = (self.experiment.as_str(), &self.sim, &self.output);
        let is_shaped = |name: &str| SHAPED.iter().any(|(known, _)| *known == name);
        let of_processor = || SimFigure::of("jitter").map(|figure| figure.name);
        sim.refuse_pcap(&format!("jitter {wanted}"), WITH_FRAMES)?;
        if is_shaped(wanted) {
            sim.refuse_seed(wanted, &of_processor().collect::<Vec<_>>().join(", "))?;
        }
        // A sender through a shaper draws nothing.
        let shaped = SHAPED.map(|(name, _)| name).into_iter().filter(|_| sim.seed.is_none());
        let all = || of_processor().chain(shaped.clone());
        match all().find(|name| *name == wanted) {
            Some(name) if is_shaped(name) => one_shaped(name, output),
            Some(name) => simulate("jitter", name, (sim, output)),
            None if wanted == ALL => make_each(all(), |name| match is_shaped(name) {
                true => one_shaped(name, &output.part(&place(name))),
                false => simulate("jitter", name, (sim, &output.part(&place(name)))),
            }),
            None => Err(not_simulated("jitter", wanted, all())),
        }
    }

    /// Writes the page and its pictures from the results of `all` or of single experiments.
    fn report(&self) -> Result<ExitCode, Failure> {
        let made = results(&self.output, names().map(|name| (name, place(name))))?;
        let (mut timely, mut shaped) = (Vec::new(), Vec::new());
        for (name, result) in made {
            match TimelyExperiment::named(name) {
                Some(experiment) => timely.push((experiment, result)),
                None => shaped.push((name, ShapedScenario::named(name)?, result)),
            }
        }
        let page = page::write(Path::new("."), &timely, &shaped)?;
        print(&format!("{}\n", page.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn one(name: &'static str, output: &Output) -> Result<ExitCode, Failure> {
    match TimelyExperiment::named(name) {
        Some(experiment) => one_timely(experiment, output),
        None => one_shaped(name, output),
    }
}

/// Makes an experiment on this machine. It is judged like the rows of `weir-lab verify` that it is
/// part of.
fn one_timely(experiment: &TimelyExperiment, output: &Output) -> Result<ExitCode, Failure> {
    let TimelyExperiment { name, title, length, .. } = experiment;
    Output::say(&format!("{name}: {title}, {}", duration_text(*length)));
    let result = record(output, |rec| experiment.run(rec))?;
    let folder = format!("reproduce/{}", place(name));
    experiment.write(&result, &output.folder(&folder))?;
    if !output.json {
        print(&experiment.table(&result)?)?;
        println!("{result}");
    }
    output.finish(&folder, &result)
}

fn one_shaped(name: &'static str, output: &Output) -> Result<ExitCode, Failure> {
    let scenario = ShapedScenario::named(name)?;
    Output::say(&format!("{name}: {}", scenario.title));
    // It always runs in virtual time, so it needs no lab and no node.
    let (result, ()) = output.measure(|rec| Ok(jitter::run(rec, name, &scenario)?))?;
    let folder = format!("reproduce/{}", place(name));
    draw::write(name, &scenario, &result, &output.folder(&folder))?;
    if !output.json {
        print(&page::table(name, &scenario, &result))?;
    }
    // Nothing is judged, so a result without cases is no failure.
    output.finish(&folder, &result)?;
    Ok(ExitCode::SUCCESS)
}

/// Lists all experiments: those on this machine, then those in virtual time.
fn names() -> impl Iterator<Item = &'static str> {
    let timely = TimelyExperiment::ALL.map(|one| one.name);
    timely.into_iter().chain(SHAPED.map(|(name, _)| name))
}

/// The folder of an experiment's result among the others.
fn place(name: &str) -> String {
    format!("jitter-{name}")
}
