// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Raw samples of one quantity.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The prefix, behind the row's, of series about the machine during a run.
pub const MACHINE: &str = "machine/";

/// The prefix of names of an attempt that was repeated and does not count. Its number and a slash
/// follow.
pub const ATTEMPT: &str = "attempt-";

/// Raw samples of one quantity, in the order in which they were taken. All of them are finite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Series {
    /// Unit of every sample: `bit/s`, `packet/s`, `byte`, `packet`, `s`, or `1` for a pure number.
    pub unit: String,
    /// Seconds that each sample covers, where they were taken one after the other; sample k covers
    /// the time from k to k + 1 intervals. Absent where order has no such meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_s: Option<f64>,
    /// The samples.
    pub samples: Vec<f64>,
}

impl Series {
    /// One sample for each interval of `interval_s` seconds, without a gap.
    pub fn sampled(unit: impl Into<String>, interval_s: f64, samples: Vec<f64>) -> Self {
        Self { unit: unit.into(), interval_s: Some(interval_s), samples }
    }

    /// Samples that do not follow each other at a fixed distance: delays, repetitions, counts.
    pub fn unordered(unit: impl Into<String>, samples: Vec<f64>) -> Self {
        Self { unit: unit.into(), interval_s: None, samples }
    }

    /// A single count of things, `unit` for example `packet`. Exact up to 2⁵³.
    #[expect(clippy::cast_precision_loss, reason = "counts of a run stay below 2^53")]
    pub fn count(unit: impl Into<String>, count: u64) -> Self {
        Self::unordered(unit, vec![count as f64])
    }

    /// Why the series cannot be stored, if so.
    pub(crate) fn problem(&self) -> Option<String> {
        if self.unit.trim().is_empty() {
            return Some("its unit is empty; a pure number has the unit '1'".to_string());
        }
        if let Some(interval) = self.interval_s
            && (!interval.is_finite() || interval <= 0.0)
        {
            return Some(format!("its interval is {interval} s; it must be above 0"));
        }
        let (index, sample) = self.samples.iter().enumerate().find(|(_, s)| !s.is_finite())?;
        Some(format!("its sample {index} is {sample}, not a finite number"))
    }
}
