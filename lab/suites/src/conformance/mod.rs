// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One suite of isolation experiments for every data plane: `weir-lab conformance --on PLANE`.
//!
//! An [`Experiment`] makes the runs of a [`ConformanceScenario`], which is data. Each run compiles
//! the promises to tenants to a policy, has a data plane enforce it while tenants misbehave, and
//! judges the counts of independent sinks. It uses nothing of the data plane but the trait
//! [`weir_sim::DataPlane`].
//!
//! Read [`scenario`] for what an experiment is, [`measure`] for a run and its record,
//! [`planes`] for where it runs, [`judge`] for what is claimed of it.

mod compare;
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

pub use compare::{SHARE_DIFFERENCE, compare};
pub use intent::LinkIntent;
pub use planes::{PLANES, Plane};
pub use scenario::ConformanceScenario;
pub use table::{ExperimentLine, ExperimentVerdict, table};
pub use wire::Beside;

use weir_experiment::{ExperimentError, Recording, Testbed};

use judge::ConformanceJudge;
use judging::Judged;
use measure::{RunRecord, Setup};
use planes::PlaneKind;
use scenario::ScenarioVariant;

/// One experiment of the suite.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// The scenario that it makes.
    pub scenario: ConformanceScenario,
}

/// The place where an experiment runs.
pub struct Laboratory<'a> {
    /// The data plane.
    pub plane: &'a Plane,
    /// Name of the lab, for data planes on the wire.
    pub name: &'a str,
    /// Work beside the traffic, on the wire.
    pub beside: Beside<'a>,
}

/// Returns the suite, in order.
///
/// # Errors
/// A file is no scenario.
pub fn experiments() -> Result<Vec<Experiment>, ExperimentError> {
    let read = |(file, text): &(&str, &str)| ConformanceScenario::parse(file, text);
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

    /// Makes the experiment. Series and cases go into the recording; the last case is
    /// `conformance.NAME`, and holds if all others do. Where the data plane lacks the means, the
    /// experiment is skipped, and noted.
    ///
    /// # Errors
    /// The experiment could not be made.
    pub fn run(
        &self,
        trial: &mut Recording<'_>,
        laboratory: &mut Laboratory<'_>,
    ) -> Result<ExperimentLine, ExperimentError> {
        let ConformanceScenario { name, title, needs, .. } = &self.scenario;
        let id = format!("conformance.{name}");
        trial.say(&format!("{id} {title}"));
        let plane = laboratory.plane;
        let lacking = needs.iter().find_map(|need| Some((need, plane.abilities.lacks(*need)?)));
        if let Some((need, why)) = lacking {
            let skipped = format!("{need}: {why}");
            let note = format!("{id}: skipped: {}: {skipped}", plane.name);
            trial.say(&note);
            trial.result.add_note(note);
            return Ok(ExperimentLine::skipped(name, skipped));
        }
        let before = trial.result.cases().len();
        let mut judge = ConformanceJudge::new(trial, name);
        for variant in self.scenario.variants(judge.trial.quick) {
            self.run_variant(&mut judge, variant, laboratory)?;
        }
        let found = judge.into_found();
        let holds = trial.judge_parts(before, &id, title)?;
        Ok(ExperimentLine::made(name, found, holds))
    }

    fn run_variant(
        &self,
        judge: &mut ConformanceJudge<'_, '_>,
        variant: &ScenarioVariant,
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

    /// Returns the traffic of a variant, and the promises that it tests.
    ///
    /// # Errors
    /// The scenario is wrong.
    pub fn setup(&self, variant: &ScenarioVariant, quick: bool) -> Result<Setup, ExperimentError> {
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
            PlaneKind::Wire(start) => wire::run(setup, start, self.name, self.beside),
            PlaneKind::VirtualTime => virtual_time::run(setup),
        }
    }
}

impl std::fmt::Debug for Laboratory<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Laboratory").field("plane", &self.plane.name).finish_non_exhaustive()
    }
}

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
