// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of a page of metrics, and of the rules and dashboards that name them: for the pages of
//! the node and of the broker.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Asserts that a file of `packaging/` names only metrics and labels that a page has.
pub(crate) fn names_only_what_there_is(file: &str, page: &str) {
    let known = known(page);
    let text = std::fs::read_to_string(packaging(file)).unwrap();
    let found = selectors(&text);
    assert!(found.len() >= 8, "{file}: {found:?}");
    for (name, labels) in found {
        let has = known.get(&name).unwrap_or_else(|| panic!("{file}: there is no {name}"));
        for label in labels {
            let given = label == "instance" || label == "job";
            assert!(given || has.contains(&label), "{file}: {name} has no label {label}");
        }
    }
    // The check bites.
    assert_eq!(
        selectors("rate(weir_x_total{a=\"b\", c=~\\\"d\\\"}[5m])"),
        [("weir_x_total".to_owned(), vec!["a".to_owned(), "c".to_owned()])]
    );
}

/// Has Prometheus' own checker read a page, where it is.
pub(crate) fn promtool_takes(page: &str) {
    let Some(mut check) = promtool(["check", "metrics"]) else { return };
    check.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = check.spawn().unwrap();
    child.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let checked = child.wait_with_output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

/// Has Prometheus' own checker read a file of rules in `packaging/`, where it is.
pub(crate) fn promtool_takes_rules(file: &str) {
    let Some(mut check) = promtool(["check", "rules"]) else { return };
    let checked = check.arg(packaging(file)).output().unwrap();
    assert!(checked.status.success(), "{checked:?}");
}

/// Returns the command that begins with these words; none without Prometheus, which is said.
fn promtool(words: [&str; 2]) -> Option<Command> {
    if Command::new("promtool").arg("--version").output().is_err() {
        println!("SKIPPED promtool_finds_nothing_wrong: Debian's package prometheus is not here");
        return None;
    }
    let mut command = Command::new("promtool");
    command.args(words);
    Some(command)
}

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

/// A metric's name and the labels that it has.
pub(crate) fn known(page: &str) -> BTreeMap<String, BTreeSet<String>> {
    let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let (series, _) = line.rsplit_once(' ').unwrap();
        let (name, labels) = series.split_once('{').unwrap_or((series, ""));
        let entry = known.entry(name.to_owned()).or_default();
        let labels = labels.trim_end_matches('}').split(',').filter(|label| !label.is_empty());
        entry.extend(labels.map(|label| label.split_once('=').unwrap().0.to_owned()));
    }
    known
}

/// The metrics that a text names, each with the labels behind it in braces.
fn selectors(text: &str) -> Vec<(String, Vec<String>)> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found = Vec::new();
    for (at, _) in text.match_indices("weir_") {
        if text[..at].ends_with(is_word) {
            continue;
        }
        let rest = &text[at..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (name, behind) = rest.split_at(end);
        let braces = behind.strip_prefix('{').and_then(|inside| inside.split_once('}'));
        let matchers = braces.map_or("", |(inside, _)| inside).split(',');
        let label =
            |one: &str| Some(one.split_once('=')?.0.trim().trim_end_matches('!').to_owned());
        found.push((name.to_owned(), matchers.filter_map(label).collect()));
    }
    found
}
