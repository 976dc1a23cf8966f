// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of requirements, each row an experiment: `weir verify NAME`.

pub mod first_light;
pub mod netback;
pub mod node;
pub mod xtc;

use std::time::{Duration, Instant};

use weir_result::Series;

use crate::stolen::{StealWatch, Stolen};
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
    /// What the machine's host took from its processors meanwhile is kept as `ROW/machine/stolen`.
    ///
    /// A row that does not hold while the host took [`DISTURBED_MS`] of one is made again: no
    /// forwarder works on a processor that stands still. What was thrown away for it is told in the
    /// result's notes, and the last of [`ATTEMPTS`] counts, disturbed or not.
    ///
    /// # Errors
    /// The experiment could not be made.
    pub fn run(&self, trial: &mut Trial<'_>) -> Result<bool, TrialError> {
        trial.say(&format!("{} {}", self.id(""), self.title));
        let mut number = 1;
        loop {
            let clean = trial.result.clone();
            let (before, begun) = (clean.cases().len(), Instant::now());
            let watch = StealWatch::begin();
            (self.show)(trial, self)?;
            let (took, stolen) = (begun.elapsed(), watch.end());
            let holds = trial.judge_parts(before, &self.id(""), self.title)?;
            let attempt = Attempt { number, holds, took, stolen_ms: stolen.most_ms() };
            if !attempt.is_made_again() {
                self.keep_stolen(trial, stolen)?;
                return Ok(holds);
            }
            let cases = trial.result.cases().get(before..).unwrap_or_default();
            let broken: Vec<&str> =
                cases.iter().filter(|case| !case.holds()).map(weir_result::Case::id).collect();
            let note = attempt.note(&self.id(""), &broken.join(", "));
            trial.result = clean;
            trial.say(&note);
            trial.result.add_note(note);
            number += 1;
        }
    }

    fn keep_stolen(&self, trial: &mut Trial<'_>, stolen: Stolen) -> Result<(), TrialError> {
        if stolen.windows_ms.is_empty() {
            return Ok(());
        }
        let series = Series::unordered("ms", stolen.windows_ms);
        trial.keep(&self.id("machine/stolen"), series)
    }
}

/// A row that was shown.
#[derive(Clone, Copy, Debug)]
struct Attempt {
    /// The first is 1.
    number: u32,
    holds: bool,
    took: Duration,
    /// The most that the host took within [`crate::stolen`]'s window.
    stolen_ms: f64,
}

impl Attempt {
    fn is_made_again(&self) -> bool {
        let disturbed = self.stolen_ms >= DISTURBED_MS;
        !self.holds && disturbed && self.number < ATTEMPTS && self.took <= REPEATED_WITHIN
    }

    fn note(&self, row: &str, broken: &str) -> String {
        let Self { number, stolen_ms, .. } = self;
        format!(
            "{row}: attempt {number} of {ATTEMPTS} does not count: the machine's host took \
             {stolen_ms:.0} ms of a processor within a tenth of a second or little more; it broke \
             {broken}"
        )
    }
}

/// How often a row is made at most.
const ATTEMPTS: u32 = 3;

/// Milliseconds within 100: more than twice the 8 ms that a host takes now and then.
const DISTURBED_MS: f64 = 20.0;

/// What takes longer is not made again.
const REPEATED_WITHIN: Duration = Duration::from_secs(300);

#[cfg(test)]
mod tests {
    use super::*;

    const BROKEN: Attempt =
        Attempt { number: 1, holds: false, took: Duration::from_secs(40), stolen_ms: 270.0 };

    /// Goal: only a row that is short, broken and disturbed is made again, and not for ever.
    #[test]
    fn what_is_made_again() {
        assert!(BROKEN.is_made_again());
        assert!(Attempt { number: ATTEMPTS - 1, ..BROKEN }.is_made_again());
        for kept in [
            Attempt { holds: true, ..BROKEN },
            Attempt { number: ATTEMPTS, ..BROKEN },
            Attempt { stolen_ms: 10.0, ..BROKEN },
            Attempt { took: Duration::from_secs(1320), ..BROKEN },
        ] {
            assert!(!kept.is_made_again(), "{kept:?}");
        }
    }

    #[test]
    fn what_does_not_count_says_so() {
        let note = BROKEN.note("node.1", "node.1/receive/lost");
        let words = "node.1: attempt 1 of 3 does not count: the machine's host took 270 ms of a \
                     processor within a tenth of a second or little more; it broke \
                     node.1/receive/lost";
        assert_eq!(note, words);
    }
}
