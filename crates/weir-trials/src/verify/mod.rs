// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of requirements, each row an experiment: `weir verify NAME`.

pub mod first_light;
pub mod netback;
pub mod node;
pub mod xtc;

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
    /// Whether it judges correctness alone: then it holds on a busy machine, too.
    pub correctness: bool,
    /// How it is shown.
    pub show: Show,
    /// The name of its table.
    pub table: &'static str,
}

/// Shows a row: series and cases go into the trial.
pub type Show = fn(&mut Trial<'_>, &Row) -> Result<(), TrialError>;

/// All tables.
pub const TABLES: &[Table] = &[first_light::TABLE, netback::TABLE, node::TABLE, xtc::TABLE];

impl Row {
    /// A row that judges speed, too.
    const fn new(table: &'static str, number: u32, title: &'static str, show: Show) -> Self {
        Self { number, title, correctness: false, show, table }
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

    /// Shows the row: all its parts, then the case of the row itself, which holds if they all do.
    ///
    /// # Errors
    /// The experiment could not be made.
    pub fn run(&self, trial: &mut Trial<'_>) -> Result<bool, TrialError> {
        trial.say(&format!("{} {}", self.id(""), self.title));
        let before = trial.result.cases().len();
        (self.show)(trial, self)?;
        trial.judge_parts(before, &self.id(""), self.title)
    }
}
