// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The README's picture and table, from a run of the demo in which every case held.

use std::fs;
use std::process::Command;

use crate::command::{output, show};
use crate::tools;

/// Runs the demo, refuses it if a case does not hold, then copies its chart to `docs/img` and puts
/// its table between the README's markers.
pub(crate) fn renew() -> Result<(), String> {
    tools::build()?;
    let mut demo = Command::new(tools::lab_path());
    show(demo.arg("demo"));
    let table = output(&mut demo)?;
    let result = read("out/demo/result.json")?;
    write("docs/img/demo.svg", &read("out/demo/throughput.svg")?)?;
    let readme = replace(&read("README.md")?, &block(&table, &result))?;
    write("README.md", &readme)
}

/// Returns the printed table with a line on the run: day, commit, machine.
fn block(table: &str, result: &str) -> String {
    let (day, _) = value(result, "start").split_once('T').unwrap_or_default();
    let commit: String = value(result, "commit").chars().take(12).collect();
    let [cores, cpu, kernel] = ["cores", "cpu", "kernel"].map(|key| value(result, key));
    let table = table.trim();
    format!(
        "```text\n{table}\n```\n\n`./x demo` on {day}, commit {commit}: {cores} cores of an {cpu}, \
         {kernel}.\n"
    )
}

/// Returns the value of a key that a result file has once, before its series; empty without one.
fn value<'a>(result: &'a str, key: &str) -> &'a str {
    let found = result.split_once(&format!("\"{key}\":")).map_or("", |(_, rest)| rest).trim_start();
    let end = match found.strip_prefix('"') {
        Some(text) => return text.split('"').next().unwrap_or_default(),
        None => found.find([',', '}', '\n']).unwrap_or(found.len()),
    };
    found[..end].trim_end()
}

/// Returns the text with the part between the markers replaced.
fn replace(text: &str, block: &str) -> Result<String, String> {
    let missing = || format!("README.md: no lines '{BEGIN}' and '{END}'");
    let (before, rest) = text.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}\n\n{block}\n{END}{after}"))
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

fn write(path: &str, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{path}: {error}"))
}

const BEGIN: &str = "<!-- demo: ./x picture -->";
const END: &str = "<!-- end of demo -->";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_a_result_file() {
        let spread = "{\n  \"machine\": {\n    \"cpu\": \"A, B\",\n    \"cores\": 2\n  },\n";
        let dense = r#"{"machine":{"cpu":"A, B","cores":2},"kernel":"C"}"#;
        for result in [spread, dense] {
            assert_eq!(["cpu", "cores", "none"].map(|key| value(result, key)), ["A, B", "2", ""]);
        }
    }

    #[test]
    fn only_what_stands_between_the_markers_changes() {
        let text = format!("a\n{BEGIN}\nold\n{END}\nb\n");
        let new = replace(&text, "new\n").unwrap();
        assert_eq!(new, format!("a\n{BEGIN}\n\nnew\n\n{END}\nb\n"));
        assert_eq!(replace(&new, "new\n").unwrap(), new);
        assert!(replace("a\n", "new\n").is_err());
    }
}
