// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tester's own limit, so that no figure of a device is one of the tester.
//!
//! A tester can fail a load by itself: the generator is too slow, the sending interface drops, the
//! receiving one has no room. What is missing then counts as missing, since nothing shows that the
//! device would have forwarded it. But it shows nothing *against* the device either. So each trial
//! says how many packets were the tester's, and an upper bound that would not be one without them
//! is marked as the tester's ([`SearchEnd::Tester`]).

use std::collections::BTreeMap;

use weir_units::Nanos;

use crate::bounds::{GoalResult, SearchEnd};
use crate::classify::{LoadClass, LoadTrials};
use crate::measurer::TrialResult;
use crate::outcome::Outcome;

/// Rate at which a tester sends one profile if nothing holds it back, packets a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TesterLimit {
    /// The generator's rate.
    pub offered: u64,
    /// The part that the sending interface took.
    pub taken: u64,
}

impl TesterLimit {
    /// Returns the limit: the lower of the two.
    #[must_use]
    pub fn pps(self) -> u64 {
        self.offered.min(self.taken)
    }

    /// Returns the greatest load of a search on a link that carries `line` packets a second. It
    /// stays a tenth below the limit, for a busy machine; but an interface that takes what the link
    /// carries is no limit of the tester.
    #[must_use]
    pub fn load_max(self, line: u64) -> u64 {
        let generator = self.offered / 10 * 9;
        if self.taken >= self.offered {
            return generator;
        }
        let is_line = u128::from(self.taken) * 100 >= u128::from(line) * LINE_PERCENT;
        generator.min(if is_line { line } else { self.taken / 10 * 9 })
    }
}

/// The trials of a search, each without the packets that were missing by the tester.
#[derive(Default)]
pub(crate) struct DeviceTrials(BTreeMap<u64, LoadTrials>);

impl DeviceTrials {
    pub(crate) fn add(&mut self, load: u64, duration: Nanos, trial: &TrialResult) {
        let outcome = trial.outcome;
        let sent = outcome.intended.saturating_sub(trial.tester_missing.min(outcome.missing()));
        let forwarded = outcome.forwarded.min(sent);
        let lost = sent - forwarded;
        let outcome = Outcome { intended: sent, offered: sent, forwarded, lost, unsent: 0 };
        self.0.entry(load).or_default().add(duration, outcome);
    }

    /// Marks the results whose upper bound is the tester's.
    pub(crate) fn mark(&self, mut results: Vec<GoalResult>) -> Vec<GoalResult> {
        for result in &mut results {
            let is_end = matches!(result.end, SearchEnd::Regular | SearchEnd::MinLoad);
            let trials = result.upper.and_then(|upper| self.0.get(&upper));
            if is_end && trials.is_some_and(|one| one.class(&result.goal) != LoadClass::Upper) {
                result.end = SearchEnd::Tester;
            }
        }
        results
    }
}

/// An interface that takes so many percent of what the link carries is at the link's rate: the
/// calibration is short.
const LINE_PERCENT: u128 = 99;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the limit has what the interface took, and a link at its rate is not cut by a tenth.
    #[test]
    fn the_limit_is_what_the_interface_takes() {
        let idle = TesterLimit { offered: 1_000_000, taken: 1_000_000 };
        assert_eq!((idle.pps(), idle.load_max(500_000)), (1_000_000, 900_000));
        let full = TesterLimit { offered: 3_000_000, taken: 1_480_000 };
        assert_eq!((full.pps(), full.load_max(1_488_095)), (1_480_000, 1_488_095));
        let slow = TesterLimit { offered: 3_000_000, taken: 1_000_000 };
        assert_eq!((slow.pps(), slow.load_max(1_488_095)), (1_000_000, 900_000));
    }
}
