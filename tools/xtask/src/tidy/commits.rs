// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The form of commit messages: `component: Imperative subject`, a blank line, a body.

use std::process::Command;

use super::file::StyleProblem;
use crate::command;

/// Checks the commits that are not published yet, at most [`COMMITS`], without merges: those that
/// `origin` lacks or, without such a remote, those since [`BASE`]. Published commits cannot be
/// changed any more, and were checked before.
pub(crate) fn latest() -> Result<Vec<StyleProblem>, String> {
    let published = [PUBLISHED, BASE].into_iter().find(|revision| {
        let known = Command::new("git").args(["cat-file", "-e", revision]).output();
        known.is_ok_and(|known| known.status.success())
    });
    // A shallow clone may contain neither revision. Then only the latest commit is checked.
    let range = published.map_or_else(|| "-1".to_string(), |revision| format!("{revision}..HEAD"));
    let count = format!("--max-count={COMMITS}");
    // A zero byte, which no message contains, marks the end of each message.
    let mut arguments = vec!["log", "--no-merges", "--format=%h%n%B%x00", range.as_str()];
    if published.is_some() {
        arguments.push(&count);
    }
    let log = command::output(Command::new("git").args(arguments))?;
    let commits = log.split('\0').map(str::trim_start).filter(|commit| !commit.is_empty());
    Ok(commits
        .flat_map(|commit| {
            let (hash, message) = commit.split_once('\n').unwrap_or((commit, ""));
            let problem = move |(line, message)| StyleProblem {
                path: format!("commit {hash}"),
                line,
                message,
            };
            form(message.trim_end()).into_iter().map(problem)
        })
        .collect())
}

/// Returns the problems of a commit message, each with its line.
fn form(message: &str) -> Vec<(usize, String)> {
    let mut problems = Vec::new();
    let mut lines = message.lines();
    let subject = lines.next().unwrap_or_default();
    let columns = subject.chars().count();
    if columns > SUBJECT_MAX {
        problems.push((1, format!("subject of {columns} columns, at most {SUBJECT_MAX}")));
    }
    if !has_form(subject) {
        problems.push((1, format!("subject '{subject}' is not 'component: Imperative …'")));
    }
    if lines.next().is_some_and(|second| !second.is_empty()) {
        problems.push((2, "the line behind the subject must be empty".to_string()));
    }
    for (index, line) in lines.enumerate() {
        let columns = line.chars().count();
        // An address cannot be wrapped.
        if columns > BODY_MAX && !line.contains("://") {
            problems.push((index + 3, format!("{columns} columns, at most {BODY_MAX}")));
        }
    }
    problems
}

/// Checks the form `component[, component]: Word …`: the word begins with a capital letter and is
/// an imperative, and there is no full stop.
fn has_form(subject: &str) -> bool {
    let Some((components, what)) = subject.split_once(": ") else { return false };
    let component = |name: &str| {
        let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_./".contains(c);
        !name.is_empty() && name.chars().all(good)
    };
    let verb = what.split(' ').next().unwrap_or_default();
    let other_mood = verb.ends_with("ing") || verb.ends_with("ed");
    components.split(", ").all(component)
        && verb.starts_with(|c: char| c.is_uppercase())
        && (!other_mood || IMPERATIVES.contains(&verb))
        && !what.ends_with('.')
}

/// The reference of the published branch.
const PUBLISHED: &str = "refs/remotes/origin/main";
/// The first few hundred commits were made before all of them were judged.
const BASE: &str = "849e56d8554e8bafbaa7e84fc60a2d1dcb4f2394";
const COMMITS: usize = 100;
const SUBJECT_MAX: usize = 65;
const BODY_MAX: usize = 72;

/// Imperatives that end like participles.
const IMPERATIVES: &[&str] =
    &["Bring", "Embed", "Exceed", "Feed", "Need", "Ping", "Seed", "Shed", "Speed", "Spring"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_messages_pass() {
        for message in [
            "units, sched: Lay down the units\n\nWhy, and how big.",
            "lock: Update",
            ".ci/run: Feed the cache",
            "x: Y\n\nhttps://example.org/an/address/that/is/longer/than/seventy-two/columns/by/far",
        ] {
            assert_eq!(form(message), [], "{message}");
        }
    }

    #[test]
    fn each_fault_is_named() {
        let long = format!("a: B{}", "c".repeat(62));
        assert_eq!(form(&long), [(1, "subject of 66 columns, at most 65".to_string())]);
        for subject in
            ["no component", "a: lower", "A: Upper", "a: Added x", "a: Adding x", "a: B."]
        {
            let message = format!("subject '{subject}' is not 'component: Imperative …'");
            assert_eq!(form(subject), [(1, message)]);
        }
        let second = "the line behind the subject must be empty".to_string();
        assert_eq!(form("a: B\nc"), [(2, second)]);
        let wide = format!("a: B\n\nok\n{}", "c".repeat(73));
        assert_eq!(form(&wide), [(4, "73 columns, at most 72".to_string())]);
    }
}
