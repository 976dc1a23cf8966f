// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The matrix of experiments and data planes: held, error, or why not.
//!
//! Each run of the suite can be kept as a column, a line of JSON in `docs/conformance.jsonl`. A
//! later run on the same data plane replaces the experiments that it ran; one of another form or on
//! another kernel replaces the column. The matrix of `docs/conformance.md` is made of these lines.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use weir_units::BitRate;

use super::table::{ExperimentLine, ExperimentVerdict, quantity};
use super::{ConformanceScenario, PLANES};

/// The outcome of one run of the suite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MatrixColumn {
    /// Name of the data plane.
    pub plane: String,
    /// Name and version of the kernel that it ran on, as in `Linux 6.18`.
    pub kernel: String,
    /// True if one variant of each experiment ran.
    pub quick: bool,
    /// The most that tenants were promised together, in bits a second, if runs were scaled down.
    pub rates_max_bps: Option<u64>,
    /// The experiments, in the suite's order.
    pub lines: Vec<ExperimentLine>,
}

/// Returns the columns of `text`, a line each, with `column` in place of an earlier run on its data
/// plane. They are in the order of [`PLANES`]. Experiments that did not run this time are kept, if
/// the earlier run had the same form and kernel.
///
/// # Errors
/// A line is no column.
pub fn with_column(text: &str, mut column: MatrixColumn) -> Result<String, serde_json::Error> {
    let mut columns = parse(text)?;
    if let Some(at) = columns.iter().position(|earlier| earlier.plane == column.plane) {
        let earlier = columns.remove(at);
        let is_same_form = (earlier.quick, earlier.rates_max_bps, &earlier.kernel)
            == (column.quick, column.rates_max_bps, &column.kernel);
        let ran = |line: &ExperimentLine| {
            column.lines.iter().any(|new| new.experiment == line.experiment)
        };
        let kept: Vec<_> =
            earlier.lines.into_iter().filter(|line| is_same_form && !ran(line)).collect();
        column.lines.extend(kept);
    }
    let place = |name: &str| super::names().position(|known| known == name);
    column.lines.sort_by_key(|line| place(&line.experiment));
    columns.push(column);
    sort(&mut columns);
    let mut text = String::new();
    for column in &columns {
        text += &serde_json::to_string(column)?;
        text.push('\n');
    }
    Ok(text)
}

/// Returns the columns of `text` as a table in Markdown.
///
/// # Errors
/// A line is no column.
pub fn matrix_table(
    text: &str,
    experiments: &[ConformanceScenario],
) -> Result<String, serde_json::Error> {
    let columns = parse(text)?;
    let heads = columns.iter().map(|column| format!(" {} |", column.head()));
    let mut text = format!("| Experiment |{}\n|---|", heads.collect::<String>());
    text += &"---|".repeat(columns.len());
    text.push('\n');
    for scenario in experiments {
        let cells = columns.iter().map(|column| format!(" {} |", column.cell(scenario)));
        let _ = writeln!(text, "| `{}` |{}", scenario.name, cells.collect::<String>());
    }
    Ok(text)
}

fn parse(text: &str) -> Result<Vec<MatrixColumn>, serde_json::Error> {
    let mut columns = text.lines().map(serde_json::from_str).collect::<Result<Vec<_>, _>>()?;
    sort(&mut columns);
    Ok(columns)
}

/// Orders columns as the data planes are.
fn sort(columns: &mut [MatrixColumn]) {
    columns.sort_by_key(|one| PLANES.iter().position(|plane| plane.name == one.plane));
}

impl MatrixColumn {
    fn head(&self) -> String {
        let form = if self.quick { "short form" } else { "all variants" };
        let scaled = self
            .rates_max_bps
            .map(|bps| format!(", scaled to {} and judged to 5 %", BitRate::from_bps(bps)));
        let scaled = scaled.unwrap_or_default();
        format!("`{}`, {}, {form}{scaled}", self.plane, self.kernel)
    }

    fn cell(&self, scenario: &ConformanceScenario) -> String {
        let Some(line) = self.lines.iter().find(|line| line.experiment == scenario.name) else {
            return "not run".to_owned();
        };
        let worst = line.worst.as_ref().map(|worst| {
            let [error, bound] =
                [worst.error, worst.bound].map(|value| quantity(value, &worst.unit));
            (format!("{error} (bound {bound})"), format!("`{}`", worst.case))
        });
        let (error, at) = worst.unwrap_or_default();
        let said = match &line.verdict {
            ExperimentVerdict::Holds => format!("holds: {error}"),
            ExperimentVerdict::Broken => format!("**broken**: {error} at {at}"),
            ExperimentVerdict::NotShown(part) => {
                format!("not shown: the machine did not bring `{part}`; {error} at {at}")
            }
            ExperimentVerdict::Skipped(why) => return format!("skipped: {why}"),
            ExperimentVerdict::NotMade(why) => return format!("not made: {why}"),
        };
        let is_function = self.rates_max_bps.is_some() && scenario.is_about_speed();
        if is_function { format!("{said}; function, not speed") } else { said }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn column(plane: &str, experiments: &[&str]) -> MatrixColumn {
        let line = |name: &&str| ExperimentLine::skipped(name, "why".to_owned());
        MatrixColumn {
            plane: plane.to_owned(),
            kernel: "Linux 6.12".to_owned(),
            quick: true,
            rates_max_bps: None,
            lines: experiments.iter().map(line).collect(),
        }
    }

    #[test]
    fn a_run_replaces_what_it_ran_and_columns_are_in_order() {
        let text = with_column("", column("kernel", &["weights", "fairness"])).unwrap();
        let text = with_column(&text, column("switch", &["delay"])).unwrap();
        let mut again = column("kernel", &["weights"]);
        again.lines = vec![ExperimentLine::not_made("weights", "late".to_owned())];
        let text = with_column(&text, again).unwrap();
        let columns = parse(&text).unwrap();
        let planes: Vec<&str> = columns.iter().map(|one| one.plane.as_str()).collect();
        assert_eq!(planes, ["switch", "kernel"]);
        let lines: Vec<&str> =
            columns[1].lines.iter().map(|line| line.experiment.as_str()).collect();
        assert_eq!(lines, ["fairness", "weights"]);
        let table = matrix_table(&text, &super::super::experiments().unwrap()).unwrap();
        assert!(table.contains("| `weights` | not run | not made: late |"), "{table}");
        assert!(table.contains("| `delay` | skipped: why | not run |"), "{table}");
    }

    #[test]
    fn another_form_replaces_the_whole_column() {
        let text = with_column("", column("kernel", &["weights", "fairness"])).unwrap();
        let longer = MatrixColumn { quick: false, ..column("kernel", &["weights"]) };
        let columns = parse(&with_column(&text, longer).unwrap()).unwrap();
        assert_eq!(columns[0].lines.len(), 1);
    }
}
