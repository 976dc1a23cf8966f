// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recordings: what an experiment measured, and the claims that are judged on it.
//!
//! An experiment keeps *series* (raw samples) and makes *claims* (a rule over series and a bound).
//! Both go into one [`ResultFile`], so that every verdict can be computed again from its samples
//! alone. A claim without a series, a rule and a bound cannot be written down.
//!
//! Names are relative: a row of a table records below `TABLE.ROW/`, a conformance experiment below
//! `conformance.NAME/`, and neither has to know it. `weir-lab verify`, `conformance`, `reproduce`
//! and `demo` are readings of a recording.

use weir_result::{Bound, Claim, ResultFile, Rule, Series};

use crate::{Result, SimArm};

/// Collects the series, claims and notes of experiments into one result.
pub struct Recording<'a> {
    /// Samples, cases and notes recorded so far.
    pub result: ResultFile,
    /// True if runs are short and few: to see that an experiment works, not to trust its numbers.
    pub quick: bool,
    /// The parameters of runs in virtual time.
    pub sim: SimArm,
    /// Prefix of the names of series and cases.
    prefix: String,
    /// The number of attempts that do not count, since the machine was disturbed.
    pub(crate) uncounted: u32,
    progress: &'a mut dyn FnMut(&str),
}

impl<'a> Recording<'a> {
    /// Records into `result`; `progress` gets a line for each step and each verdict.
    pub fn new(result: ResultFile, quick: bool, progress: &'a mut dyn FnMut(&str)) -> Self {
        let (sim, prefix, uncounted) = (SimArm::default(), String::new(), 0);
        Self { result, quick, sim, prefix, uncounted, progress }
    }

    /// Makes all further runs in virtual time as `sim` says. Its seed is noted, so that they can be
    /// repeated from the result alone.
    pub fn set_sim(&mut self, sim: SimArm) {
        self.result.add_note(format!("virtual time, seed {}", sim.seed));
        self.sim = sim;
    }

    /// Reports progress.
    pub fn say(&mut self, text: &str) {
        (self.progress)(text);
    }

    /// Returns the full name of a series or case.
    pub fn name(&self, part: &str) -> String {
        format!("{}{part}", self.prefix)
    }

    /// Returns the row or experiment that is being recorded: `first-light.4`.
    pub fn id(&self) -> &str {
        self.prefix.trim_end_matches('/')
    }

    /// Runs `record` with `prefix` added to the prefix of all names.
    pub fn within<T>(&mut self, prefix: &str, record: impl FnOnce(&mut Self) -> T) -> T {
        let outer = self.prefix.len();
        self.prefix += prefix;
        let done = record(self);
        self.prefix.truncate(outer);
        done
    }

    /// Runs `record` without a prefix of names, for a caller that reads the result as well.
    pub fn with_full_names<T>(&mut self, record: impl FnOnce(&mut Self) -> T) -> T {
        let prefix = std::mem::take(&mut self.prefix);
        let done = record(self);
        self.prefix = prefix;
        done
    }

    /// Keeps a series. Fails if the name is taken or a sample is not a number.
    pub fn keep(&mut self, name: &str, series: Series) -> Result {
        Ok(self.result.add_series(&self.name(name), series)?)
    }

    /// Judges a claim about kept series. Fails if a series is not there or the rule does not take
    /// it; a claim that does not hold is a result, not a failure.
    pub fn judge(&mut self, claim: Claim) -> Result {
        self.verdict(claim).map(drop)
    }

    /// Judges a claim, and returns whether it holds.
    pub fn verdict(&mut self, mut claim: Claim) -> Result<bool> {
        claim.id = self.name(&claim.id);
        claim.series = claim.series.iter().map(|name| self.name(name)).collect();
        let case = self.result.judge(claim)?;
        let (value, unit, bound) = (case.value(), case.unit(), case.bound());
        let line = format!(
            "{} {}: {} ({} {}) {}",
            case.id(),
            case.name(),
            weir_result::quantity(value, unit),
            bound.op,
            weir_result::quantity(bound.value, unit),
            if case.holds() { "holds" } else { "DOES NOT HOLD" },
        );
        let holds = case.holds();
        self.say(&line);
        Ok(holds)
    }

    /// Judges `rule` over whole series against `bound`, as the case `id`.
    pub fn claim(
        &mut self,
        id: impl AsRef<str>,
        text: impl AsRef<str>,
        rule: Rule,
        bound: Bound,
        series: &[impl AsRef<str>],
    ) -> Result {
        self.judge(Claim::new(id.as_ref(), text.as_ref(), rule, bound).of(series))
    }

    /// Keeps samples under the name of a case, and judges `rule` over them.
    pub fn claim_samples(
        &mut self,
        id: impl AsRef<str>,
        text: impl AsRef<str>,
        series: Series,
        rule: Rule,
        bound: Bound,
    ) -> Result {
        self.keep(id.as_ref(), series)?;
        self.claim(id.as_ref(), text, rule, bound, &[id.as_ref()])
    }

    /// Keeps a count under the name of a case, and judges it.
    pub fn count(
        &mut self,
        id: impl AsRef<str>,
        text: impl AsRef<str>,
        count: u64,
        bound: Bound,
    ) -> Result {
        self.claim_samples(id, text, Series::count("1", count), Rule::Sum, bound)
    }

    /// Closes an experiment: a case `id` that holds if all cases since the first `before` do, by
    /// their verdicts as the series `ID/parts`. Fails if there are no cases to judge by.
    pub fn judge_parts(&mut self, before: usize, id: &str, title: &str) -> Result<bool> {
        let parts = self.result.cases().get(before..).unwrap_or_default();
        let verdicts = parts.iter().map(|case| f64::from(u8::from(case.holds()))).collect();
        let name = format!("{id}/parts");
        self.keep(&name, Series::unordered("1", verdicts))?;
        self.verdict(Claim::new(id, title, Rule::Min, Bound::equal(1.0)).of(&[name]))
    }
}
