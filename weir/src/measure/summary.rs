// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lines that a measurement prints: the throughputs, each with how its search ended.

use std::path::PathBuf;

use weir_tester::MeasurementReport;

use super::report_files::PAGE;

/// Returns the summary of a report whose files are in `out`, if they are written.
pub(super) fn text(report: &MeasurementReport, out: Option<&PathBuf>) -> String {
    let goal_width = "loss 0.000%, exceed 00%".len();
    let mut text = format!(
        "{:>8}  {:>10}  {:>12}  {:goal_width$}  {}\n",
        "frame", "packets/s", "upper", "goal", "result"
    );
    for size in &report.suite.sizes {
        for result in &size.goals {
            let upper = result.upper.map_or_else(|| "-".to_owned(), |upper| upper.to_string());
            let goal = format!("loss {}, exceed {}", result.goal.loss, result.goal.exceed);
            text += &format!(
                "{:>8}  {:>10}  {upper:>12}  {goal:goal_width$}  {}\n",
                size.profile.sizes.to_string(),
                result.throughput(),
                report.end_text(size, result)
            );
        }
    }
    for one in report.repetitions() {
        text += &format!(
            "{:>8}  {:>10}  median of {}, {} to {}, {} finished, {} bounded by the tester; \
             loss {}, exceed {}\n",
            one.sizes.to_string(),
            one.median,
            one.count,
            one.min,
            one.max,
            one.finished,
            one.tester_bound,
            one.goal.loss,
            one.goal.exceed
        );
    }
    let place = out.map(|out| format!("report: {}\n", out.join(PAGE).display()));
    text + &place.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use weir_units::Nanos;

    use super::*;
    use crate::measure::tests::report;

    /// Goal: the terminal says which searches are done, and has one figure of all repetitions.
    #[test]
    fn the_summary_says_how_each_search_ended() {
        let out = Some(&PathBuf::from("out"));
        let done = text(&report(Nanos::from_secs(30)), out);
        assert_eq!(done.matches("  regular\n").count(), 3, "{done}");
        assert!(done.contains("median of 3,") && done.contains("3 finished"), "{done}");
        let cut = text(&report(Nanos::from_millis(500)), out);
        assert_eq!(cut.matches("not finished: time was up").count(), 3, "{cut}");
        assert!(cut.contains("0 finished"), "{cut}");
    }
}
