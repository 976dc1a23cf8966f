// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The search for throughputs: RFC 9971 on a grid, several goals at once.
//!
//! RFC 9971 defines bounds and leaves the choice of loads open. This search goes in *stages*, for
//! each goal in turn. A stage searches for the goal with a smaller sum of durations: the first with
//! a single trial for each load, the second with a fifth of the sum, the last with the whole sum.
//! Each stage first measures the bounds that the stage before found, so that only the two loads
//! that matter get many trials. Within a stage:
//!
//! 1. The *relevant bounds* are the least upper bound and the greatest lower bound below it.
//! 2. If these are close enough, the stage is over.
//! 3. Otherwise the bounds of the stage before are measured, if they lie between the two.
//! 4. Otherwise the middle of the two is measured, on the grid and so in logarithms. With one bound
//!    alone, it is the load at twice the distance from the start of the search.
//!
//! Each stage uses all trials of a load, whichever stage asked for them. So if one unlucky trial
//! made a load an upper bound in the first stage, more trials in a later stage can correct that,
//! and the first stage then continues from there: the next load is a function of the trials alone.
//!
//! The first trial is at the greatest load. The search starts at the rate at which that load is
//! forwarded, since most DUTs forward their capacity when they are overloaded.

use std::collections::BTreeMap;

use weir_units::Nanos;

use crate::bounds::{GoalResult, SearchEnd};
use crate::classify::{LoadClass, LoadTrials, conditional_throughput};
use crate::error::SearchError;
use crate::goal::Goal;
use crate::grid::LoadGrid;
use crate::outcome::Outcome;
use crate::ppm::{MILLION, Ppm};

/// The parameters of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SearchConfig {
    /// The goals, 1 to [`Search::GOALS_MAX`]; earlier ones are searched for first.
    pub goals: Vec<Goal>,
    /// The least load, packets a second.
    pub min: u64,
    /// The greatest load, packets a second.
    pub max: u64,
    /// The search ends when its trials together have lasted this long.
    pub limit: Nanos,
}

/// The step that a search takes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Measure a load, and record the outcome.
    Trial(TrialStep),
    /// The search is over.
    Done,
}

/// A trial that a search asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrialStep {
    /// Packets a second.
    pub load: u64,
    /// Length of the trial.
    pub duration: Nanos,
    /// Index of the goal that asks.
    pub goal: usize,
}

/// A search, sans I/O. Ask [`Search::next`], measure, and [`Search::record`] the outcome, until the
/// step is [`Step::Done`].
#[derive(Clone, Debug)]
pub struct Search {
    goals: Vec<Goal>,
    grid: LoadGrid,
    limit: Nanos,
    spent: Nanos,
    trials: u32,
    by_load: BTreeMap<usize, LoadTrials>,
    /// The load, by index, at which the DUT forwarded when it was offered the greatest load.
    start: Option<usize>,
}

/// Relevant bounds of a stage, by index.
#[derive(Clone, Copy, Debug)]
struct Bracket {
    lower: Option<usize>,
    upper: Option<usize>,
}

impl Search {
    /// Most goals of a search.
    pub const GOALS_MAX: usize = 16;

    /// Returns a search that has measured nothing yet.
    pub fn new(config: SearchConfig) -> Result<Self, SearchError> {
        let SearchConfig { goals, min, max, limit } = config;
        if !(1..=Self::GOALS_MAX).contains(&goals.len()) {
            return Err(SearchError::Goals { count: goals.len(), goals_max: Self::GOALS_MAX });
        }
        let mut width = Ppm::new(MILLION);
        for goal in &goals {
            goal.check()?;
            width = width.min(goal.width);
        }
        let grid = LoadGrid::new(min, max, width)?;
        let (spent, by_load) = (Nanos::default(), BTreeMap::new());
        Ok(Self { goals, grid, limit, spent, trials: 0, by_load, start: None })
    }

    /// Returns the next step. It is a function of the recorded outcomes, so it stays the same until
    /// another is recorded.
    pub fn next(&self) -> Step {
        if self.is_time_up() {
            return Step::Done;
        }
        for (index, goal) in self.goals.iter().enumerate() {
            if let Some(load) = self.candidate(goal) {
                let (load, duration) = (self.grid.load(load), goal.trial);
                return Step::Trial(TrialStep { load, duration, goal: index });
            }
        }
        Step::Done
    }

    /// Takes the outcome of the trial that [`Self::next`] asks for.
    pub fn record(&mut self, outcome: Outcome) -> Result<(), SearchError> {
        outcome.check()?;
        let Step::Trial(TrialStep { load, duration, .. }) = self.next() else {
            return Err(SearchError::Over);
        };
        let index = self.grid.floor(load);
        self.spent = self.spent.saturating_add(duration);
        self.trials = self.trials.saturating_add(1);
        self.start.get_or_insert_with(|| self.grid.floor(forwarding_rate(load, outcome)));
        self.by_load.entry(index).or_default().add(duration, outcome);
        Ok(())
    }

    /// Returns the result for each goal, in order, by the outcomes recorded so far.
    pub fn results(&self) -> Vec<GoalResult> {
        self.goals.iter().map(|goal| self.result(goal)).collect()
    }

    /// Returns the length of all trials so far together.
    pub const fn spent(&self) -> Nanos {
        self.spent
    }

    /// Returns the number of trials so far.
    pub const fn trials(&self) -> u32 {
        self.trials
    }

    /// Returns the trials of each load, in packets a second.
    pub fn loads(&self) -> impl Iterator<Item = (u64, &LoadTrials)> {
        self.by_load.iter().map(|(index, trials)| (self.grid.load(*index), trials))
    }

    /// Estimates the time that is still needed: for each open goal, half of its sum for either
    /// bound, less the trials that the bound had, and a bisection between the two.
    pub fn remaining(&self) -> Nanos {
        let open = self.goals.iter().filter(|goal| self.candidate(goal).is_some());
        let needed = open.map(|goal| {
            let bracket = self.bracket(&goal.with_sum(goal.trial));
            let ends = [bracket.lower, bracket.upper].map(|end| {
                let sums = end.and_then(|index| self.by_load.get(&index));
                let had = sums.map_or(0, |trials| trials.len() as u64 * goal.trial.as_nanos());
                (goal.sum.as_nanos() / 2).saturating_sub(had)
            });
            let lower = bracket.lower.unwrap_or(0);
            let span = bracket.upper.unwrap_or_else(|| self.grid.top()).saturating_sub(lower);
            let bisections = u64::from(span.max(1).ilog2()).max(1);
            ends[0] + ends[1] + bisections * goal.trial.as_nanos()
        });
        let left = self.limit.saturating_sub(self.spent).as_nanos();
        Nanos::new(needed.fold(0_u64, u64::saturating_add).min(left))
    }

    fn is_time_up(&self) -> bool {
        self.spent >= self.limit
    }

    fn result(&self, goal: &Goal) -> GoalResult {
        let Bracket { lower, upper } = self.bracket(goal);
        let end = match (lower, upper) {
            _ if self.candidate(goal).is_some() => SearchEnd::TimeUp,
            (Some(_), Some(_)) => SearchEnd::Regular,
            (_, None) => SearchEnd::MaxLoad,
            (None, _) => SearchEnd::MinLoad,
        };
        let at_lower = lower.and_then(|index| self.by_load.get(&index));
        let lower = lower.map(|index| self.grid.load(index));
        let conditional =
            lower.zip(at_lower).map(|(load, trials)| conditional_throughput(load, trials, goal));
        let upper = upper.map(|index| self.grid.load(index));
        GoalResult { goal: *goal, lower, upper, conditional, end }
    }

    /// Returns the load, by index, of which the goal needs another trial; `None` if the goal is
    /// reached.
    fn candidate(&self, goal: &Goal) -> Option<usize> {
        let top = self.grid.top();
        let Some(start) = self.start else { return Some(top) };
        let mut hint = Bracket { lower: Some(start), upper: Some((start + 1).min(top)) };
        for sum in stages(goal) {
            let stage = goal.with_sum(sum);
            let bracket = self.bracket(&stage);
            if self.is_closed(bracket, &stage) {
                hint = bracket;
                continue;
            }
            return Some(self.pick(bracket, hint, start));
        }
        None
    }

    /// Returns the relevant bounds for a goal.
    fn bracket(&self, goal: &Goal) -> Bracket {
        let mut bracket = Bracket { lower: None, upper: None };
        for (index, trials) in &self.by_load {
            match trials.class(goal) {
                LoadClass::Lower => bracket.lower = Some(*index),
                LoadClass::Upper => {
                    bracket.upper = Some(*index);
                    break;
                }
                LoadClass::Undecided => {}
            }
        }
        bracket
    }

    fn is_closed(&self, bracket: Bracket, goal: &Goal) -> bool {
        match (bracket.lower, bracket.upper) {
            (Some(lower), Some(upper)) => self.grid.is_within(lower, upper, goal.width),
            (Some(lower), None) => lower == self.grid.top(),
            (None, Some(upper)) => upper == 0,
            (None, None) => false,
        }
    }

    /// Returns the load to measure in a stage whose bounds are not close enough yet.
    fn pick(&self, bracket: Bracket, hint: Bracket, start: usize) -> usize {
        let above = |index: usize| bracket.lower.is_none_or(|lower| index > lower);
        let below = |index: usize| bracket.upper.is_none_or(|upper| index < upper);
        let hinted = [hint.lower, hint.upper].into_iter().flatten();
        if let Some(index) = hinted.into_iter().find(|index| above(*index) && below(*index)) {
            return index;
        }
        match (bracket.lower, bracket.upper) {
            (Some(lower), Some(upper)) => usize::midpoint(lower, upper),
            (None, Some(upper)) => {
                let distance = (start + 1).saturating_sub(upper).max(1);
                upper.saturating_sub(distance)
            }
            (Some(lower), None) => {
                let distance = lower.saturating_sub(start).max(1);
                (lower + distance).min(self.grid.top())
            }
            (None, None) => start,
        }
    }
}

/// Sums of durations of a goal's stages, ascending. The last is the goal's own.
fn stages(goal: &Goal) -> [Nanos; 3] {
    let fifth = Nanos::new(goal.sum.as_nanos() / 5).max(goal.trial);
    [goal.trial, fifth, goal.sum]
}

/// Returns the rate in packets a second at which a load was forwarded.
fn forwarding_rate(load: u64, outcome: Outcome) -> u64 {
    let product = u128::from(load) * u128::from(outcome.forwarded);
    let rate = product.checked_div(u128::from(outcome.intended)).unwrap_or(0);
    u64::try_from(rate).unwrap_or(load)
}
