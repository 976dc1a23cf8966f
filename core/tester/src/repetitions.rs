// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Repeated measurements of one size as one figure with its spread.

use crate::bounds::{GoalResult, SearchEnd};
use crate::goal::Goal;
use crate::sizes::FramePattern;
use crate::suite::{SizeResult, SuiteResult};

/// The throughputs of one size and goal over its repetitions, packets a second.
#[derive(Clone, Debug, PartialEq)]
pub struct Repetitions {
    /// The frame sizes.
    pub sizes: FramePattern,
    /// The goal.
    pub goal: Goal,
    /// Repetitions.
    pub count: u32,
    /// Repetitions that were not ended by their time.
    pub finished: u32,
    /// Repetitions whose throughput is a limit of the tester: the figures are lower bounds.
    pub tester_bound: u32,
    /// The least throughput.
    pub min: u64,
    /// The median; of an even number the mean of the middle two.
    pub median: u64,
    /// The greatest.
    pub max: u64,
}

impl SuiteResult {
    /// Returns the spread of each size and goal that was measured more than once, in the order of
    /// the results. `is_tester_bound` says whether a throughput is a limit of the tester.
    pub fn repetitions(
        &self,
        is_tester_bound: impl Fn(&SizeResult, &GoalResult) -> bool,
    ) -> Vec<Repetitions> {
        let mut all = Vec::new();
        for (index, size) in self.sizes.iter().enumerate() {
            let is_same = |other: &usize| self.sizes[*other].profile == size.profile;
            if (0..index).any(|other| is_same(&other)) {
                continue;
            }
            for (at, first) in size.goals.iter().enumerate() {
                let same = (index..self.sizes.len()).filter(is_same);
                let results: Vec<(&GoalResult, bool)> = same
                    .filter_map(|other| {
                        let size = &self.sizes[other];
                        let result = size.goals.get(at)?;
                        Some((result, is_tester_bound(size, result)))
                    })
                    .collect();
                if results.len() > 1 {
                    all.push(spread(&size.profile.sizes, first.goal, &results));
                }
            }
        }
        all
    }
}

/// `results`: each with whether the tester bounds it.
fn spread(sizes: &FramePattern, goal: Goal, results: &[(&GoalResult, bool)]) -> Repetitions {
    let mut loads: Vec<u64> = results.iter().map(|(result, _)| result.throughput()).collect();
    loads.sort_unstable();
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let at = |index: usize| loads.get(index).copied().unwrap_or(0);
    Repetitions {
        sizes: sizes.clone(),
        goal,
        count: count(results.len()),
        finished: count(results.iter().filter(|one| one.0.end != SearchEnd::TimeUp).count()),
        tester_bound: count(results.iter().filter(|one| one.1).count()),
        min: at(0),
        median: u64::midpoint(at((loads.len() - 1) / 2), at(loads.len() / 2)),
        max: at(loads.len() - 1),
    }
}
