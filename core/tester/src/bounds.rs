// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The result of a search for one goal.

use serde::{Deserialize, Serialize};

use crate::goal::Goal;

/// The reason for which the search for a goal ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchEnd {
    /// A lower and an upper bound within the goal's width: a regular result.
    Regular,
    /// The greatest load is a lower bound: the throughput may be higher.
    MaxLoad,
    /// The least load is an upper bound: the throughput is lower than that, if there is one.
    MinLoad,
    /// The search reached its limit of time first.
    TimeUp,
    /// The upper bound is one only by packets that the tester itself did not send, or dropped
    /// before it counted them: the throughput may be higher.
    Tester,
}

/// The result of a search for one goal. Loads are in packets a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GoalResult {
    /// The goal.
    pub goal: Goal,
    /// The greatest lower bound below `upper`.
    pub lower: Option<u64>,
    /// The least upper bound.
    pub upper: Option<u64>,
    /// The rate at which `lower` is forwarded at worst, within what the goal allows.
    pub conditional: Option<u64>,
    /// The reason for which the search ended.
    pub end: SearchEnd,
}

impl GoalResult {
    /// Returns the throughput: the greatest lower bound, 0 without one.
    pub fn throughput(&self) -> u64 {
        self.lower.unwrap_or(0)
    }
}
