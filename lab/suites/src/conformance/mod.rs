// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One suite of isolation experiments for every data plane: `weir-lab conformance --on PLANE`.
//!
//! An [`Experiment`] is a [`Scenario`], which is data, and its runs. Each run compiles what tenants
//! are promised to a policy, has a data plane enforce it while tenants misbehave, and judges what
//! independent sinks saw. It knows of the data plane what the trait [`weir_sim::DataPlane`] says.
//!
//! Read [`scenario`] for what an experiment is, [`measure`] for a run and its record,
//! [`planes`] for where it runs, [`judge`] for what is claimed of it.

pub mod intent;
pub mod judge;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod judge_tests;
mod judging;
pub mod measure;
pub mod oracle;
pub mod page;
pub mod planes;
pub mod scenario;
mod table;
mod virtual_time;
mod wire;

use std::time::Duration;

pub use intent::Intent;
pub use planes::{PLANES, Plane};
pub use scenario::Scenario;
pub use table::{Line, Verdict, table};
pub use wire::Beside;

use weir_experiment::{ExperimentError, Recording, Testbed};

use judge::Judge;
use judging::Judged;
use measure::{RunRecord, Setup};
use planes::Place;
use scenario::Variant;

/// One experiment of the suite.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// What is done and what must hold.
    pub scenario: Scenario,
}

/// Where an experiment runs.
pub struct Laboratory<'a> {
    /// The data plane.
    pub plane: &'a Plane,
    /// Name of the lab, where namespaces are made.
    pub name: &'a str,
    /// What is done beside the traffic, on the wire.
    pub beside: Beside<'a>,
}

/// Returns the suite, in order.
///
/// # Errors
/// A file is no scenario.
pub fn experiments() -> Result<Vec<Experiment>, ExperimentError> {
    let read = |(file, text): &(&str, &str)| Scenario::parse(file, text);
    FILES.iter().map(read).map(|scenario| Ok(Experiment { scenario: scenario? })).collect()
}

/// Returns the names of the suite's experiments, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().filter_map(|(file, _)| file.strip_suffix(".toml"))
}

/// Does nothing beside the traffic.
///
/// # Errors
/// None.
pub fn nothing_beside(_: &Testbed) -> Result<(), ExperimentError> {
    Ok(())
}

impl Experiment {
    /// Returns its name; its cases are `conformance.NAME/PART`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.scenario.name
    }

    /// Makes it: series and cases go into the trial, the last case is `conformance.NAME` and holds
    /// if all others do. What the data plane has no means for is skipped, and noted.
    ///
    /// # Errors
    /// The experiment could not be made.
    pub fn run(
        &self,
        trial: &mut Recording<'_>,
        laboratory: &mut Laboratory<'_>,
    ) -> Result<Line, ExperimentError> {
        let Scenario { name, title, needs, .. } = &self.scenario;
        let id = format!("conformance.{name}");
        trial.say(&format!("{id} {title}"));
        let plane = laboratory.plane;
        let lacking = needs.iter().find_map(|need| Some((need, plane.abilities.lacks(*need)?)));
        if let Some((need, why)) = lacking {
            let skipped = format!("{need}: {why}");
            let note = format!("{id}: skipped: {}: {skipped}", plane.name);
            trial.say(&note);
            trial.result.add_note(note);
            return Ok(Line::skipped(name, skipped));
        }
        let before = trial.result.cases().len();
        let mut judge = Judge::new(trial, name);
        for variant in self.scenario.variants(judge.trial.quick) {
            self.run_variant(&mut judge, variant, laboratory)?;
        }
        let found = judge.into_found();
        let holds = trial.judge_parts(before, &id, title)?;
        Ok(Line::made(name, found, holds))
    }

    fn run_variant(
        &self,
        judge: &mut Judge<'_, '_>,
        variant: &Variant,
        laboratory: &mut Laboratory<'_>,
    ) -> Result<(), ExperimentError> {
        let (part, quick) = (variant.name(), judge.trial.quick);
        let setup = self.setup(variant, quick)?;
        let text = format!("{}/{part}: {} tenants", judge.id, setup.intent.tenants.len());
        judge.trial.say(&text);
        let record = laboratory.run(&setup)?;
        let (_, seconds) = self.scenario.seconds(quick);
        let phases = self.scenario.phases(quick);
        let judged = Judged { part: &part, setup: &setup, phases, seconds, record: &record };
        self.scenario.judge.iter().try_for_each(|judgement| judged.judge(judge, judgement))
    }

    /// Returns what flows in a variant, and through what.
    ///
    /// # Errors
    /// The scenario is wrong.
    pub fn setup(&self, variant: &Variant, quick: bool) -> Result<Setup, ExperimentError> {
        let scenario = &self.scenario;
        let wrong = |what| ExperimentError::Scenario { name: scenario.name.clone(), what };
        let intents = || scenario.phases(quick).iter().map(|one| scenario.intent_in(variant, one));
        let seconds = (1..).map(Duration::from_secs);
        Ok(Setup {
            intent: intents().next().unwrap_or_else(|| scenario.intent(variant)),
            loads: scenario.loads(variant).map_err(wrong)?,
            changes: seconds.zip(intents()).collect(),
            seconds: scenario.seconds(quick).0,
            cell_us: scenario.cell_us,
            even: scenario.even,
        })
    }
}

impl Laboratory<'_> {
    fn run(&mut self, setup: &Setup) -> Result<RunRecord, ExperimentError> {
        match self.plane.place {
            Place::Wire(start) => wire::run(setup, start, self.name, self.beside),
            Place::VirtualTime => virtual_time::run(setup),
        }
    }
}

impl std::fmt::Debug for Laboratory<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Laboratory").field("plane", &self.plane.name).finish_non_exhaustive()
    }
}

/// For the devices on the way and a shared machine.
pub(crate) const DELAY_SLACK_S: f64 = 200e-6;

macro_rules! files {
    ($($name:literal),*) => {
        &[$(($name, include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"), "/../scenarios/conformance/", $name
        )))),*]
    };
}

/// The suite's files, in order.
const FILES: &[(&str, &str)] = files![
    "fairness.toml",
    "weights.toml",
    "minimum.toml",
    "maximum.toml",
    "packet-rate.toml",
    "delay.toml",
    "change.toml",
    "flood-from.toml",
    "flood-towards.toml",
    "same-node.toml"
];
