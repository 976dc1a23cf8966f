// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The goal of a search, as RFC 9971 section 4.6 has it.

use std::str::FromStr;

use serde::{Deserialize, Serialize};
use weir_units::Nanos;

use crate::ppm::Ppm;

/// The meaning of a throughput: what makes a trial bad, and how much of that a load may show.
///
/// Written as a name, as `KEY=VALUE` pairs, or both: `pdr`, `loss=0.1%,trial=2s`,
/// `ndr,width=1%,sum=5s`. What is not given is that of `ndr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// A trial that loses a larger part of its packets is bad. Below 100 %.
    pub loss: Ppm,
    /// The part of the trials, by duration, that may be bad. Below 100 %.
    pub exceed: Ppm,
    /// The lower bound lies within this part of the upper one. 0.01 % to 50 %.
    pub width: Ppm,
    /// Length of a trial that counts in full, 1 ms to 1 h.
    #[serde(with = "nanos")]
    pub trial: Nanos,
    /// Trials of a load last at least so long in sum before it is a bound, unless the missing ones
    /// cannot change that. At least `trial`, at most 24 h.
    #[serde(with = "nanos")]
    pub sum: Nanos,
}

/// A goal that makes no sense: the key, its value and the bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("goal: {key} = {value} is not {bound}")]
pub struct GoalError {
    /// The key.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// The values that it may have.
    pub bound: &'static str,
}

impl Goal {
    /// The throughput of RFC 2544: one trial of 60 s without a lost packet.
    pub const RFC2544: Self = Self {
        loss: Ppm::ZERO,
        exceed: Ppm::ZERO,
        width: Ppm::new(5_000),
        trial: Nanos::from_secs(60),
        sum: Nanos::from_secs(60),
    };
    /// The no-drop rate as usual today: half of the seconds may lose packets, 21 trials of 1 s.
    pub const NDR: Self = Self {
        loss: Ppm::ZERO,
        exceed: Ppm::new(500_000),
        width: Ppm::new(5_000),
        trial: Nanos::from_secs(1),
        sum: Nanos::from_secs(21),
    };
    /// The partial-drop rate: the same with 0.5 % of loss in each trial.
    pub const PDR: Self = Self { loss: Ppm::new(5_000), ..Self::NDR };
    /// ETSI GS NFV-TST 009: a load passes if one of two trials of 60 s does.
    pub const TST009: Self =
        Self { exceed: Ppm::new(500_000), sum: Nanos::from_secs(120), ..Self::RFC2544 };

    /// Checks every value.
    pub fn check(&self) -> Result<(), GoalError> {
        let whole = Ppm::new(1_000_000);
        let refuse = |key, value: String, bound| Err(GoalError { key, value, bound });
        if self.loss >= whole {
            return refuse("loss", self.loss.to_string(), "below 100%");
        }
        if self.exceed >= whole {
            return refuse("exceed", self.exceed.to_string(), "below 100%");
        }
        if !(WIDTH_MIN..=WIDTH_MAX).contains(&self.width) {
            return refuse("width", self.width.to_string(), "within 0.01% to 50%");
        }
        if !(TRIAL_MIN..=TRIAL_MAX).contains(&self.trial) {
            return refuse("trial", self.trial.to_string(), "within 1ms to 1h");
        }
        if !(self.trial..=SUM_MAX).contains(&self.sum) {
            return refuse("sum", self.sum.to_string(), "within the goal's trial and 24h");
        }
        Ok(())
    }

    /// Returns this goal with another sum.
    pub(crate) const fn with_sum(self, sum: Nanos) -> Self {
        Self { sum, ..self }
    }

    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "rfc2544" => Self::RFC2544,
            "ndr" => Self::NDR,
            "pdr" => Self::PDR,
            "tst009" => Self::TST009,
            _ => return None,
        })
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), GoalError> {
        let refuse = |key, bound| GoalError { key, value: value.to_owned(), bound };
        let ratio = |key| value.parse().map_err(|_| refuse(key, "a ratio such as 0.5%"));
        let time = |key| value.parse().map_err(|_| refuse(key, "a time such as 1s"));
        match key {
            "loss" => self.loss = ratio("loss")?,
            "exceed" => self.exceed = ratio("exceed")?,
            "width" => self.width = ratio("width")?,
            "trial" => self.trial = time("trial")?,
            "sum" => self.sum = time("sum")?,
            _ => {
                let value = key.to_owned();
                let bound = "loss, exceed, width, trial or sum";
                return Err(GoalError { key: "key", value, bound });
            }
        }
        Ok(())
    }
}

impl FromStr for Goal {
    type Err = GoalError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut goal = Self::NDR;
        for (index, part) in text.split(',').enumerate() {
            match part.split_once('=') {
                Some((key, value)) => goal.set(key, value)?,
                None => {
                    let named = Self::named(part).filter(|_| index == 0);
                    goal = named.ok_or_else(|| GoalError {
                        key: "name",
                        value: part.to_owned(),
                        bound: "rfc2544, ndr, pdr or tst009, at the beginning",
                    })?;
                }
            }
        }
        goal.check()?;
        Ok(goal)
    }
}

/// Nanoseconds as a plain number.
mod nanos {
    use serde::{Deserialize, Deserializer, Serializer};
    use weir_units::Nanos;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
    pub(super) fn serialize<S: Serializer>(nanos: &Nanos, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(nanos.as_nanos())
    }

    pub(super) fn deserialize<'d, D: Deserializer<'d>>(from: D) -> Result<Nanos, D::Error> {
        u64::deserialize(from).map(Nanos::new)
    }
}

const WIDTH_MIN: Ppm = Ppm::new(100);
const WIDTH_MAX: Ppm = Ppm::new(500_000);
const TRIAL_MIN: Nanos = Nanos::from_millis(1);
const TRIAL_MAX: Nanos = Nanos::from_secs(3_600);
const SUM_MAX: Nanos = Nanos::from_secs(24 * 3_600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_read_by_name_and_by_key() {
        assert_eq!("pdr".parse(), Ok(Goal::PDR));
        assert_eq!("loss=0.5%".parse(), Ok(Goal::PDR));
        let quick: Goal = "ndr,width=1%,trial=200ms,sum=1s".parse().unwrap();
        assert_eq!(quick.width, Ppm::new(10_000));
        assert_eq!((quick.trial, quick.sum), (Nanos::from_millis(200), Nanos::from_secs(1)));
    }

    #[test]
    fn each_bad_goal_names_key_value_and_bound() {
        for (text, told) in [
            ("best", "goal: name = best is not rfc2544, ndr, pdr or tst009, at the beginning"),
            ("width=1%,pdr", "goal: name = pdr is not"),
            ("loss=100%", "goal: loss = 100% is not below 100%"),
            ("exceed=100%", "goal: exceed = 100% is not below 100%"),
            ("width=0", "goal: width = 0% is not within 0.01% to 50%"),
            ("trial=1us", "is not within 1ms to 1h"),
            ("trial=2s,sum=1s", "is not within the goal's trial and 24h"),
            ("color=1", "goal: key = color is not loss, exceed"),
            ("loss=much", "goal: loss = much is not a ratio"),
        ] {
            let error = text.parse::<Goal>().unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
