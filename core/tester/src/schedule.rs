// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How long a suite takes, told while it runs: the rest of the present test, the tests of the
//! present size that follow, and the sizes behind it.

use serde::{Deserialize, Serialize};
use weir_units::Nanos;

use crate::goal::Goal;
use crate::limits::{
    BenchmarkLimits, LATENCY_PERCENT, LOADS_MAX, LOSS_PERCENT, SuiteChoice, THROUGHPUT_PERCENT,
};

/// A test behind the search, in the order in which they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SizeTest {
    /// Frame loss rate.
    #[serde(rename = "loss rate")]
    LossRate,
    /// Latency, and the load of processors.
    Latency,
    /// The longest bursts without loss.
    #[serde(rename = "back to back")]
    BackToBack,
    /// System recovery after an overload.
    Recovery,
    /// Time without forwarding after a reset.
    Reset,
}

/// The plan of a suite's time.
#[derive(Clone, Copy)]
pub(crate) struct SuiteSchedule<'a> {
    pub(crate) goals: &'a [Goal],
    pub(crate) choice: SuiteChoice,
    pub(crate) limits: &'a BenchmarkLimits,
}

impl SizeTest {
    pub(crate) const ALL: [Self; 5] =
        [Self::LossRate, Self::Latency, Self::BackToBack, Self::Recovery, Self::Reset];

    /// Returns the name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::LossRate => "loss rate",
            Self::Latency => "latency",
            Self::BackToBack => "back to back",
            Self::Recovery => "recovery",
            Self::Reset => "reset",
        }
    }
}

impl SuiteChoice {
    pub(crate) const fn makes(&self, test: SizeTest) -> bool {
        match test {
            SizeTest::LossRate => self.loss_rate,
            SizeTest::Latency => self.latency,
            SizeTest::BackToBack => self.back_to_back,
            SizeTest::Recovery => self.recovery,
            SizeTest::Reset => self.reset,
        }
    }
}

impl SuiteSchedule<'_> {
    /// Returns the time of a whole size, with the search.
    pub(crate) fn size(&self) -> Nanos {
        self.search().saturating_add(self.tests())
    }

    /// Returns the time of all tests behind the search.
    pub(crate) fn tests(&self) -> Nanos {
        sum(SizeTest::ALL.into_iter().map(|test| self.test(test)))
    }

    /// Returns the time of the tests behind this one.
    pub(crate) fn after(&self, test: SizeTest) -> Nanos {
        let behind = SizeTest::ALL.into_iter().filter(|other| *other > test);
        sum(behind.map(|test| self.test(test)))
    }

    /// Returns the time of so many trials.
    pub(crate) fn trials(&self, length: Nanos, count: u64) -> Nanos {
        let each = length.saturating_add(self.limits.overhead).as_nanos();
        Nanos::new(each.saturating_mul(count))
    }

    /// Returns the time of a repetition of the back-to-back test: the first burst, a bisection
    /// whose bursts halve, and what starts and ends each.
    pub(crate) fn burst(&self) -> Nanos {
        let first = self.limits.first_burst.min(self.limits.overload);
        let bursts = Nanos::new(first.as_nanos().saturating_mul(2));
        bursts.saturating_add(self.trials(Nanos::ZERO, BURST_STEPS))
    }

    /// Returns the time of trials of this length that last `time` in sum, with what each takes
    /// beside.
    pub(crate) fn with_overhead(&self, time: Nanos, trial: Nanos) -> Nanos {
        let trials = time.as_nanos().div_ceil(trial.as_nanos().max(1));
        time.saturating_add(self.trials(Nanos::ZERO, trials))
    }

    pub(crate) fn test(&self, test: SizeTest) -> Nanos {
        if !self.choice.makes(test) {
            return Nanos::ZERO;
        }
        let limits = self.limits;
        match test {
            SizeTest::LossRate => self.trials(limits.loss_trial, LOSS_PERCENT.len() as u64),
            SizeTest::Latency => {
                let others = match limits.loads_bps.len() {
                    0 => LATENCY_PERCENT.len() - 1,
                    asked => asked.min(LOADS_MAX),
                };
                let at_throughput = limits.latency_times.max(1);
                self.trials(limits.trial, others as u64)
                    .saturating_add(self.trials(limits.latency_trial, at_throughput.into()))
            }
            SizeTest::BackToBack => {
                let each = self.burst().as_nanos();
                Nanos::new(each.saturating_mul(limits.bursts.max(1).into()))
            }
            SizeTest::Recovery => self.trials(limits.overload, 2),
            SizeTest::Reset => {
                self.trials(limits.overload.saturating_add(limits.reset_patience), 1)
            }
        }
    }

    /// Returns a first estimate of a search: two thirds of the sum for each bound and ten trials
    /// more.
    fn search(&self) -> Nanos {
        sum(self.goals.iter().map(|goal| {
            let trial = goal.trial.as_nanos();
            let search = Nanos::new(goal.sum.as_nanos() / 3 * 4 + 10 * trial);
            self.with_overhead(search, goal.trial)
        }))
    }
}

/// Returns the length and number of the trials at a load of so many percent of the throughput.
pub(crate) const fn latency_trials(limits: &BenchmarkLimits, percent: u32) -> (Nanos, u32) {
    if percent == THROUGHPUT_PERCENT {
        return (
            limits.latency_trial,
            if limits.latency_times == 0 { 1 } else { limits.latency_times },
        );
    }
    (limits.trial, 1)
}

fn sum(times: impl Iterator<Item = Nanos>) -> Nanos {
    times.fold(Nanos::ZERO, Nanos::saturating_add)
}

/// Steps from a burst of seconds to one of a small buffer.
const BURST_STEPS: u64 = 20;
