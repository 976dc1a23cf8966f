// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The table at the end, for a person.

use std::fmt::Write;

use super::judge::Finding;

/// What became of one experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The experiment.
    pub experiment: &'static str,
    /// The error that came nearest to its bound, or went beyond it most.
    pub worst: Option<Finding>,
    /// The least utilization of the link, 0 to 1.
    pub utilization: Option<f64>,
    /// What came of it.
    pub verdict: Verdict,
}

/// What came of an experiment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All cases hold.
    Holds,
    /// A case does not.
    Broken,
    /// The data plane has no means for it, and why.
    Skipped(String),
    /// It could not be made, and why.
    NotMade(String),
}

impl Line {
    /// An experiment that was made.
    #[must_use]
    pub fn made(
        experiment: &'static str,
        findings: &[Finding],
        utilization: Option<f64>,
        holds: bool,
    ) -> Self {
        let worst = findings.iter().max_by(|a, b| a.of_bound().total_cmp(&b.of_bound())).cloned();
        let verdict = if holds { Verdict::Holds } else { Verdict::Broken };
        Self { experiment, worst, utilization, verdict }
    }

    /// An experiment that the data plane has no means for.
    #[must_use]
    pub const fn skipped(experiment: &'static str, why: String) -> Self {
        Self { experiment, worst: None, utilization: None, verdict: Verdict::Skipped(why) }
    }

    /// An experiment that could not be made.
    #[must_use]
    pub const fn not_made(experiment: &'static str, why: String) -> Self {
        Self { experiment, worst: None, utilization: None, verdict: Verdict::NotMade(why) }
    }

    fn cells(&self) -> [String; 6] {
        let none = || "-".to_owned();
        let of = |pick: fn(&Finding) -> f64| {
            let quantity = |worst: &Finding| quantity(pick(worst), &worst.unit);
            self.worst.as_ref().map_or_else(none, quantity)
        };
        [
            self.experiment.to_owned(),
            of(|worst| worst.error),
            of(|worst| worst.bound),
            self.utilization.map_or_else(none, |part| format!("{:.1} %", part * 100.0)),
            match &self.verdict {
                Verdict::Holds => "holds".to_owned(),
                Verdict::Broken => "BROKEN".to_owned(),
                Verdict::Skipped(why) => format!("skipped: {why}"),
                Verdict::NotMade(why) => format!("NOT MADE: {why}"),
            },
            self.worst.as_ref().map_or_else(String::new, |worst| worst.part.clone()),
        ]
    }
}

/// All experiments of a run, one a line, and a count of verdicts.
#[must_use]
pub fn table(lines: &[Line]) -> String {
    let head = ["experiment", "worst error", "bound", "utilization", "verdict", "worst at"];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(lines.iter().map(Line::cells));
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
    let count = |is: fn(&Verdict) -> bool| lines.iter().filter(|line| is(&line.verdict)).count();
    let _ = writeln!(
        text,
        "{} hold, {} broken, {} skipped, {} not made",
        count(|verdict| *verdict == Verdict::Holds),
        count(|verdict| *verdict == Verdict::Broken),
        count(|verdict| matches!(verdict, Verdict::Skipped(_))),
        count(|verdict| matches!(verdict, Verdict::NotMade(_))),
    );
    text
}

/// Fractions in per cent, the rest with a prefix.
fn quantity(value: f64, unit: &str) -> String {
    if unit == "1" { format!("{:.2} %", value * 100.0) } else { weir_result::quantity(value, unit) }
}
