// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules on documents: one title, links that lead somewhere, the form of the changelog.

use std::collections::BTreeSet;

use super::file::{SourceFile, StyleProblem};

/// A document begins with its only title.
pub(crate) fn one_title(file: &SourceFile) -> Vec<StyleProblem> {
    if !file.has_extension(&["md"]) {
        return Vec::new();
    }
    let titles: Vec<_> = prose(&file.text).filter(|(_, line)| line.starts_with("# ")).collect();
    let first = file.text.lines().position(|line| !line.trim().is_empty()).unwrap_or(0);
    match titles.as_slice() {
        [] => vec![file.problem(1, "has no title: one line '# …'")],
        [(line, _)] if *line != first + 1 => {
            vec![file.problem(*line, "the title must be the first line")]
        }
        [_, others @ ..] => {
            let second = |(line, title): &(usize, &str)| {
                file.problem(*line, format!("a second title '{title}': a document has one"))
            };
            others.iter().map(second).collect()
        }
    }
}

/// The changelog has the form of Keep a Changelog 1.1: an unreleased part, dated versions, known
/// groups.
pub(crate) fn changelog(file: &SourceFile) -> Vec<StyleProblem> {
    if file.path != "CHANGELOG.md" {
        return Vec::new();
    }
    let mut problems = Vec::new();
    let mut unreleased = false;
    for (line, text) in prose(&file.text) {
        if let Some(version) = text.strip_prefix("## ") {
            unreleased |= version == "[Unreleased]";
            if version != "[Unreleased]" && !is_dated_version(version) {
                let form = "must be '[Unreleased]' or '[1.2.3] - 2026-12-31'";
                problems.push(file.problem(line, format!("version '{version}' {form}")));
            }
        } else if let Some(group) = text.strip_prefix("### ")
            && !CHANGELOG_GROUPS.contains(&group)
        {
            let groups = CHANGELOG_GROUPS.join(", ");
            problems.push(file.problem(line, format!("group '{group}' is none of {groups}")));
        }
    }
    if !unreleased {
        problems.push(file.problem(1, "has no version '[Unreleased]'"));
    }
    problems
}

/// A relative link leads to a file of the repository, and to a heading that is in it.
pub(crate) fn links(files: &[SourceFile]) -> Vec<StyleProblem> {
    let mut known: BTreeSet<&str> = files.iter().map(|file| file.path.as_str()).collect();
    for file in files {
        let parents = file.path.match_indices('/').map(|(at, _)| &file.path[..at]);
        known.extend(parents);
    }
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.has_extension(&["md"])) {
        for (line, text) in prose(&file.text) {
            for target in targets(text) {
                if let Some(message) = dead(file, target, &known, files) {
                    problems.push(file.problem(line, message));
                }
            }
        }
    }
    problems
}

fn dead(
    file: &SourceFile,
    target: &str,
    known: &BTreeSet<&str>,
    files: &[SourceFile],
) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if path.is_empty() { Some(file.path.clone()) } else { resolve(&file.path, path) };
    let Some(path) = path.filter(|path| known.contains(path.as_str()) || path.is_empty()) else {
        return Some(format!("dead link '{target}'"));
    };
    if heading.is_empty() {
        return None;
    }
    let document = files.iter().find(|file| file.path == path)?;
    let found = prose(&document.text).any(|(_, line)| {
        line.starts_with('#') && anchor(line.trim_start_matches('#').trim()) == heading
    });
    if found { None } else { Some(format!("'{target}': {path} has no such heading")) }
}

/// Returns the lines outside of fenced code, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let fence = line.trim_start().starts_with("```");
        fenced ^= fence;
        (!fenced && !fence).then_some((index + 1, line))
    })
}

/// Returns the targets of `](…)`, `src="…"` and `href="…"`, outside of code spans.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    let openings = [("](", ')'), ("src=\"", '"'), ("href=\"", '"')];
    openings.into_iter().flat_map(move |(open, close)| {
        let outside = move |at: &usize| line[..*at].matches('`').count().is_multiple_of(2);
        let starts = line.match_indices(open).map(move |(at, _)| at + open.len()).filter(outside);
        starts.filter_map(move |at| {
            let inside = &line[at..at + line[at..].find(close)?];
            inside.split_whitespace().next()
        })
    })
}

/// Resolves `target` from the directory of `from`; returns `None` if it leaves the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Returns the name of a heading in a link.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
        _ => None,
    };
    heading.to_lowercase().chars().filter_map(kept).collect()
}

fn is_dated_version(text: &str) -> bool {
    let Some((version, date)) = text.split_once(" - ") else { return false };
    let numbers = |text: &str, separator: char, count: usize| {
        let parts: Vec<_> = text.split(separator).collect();
        let digits = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        parts.len() == count && parts.iter().all(digits)
    };
    let version = version.strip_prefix('[').and_then(|version| version.strip_suffix(']'));
    version.is_some_and(|version| numbers(version, '.', 3)) && numbers(date, '-', 3)
}

const CHANGELOG_GROUPS: &[&str] =
    &["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(problems: &[StyleProblem]) -> Vec<String> {
        problems.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_document_has_one_title_and_begins_with_it() {
        let check = |text: &str| messages(&one_title(&SourceFile::of("a.md", text)));
        assert_eq!(check("# A\n\n```\n# no title\n```\n"), [""; 0]);
        assert_eq!(check("text\n"), ["a.md:1: has no title: one line '# …'"]);
        assert_eq!(check("text\n# A\n"), ["a.md:2: the title must be the first line"]);
        let second = check("# A\n# B\n");
        assert_eq!(second, ["a.md:2: a second title '# B': a document has one"]);
    }

    #[test]
    fn the_changelog_keeps_its_form() {
        let check = |text: &str| messages(&changelog(&SourceFile::of("CHANGELOG.md", text)));
        let good = "# Changelog\n## [Unreleased]\n### Added\n- a\n## [0.1.0] - 2026-11-21\n";
        assert_eq!(check(good), [""; 0]);
        let bad = check("# Changelog\n## 0.1\n### New\n");
        assert_eq!(bad.len(), 3, "{bad:?}");
        assert!(bad[0].contains("version '0.1' must be"));
        assert!(bad[1].contains("group 'New' is none of Added"));
        assert!(bad[2].contains("has no version '[Unreleased]'"));
    }

    #[test]
    fn a_dead_link_is_found_and_a_live_one_is_not() {
        let page = "# Page\n## Two Words, both\n";
        let check = |text: &str| {
            let files = [
                SourceFile::of("docs/a.md", text),
                SourceFile::of("docs/b.md", page),
                SourceFile::of("x", ""),
            ];
            messages(&links(&files))
        };
        for live in ["b.md", "../x", "../docs", "b.md#two-words-both", "https://example.org/a"] {
            assert_eq!(check(&format!("# A\nsee [it]({live}).\n")), [""; 0], "{live}");
        }
        assert_eq!(check("# A\n[c](c.md)\n"), ["docs/a.md:2: dead link 'c.md'"]);
        assert_eq!(check("# A\n<img src=\"c.svg\">\n"), ["docs/a.md:2: dead link 'c.svg'"]);
        assert_eq!(check("# A\n[c](../../x)\n"), ["docs/a.md:2: dead link '../../x'"]);
        let heading = check("# A\n[b](b.md#three)\n");
        assert_eq!(heading, ["docs/a.md:2: 'b.md#three': docs/b.md has no such heading"]);
        assert_eq!(check("# A\n`[c](c.md)`\n"), [""; 0], "code is no link");
    }
}
