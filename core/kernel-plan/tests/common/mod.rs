// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plans as text, beside files that hold them.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use weir_kernel_plan::{KernelPlan, KernelProblem, KernelSetup, UnheldKey};

/// The plan from nothing, with the keys that are not held and the vifs that wait.
pub(crate) fn plan_text(setup: &KernelSetup, unheld: &[UnheldKey], waiting: &[String]) -> String {
    let mut text = KernelPlan::between(&KernelSetup::default(), setup).to_string();
    for key in unheld {
        writeln!(text, "# not held: {key}").unwrap();
    }
    for vif in waiting {
        writeln!(text, "# vif {vif} waits for its device").unwrap();
    }
    text
}

/// Why there is no plan.
pub(crate) fn refusal_text(problems: &[KernelProblem]) -> String {
    problems.iter().map(|problem| format!("# NOT POSSIBLE: {problem}\n")).collect()
}

/// Compares a text with the file that holds it; with `WEIR_BLESS=1` the file is written instead.
/// Returns the difference.
pub(crate) fn difference(expected: &Path, text: &str) -> Option<String> {
    if std::env::var_os("WEIR_BLESS").is_some_and(|value| value == "1") {
        fs::write(expected, text).unwrap();
        return None;
    }
    let same = fs::read_to_string(expected).unwrap_or_default() == text;
    (!same).then(|| format!("{}: got\n{text}", expected.display()))
}
