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
//! | system recovery | 110 % of the throughput, then half of that: the time until loss ends |
//! | reset | the time for which a DUT that was reset forwards nothing |
//!
//! The back-to-back test is left out if the throughput is the greatest load that can be offered: no
//! buffer would fill.
//!
//! The measurer is a parameter, so that a test runs all procedures without waiting.

use serde::{Deserialize, Serialize};
use weir_units::Nanos;

use crate::bounds::GoalResult;
use crate::error::SearchError;
use crate::gaps::ResetTime;
use crate::goal::Goal;
use crate::limits::{
    BenchmarkLimits, LATENCY_PERCENT, LOADS_MAX, LOSS_PERCENT, SuiteChoice, THROUGHPUT_PERCENT,
};
use crate::measurer::{
    Measurer, RecoveryRequest, ResetRequest, TrafficProfile, TrialRequest, TrialResult,
};
use crate::outcome::Outcome;
use crate::scale::{duration_of, float, packets_in, scaled};
use crate::schedule::{SizeTest, SuiteSchedule, latency_trials};
use crate::search::{Search, SearchConfig, Step};
use crate::tester_limit::DeviceTrials;

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
    /// Repetitions that ended since the tester itself missed packets: the DUT may take more.
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

/// System recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recovery {
    /// The overload, packets a second.
    pub over_pps: u64,
    /// The load after it, packets a second.
    pub pps: u64,
    /// From the end of the overload to the last lost packet, ns.
    pub recovery_ns: u64,
    /// Length of the overload, ns.
    #[serde(default)]
    pub over_ns: u64,
    /// The DUT still lost packets at the end of the test, `recovery_ns` after the overload.
    #[serde(default)]
    pub is_lossy_at_end: bool,
}

impl Recovery {
    /// The meaning of `recovery_ns` in a table.
    pub(crate) const fn quantity(&self) -> &'static str {
        if self.is_lossy_at_end { "not recovered in" } else { "recovery" }
    }
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
    /// The test in which the measurement ended early; its results and those of later tests are
    /// missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_in: Option<String>,
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

/// Makes the tests of `choice` for each of `profiles`, first the throughput for `goals`. Calls
/// `progress` before each trial, and `size_done` with all results so far after each size, also
/// after a size that a failure ended early.
pub fn run_suite<M: Measurer>(
    measurer: &mut M,
    profiles: &[TrafficProfile],
    goals: &[Goal],
    choice: SuiteChoice,
    limits: &BenchmarkLimits,
    progress: &mut dyn FnMut(BenchmarkProgress),
    size_done: &mut dyn FnMut(&M, &SuiteResult),
) -> Result<SuiteResult, BenchmarkError<M::Error>> {
    if !(1..=SIZES_MAX).contains(&profiles.len()) {
        return Err(BenchmarkError::Sizes(profiles.len()));
    }
    let mut result = SuiteResult::default();
    for (done, profile) in profiles.iter().enumerate() {
        let line = profile.sizes.line_pps(limits.line_bps);
        // A slow link is searched below it, too.
        let min = limits.min_pps.min(line / 10).max(1);
        let offered = limits.max_pps.get(done).copied().unwrap_or(u64::MAX);
        let mut suite = SizeRun {
            measurer: &mut *measurer,
            profile,
            schedule: SuiteSchedule { goals, choice, limits },
            limits,
            progress: &mut *progress,
            done,
            of: profiles.len(),
            line,
            min,
            max: line.min(offered).max(min + 1),
            behind: Nanos::ZERO,
            notes: Vec::new(),
        };
        let (size, ended) = suite.run();
        result.sizes.extend(size);
        size_done(measurer, &result);
        ended?;
    }
    Ok(result)
}

/// The tests of one size.
struct SizeRun<'a, M> {
    measurer: &'a mut M,
    profile: &'a TrafficProfile,
    schedule: SuiteSchedule<'a>,
    limits: &'a BenchmarkLimits,
    progress: &'a mut dyn FnMut(BenchmarkProgress),
    done: usize,
    of: usize,
    /// Packets a second that the link carries.
    line: u64,
    /// The least load of the search.
    min: u64,
    /// The greatest load.
    max: u64,
    /// Time of the tests still to come.
    behind: Nanos,
    notes: Vec<String>,
}

impl<M: Measurer> SizeRun<'_, M> {
    /// Makes the tests. Returns the results so far with the error, if one ended them; without a
    /// throughput there are no results.
    fn run(&mut self) -> (Option<SizeResult>, Result<(), BenchmarkError<M::Error>>) {
        self.behind = self.schedule.tests();
        let (search, goals) = match self.search() {
            Ok(found) => found,
            Err(error) => return (None, Err(error)),
        };
        let mut result = self.result(&search, goals);
        if result.loads.iter().all(|(_, outcome)| outcome.forwarded == 0) {
            self.notes.push(NOTHING_ARRIVED.to_owned());
        }
        let ended = self.tests(&mut result);
        result.notes = std::mem::take(&mut self.notes);
        (Some(result), ended)
    }

    /// The result of a search, without the other tests.
    fn result(&self, search: &Search, goals: Vec<GoalResult>) -> SizeResult {
        SizeResult {
            profile: self.profile.clone(),
            frame_bytes: self.profile.sizes.mean(),
            max_pps: self.max,
            goals,
            trials: search.trials(),
            spent_ns: search.spent().as_nanos(),
            loads: search.loads().map(|(load, trials)| (load, trials.total())).collect(),
            latency: Vec::new(),
            loss_rate: Vec::new(),
            back_to_back: None,
            recovery: None,
            reset_ns: None,
            not_back_ns: None,
            ended_in: None,
            notes: Vec::new(),
        }
    }

    /// Makes the tests that follow the search.
    fn tests(&mut self, result: &mut SizeResult) -> Result<(), BenchmarkError<M::Error>> {
        let throughput = result.goals.first().map_or(0, GoalResult::throughput);
        let choice = self.schedule.choice;
        for test in SizeTest::ALL.into_iter().filter(|test| choice.makes(*test)) {
            self.behind = self.schedule.after(test);
            if let Some(reason) = self.reason_against(test, throughput) {
                self.notes.push(format!("{} left out: {reason}", test.name()));
                continue;
            }
            self.note_line(test);
            if let Err(error) = self.test(test, throughput, result) {
                result.ended_in = Some(test.name().to_owned());
                return Err(error);
            }
        }
        Ok(())
    }

    /// Adds a note if the RFC begins a test at the line's rate and the tester cannot send that
    /// fast.
    fn note_line(&mut self, test: SizeTest) {
        let (max, line) = (self.max, self.line);
        if max < line && matches!(test, SizeTest::LossRate | SizeTest::BackToBack) {
            let (name, percent) = (test.name(), scaled(max, 100, line));
            self.notes.push(format!(
                "{name}: from {max} packets/s on, the most that the tester sends: {percent} % of \
                 the line's rate, which the RFC asks for"
            ));
        }
    }

    /// Returns the reason for leaving a test out, if it would say nothing about the DUT.
    fn reason_against(&self, test: SizeTest, throughput: u64) -> Option<String> {
        if throughput == 0 && test != SizeTest::LossRate {
            return Some("no load passed the goal, and this test starts from one that did".into());
        }
        let bound = if self.max < self.line { "the generator's limit" } else { "the line's rate" };
        match test {
            // RFC 9004, section 5.2.
            SizeTest::BackToBack if throughput >= self.max => {
                Some(format!("the throughput is {bound}, so that no buffer fills"))
            }
            SizeTest::Recovery if self.overload(throughput) <= throughput => {
                Some(format!("the throughput is {bound}, so that there is no overload"))
            }
            _ => None,
        }
    }

    fn test(
        &mut self,
        test: SizeTest,
        throughput: u64,
        result: &mut SizeResult,
    ) -> Result<(), BenchmarkError<M::Error>> {
        match test {
            SizeTest::LossRate => result.loss_rate = self.loss_rate()?,
            SizeTest::Latency => result.latency = self.latency(throughput)?,
            SizeTest::BackToBack => result.back_to_back = Some(self.back_to_back(throughput)?),
            SizeTest::Recovery => result.recovery = Some(self.recovery(throughput)?),
            SizeTest::Reset => match self.reset(throughput)? {
                Some(ResetTime::Back(time)) => result.reset_ns = Some(time.as_nanos()),
                Some(ResetTime::NotBack(time)) => result.not_back_ns = Some(time.as_nanos()),
                Some(ResetTime::Failed(why)) => self.notes.push(format!("reset failed: {why}")),
                None => self.notes.push("reset left out: the device cannot be reset".into()),
            },
        }
        Ok(())
    }

    /// Makes the search. Returns it with its results, and marks those that the tester bounds.
    fn search(&mut self) -> Result<(Search, Vec<GoalResult>), BenchmarkError<M::Error>> {
        let goals = self.schedule.goals.to_vec();
        // A trial without a packet would pass any goal.
        let shortest = goals.iter().map(|goal| goal.trial).min().unwrap_or_default();
        let one = SECOND.as_nanos().div_ceil(shortest.as_nanos().max(1));
        let min = self.min.max(one).min(self.max.saturating_sub(1));
        let (max, limit) = (self.max, self.limits.search);
        let mut device = DeviceTrials::default();
        let mut search = Search::new(SearchConfig { goals, min, max, limit })?;
        while let Step::Trial(step) = search.next() {
            let left = self.schedule.with_overhead(search.remaining(), step.duration);
            self.tell("throughput", step.load, left);
            let trial = self.trial(&self.request(step.load, step.duration))?;
            device.add(step.load, step.duration, &trial);
            search.record(trial.outcome)?;
        }
        let results = device.mark(search.results());
        Ok((search, results))
    }

    fn latency(&mut self, throughput: u64) -> Result<Vec<LadderPoint>, BenchmarkError<M::Error>> {
        let mut points = Vec::new();
        let mut loads = self.latency_loads(throughput);
        loads.retain(|(percent, pps)| {
            let (length, _) = latency_trials(self.limits, *percent);
            self.has_packets(SizeTest::Latency, *pps, length)
        });
        let times: Vec<Nanos> = loads.iter().map(|load| self.latency_time(load.0)).collect();
        for (at, (percent, pps)) in loads.into_iter().enumerate() {
            let rest = times[at + 1..].iter().copied().fold(Nanos::ZERO, Nanos::saturating_add);
            let (length, count) = latency_trials(self.limits, percent);
            let mut results = Vec::new();
            for done in 0..count {
                let here = self.schedule.trials(length, (count - done).into());
                self.tell(SizeTest::Latency.name(), pps, here.saturating_add(rest));
                results.push(self.trial(&self.request(pps, length))?);
            }
            points.push(LadderPoint { percent, pps, result: TrialResult::mean_of(results) });
        }
        self.note_unsent(SizeTest::Latency, &points);
        Ok(points)
    }

    /// Adds a note if the tester missed packets at some loads: these were lower than they say.
    fn note_unsent(&mut self, test: SizeTest, points: &[LadderPoint]) {
        let missed = points.iter().filter(|point| point.result.tester_missing > 0).count();
        if missed > 0 {
            let (name, of) = (test.name(), points.len());
            self.notes.push(format!(
                "{name}: at {missed} of {of} loads the tester itself missed packets, so that the \
                 device had a lower load than the figure is shown for"
            ));
        }
    }

    fn latency_time(&self, percent: u32) -> Nanos {
        let (length, count) = latency_trials(self.limits, percent);
        self.schedule.trials(length, count.into())
    }

    /// Loads in percent of the throughput and in packets a second. A load that the generator cannot
    /// offer is cut to the most that it can, with a note.
    fn latency_loads(&mut self, throughput: u64) -> Vec<(u32, u64)> {
        let percent_of =
            |pps: u64| u32::try_from(scaled(pps, 100, throughput.max(1))).unwrap_or(u32::MAX);
        let asked: Vec<(u32, u64)> = if self.limits.loads_bps.is_empty() {
            let of = |percent: &u32| (*percent, scaled(throughput, (*percent).into(), 100).max(1));
            LATENCY_PERCENT.iter().map(of).collect()
        } else {
            let loads = self.limits.loads_bps.iter().take(LOADS_MAX);
            let pps = loads.map(|bps| self.profile.sizes.frames_at(*bps).max(1));
            let others = pps.filter(|pps| *pps != throughput).map(|pps| (percent_of(pps), pps));
            std::iter::once((THROUGHPUT_PERCENT, throughput)).chain(others).collect()
        };
        let max = self.max;
        let cut = asked.iter().filter(|(_, pps)| *pps > max).count();
        if cut > 0 {
            let (name, of) = (SizeTest::Latency.name(), asked.len());
            self.notes.push(format!(
                "{name}: {cut} of {of} loads cut to {max} packets/s, the most that is offered"
            ));
        }
        let within = |(percent, pps)| match pps > max {
            true => (percent_of(max), max),
            false => (percent, pps),
        };
        let mut loads: Vec<(u32, u64)> = asked.into_iter().map(within).collect();
        loads.dedup();
        loads
    }

    /// Tells whether a trial would have a packet at all; adds a note if not.
    fn has_packets(&mut self, test: SizeTest, pps: u64, trial: Nanos) -> bool {
        let any = packets_in(pps, trial) > 0;
        if !any {
            let name = test.name();
            self.notes.push(format!(
                "{name}: {pps} packets/s left out: no packet within a trial of {trial}"
            ));
        }
        any
    }

    fn loss_rate(&mut self) -> Result<Vec<LadderPoint>, BenchmarkError<M::Error>> {
        let mut points: Vec<LadderPoint> = Vec::new();
        let trial = self.limits.loss_trial;
        for (at, percent) in LOSS_PERCENT.into_iter().enumerate() {
            let pps = scaled(self.max, percent.into(), 100).max(1);
            if !self.has_packets(SizeTest::LossRate, pps, trial) {
                continue;
            }
            let left = (LOSS_PERCENT.len() - at) as u64;
            self.tell(SizeTest::LossRate.name(), pps, self.schedule.trials(trial, left));
            let result = self.trial(&self.request(pps, trial))?;
            points.push(LadderPoint { percent, pps, result });
            let clean = |point: &&LadderPoint| point.result.device_missing() == 0;
            if points.iter().rev().take_while(clean).count() >= 2 {
                break;
            }
        }
        self.note_unsent(SizeTest::LossRate, &points);
        Ok(points)
    }

    fn back_to_back(&mut self, throughput: u64) -> Result<BackToBack, BenchmarkError<M::Error>> {
        let max = self.max;
        let longest = packets_in(max, self.limits.overload).max(2);
        let (mut bursts, mut tester_bound) = (Vec::new(), 0);
        let count = u64::from(self.limits.bursts.max(1));
        for done in 0..count {
            let each = self.schedule.burst().as_nanos();
            let left = Nanos::new(each.saturating_mul(count - done));
            let (burst, is_testers) = self.longest_burst(max, longest, left)?;
            bursts.push(burst);
            tester_bound += u64::from(is_testers);
        }
        if tester_bound > 0 {
            self.notes.push(format!(
                "{}: {tester_bound} of {count} repetitions ended with packets that the tester \
                 itself missed: the device may take longer bursts",
                SizeTest::BackToBack.name()
            ));
        }
        let sum: u64 = bursts.iter().sum();
        let mean = float(sum) / float(count);
        let squares = bursts.iter().map(|burst| (float(*burst) - mean).powi(2));
        let stddev = (squares.sum::<f64>() / float((count - 1).max(1))).sqrt();
        let time = mean / float(max.max(1));
        let drained = float(throughput.min(max)) / float(max.max(1));
        let corrected_buffer_s = time * (1.0 - drained);
        let pps = max;
        Ok(BackToBack { pps, bursts, longest, tester_bound, mean, stddev, corrected_buffer_s })
    }

    /// Doubles the burst until it loses packets, then bisects to 1 % or a packet. Says, too, if
    /// the next longer burst lacked packets of the tester alone.
    fn longest_burst(
        &mut self,
        pps: u64,
        longest: u64,
        left: Nanos,
    ) -> Result<(u64, bool), BenchmarkError<M::Error>> {
        let (mut good, mut bad, mut is_testers) = (0, None, false);
        let mut burst = packets_in(pps, self.limits.first_burst).clamp(1, longest);
        loop {
            self.tell(SizeTest::BackToBack.name(), pps, left);
            let mut request = self.request(pps, duration_of(burst, pps));
            request.burst = Some(burst);
            let result = self.trial(&request)?;
            if result.outcome.missing() == 0 {
                good = burst;
            } else {
                (bad, is_testers) = (Some(burst), result.device_missing() == 0);
            }
            burst = match bad {
                None if good >= longest => return Ok((good, false)),
                None => good.saturating_mul(2).min(longest),
                Some(bad) if bad - good <= 1 || (bad - good) * 100 <= bad => {
                    return Ok((good, is_testers));
                }
                Some(bad) => u64::midpoint(good, bad).max(1),
            };
        }
    }

    /// 110 % of the throughput, or the greatest load if that is less (RFC 2544, section 26.5).
    fn overload(&self, throughput: u64) -> u64 {
        scaled(throughput, 11, 10).min(self.max)
    }

    fn recovery(&mut self, throughput: u64) -> Result<Recovery, BenchmarkError<M::Error>> {
        let over_pps = self.overload(throughput);
        let (pps, over) = (over_pps / 2, self.limits.overload);
        let profile = self.profile.clone();
        let request = RecoveryRequest { profile, over_pps, over, pps, duration: over };
        self.tell(SizeTest::Recovery.name(), over_pps, self.schedule.trials(over, 2));
        let found = self.measurer.recovery(&request).map_err(BenchmarkError::Measurer)?;
        if found.over < over {
            let lasts = found.over;
            self.notes.push(format!(
                "recovery: the overload lasts {lasts}, not {over}: arrivals of more are not kept"
            ));
        }
        if found.unsent > 0 {
            self.notes.push(format!(
                "recovery: the tester did not send {} of the packets: the overload was weaker",
                found.unsent
            ));
        }
        let (recovery_ns, over_ns) = (found.time.as_nanos(), found.over.as_nanos());
        let is_lossy_at_end = found.is_lossy_at_end;
        Ok(Recovery { over_pps, pps, recovery_ns, over_ns, is_lossy_at_end })
    }

    fn reset(&mut self, pps: u64) -> Result<Option<ResetTime>, BenchmarkError<M::Error>> {
        let (duration, patience) = (self.limits.overload, self.limits.reset_patience);
        let request = ResetRequest { profile: self.profile.clone(), pps, duration, patience };
        let left = self.schedule.trials(duration.saturating_add(patience), 1);
        self.tell(SizeTest::Reset.name(), pps, left);
        self.measurer.reset(&request).map_err(BenchmarkError::Measurer)
    }

    fn trial(&mut self, request: &TrialRequest) -> Result<TrialResult, BenchmarkError<M::Error>> {
        self.measurer.trial(request).map_err(BenchmarkError::Measurer)
    }

    fn request(&self, pps: u64, duration: Nanos) -> TrialRequest {
        TrialRequest { profile: self.profile.clone(), pps, duration, burst: None }
    }

    /// Reports the progress before a trial; `left` is the time that this test still needs.
    fn tell(&mut self, test: &'static str, pps: u64, left: Nanos) {
        let sizes_after = (self.of - self.done).saturating_sub(1) as u64;
        let after = Nanos::new(self.schedule.size().as_nanos().saturating_mul(sizes_after));
        let (done, of) = (self.done, self.of);
        let left = left.saturating_add(self.behind).saturating_add(after);
        (self.progress)(BenchmarkProgress { done, of, test, pps, left });
    }
}

const NOTHING_ARRIVED: &str = "throughput: no packet arrived at any load: check that the device is \
                               connected and settled, that frames go to the address of its port, \
                               and that it has a route to the destination";
const SECOND: Nanos = Nanos::from_secs(1);
/// Most frame sizes of a suite.
pub const SIZES_MAX: usize = 128;
