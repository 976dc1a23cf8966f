// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules on one source file: width, licence, length, left-overs.

use super::file::{SourceFile, StyleProblem};
use super::mask::{line_of_word, mask};

/// A line has at most 100 columns. In a document, tables, links and code may be wider.
pub(crate) fn columns(file: &SourceFile) -> Vec<StyleProblem> {
    let document = file.has_extension(&["md"]);
    if !document
        && !file.has_extension(&["rs", "c", "h", "ts", "mjs", "svelte", "toml"])
        && !file.is_script()
    {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let mut fenced = false;
    for (index, line) in file.text.lines().enumerate() {
        fenced ^= document && line.trim_start().starts_with("```");
        let wide =
            line.contains("](") || line.contains("://") || line.trim_start().starts_with('|');
        let columns = line.chars().count();
        if columns > COLUMNS_MAX && !(document && (fenced || wide)) {
            let message = format!("{columns} columns, at most {COLUMNS_MAX}");
            problems.push(file.problem(index + 1, message));
        }
    }
    problems
}

/// Every source begins with its licence in one line; a script has it after its `#!`.
pub(crate) fn licence(file: &SourceFile) -> Vec<StyleProblem> {
    if !file.has_extension(&["rs", "c", "h", "ts", "mjs", "svelte"]) && !file.is_script() {
        return Vec::new();
    }
    let line = if file.text.starts_with("#!/") { 2 } else { 1 };
    let found = file.text.lines().nth(line - 1).unwrap_or_default();
    if found.contains(LICENCE) {
        return Vec::new();
    }
    vec![file.problem(line, format!("must be '{LICENCE}' in a comment, not '{found}'"))]
}

/// A file is at most 600 lines before its inline tests, that of a scheduler at most 300. The page's
/// types are written by a program, which nobody reads from top to bottom.
pub(crate) fn file_length(file: &SourceFile) -> Vec<StyleProblem> {
    let in_tests = file.path.contains("/tests/") || file.path.contains("/benches/");
    let written = file.path == GENERATED_TYPES;
    if in_tests || written || !file.has_extension(&["rs", "c", "h", "ts", "mjs", "svelte"]) {
        return Vec::new();
    }
    let text = implementation(&file.text);
    let in_sched = file.path.starts_with("core/sched/src/");
    let scheduler = in_sched && (text.contains(" Scheduler for ") || file.path.contains("/hfsc/"));
    let most = if scheduler { SCHEDULER_LINES_MAX } else { FILE_LINES_MAX };
    let lines = text.lines().count();
    if lines <= most {
        return Vec::new();
    }
    vec![file.problem(lines, format!("{lines} lines before the tests, at most {most}"))]
}

/// Nothing temporary is left: marks of unfinished work, debug prints, silenced warnings.
pub(crate) fn left_over(file: &SourceFile) -> Vec<StyleProblem> {
    if !file.has_extension(&["rs", "c", "h", "ts", "mjs", "svelte", "toml", "md"])
        && !file.is_script()
    {
        return Vec::new();
    }
    let mut problems = Vec::new();
    for (mark, instead) in MARKS {
        if let Some(line) = line_of_word(&file.text, mark) {
            problems.push(file.problem(line, format!("'{mark}': {instead}")));
        }
    }
    if file.has_extension(&["rs"]) {
        let code = mask(&file.text);
        for (word, instead) in WORDS {
            // A module that several test programs share is used in part by each.
            let shared = file.path.contains("/tests/common/") && word.ends_with("dead_code");
            if let Some(line) = line_of_word(&code, word).filter(|_| !shared) {
                problems.push(file.problem(line, format!("'{word}': {instead}")));
            }
        }
    }
    problems
}

/// The text before the first inline test module.
pub(crate) fn implementation(text: &str) -> &str {
    let mut start = 0;
    let mut lines = text.split_inclusive('\n').peekable();
    while let Some(line) = lines.next() {
        let next = lines.peek().map_or("", |next| next.trim());
        if line.trim() == "#[cfg(test)]" && inline_module(next, lines.clone().nth(1)) {
            return &text[..start];
        }
        start += line.len();
    }
    text
}

/// Returns true for `mod tests {`, perhaps after one more attribute.
fn inline_module(first: &str, second: Option<&str>) -> bool {
    let module = |line: &str| line.starts_with("mod ") && line.ends_with('{');
    module(first) || (first.starts_with("#[") && second.is_some_and(|line| module(line.trim())))
}

const COLUMNS_MAX: usize = 100;
const FILE_LINES_MAX: usize = 600;
/// The page's types, from the OpenAPI document.
const GENERATED_TYPES: &str = "web/src/lib/api.ts";
/// A scheduler is one algorithm in one file, short enough to be read in one go.
const SCHEDULER_LINES_MAX: usize = 300;
const LICENCE: &str = concat!("SPDX-License", "-Identifier: Apache-2.0 OR MIT");

/// Refused anywhere, in comments too. Cut in two, so that this file passes.
const MARKS: &[(&str, &str)] = &[
    (concat!("TO", "DO"), "do it, or write down under 'not supported' that it is missing"),
    (concat!("FIX", "ME"), "repair it"),
    (concat!("XX", "X"), "say what is meant"),
];

/// Refused in code.
const WORDS: &[(&str, &str)] = &[
    ("dbg!", "use an assertion, or remove it"),
    ("allow(unused", "remove what is unused"),
    ("allow(dead_code", "remove what is dead"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(rule: fn(&SourceFile) -> Vec<StyleProblem>, path: &str, text: &str) -> Vec<String> {
        rule(&SourceFile::of(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn columns_are_counted_in_characters() {
        let wide = |width: usize| format!("ok\n{}\n", "ä".repeat(width));
        assert_eq!(messages(columns, "a.rs", &wide(100)), [""; 0]);
        assert_eq!(messages(columns, "a.rs", &wide(101)), ["a.rs:2: 101 columns, at most 100"]);
        assert_eq!(messages(columns, "a.md", &wide(101)), ["a.md:2: 101 columns, at most 100"]);
        assert_eq!(messages(columns, "a.json", &wide(101)), [""; 0]);
        let table = format!("| {} |\n", "a".repeat(200));
        assert_eq!(messages(columns, "a.md", &table), [""; 0]);
        let fenced = format!("```\n{}```\n", wide(200));
        assert_eq!(messages(columns, "a.md", &fenced), [""; 0]);
    }

    #[test]
    fn the_licence_is_the_first_line() {
        let line = format!("// {LICENCE}\n");
        assert_eq!(messages(licence, "a.rs", &line), [""; 0]);
        assert_eq!(messages(licence, "run", &format!("#!/bin/sh\n# {LICENCE}\n")), [""; 0]);
        let late = messages(licence, "a.c", &format!("\n{line}"));
        assert_eq!(late, [format!("a.c:1: must be '{LICENCE}' in a comment, not ''")]);
        assert_eq!(messages(licence, "a.md", "# A"), [""; 0]);
    }

    #[test]
    fn only_lines_before_the_tests_count() {
        let tests = "#[cfg(test)]\nmod tests {\n}\n".to_string() + &"\n".repeat(900);
        let file = |lines: usize| "\n".repeat(lines) + &tests;
        assert_eq!(messages(file_length, "a.rs", &file(600)), [""; 0]);
        let long = ["a.rs:601: 601 lines before the tests, at most 600"];
        assert_eq!(messages(file_length, "a.rs", &file(601)), long);
        let path = "core/sched/src/a.rs";
        assert_eq!(messages(file_length, path, &file(301)), [""; 0]);
        let scheduler = "impl Scheduler for A {}\n".to_string() + &file(300);
        let long = format!("{path}:301: 301 lines before the tests, at most 300");
        assert_eq!(messages(file_length, path, &scheduler), [long]);
        assert_eq!(messages(file_length, "crates/a/tests/b.rs", &"\n".repeat(999)), [""; 0]);
        // A module in a file of its own does not end the implementation.
        let declared = "#[cfg(test)]\nmod tests;\n".to_string() + &"\n".repeat(600);
        assert_eq!(messages(file_length, "a.rs", &declared).len(), 1);
    }

    #[test]
    fn left_overs_are_named_with_what_to_do() {
        for (mark, instead) in MARKS {
            let text = format!("ok\n// {mark}: later\n");
            let expected = [format!("a.rs:2: '{mark}': {instead}")];
            assert_eq!(messages(left_over, "a.rs", &text), expected);
            assert_eq!(messages(left_over, "a.rs", &format!("{mark}ED")), [""; 0]);
        }
        for (word, instead) in WORDS {
            let text = format!("{word}(x)\n");
            assert_eq!(
                messages(left_over, "a.rs", &text),
                [format!("a.rs:1: '{word}': {instead}")]
            );
            assert_eq!(messages(left_over, "a.rs", &format!("// {word}\n")), [""; 0]);
        }
    }
}
