// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of `docs/conformance.md`, from scenarios and code.

use std::fmt::Write;

use super::bounds::SuiteBounds;
use super::{ConformanceScenario, PLANES};

/// Returns the experiments as a table in Markdown.
pub fn experiments_table(experiments: &[ConformanceScenario]) -> String {
    let mut text = "| Experiment | What is done | What must hold |\n|---|---|---|\n".to_owned();
    for scenario in experiments {
        let bounds = with_bounds(&scenario.bounds);
        let does = scenario.does.trim();
        let _ = writeln!(text, "| `{}` | {does} | {bounds} |", scenario.name);
    }
    text
}

/// Returns the data planes as a table in Markdown.
pub fn planes_table(experiments: &[ConformanceScenario]) -> String {
    let mut text = "| Data plane | What it is | Skipped on it |\n|---|---|---|\n".to_owned();
    for plane in PLANES {
        let lacking = experiments.iter().filter_map(|scenario| {
            let why = scenario.needs.iter().find_map(|need| plane.abilities.lacks(*need))?;
            Some(format!("`{}` ({why})", scenario.name))
        });
        let lacking: Vec<_> = lacking.collect();
        let lacking = if lacking.is_empty() { "nothing".to_owned() } else { lacking.join(", ") };
        let _ = writeln!(text, "| `{}` | {} | {lacking} |", plane.name, plane.about);
    }
    text
}

/// Replaces the names of bounds, in braces, by their values.
fn with_bounds(text: &str) -> String {
    let suite = SuiteBounds::EXACT;
    let bounds = [
        ("{balance}", suite.balance.to_string()),
        ("{utilization}", format!("{:.0} %", suite.utilization * 100.0)),
        ("{guaranteed}", suite.guaranteed.to_string()),
        ("{rate_error}", format!("{:.1} %", suite.rate_error * 100.0)),
        ("{packet_rate_error}", format!("{:.0} %", suite.packet_rate_error * 100.0)),
        ("{delay_slack}", format!("{:.0} µs", suite.delay_slack_s * 1e6)),
        ("{follows_error}", format!("{:.0} %", (1.0 - suite.follows) * 100.0)),
    ];
    let replace = |text: String, (name, value): &(&str, String)| text.replace(name, value);
    bounds.iter().fold(text.trim().to_owned(), replace)
}
