// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One suite of isolation experiments for every data plane: `weir-lab conformance --on PLANE`.
//!
//! A [`ConformanceScenario`] is an experiment as data, in one or more *variants*. A run of a
//! variant compiles the promises to tenants to a policy, has a data plane enforce it while tenants
//! misbehave, and judges the counts of independent sinks. It uses nothing of the data plane but the
//! trait [`weir_sim::DataPlane`].
//!
//! Read `scenario` for the parts of an experiment, `measure` for a run and its record, [`planes`]
//! for the data planes, `judge` for the claims.

pub(crate) mod arms;
mod bounds;
mod compare;
pub mod intent;
mod judge;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod judge_tests;
mod judging;
pub mod matrix;
mod measure;
pub mod oracle;
pub mod page;
pub mod planes;
mod problem;
mod scale;
mod scenario;
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

use weir_experiment::{ExperimentError, Recording, Result, SimArm, Testbed};
use weir_units::BitRate;

use bounds::SuiteBounds;
use judge::{ConformanceJudge, JudgeFindings};
use judging::JudgedRun;
use measure::{RunRecord, Setup};
use planes::PlaneKind;
use scenario::ScenarioVariant;

/// The place where an experiment runs.
pub struct Laboratory<'a> {
    /// The data plane.
    pub plane: &'a Plane,
    /// Name of the lab, for data planes on the wire.
    pub name: &'a str,
    /// Work beside the traffic, on the wire.
    pub beside: Beside<'a>,
    /// The parameters of runs in virtual time.
    pub sim: SimArm,
    /// If set, each run is scaled down so that its tenants together are promised at most this, and
    /// judged to 5 %: for machines too slow for the scenarios' own rates.
    pub rates_max: Option<BitRate>,
}

/// Returns the suite, in order.
pub fn experiments() -> Result<Vec<ConformanceScenario>> {
    FILES.iter().map(|(file, text)| ConformanceScenario::parse(file, text)).collect()
}

/// Returns the names of the suite's experiments, in order.
pub fn names() -> impl Iterator<Item = &'static str> {
    FILES.iter().filter_map(|(file, _)| file.strip_suffix(".toml"))
}

/// Does nothing beside the traffic.
pub fn nothing_beside(_: &Testbed) -> Result {
    Ok(())
}

impl ConformanceScenario {
    /// Returns its name; its cases are `conformance.NAME/PART`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs the experiment in all its variants. Series and cases go into the recording; the last
    /// case is `conformance.NAME`, and holds if all others do. If the data plane lacks an ability
    /// that the experiment needs, it is skipped, which is noted.
    pub fn run(
        &self,
        rec: &mut Recording<'_>,
        laboratory: &mut Laboratory<'_>,
    ) -> Result<ExperimentLine> {
        let Self { name, title, needs, .. } = self;
        let id = format!("conformance.{name}");
        rec.say(&format!("{id} {title}"));
        let plane = laboratory.plane;
        let lacking = needs.iter().find_map(|need| Some((need, plane.abilities.lacks(*need)?)));
        if let Some((need, why)) = lacking {
            let skipped = format!("{need}: {why}");
            let note = format!("{id}: skipped: {}: {skipped}", plane.name);
            rec.say(&note);
            rec.result.add_note(note);
            return Ok(ExperimentLine::skipped(name, skipped));
        }
        let (before, mut found) = (rec.result.cases().len(), JudgeFindings::default());
        let bounds = match laboratory.rates_max {
            Some(_) => SuiteBounds::SCALED,
            None => SuiteBounds::EXACT,
        };
        for variant in self.variants(rec.quick, laboratory.rates_max) {
            let part = format!("{id}/{}", variant.name());
            let setup = self.setup(&variant, rec.quick)?;
            rec.say(&format!("{part}: {} tenants", setup.intent.tenants.len()));
            let capture = format!("{name}-{}", variant.name());
            let record = laboratory.run(&setup, &capture)?;
            if let Some(note) = &record.note {
                rec.result.add_note(note.clone());
            }
            let (_, seconds) = self.seconds(rec.quick);
            let phases = self.phases(rec.quick);
            let judged = JudgedRun { setup: &setup, phases, seconds, record: &record };
            rec.within(&format!("{part}/"), |rec| {
                let mut judge = ConformanceJudge::new(rec, &mut found, bounds);
                self.judge.iter().try_for_each(|claim| judged.judge(&mut judge, claim))
            })?;
        }
        let holds = rec.judge_parts(before, &id, title)?;
        Ok(ExperimentLine::made(name, found, holds))
    }

    /// Returns the traffic of a variant, and the promises that it tests.
    fn setup(&self, variant: &ScenarioVariant, quick: bool) -> Result<Setup> {
        let wrong = |what| ExperimentError::Scenario { name: self.name.clone(), what };
        let intents = || self.phases(quick).iter().map(|phase| self.intent_in(variant, phase));
        let seconds = (1..).map(Duration::from_secs);
        Ok(Setup {
            intent: intents().next().unwrap_or_else(|| self.intent(variant)),
            loads: self.loads(variant).map_err(wrong)?,
            changes: seconds.zip(intents()).collect(),
            seconds: self.seconds(quick).0,
            cell_us: self.cell_us,
            even: self.even,
            scale: variant.scale(),
        })
    }
}

impl<'a> Laboratory<'a> {
    /// Makes a laboratory in which the scenarios' own rates hold.
    pub const fn new(plane: &'a Plane, name: &'a str, beside: Beside<'a>, sim: SimArm) -> Self {
        Self { plane, name, beside, sim, rates_max: None }
    }

    fn run(&mut self, setup: &Setup, part: &str) -> Result<RunRecord> {
        match self.plane.place {
            PlaneKind::Wire(start) => wire::run(setup, start, self.name, self.beside),
            PlaneKind::Kernel(start) => {
                let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
                wire::run(setup, start, self.name, self.beside)
            }
            PlaneKind::VirtualTime => virtual_time::run(setup, &self.sim, part),
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
