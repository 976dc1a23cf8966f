// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Benchmarks of a device under test (DUT): its throughput in packets a second, its latency, and
//! the processor time that these packets cost it.
//!
//! **Problem.** The classic method (RFC 2544) bisects the load with one long trial for each load,
//! which a single lost packet fails. A DUT on a shared machine now and then stands still for
//! milliseconds. One such trial sends the bisection to the wrong half, and two runs then differ by
//! more than the versions that they compare.
//!
//! **Idea.** RFC 9971 (MLRsearch) defines instead what a result means. A [`Goal`] says how much
//! loss makes a trial bad, which part of the trials may be bad, and how long all trials of a load
//! last together. A load is a *lower bound* if it keeps the goal even when all missing trials are
//! counted as bad, and an *upper bound* if it breaks the goal even when they are counted as good
//! ([`LoadSums`]). [`Search`] measures loads until a lower and an upper bound lie within the goal's
//! width of each other.
//!
//! **Purity.** Nothing here sends a packet. [`Search::next`] says what to measure next, and
//! [`Search::record`] takes the result. The procedures of RFC 2544, RFC 9004 and RFC 5180 are
//! written against the trait [`Measurer`]. A generator and a sink implement it on the wire; in
//! tests [`FakeDut`] does, whose capacity is known.
//!
//! **Exactness.** Counts and ratios are integers: a loss ratio is compared by cross-multiplication,
//! and loads lie on a [`LoadGrid`] of whole packets a second. Only statistics of results (means,
//! least squares) are floats.
//!
//! Read [`LoadSums`], then [`Search`].

mod batches;
mod binary;
mod bounds;
mod chart;
mod classify;
mod cpu_model;
mod delay_variation;
mod drift;
mod error;
mod fake;
mod gaps;
mod goal;
mod grid;
mod least_squares;
mod limits;
mod measurer;
mod model;
mod outcome;
mod page;
mod ppm;
mod procedures;
mod recovery;
mod repetitions;
mod report;
mod resets;
mod scale;
mod schedule;
mod search;
mod sizes;
mod suite;
mod tester_limit;

pub use batches::BatchModel;
pub use binary::BinarySearch;
pub use bounds::{GoalResult, SearchEnd};
pub use classify::{LoadClass, LoadSums, LoadTrials, conditional_throughput};
pub use cpu_model::{CpuModel, MeasuredSize};
pub use delay_variation::DelayVariation;
pub use drift::{
    CpuDriftWatch, CpuForecast, CpuWindow, DRIFT_POINTS, DRIFT_WINDOWS, DriftReading, DriftSide,
};
pub use error::SearchError;
pub use fake::{DutNoise, DutOutages, FakeDut};
pub use gaps::{
    RecoveryTime, ResetTime, TAIL, TAIL_PACKETS, is_lossy_at_end, recovery_time, reset_time,
};
pub use goal::{Goal, GoalError};
pub use grid::LoadGrid;
pub use least_squares::{LeastSquaresError, LinearFit};
pub use limits::{BenchmarkLimits, LOADS_MAX, SuiteChoice};
pub use measurer::{
    CpuLoad, FrameTag, LatencySummary, Measurer, NodeLoad, RecoveryRequest, ResetRequest,
    TrafficProfile, TrialRequest, TrialResult,
};
pub use model::{CpuLine, CpuPoint, CpuSurface};
pub use outcome::{Outcome, OutcomeError};
pub use ppm::Ppm;
pub use procedures::{BenchmarkError, SIZES_MAX, run_suite};
pub use recovery::Recovery;
pub use repetitions::Repetitions;
pub use report::{CpuFit, MeasurementReport, NativeBaseline, check_goals, cpu_fits};
pub use scale::{packets_in, scaled};
pub use schedule::SizeTest;
pub use search::{Search, SearchConfig, Step, TrialStep};
pub use sizes::{FramePattern, FramePatternError, IpVersion, TEXT_SIZES};
pub use suite::{BackToBack, BenchmarkProgress, LadderPoint, SizeResult, SuiteResult};
pub use tester_limit::TesterLimit;
