// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The results of a suite, and its progress.

use serde::{Deserialize, Serialize};
use weir_units::Nanos;

use crate::bounds::GoalResult;
use crate::measurer::{TrafficProfile, TrialResult};
use crate::outcome::Outcome;
use crate::recovery::Recovery;
use crate::schedule::SizeTest;

/// The progress of a suite, reported before each trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchmarkProgress {
    /// Frame sizes that are done.
    pub done: usize,
    /// Frame sizes of the suite.
    pub of: usize,
    /// The test.
    pub test: &'static str,
    /// Load of the trial, packets a second.
    pub pps: u64,
    /// Estimate of the time left.
    pub left: Nanos,
}

/// A measured load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LadderPoint {
    /// The load in percent of the throughput (latency) or of the line (loss rate).
    pub percent: u32,
    /// Packets a second.
    pub pps: u64,
    /// The result.
    pub result: TrialResult,
}

/// The longest bursts without loss, packets (RFC 9004).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BackToBack {
    /// Packets a second within a burst.
    pub pps: u64,
    /// The longest burst of each repetition. If it is `longest`, the DUT may take more.
    pub bursts: Vec<u64>,
    /// The longest burst that was tried.
    pub longest: u64,
    /// Repetitions that ended because the tester itself missed packets: the DUT may take more.
    #[serde(default)]
    pub tester_bound: u64,
    /// The mean of `bursts`.
    pub mean: f64,
    /// The standard deviation of `bursts`; 0 for a single burst.
    #[serde(default)]
    pub stddev: f64,
    /// The size of the DUT's buffer as a time, s: the mean burst less the packets that the DUT
    /// forwards meanwhile.
    pub corrected_buffer_s: f64,
}

/// The results of one frame size.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SizeResult {
    /// The packets.
    pub profile: TrafficProfile,
    /// Mean size of the frames, bytes with FCS.
    pub frame_bytes: f64,
    /// The greatest load of the search, packets a second.
    pub max_pps: u64,
    /// Throughput, for each goal.
    pub goals: Vec<GoalResult>,
    /// Trials of the search.
    pub trials: u32,
    /// Length of all these trials together, ns.
    pub spent_ns: u64,
    /// Packets of the search by load; loads are in packets a second.
    pub loads: Vec<(u64, Outcome)>,
    /// Latency and processors by load; percent are of the throughput.
    pub latency: Vec<LadderPoint>,
    /// Frame loss rate; percent are of the greatest load.
    pub loss_rate: Vec<LadderPoint>,
    /// Back-to-back frames.
    pub back_to_back: Option<BackToBack>,
    /// System recovery.
    pub recovery: Option<Recovery>,
    /// Time without forwarding after a reset, ns; `None` if the DUT did not come back.
    pub reset_ns: Option<u64>,
    /// Set if the DUT did not come back from a reset: the time until sending ended, ns.
    #[serde(default)]
    pub not_back_ns: Option<u64>,
    /// The test in which or before which the measurement ended early, or which is still to come;
    /// its results and those of later tests are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_in: Option<SizeTest>,
    /// Tests that were left out, loads and times that were cut, each with its reason.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The results of a suite.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SuiteResult {
    /// Each frame size, in the order asked for.
    pub sizes: Vec<SizeResult>,
}

pub(crate) const NO_THROUGHPUT: &str =
    "no load passed the goal, and this test starts from one that did";
