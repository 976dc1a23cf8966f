// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long trials last and how often they are repeated, and in what that is not what the RFCs ask
//! for: a page that is handed to a customer must say so itself.

use weir_platform::failure::{Failure, UsageError};
use weir_tester::{
    BenchmarkLimits, Goal, IpVersion, SuiteChoice, TesterLimit, TrafficProfile, packets_in,
};
use weir_units::{BitRate, Nanos};

use super::calibration::OVERHEAD;
use super::{BenchmarkOptions, MIN_PPS};

impl BenchmarkOptions {
    pub(super) fn goals(&self, method: &str) -> Vec<Goal> {
        if !self.goals.is_empty() {
            return self.goals.clone();
        }
        let quick = |goal: Goal| Goal {
            trial: QUICK_TRIAL,
            sum: QUICK_SUM,
            exceed: Goal::NDR.exceed,
            ..goal
        };
        let goals = match method {
            "ndr" => vec![Goal::NDR, Goal::PDR],
            _ => vec![Goal::RFC2544],
        };
        if self.quick { goals.into_iter().map(quick).collect() } else { goals }
    }

    /// Refuses goals for which a search has no time, and a patience out of bounds.
    pub(super) fn check_times(&self, goals: &[Goal]) -> Result<(), Failure> {
        let search = self.search_limit();
        let longest = goals.iter().map(|goal| goal.sum).max().unwrap_or_default();
        let needed = longest.saturating_add(longest);
        if needed > search {
            let or = if self.quick && self.limit.is_none() { ", or no --quick" } else { "" };
            return Err(UsageError(format!(
                "--goal: two bounds need trials of {needed} in sum, and a search lasts {search}: \
                 --limit {needed}{or}"
            ))
            .into());
        }
        let patience = self.patience();
        if !(PATIENCE_MIN..=PATIENCE_MAX).contains(&patience) {
            return Err(UsageError(format!(
                "--reset-patience: {patience} is not within {PATIENCE_MIN} to {PATIENCE_MAX}"
            ))
            .into());
        }
        Ok(())
    }

    /// Refuses a link that has no packets for a search, and addresses that are not the method's.
    pub(super) fn check_traffic(
        &self,
        method: &str,
        profiles: &[TrafficProfile],
        goals: &[Goal],
    ) -> Result<(), Failure> {
        let shortest = goals.iter().map(|goal| goal.trial).min().unwrap_or_default();
        for profile in profiles {
            let (pps, sizes) = (profile.sizes.line_pps(self.line_bps()), &profile.sizes);
            if packets_in(pps, shortest) < PACKETS_MIN {
                let line = BitRate::from_bps(self.line_bps());
                return Err(UsageError(format!(
                    "--line: {line} carries {pps} frames a second of {sizes}, and a trial of \
                     {shortest} needs {PACKETS_MIN}"
                ))
                .into());
            }
            let ends = [("--source", self.source), ("--destination", self.destination)];
            for (key, address) in ends.into_iter().filter_map(|(key, end)| Some((key, end?))) {
                if address.is_ipv6() != (profile.ip == IpVersion::V6) {
                    let rule = match method {
                        "rfc2544" => "rfc2544 sends IPv4, rfc5180 IPv6",
                        "rfc5180" => "rfc5180 sends IPv6, rfc2544 IPv4",
                        _ => "both ends must be IPv4 or both IPv6",
                    };
                    return Err(UsageError(format!("{key} {address}: {rule}")).into());
                }
            }
        }
        Ok(())
    }

    /// `own`: the tester's own limit for each profile.
    pub(super) fn limits(
        &self,
        line_bps: u64,
        profiles: &[TrafficProfile],
        own: &[TesterLimit],
    ) -> BenchmarkLimits {
        let (latency_trial, latency_times) = match self.full {
            true => (FULL_LATENCY, FULL_LATENCY_TIMES),
            false => (self.quick_or(QUICK_TRIAL, TRIAL), 1),
        };
        BenchmarkLimits {
            line_bps,
            max_pps: profiles
                .iter()
                .zip(own)
                .map(|(profile, own)| own.load_max(profile.sizes.line_pps(line_bps)))
                .collect(),
            min_pps: MIN_PPS,
            search: self.search_limit(),
            trial: self.quick_or(QUICK_TRIAL, TRIAL),
            latency_trial,
            latency_times,
            loss_trial: if self.full { FULL_LOSS } else { self.quick_or(QUICK_TRIAL, TRIAL) },
            loads_bps: self.loads.iter().map(|load| load.as_bps()).collect(),
            bursts: self.quick_or(QUICK_BURSTS, BURSTS),
            first_burst: self.quick_or(QUICK_TRIAL, FIRST_BURST),
            overload: self.quick_or(QUICK_OVERLOAD, OVERLOAD),
            reset_patience: self.patience(),
            overhead: OVERHEAD,
        }
    }

    /// Returns remarks beside the figures: each deviation from the RFCs, and parts of them that
    /// were not measured.
    pub(super) fn notes(
        &self,
        method: &str,
        choice: SuiteChoice,
        goals: &[Goal],
        limits: &BenchmarkLimits,
    ) -> Vec<String> {
        let mut notes = Vec::new();
        let mut note = |applies: bool, text: String| notes.extend(applies.then_some(text));
        let asks_rfc = method != "ndr";
        for goal in goals.iter().filter(|goal| asks_rfc && goal.trial < FULL_LOSS) {
            let trial = goal.trial;
            note(
                true,
                format!("Throughput: trials of {trial}; RFC 2544, section 24, asks for 60 s."),
            );
        }
        let (trial, times) = (limits.latency_trial, limits.latency_times);
        let falls_short = trial < FULL_LATENCY || times < FULL_LATENCY_TIMES;
        note(
            choice.latency && falls_short,
            format!(
                "Latency: one trial of {trial} at each load; RFC 2544, section 26.2, asks for \
                 20 of 120 s at the throughput."
            ),
        );
        note(
            choice.loss_rate && limits.loss_trial < FULL_LOSS,
            format!(
                "Frame loss rate: trials of {}; RFC 2544, section 24, asks for 60 s.",
                limits.loss_trial
            ),
        );
        note(
            choice.back_to_back && limits.bursts < BURSTS,
            format!(
                "Back-to-back frames: {} repetitions from bursts of {} on; RFC 9004, section 5.4, \
                 asks for 50, RFC 2544, section 26.4, for 2 s.",
                limits.bursts, limits.first_burst
            ),
        );
        note(
            choice.recovery && limits.overload < OVERLOAD,
            format!(
                "System recovery: an overload of {}; RFC 2544, section 26.5, asks for 60 s.",
                limits.overload
            ),
        );
        notes.extend(self.general_notes(method));
        notes
    }

    /// Returns remarks that hold for whatever was measured.
    fn general_notes(&self, method: &str) -> Vec<String> {
        let asks_rfc = method != "ndr";
        let mut notes = Vec::new();
        let mut note = |applies: bool, text: String| notes.extend(applies.then_some(text));
        note(
            asks_rfc,
            "A trial ends when nothing has arrived for 100 ms and the longest delay so far, or for \
             2 s if nothing has arrived at all, and the next one begins; RFC 2544, section 23, \
             waits for 2 s and 5 s."
                .to_owned(),
        );
        note(
            asks_rfc,
            "Not measured: bidirectional traffic (RFC 2544, section 14), filters (section 11), \
             256 networks (section 12)."
                .to_owned(),
        );
        note(method == "rfc5180", "Not measured: extension headers (RFC 5180).".to_owned());
        let tag =
            self.tag().map(|tag| format!("Each frame has {tag}; its bytes count in the size."));
        note(tag.is_some(), tag.unwrap_or_default());
        note(self.streams > 1, format!("{} streams at once share each load evenly.", self.streams));
        note(
            true,
            "Generator and sink run on this machine. A device on the same machine shares its \
             processors with them."
                .to_owned(),
        );
        notes
    }

    fn search_limit(&self) -> Nanos {
        self.limit.unwrap_or_else(|| self.quick_or(QUICK_LIMIT, LIMIT))
    }

    fn patience(&self) -> Nanos {
        self.reset_patience.unwrap_or_else(|| self.quick_or(QUICK_PATIENCE, PATIENCE))
    }

    fn quick_or<T>(&self, quick: T, full: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// Two loads of a search differ by a packet in a trial at least.
const PACKETS_MIN: u64 = 2;
const LIMIT: Nanos = Nanos::from_secs(3_600);
const TRIAL: Nanos = Nanos::from_secs(10);
/// RFC 2544, section 26.2: at least 120 s, at least 20 times.
const FULL_LATENCY: Nanos = Nanos::from_secs(120);
const FULL_LATENCY_TIMES: u32 = 20;
/// RFC 2544, section 24: at least 60 s.
const FULL_LOSS: Nanos = Nanos::from_secs(60);
/// RFC 9004, section 5.4.
const BURSTS: u32 = 50;
/// RFC 2544, section 26.4: at least 2 s.
const FIRST_BURST: Nanos = Nanos::from_secs(2);
/// RFC 2544, section 26.5: at least 60 s.
const OVERLOAD: Nanos = Nanos::from_secs(60);
/// For a device to come back after a reset.
const PATIENCE: Nanos = Nanos::from_secs(60);
const PATIENCE_MIN: Nanos = Nanos::from_millis(1);
const PATIENCE_MAX: Nanos = Nanos::from_secs(3_600);
const QUICK_LIMIT: Nanos = Nanos::from_secs(30);
const QUICK_TRIAL: Nanos = Nanos::from_millis(200);
const QUICK_SUM: Nanos = Nanos::from_secs(1);
const QUICK_BURSTS: u32 = 3;
const QUICK_OVERLOAD: Nanos = Nanos::from_secs(1);
const QUICK_PATIENCE: Nanos = Nanos::from_secs(8);
