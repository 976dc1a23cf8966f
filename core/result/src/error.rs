// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of results, and of rules with the series that they are given.

use std::fmt;

/// Why a rule has no value for these series.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RuleError {
    /// The rule does not take so many series.
    SeriesCount {
        /// The rule's name.
        rule: &'static str,
        /// The number of series that it takes, in words.
        takes: &'static str,
        /// The number of series that it was given.
        given: usize,
    },
    /// The series that it compares have different units.
    Units {
        /// The rule's name.
        rule: &'static str,
        /// Unit of the first series.
        first: String,
        /// A unit that differs.
        other: String,
    },
    /// The series that it walks side by side have different lengths.
    Lengths {
        /// The rule's name.
        rule: &'static str,
        /// Samples of the first series.
        first: usize,
        /// Samples of one that differs.
        other: usize,
    },
    /// Fewer samples than the rule needs.
    TooFew {
        /// The rule's name.
        rule: &'static str,
        /// Samples it needs at least.
        needs: usize,
        /// Samples left after `skip` and `take`.
        given: usize,
    },
    /// It would have to divide by zero.
    DivisorZero {
        /// The rule's name.
        rule: &'static str,
    },
    /// A parameter out of its range.
    Parameter {
        /// The rule's name.
        rule: &'static str,
        /// The parameter's name.
        name: &'static str,
        /// The parameter's value.
        value: f64,
        /// The range, in words.
        range: &'static str,
    },
    /// The value is not a finite number: the samples overflow a double.
    Overflow {
        /// The rule's name.
        rule: &'static str,
    },
}

/// Why a result file was refused.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ResultError {
    /// The text is no result file.
    Json(String),
    /// A series that cannot be stored.
    Series {
        /// Its name.
        name: String,
        /// The mistake, in words.
        problem: String,
    },
    /// Two series of one name, or two cases of one id.
    Duplicate {
        /// `series` or `case`.
        what: &'static str,
        /// The name.
        name: String,
    },
    /// A case names a series that is not there.
    NoSeries {
        /// The case's id.
        case: String,
        /// The series that it names.
        series: String,
    },
    /// A case's rule has no value for its series.
    Rule {
        /// The case's id.
        case: String,
        /// Why.
        error: RuleError,
    },
    /// A file says a value, unit or verdict that does not follow from its series.
    NotReproduced {
        /// The case's id.
        case: String,
        /// The value in the file.
        says: String,
        /// The value that follows from the series.
        follows: String,
    },
}

impl std::error::Error for RuleError {}

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SeriesCount { rule, takes, given } => {
                write!(f, "rule {rule} takes {takes}, not {given} series")
            }
            Self::Units { rule, first, other } => {
                write!(f, "rule {rule} takes series of one unit, not '{first}' and '{other}'")
            }
            Self::Lengths { rule, first, other } => {
                write!(f, "rule {rule} takes series of one length, not {first} and {other} samples")
            }
            Self::TooFew { rule, needs, given } => {
                write!(f, "rule {rule} needs at least {needs} samples, {given} are left")
            }
            Self::DivisorZero { rule } => write!(f, "rule {rule} would divide by zero"),
            Self::Parameter { rule, name, value, range } => {
                write!(f, "rule {rule}: {name} is {value}, must be {range}")
            }
            Self::Overflow { rule } => write!(f, "rule {rule}: the value overflows a double"),
        }
    }
}

impl std::error::Error for ResultError {}

impl fmt::Display for ResultError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Json(problem) => write!(f, "not a result file: {problem}"),
            Self::Series { name, problem } => write!(f, "series '{name}': {problem}"),
            Self::Duplicate { what, name } => write!(f, "{what} '{name}' is there already"),
            Self::NoSeries { case, series } => {
                write!(f, "case '{case}': there is no series '{series}'")
            }
            Self::Rule { case, error } => write!(f, "case '{case}': {error}"),
            Self::NotReproduced { case, says, follows } => {
                write!(f, "case '{case}' says {says}, but {follows} follows from its series")
            }
        }
    }
}
