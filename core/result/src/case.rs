// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A claim, and the case that it becomes once it is judged: a value, a bound and a verdict.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Rule, RuleError, Series};

/// A claim with its value and its verdict. Only [`crate::ResultFile::judge`] makes one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Case {
    /// Unique in its file; a row of a table of requirements is `TABLE.ROW`.
    pub(crate) id: String,
    /// The claim in words.
    pub(crate) name: String,
    /// The value that the rule gives for the series.
    pub(crate) value: f64,
    /// Unit of the value; it follows from the rule and the series.
    pub(crate) unit: String,
    /// The bound that the value must keep.
    pub(crate) bound: Bound,
    /// The verdict: true if the value keeps the bound.
    pub(crate) holds: bool,
    /// The rule by which the value follows from the series.
    pub(crate) rule: Rule,
    /// The series that the rule takes, in its order.
    pub(crate) series: Vec<String>,
    /// Samples left out at the beginning of each series.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) skip: usize,
    /// Most samples taken of each series after those; all that are left if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) take: Option<usize>,
}

/// A claim about series, not judged yet.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Unique in the file.
    pub id: String,
    /// The claim in words.
    pub name: String,
    /// The rule by which the value follows from the series.
    pub rule: Rule,
    /// The bound that the value must keep.
    pub bound: Bound,
    /// The series that the rule takes, in its order.
    pub series: Vec<String>,
    /// Samples left out at the beginning of each series.
    pub skip: usize,
    /// Most samples taken of each series after those; all that are left if `None`.
    pub take: Option<usize>,
}

/// A bound of a value: `value OP bound`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bound {
    /// The comparison.
    pub op: Comparison,
    /// The bound, in the case's unit.
    pub value: f64,
}

/// A comparison of a value with its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Comparison {
    /// The value must be at least the bound.
    #[serde(rename = ">=")]
    AtLeast,
    /// The value must be at most the bound.
    #[serde(rename = "<=")]
    AtMost,
    /// The value must equal the bound: for counts.
    #[serde(rename = "==")]
    Equal,
}

impl Claim {
    /// A claim about no series yet.
    pub fn new(id: impl Into<String>, name: impl Into<String>, rule: Rule, bound: Bound) -> Self {
        let series = Vec::new();
        Self { id: id.into(), name: name.into(), rule, bound, series, skip: 0, take: None }
    }

    /// Names the series that it is about, in the order of the rule.
    #[must_use]
    pub fn of(mut self, series: &[impl AsRef<str>]) -> Self {
        self.series = series.iter().map(|name| name.as_ref().to_string()).collect();
        self
    }

    /// Leaves out that many samples at the beginning of each series.
    #[must_use]
    pub const fn skip(mut self, samples: usize) -> Self {
        self.skip = samples;
        self
    }

    /// Takes at most that many samples of each series, after those skipped.
    #[must_use]
    pub const fn take(mut self, samples: usize) -> Self {
        self.take = Some(samples);
        self
    }

    /// Judges the claim. `series` are those that it names, in its order.
    pub(crate) fn judge(self, series: &[&Series]) -> Result<Case, RuleError> {
        let Self { id, name, rule, bound, series: names, skip, take } = self;
        let unit = rule.unit(series)?;
        let value = rule.apply(&windows(series, skip, take))?;
        let holds = bound.is_kept_by(value);
        Ok(Case { id, name, value, unit, bound, holds, rule, series: names, skip, take })
    }
}

impl Case {
    /// Unique in its file.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The claim in words.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value that the rule gives for the series, in [`Self::unit`].
    pub const fn value(&self) -> f64 {
        self.value
    }

    /// Unit of value and bound.
    pub fn unit(&self) -> &str {
        &self.unit
    }

    /// The bound that the value must keep.
    pub const fn bound(&self) -> Bound {
        self.bound
    }

    /// Says whether the value keeps the bound.
    pub const fn holds(&self) -> bool {
        self.holds
    }

    /// The rule by which the value follows from the series.
    pub const fn rule(&self) -> Rule {
        self.rule
    }

    /// Names of the series that the rule takes, in its order.
    pub fn series(&self) -> &[String] {
        &self.series
    }

    /// The claim that this is the verdict on.
    pub fn claim(&self) -> Claim {
        Claim {
            id: self.id.clone(),
            name: self.name.clone(),
            rule: self.rule,
            bound: self.bound,
            series: self.series.clone(),
            skip: self.skip,
            take: self.take,
        }
    }
}

impl Bound {
    /// The value must be at least this.
    pub const fn at_least(value: f64) -> Self {
        Self { op: Comparison::AtLeast, value }
    }

    /// The value must be at most this.
    pub const fn at_most(value: f64) -> Self {
        Self { op: Comparison::AtMost, value }
    }

    /// The value must be exactly this.
    pub const fn equal(value: f64) -> Self {
        Self { op: Comparison::Equal, value }
    }

    /// Says whether `value` keeps the bound.
    #[expect(clippy::float_cmp, reason = "equality is for counts, which a double holds exactly")]
    pub fn is_kept_by(self, value: f64) -> bool {
        match self.op {
            Comparison::AtLeast => value >= self.value,
            Comparison::AtMost => value <= self.value,
            Comparison::Equal => value == self.value,
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::AtLeast => "≥",
            Self::AtMost => "≤",
            Self::Equal => "=",
        })
    }
}

/// The samples of each series that a case is about.
fn windows<'a>(series: &[&'a Series], skip: usize, take: Option<usize>) -> Vec<&'a [f64]> {
    let window = |series: &'a Series| {
        let rest = series.samples.get(skip..).unwrap_or_default();
        take.and_then(|take| rest.get(..take)).unwrap_or(rest)
    };
    series.iter().map(|series| window(series)).collect()
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
const fn is_zero(count: &usize) -> bool {
    *count == 0
}
