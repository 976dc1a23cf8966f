// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an instance decided, and why: the newest so many decisions.

use alloc::collections::VecDeque;
use alloc::string::String;
use core::fmt;

use weir_units::{Instant, PacketRate};

use super::meter::MeterFault;
use super::verb::Verb;
use crate::police::Judgement;
use crate::{Action, Sample};

/// One line of the log.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Its number, from 0, without gaps: what is missing at the beginning was dropped.
    pub number: u64,
    /// When.
    pub at: Instant,
    /// The set-point then.
    pub set_point: PacketRate,
    /// What happened.
    pub event: Event,
}

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A sample came, and this followed from it.
    Sampled {
        /// What was seen.
        sample: Sample,
        /// Set-point minus rate, in packets a second, saturating.
        error_pps: i64,
        /// What was decided.
        action: Action,
    },
    /// There was no sample; the cap stays.
    NoSample(MeterFault),
    /// Nor was there any reason to leave the cap at what that sample alone was to make good.
    Eased(Action),
    /// Its owner asked for something, which led to this action, if to any.
    Asked(Verb, Option<Action>),
    /// Its conduct was judged: another grade of punishment.
    Judged(Judgement),
    /// The actuator could not do what it was told; what was in force before still is.
    ActuatorFailed(String),
    /// Cap and limit are taken away: for too long nothing was known, or nothing could be set.
    Released,
    /// After a release, or where what enforced the cap was lost: the last cap is set again.
    Recovered,
}

/// The newest decisions, at most [`DecisionLog::capacity`].
#[derive(Clone, Debug)]
pub struct DecisionLog {
    capacity: usize,
    decisions: VecDeque<Decision>,
    next: u64,
}

impl DecisionLog {
    /// Most decisions that a log may keep: at ten a second, 1000 s.
    pub const CAPACITY_MAX: usize = 10_000;
    /// Longest text of a failure that is kept, in bytes.
    pub const TEXT_MAX: usize = 200;

    /// An empty log for `capacity` decisions, from 1 to [`Self::CAPACITY_MAX`]: what is outside is
    /// taken as the nearest.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, Self::CAPACITY_MAX);
        Self { capacity, decisions: VecDeque::new(), next: 0 }
    }

    pub(crate) fn push(&mut self, at: Instant, set_point: PacketRate, event: Event) {
        if self.decisions.len() == self.capacity {
            self.decisions.pop_front();
        }
        self.decisions.push_back(Decision { number: self.next, at, set_point, event });
        self.next += 1;
    }

    /// Most decisions that it keeps.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Those with a number of `first` or more that are still kept, oldest first.
    pub fn since(&self, first: u64) -> impl DoubleEndedIterator<Item = &Decision> {
        let start = self.decisions.partition_point(|decision| decision.number < first);
        self.decisions.range(start..)
    }

    /// The newest.
    #[must_use]
    pub fn last(&self) -> Option<&Decision> {
        self.decisions.back()
    }

    /// How many were made, kept or not.
    #[must_use]
    pub const fn made(&self) -> u64 {
        self.next
    }
}

/// One line, without the time: `40kpps: 38200pps, error 1800, cap 13.5%: moved by the error`.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.set_point)?;
        match &self.event {
            Event::Sampled { sample, error_pps, action } => {
                write!(f, "{}, error {error_pps}, ", sample.rate())?;
                write_action(f, action)
            }
            Event::NoSample(fault) => write!(f, "{fault}; cap stays"),
            Event::Eased(action) => {
                write!(f, "nothing is made good without a sample: ")?;
                write_action(f, action)
            }
            Event::Asked(verb, None) => write!(f, "{verb}"),
            Event::Asked(verb, Some(action)) => {
                write!(f, "{verb}: ")?;
                write_action(f, action)
            }
            Event::Judged(judgement) => write!(f, "{judgement}"),
            Event::ActuatorFailed(text) => write!(f, "actuator failed: {text}; cap stays"),
            Event::Released => write!(f, "released: no cap, no limit"),
            Event::Recovered => write!(f, "recovered: last cap set again"),
        }
    }
}

fn write_action(f: &mut fmt::Formatter<'_>, action: &Action) -> fmt::Result {
    write!(f, "cap {}", action.cap)?;
    if let Some(limit) = action.limit {
        write!(f, ", limit {limit}")?;
    }
    write!(f, ": {}", action.reason)
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use weir_units::{CpuShare, Nanos};

    use super::*;
    use crate::Reason;

    #[test]
    fn the_newest_stay_and_numbers_have_no_gaps() {
        let mut log = DecisionLog::new(3);
        for _ in 0..5 {
            log.push(Instant::ZERO, PacketRate::ZERO, Event::Released);
        }
        let numbers: Vec<u64> = log.since(0).map(|decision| decision.number).collect();
        assert_eq!((numbers, log.made()), ([2, 3, 4].to_vec(), 5));
        assert_eq!(log.since(4).count(), 1);
        assert_eq!(log.since(5).count(), 0);
        assert_eq!(DecisionLog::new(0).capacity(), 1);
        assert_eq!(DecisionLog::new(usize::MAX).capacity(), DecisionLog::CAPACITY_MAX);
    }

    #[test]
    fn a_decision_reads_as_one_line() {
        let sample = Sample { span: Nanos::from_secs(1), packets: 38_200, ..Sample::default() };
        let action = Action {
            at: Instant::ZERO,
            cap: CpuShare::from_ppm(135_000),
            limit: None,
            changed: true,
            reason: Reason::Feedback,
        };
        let event = Event::Sampled { sample, error_pps: 1800, action };
        let set_point = PacketRate::from_pps(40_000);
        let decision = Decision { number: 0, at: Instant::ZERO, set_point, event };
        let line = "40kpps: 38200pps, error 1800, cap 13.5%: moved by the error";
        assert_eq!(decision.to_string(), line);
        let event = Event::NoSample(MeterFault::Reset);
        let line = "40kpps: counters went back: the router began anew; cap stays";
        assert_eq!(Decision { event, ..decision }.to_string(), line);
    }
}
