// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The procedures of RFC 2544, section 26, with RFC 9004 for back-to-back frames and RFC 5180 for
//! IPv6, one frame size after the other.
//!
//! | test | what it does |
//! |---|---|
//! | throughput | [`Search`] for the goals |
//! | latency | loads from 10 % to 110 % of the throughput: delays and the load of processors |
//! | frame loss rate | from 100 % of the line downwards in tenths, until two loads lose nothing |
//! | back-to-back | the longest burst at the line's rate without loss, several times (RFC 9004) |
//! | system recovery | 110 % of the throughput, then half of that: when does loss end |
//! | reset | for how long a reset DUT forwards nothing |
//!
//! The measurer is a parameter, so that all of it runs in a test in no time.

use serde::{Deserialize, Serialize};
use weir_units::Nanos;

use crate::bounds::GoalResult;
use crate::error::SearchError;
use crate::goal::Goal;
use crate::measurer::{Measurer, RecoveryRequest, TrafficProfile, TrialRequest, TrialResult};
use crate::outcome::Outcome;
use crate::search::{Search, SearchConfig, Step};

/// The tests to make beside throughput.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a test that is made or not")]
pub struct SuiteChoice {
    /// Latency, and the load of processors, by load.
    pub latency: bool,
    /// Frame loss rate.
    pub loss_rate: bool,
    /// Back-to-back frames.
    pub back_to_back: bool,
    /// System recovery.
    pub recovery: bool,
    /// Reset.
    pub reset: bool,
}

/// The durations and bounds of a suite.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BenchmarkLimits {
    /// Rate of the link, bits a second on the wire.
    pub line_bps: u64,
    /// Packets a second that the generator can offer; loads do not exceed it.
    pub max_pps: u64,
    /// The least load of a search.
    pub min_pps: u64,
    /// The trials of a search last so long in sum at most.
    pub search: Nanos,
    /// A trial of latency or loss rate.
    pub trial: Nanos,
    /// Loads of the latency test, bits a second of frames with FCS, at most [`LOADS_MAX`]; tenths
    /// of the throughput if empty.
    pub loads_bps: Vec<u64>,
    /// Repetitions of the back-to-back test; RFC 9004 asks for 50.
    pub bursts: u32,
    /// Length of the longest burst, and of the overload of system recovery.
    pub overload: Nanos,
    /// Time that a trial takes beside its duration, for estimates.
    pub overhead: Nanos,
}

/// The state of a suite, told before each trial.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BenchmarkProgress {
    /// Sizes done.
    pub done: usize,
    /// Sizes of the suite.
    pub of: usize,
    /// The test.
    pub test: &'static str,
    /// Load of the trial, packets a second.
    pub pps: u64,
    /// Time left, if nothing surprises.
    pub left: Nanos,
}

/// A measured load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LadderPoint {
    /// In percent of the throughput (latency) or of the line (loss rate).
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
    /// The longest burst of each repetition. At `longest` the DUT may take more.
    pub bursts: Vec<u64>,
    /// The longest burst that was tried.
    pub longest: u64,
    /// Their mean.
    pub mean: f64,
    /// Mean burst less what the DUT forwards meanwhile, as time: the size of its buffer, s.
    pub corrected_buffer_s: f64,
}

/// System recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// The overload, packets a second.
    pub over_pps: u64,
    /// The load after it, packets a second.
    pub pps: u64,
    /// From the end of the overload to the last lost packet, ns.
    pub recovery_ns: u64,
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
    /// Their length in sum, ns.
    pub spent_ns: u64,
    /// Packets of the search by load, packets a second.
    pub loads: Vec<(u64, Outcome)>,
    /// Latency and processors by load; percent are of the throughput.
    pub latency: Vec<LadderPoint>,
    /// Frame loss rate; percent are of the greatest load.
    pub loss_rate: Vec<LadderPoint>,
    /// Back-to-back frames.
    pub back_to_back: Option<BackToBack>,
    /// System recovery.
    pub recovery: Option<Recovery>,
    /// Time without forwarding after a reset, ns.
    pub reset_ns: Option<u64>,
}

/// The results of a suite.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SuiteResult {
    /// Each frame size, in the order asked for.
    pub sizes: Vec<SizeResult>,
}

/// Why a suite could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchmarkError<E> {
    /// A trial could not be made.
    #[error(transparent)]
    Measurer(E),
    /// A search was refused.
    #[error("{0}")]
    Search(#[from] SearchError),
    /// More sizes than [`SIZES_MAX`], or none.
    #[error("{0} frame sizes are not within 1 to {SIZES_MAX}")]
    Sizes(usize),
}

/// Makes the tests of `choice` for each of `profiles`, throughput for `goals` first. `progress` is
/// called before each trial.
pub fn run_suite<M: Measurer>(
    measurer: &mut M,
    profiles: &[TrafficProfile],
    goals: &[Goal],
    choice: SuiteChoice,
    limits: &BenchmarkLimits,
    progress: &mut dyn FnMut(BenchmarkProgress),
) -> Result<SuiteResult, BenchmarkError<M::Error>> {
    if !(1..=SIZES_MAX).contains(&profiles.len()) {
        return Err(BenchmarkError::Sizes(profiles.len()));
    }
    let mut result = SuiteResult::default();
    for (done, profile) in profiles.iter().enumerate() {
        let mut suite = SizeRun {
            measurer: &mut *measurer,
            profile,
            goals,
            choice,
            limits,
            progress: &mut *progress,
            done,
            of: profiles.len(),
        };
        result.sizes.push(suite.run()?);
    }
    Ok(result)
}

/// The tests of one size.
struct SizeRun<'a, M> {
    measurer: &'a mut M,
    profile: &'a TrafficProfile,
    goals: &'a [Goal],
    choice: SuiteChoice,
    limits: &'a BenchmarkLimits,
    progress: &'a mut dyn FnMut(BenchmarkProgress),
    done: usize,
    of: usize,
}

impl<M: Measurer> SizeRun<'_, M> {
    fn run(&mut self) -> Result<SizeResult, BenchmarkError<M::Error>> {
        let line = self.profile.sizes.line_pps(self.limits.line_bps);
        let max_pps = line.min(self.limits.max_pps).max(self.limits.min_pps + 1);
        let search = self.search(max_pps)?;
        let goals = search.results();
        let throughput = goals.first().map_or(0, GoalResult::throughput);
        let mut result = SizeResult {
            profile: self.profile.clone(),
            frame_bytes: self.profile.sizes.mean(),
            max_pps,
            goals,
            trials: search.trials(),
            spent_ns: search.spent().as_nanos(),
            loads: search.loads().map(|(load, trials)| (load, trials.total())).collect(),
            latency: Vec::new(),
            loss_rate: Vec::new(),
            back_to_back: None,
            recovery: None,
            reset_ns: None,
        };
        if self.choice.loss_rate {
            result.loss_rate = self.loss_rate(max_pps)?;
        }
        if throughput == 0 {
            // The other tests are relative to the throughput.
            return Ok(result);
        }
        if self.choice.latency {
            result.latency = self.latency(throughput)?;
        }
        if self.choice.back_to_back {
            result.back_to_back = Some(self.back_to_back(max_pps, throughput)?);
        }
        if self.choice.recovery {
            result.recovery = Some(self.recovery(throughput)?);
        }
        if self.choice.reset {
            let request = self.request(throughput, self.limits.overload);
            self.tell("reset", throughput, self.limits.overload);
            let time = self.measurer.reset(&request).map_err(BenchmarkError::Measurer)?;
            result.reset_ns = time.map(Nanos::as_nanos);
        }
        Ok(result)
    }

    fn search(&mut self, max: u64) -> Result<Search, BenchmarkError<M::Error>> {
        let goals = self.goals.to_vec();
        let (min, limit) = (self.limits.min_pps, self.limits.search);
        let mut search = Search::new(SearchConfig { goals, min, max, limit })?;
        while let Step::Trial(step) = search.next() {
            let left = self.with_overhead(search.remaining(), step.duration);
            self.tell("throughput", step.load, left.saturating_add(self.fixed()));
            let request = self.request(step.load, step.duration);
            let trial = self.measurer.trial(&request).map_err(BenchmarkError::Measurer)?;
            search.record(trial.outcome)?;
        }
        Ok(search)
    }

    fn latency(&mut self, throughput: u64) -> Result<Vec<LadderPoint>, BenchmarkError<M::Error>> {
        let mut points = Vec::new();
        if self.limits.loads_bps.is_empty() {
            for percent in LATENCY_PERCENT {
                points.push(self.point("latency", percent, throughput)?);
            }
        }
        for bps in self.limits.loads_bps.iter().take(LOADS_MAX) {
            let pps = self.profile.sizes.frames_at(*bps).max(1);
            let percent = u32::try_from(pps.saturating_mul(100) / throughput.max(1));
            let percent = percent.unwrap_or(u32::MAX);
            let result = self.load("latency", pps)?;
            points.push(LadderPoint { percent, pps, result });
        }
        Ok(points)
    }

    fn loss_rate(&mut self, max: u64) -> Result<Vec<LadderPoint>, BenchmarkError<M::Error>> {
        let mut points: Vec<LadderPoint> = Vec::new();
        for percent in LOSS_PERCENT {
            points.push(self.point("loss rate", percent, max)?);
            let clean = |point: &&LadderPoint| point.result.outcome.missing() == 0;
            if points.iter().rev().take_while(clean).count() >= 2 {
                break;
            }
        }
        Ok(points)
    }

    fn point(
        &mut self,
        test: &'static str,
        percent: u32,
        of_pps: u64,
    ) -> Result<LadderPoint, BenchmarkError<M::Error>> {
        let pps = (of_pps.saturating_mul(u64::from(percent)) / 100).max(1);
        Ok(LadderPoint { percent, pps, result: self.load(test, pps)? })
    }

    /// A trial of a load.
    fn load(
        &mut self,
        test: &'static str,
        pps: u64,
    ) -> Result<TrialResult, BenchmarkError<M::Error>> {
        self.tell(test, pps, self.limits.trial);
        let request = self.request(pps, self.limits.trial);
        self.measurer.trial(&request).map_err(BenchmarkError::Measurer)
    }

    fn back_to_back(
        &mut self,
        max: u64,
        throughput: u64,
    ) -> Result<BackToBack, BenchmarkError<M::Error>> {
        let longest = packets_in(max, self.limits.overload).max(2);
        let mut bursts = Vec::new();
        for _ in 0..self.limits.bursts.max(1) {
            bursts.push(self.longest_burst(max, longest)?);
        }
        let sum: u64 = bursts.iter().sum();
        let mean = float(sum) / float(bursts.len() as u64);
        let time = mean / float(max.max(1));
        let drained = float(throughput.min(max)) / float(max.max(1));
        let corrected_buffer_s = time * (1.0 - drained);
        Ok(BackToBack { pps: max, bursts, longest, mean, corrected_buffer_s })
    }

    /// Bisects for the longest burst without loss, to 1 % or a packet.
    fn longest_burst(&mut self, pps: u64, longest: u64) -> Result<u64, BenchmarkError<M::Error>> {
        let (mut good, mut bad) = (0, longest + 1);
        let mut burst = longest;
        while bad - good > 1 && (bad - good) * 100 > bad {
            self.tell("back to back", pps, self.limits.overload);
            let mut request = self.request(pps, duration_of(burst, pps));
            request.burst = Some(burst);
            let trial = self.measurer.trial(&request).map_err(BenchmarkError::Measurer)?;
            if trial.outcome.missing() == 0 {
                good = burst
            } else {
                bad = burst
            }
            burst = u64::midpoint(good, bad).max(1);
        }
        Ok(good)
    }

    fn recovery(&mut self, throughput: u64) -> Result<Recovery, BenchmarkError<M::Error>> {
        let over_pps = throughput.saturating_mul(11) / 10;
        let pps = over_pps / 2;
        let request = RecoveryRequest {
            profile: self.profile.clone(),
            over_pps,
            over: self.limits.overload,
            pps,
            duration: self.limits.overload,
        };
        let left = self.limits.overload.saturating_add(self.limits.overload);
        self.tell("recovery", over_pps, left);
        let time = self.measurer.recovery(&request).map_err(BenchmarkError::Measurer)?;
        Ok(Recovery { over_pps, pps, recovery_ns: time.as_nanos() })
    }

    fn request(&self, pps: u64, duration: Nanos) -> TrialRequest {
        TrialRequest { profile: self.profile.clone(), pps, duration, burst: None }
    }

    /// Reports a trial; `left` is what this size still needs.
    fn tell(&mut self, test: &'static str, pps: u64, left: Nanos) {
        let sizes_after = (self.of - self.done).saturating_sub(1) as u64;
        let each = self.fixed().saturating_add(self.search_estimate());
        let after = Nanos::new(each.as_nanos().saturating_mul(sizes_after));
        let (done, of) = (self.done, self.of);
        let left = left.saturating_add(after);
        (self.progress)(BenchmarkProgress { done, of, test, pps, left });
    }

    /// A first estimate of a search: two thirds of the sum for each bound and ten trials more.
    fn search_estimate(&self) -> Nanos {
        let each = self.goals.iter().map(|goal| {
            let trial = goal.trial.as_nanos();
            let search = Nanos::new(goal.sum.as_nanos() / 3 * 4 + 10 * trial);
            self.with_overhead(search, goal.trial)
        });
        each.fold(Nanos::default(), Nanos::saturating_add)
    }

    /// The time of the tests behind the search.
    fn fixed(&self) -> Nanos {
        let trial = self.limits.trial.saturating_add(self.limits.overhead).as_nanos();
        let overload = self.limits.overload.saturating_add(self.limits.overhead).as_nanos();
        let of = |made: bool, time: u64| if made { time } else { 0 };
        let loads = match self.limits.loads_bps.len() {
            0 => LATENCY_PERCENT.len(),
            loads => loads.min(LOADS_MAX),
        };
        Nanos::new(
            of(self.choice.latency, trial * loads as u64)
                + of(self.choice.loss_rate, trial * LOSS_PERCENT.len() as u64)
                // A bisection of eight steps; most bursts are far shorter than the longest.
                + of(self.choice.back_to_back, u64::from(self.limits.bursts) * 2 * overload)
                + of(self.choice.recovery, 2 * overload)
                + of(self.choice.reset, overload),
        )
    }

    fn with_overhead(&self, time: Nanos, trial: Nanos) -> Nanos {
        let trials = time.as_nanos().div_ceil(trial.as_nanos().max(1));
        time.saturating_add(Nanos::new(trials.saturating_mul(self.limits.overhead.as_nanos())))
    }
}

/// Packets of `pps` within `time`, rounded down.
fn packets_in(pps: u64, time: Nanos) -> u64 {
    let packets = u128::from(pps) * u128::from(time.as_nanos()) / 1_000_000_000;
    u64::try_from(packets).unwrap_or(u64::MAX)
}

/// The time that so many packets take, rounded up.
fn duration_of(packets: u64, pps: u64) -> Nanos {
    let ns = (u128::from(packets) * 1_000_000_000).div_ceil(u128::from(pps.max(1)));
    Nanos::new(u64::try_from(ns).unwrap_or(u64::MAX))
}

#[expect(clippy::cast_precision_loss, reason = "counts of a suite stay below 2^53")]
const fn float(count: u64) -> f64 {
    count as f64
}

/// Loads of a latency test at most.
pub const LOADS_MAX: usize = 64;
/// Frame sizes of a suite at most.
pub const SIZES_MAX: usize = 128;
/// Percent of the throughput, up to past saturation.
const LATENCY_PERCENT: [u32; 11] = [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 110];
/// Percent of the line.
const LOSS_PERCENT: [u32; 10] = [100, 90, 80, 70, 60, 50, 40, 30, 20, 10];
