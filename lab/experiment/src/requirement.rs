// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of requirements, each row one or more experiments: `weir-lab verify TABLE`.

use weir_result::{MACHINE, Series};

use crate::stolen::{StealWatch, StealWindow};
use crate::{Recording, Result};

/// A table of requirements.
#[derive(Clone, Copy, Debug)]
pub struct RequirementTable {
    /// Its name; the row's case is `NAME.ROW`, and each part of it `NAME.ROW/PART`.
    pub name: &'static str,
    /// Its rows, in order.
    pub rows: &'static [Requirement],
}

/// One requirement.
#[derive(Clone, Copy, Debug)]
pub struct Requirement {
    /// The name of its table.
    pub table: &'static str,
    /// Its number in the table.
    pub number: u32,
    /// The requirement, in a few words.
    pub title: &'static str,
    /// True if the row judges correctness and no speed: it then holds on any machine that has a
    /// processor free for it.
    pub correctness: bool,
    /// True if its parts in virtual time draw from the seed of [`Recording::sim`].
    pub seeded: bool,
    /// True if the runs of its parts in virtual time have frames, which can be captured.
    pub captured: bool,
    parts: &'static [RowPart],
    /// The parts that run in virtual time, where the row has such.
    simulated: &'static [RowPart],
}

/// A part of a row: series and claims go into the recording.
#[derive(Clone, Copy, Debug)]
pub enum RowPart {
    /// An experiment. It is repeated alone when the machine was disturbed.
    Plain(fn(&mut Recording<'_>) -> Result),
    /// An experiment with a parameter, repeated alone.
    With(fn(&mut Recording<'_>, usize) -> Result, usize),
    /// Experiments that call [`Recording::attempt`] one by one.
    Divided(fn(&mut Recording<'_>) -> Result),
}

impl Requirement {
    /// Makes a row that judges speed, too.
    pub const fn new(
        table: &'static str,
        number: u32,
        title: &'static str,
        parts: &'static [RowPart],
    ) -> Self {
        let (correctness, seeded, captured) = (false, false, false);
        Self { table, number, title, correctness, seeded, captured, parts, simulated: &[] }
    }

    /// Marks the row as one that judges no speed.
    pub const fn correctness(mut self) -> Self {
        self.correctness = true;
        self
    }

    /// Marks the row as one whose parts all run in virtual time.
    pub const fn in_virtual_time(mut self) -> Self {
        self.simulated = self.parts;
        self
    }

    /// Adds parts that show the row in virtual time, without a lab: its own experiments with the
    /// simulator in the middle.
    pub const fn simulated(mut self, parts: &'static [RowPart]) -> Self {
        self.simulated = parts;
        self
    }

    /// Marks the row as one whose parts in virtual time draw from the seed of [`Recording::sim`].
    pub const fn seeded(mut self) -> Self {
        self.seeded = true;
        self
    }

    /// Marks the row as one whose runs in virtual time can be captured.
    pub const fn captured(mut self) -> Self {
        self.captured = true;
        self
    }

    /// Returns true if the row can be shown in virtual time.
    pub const fn is_simulated(&self) -> bool {
        !self.simulated.is_empty()
    }

    /// Returns the identifier of the row: `first-light.4`.
    pub fn id(&self) -> String {
        format!("{}.{}", self.table, self.number)
    }

    /// Records all parts, then the case of the row itself, which holds if they all do. The time
    /// that the machine's host took from its processors meanwhile is kept as `ROW/machine/stolen`,
    /// for windows whose lengths are `ROW/machine/looked`. An experiment that was late while the
    /// host took much is repeated (docs/verify.md); the row's name then says how often.
    pub fn run(&self, recording: &mut Recording<'_>) -> Result<bool> {
        self.run_parts(recording, self.parts)
    }

    /// Records the parts that run in virtual time as [`Self::run`] does all. It fails if there are
    /// none.
    pub fn run_simulated(&self, recording: &mut Recording<'_>) -> Result<bool> {
        self.run_parts(recording, self.simulated)
    }

    fn run_parts(&self, recording: &mut Recording<'_>, parts: &[RowPart]) -> Result<bool> {
        let id = self.id();
        recording.say(&format!("{id} {}", self.title));
        let before = recording.result.cases().len();
        let watch = StealWatch::begin();
        let uncounted = recording.uncounted;
        recording.within(&format!("{id}/"), |recording| {
            for part in parts {
                match *part {
                    RowPart::Plain(run) => recording.attempt(self.title, run)?,
                    RowPart::With(run, parameter) => {
                        recording.attempt(self.title, |recording| run(recording, parameter))?;
                    }
                    RowPart::Divided(run) => run(recording)?,
                }
            }
            keep_stolen(recording, &watch.end())
        })?;
        let title = match recording.uncounted - uncounted {
            0 => self.title.to_owned(),
            more => format!("{} (attempts that do not count: {more})", self.title),
        };
        recording.judge_parts(before, &id, &title)
    }
}

fn keep_stolen(recording: &mut Recording<'_>, stolen: &[StealWindow]) -> Result {
    if stolen.is_empty() {
        return Ok(());
    }
    let of = |value: fn(&StealWindow) -> f64| {
        Series::unordered("ms", stolen.iter().map(value).collect())
    };
    recording.keep(&format!("{MACHINE}stolen"), of(|window| window.stolen_ms))?;
    recording.keep(&format!("{MACHINE}looked"), of(|window| window.span_ms))
}
