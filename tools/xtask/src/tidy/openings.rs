// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A doc comment opens with its subject or a verb, not with a word that makes a riddle of it.
//!
//! It is an alarm, not a judge: a count above its bound says that a habit is back.

use super::file::{SourceFile, StyleProblem};

/// Each doc comment whose first word is one of [`OPENINGS`].
pub(crate) fn openings(file: &SourceFile) -> Vec<StyleProblem> {
    if !file.has_extension(&["rs", "ts", "h", "c"]) {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let mut is_first = true;
    for (index, line) in file.text.lines().enumerate() {
        let text = ["/// ", "//! ", "/** ", " * "].iter().find_map(|lead| {
            let line = if *lead == " * " { line } else { line.trim_start() };
            line.strip_prefix(lead)
        });
        let Some(text) = text else {
            is_first = true;
            continue;
        };
        let opening = OPENINGS.iter().find(|word| text.starts_with(**word));
        if let Some(word) = opening.filter(|_| is_first) {
            problems
                .push(file.problem(index + 1, format!("a comment opens with '{}'", word.trim())));
        }
        is_first = text.trim().is_empty() || text.starts_with("# ");
    }
    problems
}

/// Openings that `CONTRIBUTING.md` warns of.
const OPENINGS: &[&str] = &[
    "What ",
    "Of ",
    "Whether ",
    "The same ",
    "Those ",
    "As ",
    "Who ",
    "Whoever ",
    "Whatever ",
    "Where ",
    "How ",
    "Which ",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_opening_counts_once_a_paragraph() {
        let text =
            "/// What it is.\n/// Of all.\n///\n/// Those.\nfn f() {}\n/// Returns what it is.\n";
        assert_eq!(openings(&SourceFile::of("a.rs", text)).len(), 1);
    }
}
