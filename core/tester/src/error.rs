// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of searches.

use crate::goal::GoalError;
use crate::outcome::OutcomeError;
use crate::ppm::Ppm;

/// Why a search cannot be made, or an outcome not be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SearchError {
    /// A goal makes no sense.
    #[error(transparent)]
    Goal(#[from] GoalError),
    /// Too few or too many goals.
    #[error("{count} goals are not within 1 to {goals_max}")]
    Goals {
        /// Goals given.
        count: usize,
        /// Goals at most.
        goals_max: usize,
    },
    /// The range of loads is empty.
    #[error("loads from {min} to {max} packets/s are no range above 0")]
    Loads {
        /// The least load.
        min: u64,
        /// The greatest load.
        max: u64,
    },
    /// The grid of loads would be too large.
    #[error("a width of {width} needs more than {loads_max} loads")]
    GridTooFine {
        /// The width.
        width: Ppm,
        /// Loads at most.
        loads_max: usize,
    },
    /// The counts of a trial do not add up.
    #[error(transparent)]
    Outcome(#[from] OutcomeError),
    /// An outcome when no trial was asked for.
    #[error("the search is over: it takes no more trials")]
    Over,
}
