// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An experiment being made: where its series and cases go, and what it tells while it runs.

use weir_result::{Bound, Claim, ResultFile, Rule, Series};

use crate::TrialError;

/// Collects series and cases into one result.
pub struct Trial<'a> {
    /// What there is so far.
    pub result: ResultFile,
    /// Shorter runs, fewer repetitions: to see that it works, not what it is worth.
    pub quick: bool,
    /// Attempts so far that do not count, since the machine was disturbed.
    pub(crate) uncounted: u32,
    progress: &'a mut dyn FnMut(&str),
}

impl<'a> Trial<'a> {
    /// An experiment whose result goes into `result`; `progress` is told each step in a line.
    pub fn new(result: ResultFile, quick: bool, progress: &'a mut dyn FnMut(&str)) -> Self {
        Self { result, quick, uncounted: 0, progress }
    }

    /// Tells what happens next.
    pub fn say(&mut self, text: &str) {
        (self.progress)(text);
    }

    /// Keeps a series.
    ///
    /// # Errors
    /// The name is taken, or a sample is not a number.
    pub fn keep(&mut self, name: &str, series: Series) -> Result<(), TrialError> {
        Ok(self.result.add_series(name, series)?)
    }

    /// Judges a claim about kept series, and tells the verdict.
    ///
    /// # Errors
    /// The claim names a series that is not there, or its rule does not take them.
    pub fn judge(&mut self, claim: Claim) -> Result<bool, TrialError> {
        let case = self.result.judge(claim)?;
        let verdict = if case.holds() { "holds" } else { "DOES NOT HOLD" };
        let (value, unit, bound) = (case.value(), case.unit(), case.bound());
        let line = format!(
            "{} {}: {} ({} {}) {verdict}",
            case.id(),
            case.name(),
            weir_result::quantity(value, unit),
            bound.op,
            weir_result::quantity(bound.value, unit),
        );
        let holds = case.holds();
        self.say(&line);
        Ok(holds)
    }

    /// Closes an experiment: a case `id` that holds if all cases since the first `before` do, by
    /// their verdicts as the series `ID/parts`.
    ///
    /// # Errors
    /// There is such a case or series already, or there are no cases to judge by.
    pub fn judge_parts(
        &mut self,
        before: usize,
        id: &str,
        title: &str,
    ) -> Result<bool, TrialError> {
        let parts = self.result.cases().get(before..).unwrap_or_default();
        let verdicts = parts.iter().map(|case| f64::from(u8::from(case.holds()))).collect();
        let name = format!("{id}/parts");
        self.keep(&name, Series::unordered("1", verdicts))?;
        self.judge(Claim::new(id, title, Rule::Min, Bound::equal(1.0)).of(&[name]))
    }
}
