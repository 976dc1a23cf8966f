// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table at the end, for a person.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::judge::{BoundError, JudgeFindings};

/// The outcome of one experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ExperimentLine {
    /// The experiment.
    pub experiment: String,
    /// The error that came nearest to its bound, or went beyond it most.
    pub(super) worst: Option<BoundError>,
    /// The least utilization of the link, 0 to 1.
    pub utilization: Option<f64>,
    /// Its verdict.
    pub verdict: ExperimentVerdict,
}

/// The verdict on an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExperimentVerdict {
    /// All cases hold.
    Holds,
    /// A case does not.
    Broken,
    /// The senders did not send what they were to, so nothing follows; by which case.
    NotShown(String),
    /// The data plane has no means for it, and why.
    Skipped(String),
    /// It could not be made, and why.
    NotMade(String),
}

impl ExperimentLine {
    /// An experiment that was made.
    pub(super) fn made(experiment: &str, found: JudgeFindings, holds: bool) -> Self {
        // The table says the experiment beside.
        let short = |case: &str| {
            let prefix = format!("conformance.{experiment}/");
            case.strip_prefix(&prefix).unwrap_or(case).to_owned()
        };
        let JudgeFindings { findings, utilization, missing } = found;
        let worst = findings.into_iter().max_by(|a, b| a.of_bound().total_cmp(&b.of_bound()));
        let worst = worst.map(|error| BoundError { case: short(&error.case), ..error });
        let verdict = match missing {
            Some(case) => ExperimentVerdict::NotShown(short(&case)),
            None if holds => ExperimentVerdict::Holds,
            None => ExperimentVerdict::Broken,
        };
        Self { experiment: experiment.to_owned(), worst, utilization, verdict }
    }

    /// An experiment that the data plane has no means for.
    pub fn skipped(experiment: &str, why: String) -> Self {
        Self::unmade(experiment, ExperimentVerdict::Skipped(why))
    }

    /// An experiment that could not be made.
    pub fn not_made(experiment: &str, why: String) -> Self {
        Self::unmade(experiment, ExperimentVerdict::NotMade(why))
    }

    fn unmade(experiment: &str, verdict: ExperimentVerdict) -> Self {
        Self { experiment: experiment.to_owned(), worst: None, utilization: None, verdict }
    }

    fn cells(&self) -> [String; 6] {
        let none = || "-".to_owned();
        let of = |pick: fn(&BoundError) -> f64| {
            let quantity = |worst: &BoundError| quantity(pick(worst), &worst.unit);
            self.worst.as_ref().map_or_else(none, quantity)
        };
        [
            self.experiment.clone(),
            of(|worst| worst.error),
            of(|worst| worst.bound),
            self.utilization.map_or_else(none, |part| format!("{:.1} %", part * 100.0)),
            match &self.verdict {
                ExperimentVerdict::Holds => "holds".to_owned(),
                ExperimentVerdict::Broken => "BROKEN".to_owned(),
                ExperimentVerdict::NotShown(part) => format!("NOT SHOWN: {part}"),
                ExperimentVerdict::Skipped(why) => format!("skipped: {why}"),
                ExperimentVerdict::NotMade(why) => format!("NOT MADE: {why}"),
            },
            self.worst.as_ref().map_or_else(String::new, |worst| worst.case.clone()),
        ]
    }
}

/// All experiments of a run, one a line, and a count of verdicts.
pub fn table(lines: &[ExperimentLine]) -> String {
    let head = ["experiment", "worst error", "bound", "utilization", "verdict", "worst at"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(lines.iter().map(ExperimentLine::cells));
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            // What is said of a skipped experiment is last in its line.
            let is_long = cell.contains(": ");
            *width = (*width).max(if is_long { 0 } else { cell.chars().count() });
        }
    }
    let [w0, w1, w2, w3, w4, _] = widths;
    let mut text = String::new();
    for [name, error, bound, utilization, verdict, part] in rows {
        let line = format!(
            "{name:w0$}  {error:>w1$}  {bound:>w2$}  {utilization:>w3$}  {verdict:w4$}  {part}"
        );
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let count =
        |is: fn(&ExperimentVerdict) -> bool| lines.iter().filter(|line| is(&line.verdict)).count();
    let _ = writeln!(
        text,
        "{} hold, {} broken, {} not shown, {} skipped, {} not made",
        count(|verdict| *verdict == ExperimentVerdict::Holds),
        count(|verdict| *verdict == ExperimentVerdict::Broken),
        count(|verdict| matches!(verdict, ExperimentVerdict::NotShown(_))),
        count(|verdict| matches!(verdict, ExperimentVerdict::Skipped(_))),
        count(|verdict| matches!(verdict, ExperimentVerdict::NotMade(_))),
    );
    text
}

/// Fractions in per cent, the rest with a prefix.
pub(super) fn quantity(value: f64, unit: &str) -> String {
    if unit == "1" { format!("{:.2} %", value * 100.0) } else { weir_result::quantity(value, unit) }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn finding(case: &str, error: f64, bound: f64) -> BoundError {
        let (case, unit) = (case.to_owned(), "1".to_owned());
        BoundError { case, error, bound, unit, holds: error <= bound }
    }

    #[test]
    fn the_error_nearest_to_its_bound_stands_for_the_experiment() {
        let findings = vec![finding("a", 0.004, 0.01), finding("b", 0.001, 0.002)];
        let found = JudgeFindings { findings, utilization: Some(0.995), missing: None };
        let lines = [
            ExperimentLine::made("fairness", found.clone(), true),
            ExperimentLine::made(
                "minimum",
                JudgeFindings { missing: Some("x/asked".to_owned()), ..found },
                false,
            ),
            ExperimentLine::skipped("delay", "delay bounds: none".to_owned()),
        ];
        let text = table(&lines);
        let expected = "\
experiment  worst error   bound  utilization  verdict  worst at
fairness         0.10 %  0.20 %       99.5 %  holds    b
minimum          0.10 %  0.20 %       99.5 %  NOT SHOWN: x/asked  b
delay                 -       -            -  skipped: delay bounds: none
1 hold, 0 broken, 1 not shown, 1 skipped, 0 not made
";
        assert_eq!(text, expected);
    }
}
