// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The tables of `docs/conformance.md`, from the code.

use std::fmt::Write;

use super::{EXPERIMENTS, plane};

/// The experiments as a table in Markdown.
#[must_use]
pub fn experiments() -> String {
    let mut text = "| Experiment | What is done | What must hold |\n|---|---|---|\n".to_owned();
    for experiment in EXPERIMENTS {
        let bounds = (experiment.bounds)();
        let _ = writeln!(text, "| `{}` | {} | {bounds} |", experiment.name, experiment.does);
    }
    text
}

/// The data planes as a table in Markdown.
#[must_use]
pub fn planes() -> String {
    let mut text = "| Data plane | What it is | Skipped on it |\n|---|---|---|\n".to_owned();
    for plane in plane::all() {
        let lacking = EXPERIMENTS.iter().filter_map(|experiment| {
            let why = experiment.needs.iter().find_map(|need| plane.lacks(*need))?;
            Some(format!("`{}` ({why})", experiment.name))
        });
        let lacking: Vec<_> = lacking.collect();
        let lacking = if lacking.is_empty() { "nothing".to_owned() } else { lacking.join(", ") };
        let _ = writeln!(text, "| `{}` | {} | {lacking} |", plane.name(), plane.about());
    }
    text
}
