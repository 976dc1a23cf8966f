// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks PROMISES.md: every promise names tests or rows that hold it, and they exist.

use super::file::{SourceFile, StyleProblem};
use super::graph::missing;

/// A promise is an entry of a list. It ends with `*pending*`, or with `Held by` and, in backticks,
/// the names of tests (`fn NAME` under `#[test]`) or of rows of a table (`TABLE.ROW`).
pub(crate) fn promises(files: &[SourceFile]) -> Vec<StyleProblem> {
    let Some(file) = files.iter().find(|file| file.path == PAGE) else {
        return files.first().map(|file| missing(file, PAGE)).into_iter().collect();
    };
    let mut problems = Vec::new();
    for (line, promise) in entries(&file.text) {
        if promise.trim_end().ends_with("*pending*") {
            continue;
        }
        let Some((_, holders)) = promise.rsplit_once("Held by ") else {
            problems.push(file.problem(line, "a promise without 'Held by `TEST`' or '*pending*'"));
            continue;
        };
        let names: Vec<_> = holders.split('`').skip(1).step_by(2).collect();
        if names.is_empty() {
            problems.push(file.problem(line, "'Held by' names no test in backticks"));
        }
        for name in names.into_iter().filter(|name| !exists(files, name)) {
            problems.push(file.problem(line, format!("there is no test or row '{name}'")));
        }
    }
    problems
}

/// Returns the entries of the document's lists, each as one line, with the number of its first
/// line.
fn entries(text: &str) -> Vec<(usize, String)> {
    let mut entries: Vec<(usize, String)> = Vec::new();
    let mut open = false;
    for (index, line) in text.lines().enumerate() {
        if let Some(first) = line.strip_prefix("- ") {
            entries.push((index + 1, first.to_string()));
            open = true;
        } else if line.trim().is_empty() || !line.starts_with("  ") {
            open = false;
        } else if open && let Some((_, entry)) = entries.last_mut() {
            entry.push(' ');
            entry.push_str(line.trim());
        }
    }
    entries
}

fn exists(files: &[SourceFile], name: &str) -> bool {
    let mut sources = files.iter().filter(|file| file.has_extension(&["rs"]));
    match name.split_once('.') {
        Some((table, row)) => sources.any(|file| has_row(file, table, row)),
        None => sources.any(|file| has_test(file, name)),
    }
}

fn has_test(file: &SourceFile, name: &str) -> bool {
    let function = format!("fn {name}(");
    file.text.match_indices(&function).any(|(at, _)| {
        // Only other attributes and comments may stand between the attribute and the name.
        let before = &file.text[..at];
        before.rfind("#[test]").is_some_and(|attribute| !before[attribute..].contains('}'))
    })
}

/// The source of a table names it once, `const NAME: &str = "TABLE";`, and lists its rows as
/// calls of a function with number and title; identifiers are made from these two.
fn has_row(file: &SourceFile, table: &str, row: &str) -> bool {
    let code: String = file.text.chars().filter(|c| !c.is_whitespace()).collect();
    let named = code.contains(&format!("constNAME:&str=\"{table}\";"));
    let listed = code.contains(&format!("({row},\""));
    named && listed && row.chars().all(|c| c.is_ascii_digit())
}

const PAGE: &str = "PROMISES.md";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_names_what_holds_it() {
        let source = "#[test]\nfn is_held() {}\n\nfn no_test() {}\n\
            const NAME: &str = \"first-light\";\nrow(\n    2,\n    \"Title\"";
        let check = |promise: &str| {
            let files = [SourceFile::of("PROMISES.md", promise), SourceFile::of("a.rs", source)];
            promises(&files).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(check("- It holds. Held by `is_held`\n  and `first-light.2`.\n"), [""; 0]);
        assert_eq!(check("- It will.\n  *pending*\n"), [""; 0]);
        let unnamed = "PROMISES.md:1: a promise without 'Held by `TEST`' or '*pending*'";
        assert_eq!(check("- It holds.\n"), [unnamed]);
        let none = "PROMISES.md:2: there is no test or row 'no_test'";
        assert_eq!(check("\n- It holds. Held by `no_test`.\n"), [none]);
        let other = check("- It holds. Held by `is_held` and `first-light.3`.\n");
        assert_eq!(other, ["PROMISES.md:1: there is no test or row 'first-light.3'"]);
        let other = check("- It holds. Held by `second-light.2`.\n");
        assert_eq!(other, ["PROMISES.md:1: there is no test or row 'second-light.2'"]);
        assert_eq!(check("- It holds. Held by nobody.\n").len(), 1);
    }
}
