// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of requirements, each row an experiment: `weir-lab verify NAME`.

mod attempt;
pub mod first_light;
pub mod netback;
pub mod node;
pub mod xtc;

use weir_result::{MACHINE, Series};

use crate::stolen::{StealWatch, Window};
use crate::{Trial, TrialError};

/// A table of requirements.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Its name; the row's case is `NAME.ROW`, and each part of it `NAME.ROW/PART`.
    pub name: &'static str,
    /// Its rows, in order.
    pub rows: &'static [Row],
}

/// One requirement.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its number in the table.
    pub number: u32,
    /// What is shown.
    pub title: &'static str,
    /// Whether it judges correctness alone: then it holds wherever a processor is free for it.
    pub correctness: bool,
    /// How it is shown.
    pub show: Show,
    /// What is shown after that.
    more: &'static [Show],
    /// And then, by experiments that are attempts of their own.
    divided: &'static [Show],
    /// The name of its table.
    pub table: &'static str,
}

/// Shows a row, or a part of it: series and cases go into the trial.
pub type Show = fn(&mut Trial<'_>, &Row) -> Result<(), TrialError>;

/// All tables.
pub const TABLES: &[Table] = &[first_light::TABLE, netback::TABLE, node::TABLE, xtc::TABLE];

impl Row {
    /// A row that judges speed, too.
    const fn new(table: &'static str, number: u32, title: &'static str, show: Show) -> Self {
        Self { number, title, correctness: false, show, more: &[], divided: &[], table }
    }

    /// The identifier of the whole row, or of a part of it.
    #[must_use]
    pub fn id(&self, part: &str) -> String {
        let Self { table, number, .. } = self;
        if part.is_empty() {
            format!("{table}.{number}")
        } else {
            format!("{table}.{number}/{part}")
        }
    }

    /// The same row with more to show, each on its own: what is disturbed is made again alone.
    const fn and(mut self, more: &'static [Show]) -> Self {
        self.more = more;
        self
    }

    /// The same row with parts that call [`Self::attempt`] for each of their experiments.
    const fn divided(mut self, parts: &'static [Show]) -> Self {
        self.divided = parts;
        self
    }

    /// Shows the row: all its parts, then the case of the row itself, which holds if they all do.
    /// What the machine's host took from its processors meanwhile is kept as `ROW/machine/stolen`,
    /// of looks as long as `ROW/machine/looked` says. What came too late while it took much is made
    /// again (docs/verify.md); the row's name then says how often.
    ///
    /// # Errors
    /// The experiment could not be made.
    pub fn run(&self, trial: &mut Trial<'_>) -> Result<bool, TrialError> {
        trial.say(&format!("{} {}", self.id(""), self.title));
        let before = trial.result.cases().len();
        let watch = StealWatch::begin();
        let uncounted = trial.uncounted;
        for show in std::iter::once(&self.show).chain(self.more) {
            self.attempt(trial, self.title, *show)?;
        }
        for show in self.divided {
            show(trial, self)?;
        }
        let stolen = watch.end();
        if !stolen.is_empty() {
            let of = |value: fn(&Window) -> f64| {
                Series::unordered("ms", stolen.iter().map(value).collect())
            };
            trial.keep(&self.id(&format!("{MACHINE}stolen")), of(|window| window.stolen_ms))?;
            trial.keep(&self.id(&format!("{MACHINE}looked")), of(|window| window.span_ms))?;
        }
        let title = match trial.uncounted - uncounted {
            0 => self.title.to_owned(),
            more => format!("{} (attempts that do not count: {more})", self.title),
        };
        trial.judge_parts(before, &self.id(""), &title)
    }
}
