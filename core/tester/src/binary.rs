// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The classic search beside the other: bisection with one trial a load, as RFC 2544 section 26.1
//! suggests and most testers do. It believes every trial, which is why two runs differ.

use weir_units::Nanos;

use crate::error::SearchError;
use crate::goal::Goal;
use crate::grid::LoadGrid;
use crate::outcome::Outcome;
use crate::search::{Step, TrialStep};

/// A bisection, sans I/O: ask [`BinarySearch::next`], measure, [`BinarySearch::record`].
#[derive(Clone, Debug)]
pub struct BinarySearch {
    goal: Goal,
    grid: LoadGrid,
    lower: Option<usize>,
    upper: Option<usize>,
    spent: Nanos,
}

impl BinarySearch {
    /// Returns a bisection between two loads for a goal, of which its loss, its width and its trial
    /// count.
    pub fn new(goal: Goal, min: u64, max: u64) -> Result<Self, SearchError> {
        goal.check()?;
        let grid = LoadGrid::new(min, max, goal.width)?;
        Ok(Self { goal, grid, lower: None, upper: None, spent: Nanos::default() })
    }

    /// Returns the next step.
    pub fn next(&self) -> Step {
        let top = self.grid.top();
        let index = match (self.lower, self.upper) {
            (None, None) => top,
            (Some(lower), Some(upper)) if upper > lower + 1 => usize::midpoint(lower, upper),
            (None, Some(upper)) if upper > 0 => upper / 2,
            _ => return Step::Done,
        };
        let (load, duration) = (self.grid.load(index), self.goal.trial);
        Step::Trial(TrialStep { load, duration, goal: 0 })
    }

    /// Takes the outcome of the trial that [`Self::next`] asks for.
    pub fn record(&mut self, outcome: Outcome) -> Result<(), SearchError> {
        outcome.check()?;
        let Step::Trial(TrialStep { load, duration, .. }) = self.next() else {
            return Err(SearchError::Over);
        };
        self.spent = self.spent.saturating_add(duration);
        let is_bad = self.goal.loss.is_exceeded_by(outcome.missing(), outcome.intended);
        let bound = if is_bad { &mut self.upper } else { &mut self.lower };
        *bound = Some(self.grid.floor(load));
        Ok(())
    }

    /// Returns the greatest load, in packets a second, that no trial condemned; 0 if there is none.
    pub fn throughput(&self) -> u64 {
        self.lower.map_or(0, |index| self.grid.load(index))
    }

    /// Returns the time that the trials so far lasted in sum.
    pub const fn spent(&self) -> Nanos {
        self.spent
    }
}
