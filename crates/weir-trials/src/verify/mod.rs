// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of requirements, each row an experiment: `weir verify NAME`.

pub mod first_light;
pub mod netback;
pub mod node;
pub mod xtc;

use std::time::{Duration, Instant};

use weir_result::Series;

use crate::stolen::StealWatch;
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
    /// What is shown after that.
    more: &'static [Show],
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
        Self { number, title, correctness: false, show, more: &[], table }
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

    /// Shows the row: all its parts, then the case of the row itself, which holds if they all do.
    /// What the machine's host took from its processors meanwhile is kept as `ROW/machine/stolen`.
    ///
    /// What does not hold while the host took `DISTURBED_MS` of a processor is made again: no
    /// forwarder works on a processor that stands still. What was thrown away for it is told in the
    /// result's notes, and the last of `ATTEMPTS` counts, disturbed or not.
    ///
    /// # Errors
    /// The experiment could not be made.
    pub fn run(&self, trial: &mut Trial<'_>) -> Result<bool, TrialError> {
        trial.say(&format!("{} {}", self.id(""), self.title));
        let before = trial.result.cases().len();
        let mut stolen = Vec::new();
        for show in std::iter::once(&self.show).chain(self.more) {
            stolen.extend(self.attempt(trial, *show)?);
        }
        if !stolen.is_empty() {
            trial.keep(&self.id("machine/stolen"), Series::unordered("ms", stolen))?;
        }
        trial.judge_parts(before, &self.id(""), self.title)
    }

    /// Makes a part of the row, again where [`Self::run`] says so. Hands back the milliseconds that
    /// the host took meanwhile, as [`StealWatch`] saw them.
    fn attempt(
        &self,
        trial: &mut Trial<'_>,
        show: impl Fn(&mut Trial<'_>, &Self) -> Result<(), TrialError>,
    ) -> Result<Vec<f64>, TrialError> {
        let mut number = 1;
        loop {
            let (clean, begun) = (trial.result.clone(), Instant::now());
            let watch = StealWatch::begin();
            show(trial, self)?;
            let (took, stolen) = (begun.elapsed(), watch.end());
            let cases = trial.result.cases().get(clean.cases().len()..).unwrap_or_default();
            let broken = cases.iter().filter(|case| !case.holds()).map(weir_result::Case::id);
            let broken = broken.collect::<Vec<&str>>().join(", ");
            let holds = broken.is_empty();
            let attempt = Attempt { number, holds, took, stolen_ms: stolen.most_ms() };
            if !attempt.is_made_again() {
                return Ok(stolen.windows_ms);
            }
            let note = attempt.note(&self.id(""), &broken);
            trial.result = clean;
            trial.say(&note);
            trial.result.add_note(note);
            number += 1;
        }
    }
}

/// What was shown, a row or a part of one.
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

/// How often it is made at most.
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
