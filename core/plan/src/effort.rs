// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bounds of a planner's work: counts of steps, never time, so that a plan is the same
//! anywhere.

/// The bounds of a planner's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlanEffort {
    /// Classes of slices in the master program; its time grows with their cube.
    pub classes: usize,
    /// Rounds of column generation; a tenth of it in each turn of rounding.
    pub rounds: u32,
    /// Steps of each knapsack.
    pub steps: u32,
    /// Checks of subsets by a linear program or by patterns, to find what conflicts.
    pub checks: u32,
    /// Placements that are tried, to find the smallest relaxation.
    pub tries: u32,
}

/// Enough for 5000 slices on 1000 nodes.
impl Default for PlanEffort {
    fn default() -> Self {
        Self { classes: 128, rounds: 200, steps: 20_000, checks: 2_000, tries: 24 }
    }
}
