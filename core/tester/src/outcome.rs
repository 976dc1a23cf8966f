// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The outcome of a trial, in packets.

use serde::{Deserialize, Serialize};

/// The outcome of a trial, in packets. Each packet that was to be sent is in exactly one of
/// `forwarded`, `lost` and `unsent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// Packets that the trial was to send: load times duration.
    pub intended: u64,
    /// Packets that the generator sent.
    pub offered: u64,
    /// Packets that arrived at the sink, each counted once.
    pub forwarded: u64,
    /// Packets that were sent and did not arrive.
    pub lost: u64,
    /// Packets that the generator did not send in time. They count as lost: a tester that cannot
    /// offer a load has not shown that the load is forwarded.
    pub unsent: u64,
}

/// Counts that do not add up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "counts of a trial do not add up: intended {}, offered {}, unsent {}, forwarded {}, lost {}",
    .0.intended, .0.offered, .0.unsent, .0.forwarded, .0.lost
)]
pub struct OutcomeError(pub Outcome);

impl Outcome {
    /// Returns the outcome of a trial that was to send `intended` packets, sent `offered` of them,
    /// of which `forwarded` arrived. Fails if more arrived than were sent, or more were sent than
    /// intended.
    pub fn new(intended: u64, offered: u64, forwarded: u64) -> Result<Self, OutcomeError> {
        let unsent = intended.checked_sub(offered);
        let lost = offered.checked_sub(forwarded);
        match (unsent, lost) {
            (Some(unsent), Some(lost)) => Ok(Self { intended, offered, forwarded, lost, unsent }),
            _ => Err(OutcomeError(Self { intended, offered, forwarded, lost: 0, unsent: 0 })),
        }
    }

    /// Checks that each packet is counted exactly once.
    pub fn check(self) -> Result<(), OutcomeError> {
        if Self::new(self.intended, self.offered, self.forwarded)? == self {
            Ok(())
        } else {
            Err(OutcomeError(self))
        }
    }

    /// Returns the sum of two.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            intended: self.intended + other.intended,
            offered: self.offered + other.offered,
            forwarded: self.forwarded + other.forwarded,
            lost: self.lost + other.lost,
            unsent: self.unsent + other.unsent,
        }
    }

    /// Returns the packets that were to be sent and did not arrive: lost or unsent.
    pub const fn missing(self) -> u64 {
        self.intended.saturating_sub(self.forwarded)
    }

    /// Returns the part of the intended packets that did not arrive, 0 to 1; 0 of no packets.
    #[expect(clippy::cast_precision_loss, reason = "counts of a trial stay below 2^53")]
    pub fn loss_ratio(self) -> f64 {
        if self.intended == 0 { 0.0 } else { self.missing() as f64 / self.intended as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_packet_is_counted_once() {
        let outcome = Outcome::new(100, 90, 70).unwrap();
        assert_eq!((outcome.unsent, outcome.lost, outcome.missing()), (10, 20, 30));
        assert!(outcome.check().is_ok());
        assert!(Outcome { lost: 19, ..outcome }.check().is_err());
        assert!(Outcome::new(100, 101, 70).is_err());
        assert!(Outcome::new(100, 90, 91).is_err());
    }
}
