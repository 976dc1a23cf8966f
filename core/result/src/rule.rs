// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules by which a value follows from series. `docs/results.md` lists them in a table.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{RuleError, Series, stats};

/// A rule by which a value follows from the samples of a case's series, after `skip` and `take`.
///
/// *All samples* means those of all named series, one series after the other. *Side by side* means
/// that sample k of one series belongs to sample k of the others; all series have the same length.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "name", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum Rule {
    /// Least of all samples.
    Min,
    /// Greatest of all samples.
    Max,
    /// Sum of all samples divided by their count.
    Mean,
    /// Middle of all samples, sorted; the mean of the two middle ones where their count is even.
    Median,
    /// Nearest rank: of n samples, sorted, the one at ⌈percent ÷ 100 · n⌉, counted from 1.
    Percentile {
        /// Above 0, at most 100.
        percent: f64,
    },
    /// Sum of all samples; 0 of none.
    Sum,
    /// Number of all samples.
    Count,
    /// Last sample of the last series.
    Last,
    /// Root of the mean squared distance from the mean, divided by the mean.
    RelativeDeviation,
    /// Distance of the mean from the reference, divided by the reference.
    RelativeError {
        /// In the unit of the series; above 0.
        reference: f64,
    },
    /// Sum of the first series less the sum of all others.
    Difference,
    /// Sum of the first series divided by the sum of the second.
    RatioOfSums,
    /// Median of the first series divided by the median of the second.
    RatioOfMedians,
    /// Percentile of the first series divided by the same percentile of the second.
    RatioOfPercentiles {
        /// Above 0, at most 100.
        percent: f64,
    },
    /// Pairs of series, side by side: least of first ÷ second over all samples of all pairs;
    /// samples whose second is 0 are left out.
    LeastRatio,
    /// Pairs of series, side by side: greatest of first ÷ second over all samples of all pairs;
    /// samples whose second is 0 are left out.
    GreatestRatio,
    /// Side by side: least over all k of (least of the samples k ÷ greatest of the samples k).
    LeastBalance,
    /// Side by side: least over all k of the sum of the samples k.
    LeastTotal,
    /// Side by side: greatest over all k of the sum of the samples k.
    GreatestTotal,
    /// Greatest sum of so many neighbouring samples, over all series.
    GreatestWindow {
        /// At least 1.
        samples: u32,
    },
}

/// The number of series that a rule accepts.
#[derive(Clone, Copy)]
pub(crate) enum SeriesArity {
    OneOrMore,
    Two,
    TwoOrMore,
    Pairs,
}

impl Rule {
    /// Returns the name under which a file holds the rule.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Min => "min",
            Self::Max => "max",
            Self::Mean => "mean",
            Self::Median => "median",
            Self::Percentile { .. } => "percentile",
            Self::Sum => "sum",
            Self::Count => "count",
            Self::Last => "last",
            Self::RelativeDeviation => "relative_deviation",
            Self::RelativeError { .. } => "relative_error",
            Self::Difference => "difference",
            Self::RatioOfSums => "ratio_of_sums",
            Self::RatioOfMedians => "ratio_of_medians",
            Self::RatioOfPercentiles { .. } => "ratio_of_percentiles",
            Self::LeastRatio => "least_ratio",
            Self::GreatestRatio => "greatest_ratio",
            Self::LeastBalance => "least_balance",
            Self::LeastTotal => "least_total",
            Self::GreatestTotal => "greatest_total",
            Self::GreatestWindow { .. } => "greatest_window",
        }
    }

    /// Computes the value. `series` are the samples of the named series after `skip` and `take`.
    ///
    /// # Errors
    /// The rule does not take this number of series, their lengths or its parameter; there are too
    /// few samples; a divisor is zero; the value overflows.
    pub fn apply(&self, series: &[&[f64]]) -> Result<f64, RuleError> {
        self.check_parameters()?;
        self.arity().check(self.name(), series.len())?;
        let all = series.concat();
        let nonempty = || self.at_least(1, all.len()).map(|()| all.as_slice());
        let value = match *self {
            Self::Min => stats::least(nonempty()?),
            Self::Max => stats::greatest(nonempty()?),
            Self::Mean => stats::mean(nonempty()?),
            Self::Median => stats::median(nonempty()?),
            Self::Percentile { percent } => stats::percentile(nonempty()?, percent),
            Self::Sum => stats::sum(&all),
            Self::Count => stats::length(&all),
            Self::Last => nonempty()?.last().copied().unwrap_or(f64::NAN),
            Self::RelativeDeviation => {
                self.ratio(stats::deviation(nonempty()?), stats::mean(nonempty()?))?
            }
            Self::RelativeError { reference } => {
                self.ratio((stats::mean(nonempty()?) - reference).abs(), reference)?
            }
            Self::Difference => Self::difference(series),
            Self::RatioOfSums => self.compare(series, stats::sum)?,
            Self::RatioOfMedians => self.compare(series, stats::median)?,
            Self::RatioOfPercentiles { percent } => {
                self.compare(series, |samples| stats::percentile(samples, percent))?
            }
            Self::LeastRatio => stats::least(&self.ratios(series)?),
            Self::GreatestRatio => stats::greatest(&self.ratios(series)?),
            Self::LeastBalance => stats::least(&self.balances(series)?),
            Self::LeastTotal => stats::least(&self.totals(series)?),
            Self::GreatestTotal => stats::greatest(&self.totals(series)?),
            Self::GreatestWindow { samples } => self.window(series, samples)?,
        };
        if value.is_finite() {
            return Ok(value);
        }
        Err(RuleError::Overflow { rule: self.name() })
    }

    /// Returns the value's unit: the unit of the series, or `1` for a count or a ratio.
    pub(crate) fn unit(&self, series: &[&Series]) -> Result<String, RuleError> {
        let Some((first, rest)) = series.split_first() else {
            return Err(self.arity().refuse(self.name(), 0));
        };
        if let Some(other) = rest.iter().find(|other| other.unit != first.unit) {
            let (first, other) = (first.unit.clone(), other.unit.clone());
            return Err(RuleError::Units { rule: self.name(), first, other });
        }
        Ok(if self.is_pure_number() { "1".to_string() } else { first.unit.clone() })
    }

    /// Returns true if the value has no unit, whatever the unit of the series.
    pub(crate) const fn is_pure_number(&self) -> bool {
        match self {
            Self::Count
            | Self::RelativeDeviation
            | Self::RelativeError { .. }
            | Self::RatioOfSums
            | Self::RatioOfMedians
            | Self::RatioOfPercentiles { .. }
            | Self::LeastRatio
            | Self::GreatestRatio
            | Self::LeastBalance => true,
            Self::Min
            | Self::Max
            | Self::Mean
            | Self::Median
            | Self::Percentile { .. }
            | Self::Sum
            | Self::Last
            | Self::Difference
            | Self::LeastTotal
            | Self::GreatestTotal
            | Self::GreatestWindow { .. } => false,
        }
    }

    /// Returns the number of series that the rule takes.
    pub(crate) const fn arity(&self) -> SeriesArity {
        match self {
            Self::RatioOfSums | Self::RatioOfMedians | Self::RatioOfPercentiles { .. } => {
                SeriesArity::Two
            }
            Self::Difference | Self::LeastBalance => SeriesArity::TwoOrMore,
            Self::LeastRatio | Self::GreatestRatio => SeriesArity::Pairs,
            _ => SeriesArity::OneOrMore,
        }
    }

    fn check_parameters(&self) -> Result<(), RuleError> {
        let (name, value, range, good) = match *self {
            Self::Percentile { percent } | Self::RatioOfPercentiles { percent } => {
                ("percent", percent, "above 0 and at most 100", percent > 0.0 && percent <= 100.0)
            }
            Self::RelativeError { reference } => ("reference", reference, "finite and above 0", {
                reference.is_finite() && reference > 0.0
            }),
            Self::GreatestWindow { samples } => {
                ("samples", f64::from(samples), "at least 1", samples >= 1)
            }
            _ => return Ok(()),
        };
        if good {
            Ok(())
        } else {
            Err(RuleError::Parameter { rule: self.name(), name, value, range })
        }
    }

    fn difference(series: &[&[f64]]) -> f64 {
        let Some((first, rest)) = series.split_first() else { return 0.0 };
        stats::sum(first) - stats::sum(&rest.concat())
    }

    /// Returns a statistic of the first series ÷ the same statistic of the second.
    fn compare(
        &self,
        series: &[&[f64]],
        statistic: impl Fn(&[f64]) -> f64,
    ) -> Result<f64, RuleError> {
        series.iter().try_for_each(|samples| self.at_least(1, samples.len()))?;
        let mut values = series.iter().map(|samples| statistic(samples));
        let first = values.next().unwrap_or(f64::NAN);
        self.ratio(first, values.next().unwrap_or(f64::NAN))
    }

    /// Returns first ÷ second for all pairs of samples whose second is not 0.
    fn ratios(&self, series: &[&[f64]]) -> Result<Vec<f64>, RuleError> {
        let mut ratios = Vec::new();
        for pair in series.chunks_exact(2) {
            self.same_length(pair)?;
            let [first, second] = pair else { continue };
            let both = first.iter().zip(*second).filter(|(_, second)| **second != 0.0);
            ratios.extend(both.map(|(first, second)| first / second));
        }
        self.at_least(1, ratios.len())?;
        Ok(ratios)
    }

    /// Returns least ÷ greatest of the samples k, for each k.
    fn balances(&self, series: &[&[f64]]) -> Result<Vec<f64>, RuleError> {
        let rows = self.side_by_side(series)?;
        rows.iter().map(|row| self.ratio(stats::least(row), stats::greatest(row))).collect()
    }

    /// Returns the sum of the samples k, for each k.
    fn totals(&self, series: &[&[f64]]) -> Result<Vec<f64>, RuleError> {
        Ok(self.side_by_side(series)?.iter().map(|row| stats::sum(row)).collect())
    }

    /// Returns the samples k of all series, for each k.
    fn side_by_side(&self, series: &[&[f64]]) -> Result<Vec<Vec<f64>>, RuleError> {
        self.same_length(series)?;
        let length = series.first().map_or(0, |samples| samples.len());
        self.at_least(1, length)?;
        let row = |k: usize| series.iter().filter_map(|samples| samples.get(k).copied()).collect();
        Ok((0..length).map(row).collect())
    }

    fn window(&self, series: &[&[f64]], samples: u32) -> Result<f64, RuleError> {
        let count = usize::try_from(samples).unwrap_or(usize::MAX);
        series.iter().try_for_each(|samples| self.at_least(count, samples.len()))?;
        let windows = series.iter().map(|samples| stats::greatest_window(samples, count));
        Ok(stats::greatest(&windows.collect::<Vec<_>>()))
    }

    fn ratio(&self, dividend: f64, divisor: f64) -> Result<f64, RuleError> {
        if divisor == 0.0 {
            return Err(RuleError::DivisorZero { rule: self.name() });
        }
        Ok(dividend / divisor)
    }

    const fn at_least(&self, needs: usize, given: usize) -> Result<(), RuleError> {
        if given >= needs {
            return Ok(());
        }
        Err(RuleError::TooFew { rule: self.name(), needs, given })
    }

    fn same_length(&self, series: &[&[f64]]) -> Result<(), RuleError> {
        let first = series.first().map_or(0, |samples| samples.len());
        match series.iter().find(|samples| samples.len() != first) {
            None => Ok(()),
            Some(other) => Err(RuleError::Lengths { rule: self.name(), first, other: other.len() }),
        }
    }
}

impl SeriesArity {
    /// Returns the number in words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::OneOrMore => "one or more series",
            Self::Two => "two series",
            Self::TwoOrMore => "two or more series",
            Self::Pairs => "pairs of series",
        }
    }

    const fn refuse(self, rule: &'static str, given: usize) -> RuleError {
        RuleError::SeriesCount { rule, takes: self.words(), given }
    }

    const fn check(self, rule: &'static str, given: usize) -> Result<(), RuleError> {
        let good = match self {
            Self::OneOrMore => given >= 1,
            Self::Two => given == 2,
            Self::TwoOrMore => given >= 2,
            Self::Pairs => given >= 2 && given.is_multiple_of(2),
        };
        if good { Ok(()) } else { Err(self.refuse(rule, given)) }
    }
}
