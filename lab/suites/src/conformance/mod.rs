// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One suite of isolation experiments for every data plane: `weir-lab conformance --on PLANE`.
//!
//! An [`Experiment`] asks a [`DataPlane`] to hold an [`Intent`], lets tenants misbehave, and judges
//! what independent sinks saw. It knows of the data plane what the trait says and nothing else.

mod experiments;
pub mod intent;
pub mod judge;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod judge_tests;
pub mod measure;
pub mod oracle;
pub mod page;
pub mod plane;
pub mod planes;
mod table;

pub use experiments::EXPERIMENTS;
pub use intent::Intent;
pub use plane::{Ability, DataPlane};
pub use table::{Line, Verdict, table};

use judge::Judge;
use measure::{Seen, Setup};
use weir_experiment::{ExperimentError, Recording};

/// One experiment of the suite.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// Its name; its cases are `conformance.NAME/PART`.
    pub name: &'static str,
    /// What must hold, in a few words.
    pub title: &'static str,
    /// What is done, in a sentence or two.
    pub does: &'static str,
    /// What its error may be.
    pub bounds: fn() -> String,
    /// What it needs the data plane to have means for.
    pub needs: &'static [Ability],
    show: fn(&mut Bench<'_, '_, '_>) -> Result<(), ExperimentError>,
}

/// What an experiment is made with.
pub(crate) struct Bench<'p, 't, 'a> {
    pub(crate) judge: Judge<'t, 'a>,
    plane: &'p mut dyn DataPlane,
    lab: &'p str,
}

impl Experiment {
    /// Makes it on `plane` in a lab called `lab`: series and cases go into the trial, the last case
    /// is `conformance.NAME` and holds if all others do. What the data plane has no means for is
    /// skipped, and noted.
    ///
    /// # Errors
    /// The experiment could not be made.
    pub fn run(
        &self,
        trial: &mut Recording<'_>,
        plane: &mut dyn DataPlane,
        lab: &str,
    ) -> Result<Line, ExperimentError> {
        let id = format!("conformance.{}", self.name);
        trial.say(&format!("{id} {}", self.title));
        let lacking = self.needs.iter().find_map(|need| Some((need, plane.lacks(*need)?)));
        if let Some((need, why)) = lacking {
            let skipped = format!("{need}: {why}");
            let note = format!("{id}: skipped: {}: {skipped}", plane.name());
            trial.say(&note);
            trial.result.add_note(note);
            return Ok(Line::skipped(self.name, skipped));
        }
        let before = trial.result.cases().len();
        let mut bench = Bench { judge: Judge::new(trial, self.name), plane, lab };
        (self.show)(&mut bench)?;
        let found = bench.judge.into_found();
        let holds = trial.judge_parts(before, &id, self.title)?;
        Ok(Line::made(self.name, found, holds))
    }
}

impl Bench<'_, '_, '_> {
    /// Whether runs are short and few.
    pub(crate) const fn quick(&self) -> bool {
        self.judge.trial.quick
    }

    /// Length of a run, of which the first second is not judged.
    pub(crate) const fn seconds(&self) -> usize {
        if self.quick() { 3 } else { 6 }
    }

    /// The variants to run: the first one alone if quick.
    pub(crate) fn variants<'v, T>(&self, all: &'v [T]) -> &'v [T] {
        if self.quick() { all.get(..1).unwrap_or(all) } else { all }
    }

    /// Runs a setup on the data plane.
    pub(crate) fn measure(&mut self, part: &str, setup: &Setup) -> Result<Seen, ExperimentError> {
        let text = format!("{}/{part}: {} tenants", self.judge.id, setup.intent.tenants.len());
        self.judge.trial.say(&text);
        setup.run(self.plane, self.lab)
    }
}
