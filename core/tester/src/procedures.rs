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
//! | reset | the time for which a DUT that was reset forwards nothing; after all other tests |
//!
//! The back-to-back test is left out if the throughput is the greatest load that can be offered: no
//! buffer would fill.
//!
//! The measurer is a parameter, so that a test runs all procedures without waiting.

use weir_units::Nanos;

use crate::bounds::GoalResult;
use crate::error::SearchError;
use crate::goal::Goal;
use crate::limits::{
    BenchmarkLimits, LATENCY_PERCENT, LOADS_MAX, LOSS_PERCENT, SuiteChoice, THROUGHPUT_PERCENT,
};
use crate::measurer::{Measurer, RecoveryRequest, TrafficProfile, TrialRequest, TrialResult};
use crate::recovery::Recovery;
use crate::resets::run_resets;
use crate::scale::{duration_of, float, packets_in, scaled};
use crate::schedule::{SizeTest, SuiteSchedule, latency_trials};
use crate::search::{Search, SearchConfig, Step};
use crate::suite::{
    BackToBack, BenchmarkProgress, LadderPoint, NO_THROUGHPUT, SizeResult, SuiteResult,
};
use crate::tester_limit::DeviceTrials;

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
    let schedule = SuiteSchedule { goals, choice, limits };
    for (done, profile) in profiles.iter().enumerate() {
        let line = profile.sizes.line_pps(limits.line_bps);
        // On a slow link, the search goes below the usual least load.
        let min = limits.min_pps.min(line / 10).max(1);
        let offered = limits.max_pps.get(done).copied().unwrap_or(u64::MAX);
        // Sizes behind this one, and the resets of those before it.
        let sizes_after = (profiles.len() - done).saturating_sub(1) as u64;
        let others = schedule.size().as_nanos().saturating_mul(sizes_after);
        let resets = schedule.test(SizeTest::Reset).as_nanos().saturating_mul(done as u64);
        let mut suite = SizeRun {
            measurer: &mut *measurer,
            profile,
            schedule,
            limits,
            progress: &mut *progress,
            done,
            of: profiles.len(),
            line,
            min,
            max: line.min(offered).max(min + 1),
            time_of_later_tests: Nanos::ZERO,
            others: Nanos::new(others.saturating_add(resets)),
            notes: Vec::new(),
        };
        let (size, ended) = suite.run();
        result.sizes.extend(size);
        size_done(measurer, &result);
        ended?;
    }
    if choice.reset {
        run_resets(measurer, schedule, &mut result, progress, size_done)
            .map_err(BenchmarkError::Measurer)?;
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
    time_of_later_tests: Nanos,
    /// Time of the other sizes still to come, and of their resets.
    others: Nanos,
    notes: Vec<String>,
}

impl<M: Measurer> SizeRun<'_, M> {
    /// Makes the tests. Returns the results so far with the error, if one ended them; without a
    /// throughput there are no results.
    fn run(&mut self) -> (Option<SizeResult>, Result<(), BenchmarkError<M::Error>>) {
        self.time_of_later_tests = self.schedule.tests();
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

    /// Returns the result of a search, without the other tests.
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
        let tests = SizeTest::ALL.into_iter().filter(|test| *test != SizeTest::Reset);
        for test in tests.filter(|test| choice.makes(*test)) {
            self.time_of_later_tests = self.schedule.after(test);
            if let Some(reason) = self.reason_against(test, throughput) {
                self.notes.push(format!("{} left out: {reason}", test.name()));
                continue;
            }
            self.note_line(test);
            if let Err(error) = self.test(test, throughput, result) {
                result.ended_in = Some(test);
                return Err(error);
            }
        }
        // It is made when all sizes are done; until then this size is incomplete.
        result.ended_in = choice.reset.then_some(SizeTest::Reset);
        Ok(())
    }

    /// Adds a note if the RFC begins a test at the line's rate and the tester cannot send that
    /// fast.
    fn note_line(&mut self, test: SizeTest) {
        let (max, line) = (self.max, self.line);
        if max < line && matches!(test, SizeTest::LossRate | SizeTest::BackToBack) {
            // The note has no number, so that the page has it once for all sizes.
            self.notes.push(format!(
                "{}: the greatest load is the tester's own limit, below the line rate that the RFC \
                 asks for",
                test.name()
            ));
        }
    }

    /// Returns the reason for leaving a test out, if it would say nothing about the DUT.
    fn reason_against(&self, test: SizeTest, throughput: u64) -> Option<String> {
        if throughput == 0 && test != SizeTest::LossRate {
            return Some(NO_THROUGHPUT.to_owned());
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
            SizeTest::Reset => {}
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

    /// Returns the loads in percent of the throughput and in packets a second. A load that the
    /// generator cannot offer is cut to the most that it can, with a note.
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

    /// Doubles the burst until it loses packets, then bisects to 1 % or a packet. Also returns
    /// whether the next longer burst failed only through the tester's own losses.
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

    /// Returns 110 % of the throughput, or the greatest load if that is less (RFC 2544, section
    /// 26.5).
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
                "recovery: the overload lasts {lasts}, not {over}: the sink cannot record more \
                 arrivals"
            ));
        }
        if found.unsent > 0 {
            self.notes.push(format!(
                "recovery: the tester did not send {} of the packets: the overload was weaker",
                found.unsent
            ));
        }
        if found.missed > 0 {
            let meaning = match found.is_lossy_at_end {
                true => "whether the device recovered is not known",
                false => "the device took at most the time that is shown",
            };
            self.notes.push(format!(
                "recovery: the tester itself missed {} packets; the last losses may be among them, \
                 so {meaning}",
                found.missed
            ));
        }
        let (recovery_ns, over_ns) = (found.time.as_nanos(), found.over.as_nanos());
        let (is_lossy_at_end, tester_missed) = (found.is_lossy_at_end, found.missed);
        Ok(Recovery { over_pps, pps, recovery_ns, over_ns, is_lossy_at_end, tester_missed })
    }

    fn trial(&mut self, request: &TrialRequest) -> Result<TrialResult, BenchmarkError<M::Error>> {
        self.measurer.trial(request).map_err(BenchmarkError::Measurer)
    }

    fn request(&self, pps: u64, duration: Nanos) -> TrialRequest {
        TrialRequest { profile: self.profile.clone(), pps, duration, burst: None }
    }

    /// Reports the progress before a trial; `left` is the time that this test still needs.
    fn tell(&mut self, test: &'static str, pps: u64, left: Nanos) {
        let (done, of) = (self.done, self.of);
        let left = left.saturating_add(self.time_of_later_tests).saturating_add(self.others);
        (self.progress)(BenchmarkProgress { done, of, test, pps, left });
    }
}

const NOTHING_ARRIVED: &str = "throughput: no packet arrived at any load: check that the device is \
                               connected and settled, that frames go to the address of its port, \
                               and that it has a route to the destination";
const SECOND: Nanos = Nanos::from_secs(1);
/// Most frame sizes of a suite.
pub const SIZES_MAX: usize = 128;
