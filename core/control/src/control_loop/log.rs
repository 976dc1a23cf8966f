// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The log of a loop: its newest decisions, each with its reason.

use alloc::collections::VecDeque;
use alloc::string::String;
use core::fmt;

use weir_units::{Instant, PacketRate};

use super::request::LoopRequest;
use super::sampler::SampleFault;
use crate::police::Judgement;
use crate::{Action, Sample};

/// One decision.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Its number, from 0, without gaps: those missing at the beginning were dropped.
    pub number: u64,
    /// When it was made.
    pub at: Instant,
    /// The set-point then.
    pub set_point: PacketRate,
    /// The event.
    pub event: DecisionEvent,
}

/// An event in the log of a loop.
#[derive(Clone, Debug, PartialEq)]
pub enum DecisionEvent {
    /// A sample came, and the controller decided.
    Sampled {
        /// The sample.
        sample: Sample,
        /// Set-point minus rate, in packets a second, saturating.
        error_pps: i64,
        /// The decision.
        action: Action,
    },
    /// There was no sample; the settings stay.
    NoSample(SampleFault),
    /// The correction of the last sample was taken back, since no sample followed.
    Eased(Action),
    /// The owner made a request, which led to this action, if to any.
    Requested(LoopRequest, Option<Action>),
    /// The conduct of the router was judged: another grade of punishment.
    Judged(Judgement),
    /// A command failed; the settings before are still in force.
    ActuatorFailed(String),
    /// The settings of a pause, which could not be set, are tried again.
    Retried,
    /// The settings of a pause were tried often enough; those before stay in force.
    GaveUp,
    /// Cap and limit are taken away: there were no samples, or commands failed, for too long.
    Released,
    /// The last settings are set again, after a release or after the router was lost.
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
    /// The largest capacity: at ten decisions a second, 1000 s.
    pub const CAPACITY_MAX: usize = 10_000;
    /// The longest text of a failure that is kept, in bytes.
    pub const TEXT_MAX: usize = 200;

    /// Makes an empty log for `capacity` decisions, clamped to 1 to [`Self::CAPACITY_MAX`].
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        let capacity = capacity.clamp(1, Self::CAPACITY_MAX);
        Self { capacity, decisions: VecDeque::new(), next: 0 }
    }

    pub(crate) fn push(&mut self, at: Instant, set_point: PacketRate, event: DecisionEvent) {
        if self.decisions.len() == self.capacity {
            self.decisions.pop_front();
        }
        self.decisions.push_back(Decision { number: self.next, at, set_point, event });
        self.next += 1;
    }

    /// Returns the most decisions that it keeps.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// Returns the kept decisions with a number of `first` or more, oldest first.
    pub fn since(&self, first: u64) -> impl DoubleEndedIterator<Item = &Decision> {
        let start = self.decisions.partition_point(|decision| decision.number < first);
        self.decisions.range(start..)
    }

    /// Returns the newest decision.
    #[must_use]
    pub fn last(&self) -> Option<&Decision> {
        self.decisions.back()
    }

    /// Returns how many decisions were made, kept or not.
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
            DecisionEvent::Sampled { sample, error_pps, action } => {
                write!(f, "{}, error {error_pps}, ", sample.rate())?;
                write_action(f, action)
            }
            DecisionEvent::NoSample(fault) => write!(f, "{fault}; cap stays"),
            DecisionEvent::Eased(action) => {
                write!(f, "nothing is made good without a sample: ")?;
                write_action(f, action)
            }
            DecisionEvent::Requested(request, None) => write!(f, "{request}"),
            DecisionEvent::Requested(request, Some(action)) => {
                write!(f, "{request}: ")?;
                write_action(f, action)
            }
            DecisionEvent::Judged(judgement) => write!(f, "{judgement}"),
            DecisionEvent::ActuatorFailed(text) => write!(f, "actuator failed: {text}; cap stays"),
            DecisionEvent::Retried => write!(f, "paused: cap tried again"),
            DecisionEvent::GaveUp => write!(f, "paused: cap not tried any more; cap stays"),
            DecisionEvent::Released => write!(f, "released: no cap, no limit"),
            DecisionEvent::Recovered => write!(f, "recovered: last cap set again"),
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
    use crate::ActionReason;

    #[test]
    fn the_newest_stay_and_numbers_have_no_gaps() {
        let mut log = DecisionLog::new(3);
        for _ in 0..5 {
            log.push(Instant::ZERO, PacketRate::ZERO, DecisionEvent::Released);
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
            reason: ActionReason::Feedback,
        };
        let event = DecisionEvent::Sampled { sample, error_pps: 1800, action };
        let set_point = PacketRate::from_pps(40_000);
        let decision = Decision { number: 0, at: Instant::ZERO, set_point, event };
        let line = "40kpps: 38200pps, error 1800, cap 13.5%: moved by the error";
        assert_eq!(decision.to_string(), line);
        let event = DecisionEvent::NoSample(SampleFault::Reset);
        let line = "40kpps: counters went back: the router began anew; cap stays";
        assert_eq!(Decision { event, ..decision }.to_string(), line);
    }
}
