// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the graph of crates on the architecture's page with the manifests.

use std::collections::{BTreeMap, BTreeSet};

use super::file::{SourceFile, StyleProblem};

/// Dependencies of each crate, by name.
type Graph = BTreeMap<String, BTreeSet<String>>;

/// Each edge of the page's graph is a dependency of a manifest. Each dependency is an edge, or a
/// path over several edges.
pub(crate) fn crates(files: &[SourceFile]) -> Vec<StyleProblem> {
    let Some(page) = files.iter().find(|file| file.path == PAGE) else {
        return files.first().map(|file| missing(file, PAGE)).into_iter().collect();
    };
    let (drawn, written) = (drawn(&page.text), written(files));
    let mut problems = Vec::new();
    for (from, to) in edges(&drawn) {
        if !written.get(from).is_some_and(|all| all.contains(to)) {
            problems.push(page.problem(1, format!("{from} does not depend on {to}")));
        }
    }
    for (from, to) in edges(&written) {
        if !leads(&drawn, from, to) {
            problems.push(page.problem(1, format!("{from} depends on {to}: draw it")));
        }
    }
    problems
}

/// Nothing outside `lab/` depends on a crate below it, not even for its tests.
pub(crate) fn laboratory(files: &[SourceFile]) -> Vec<StyleProblem> {
    let manifests = || files.iter().filter_map(|file| Some((file, package(file)?)));
    let lab: Vec<_> =
        manifests().filter(|(file, _)| file.path.starts_with("lab/")).map(|pair| pair.1).collect();
    let mut problems = Vec::new();
    for (file, _) in manifests().filter(|(file, _)| !file.path.starts_with("lab/")) {
        for (index, line) in file.text.lines().enumerate() {
            if let Some(name) = lab.iter().find(|name| names_crate(line, name)) {
                let message = format!("depends on {name} of the laboratory");
                problems.push(file.problem(index + 1, message));
            }
        }
    }
    problems
}

/// Returns true if a line of a manifest has the crate's name as a word: as a key, plain or quoted,
/// in the head of a table, or as the package of a renamed dependency.
fn names_crate(line: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let line = line.split('#').next().unwrap_or_default();
    line.split(|c| !is_part(c)).any(|word| word == name)
}

/// Reads edges such as `a & b --> c & d` between crates that are declared as `a["NAME: …"]`.
fn drawn(text: &str) -> Graph {
    let mermaid = text.split("```mermaid").nth(1).and_then(|rest| rest.split("```").next());
    let lines: Vec<&str> = mermaid.unwrap_or_default().lines().map(str::trim).collect();
    let names: BTreeMap<&str, &str> = lines
        .iter()
        .filter_map(|line| line.split_once("[\""))
        .filter_map(|(short, rest)| Some((short, rest.split([':', '"']).next()?)))
        .collect();
    let mut graph = Graph::new();
    for (left, right) in lines.iter().filter_map(|line| line.split_once(" --> ")) {
        let all = |side: &str| -> Vec<String> {
            let known = |short| names.get(short).map(|name| (*name).to_owned());
            side.split('&').map(str::trim).filter_map(known).collect()
        };
        for from in all(left) {
            graph.entry(from).or_default().extend(all(right));
        }
    }
    graph
}

/// Reads from each manifest its `[dependencies]` on crates of this repository.
fn written(files: &[SourceFile]) -> Graph {
    let mut graph = Graph::new();
    for file in files {
        let Some(name) = package(file) else { continue };
        let section = file.text.split("\n[dependencies]\n").nth(1).unwrap_or_default();
        let lines = section.lines().take_while(|line| !line.starts_with('['));
        let keys = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
        let ours = keys.filter(|key| key.starts_with("weir-")).map(str::to_owned);
        graph.insert(name.to_owned(), ours.collect());
    }
    graph
}

/// Returns the package's name if the file is a manifest of this workspace.
fn package(file: &SourceFile) -> Option<&str> {
    let is_manifest = file.path.ends_with("/Cargo.toml");
    let beside = ["fuzz/", "proof/"].iter().any(|folder| file.path.starts_with(folder));
    if !is_manifest || beside {
        return None;
    }
    let line = file.text.lines().find_map(|line| line.strip_prefix("name = \""))?;
    line.strip_suffix('"')
}

/// The problem of a repository without one of its pages.
pub(super) fn missing(file: &SourceFile, page: &str) -> StyleProblem {
    file.problem(1, format!("the repository has no {page}"))
}

fn edges(graph: &Graph) -> impl Iterator<Item = (&String, &String)> {
    graph.iter().flat_map(|(from, all)| all.iter().map(move |to| (from, to)))
}

fn leads(graph: &Graph, from: &str, to: &str) -> bool {
    let (mut ahead, mut seen) = (vec![from], BTreeSet::new());
    while let Some(at) = ahead.pop() {
        if at == to {
            return true;
        }
        if seen.insert(at) {
            ahead.extend(graph.get(at).into_iter().flatten().map(String::as_str));
        }
    }
    false
}

const PAGE: &str = "docs/architecture.md";

#[cfg(test)]
mod tests {
    use super::*;

    fn check(arrows: &str) -> Vec<String> {
        let nodes = "a[\"weir-a: x\"]\nb[\"weir-b: y\"]\nc[\"weir-c\"]";
        let page = format!("# A\n```mermaid\n{nodes}\n{arrows}\n```\n");
        let manifest = |name: &str, text: &str| {
            let path = format!("core/{name}/Cargo.toml");
            SourceFile::of(
                &path,
                &format!("[package]\nname = \"weir-{name}\"\n\n[dependencies]\n{text}"),
            )
        };
        let files = [
            SourceFile::of(PAGE, &page),
            manifest("a", "weir-b.workspace = true\nweir-c = { path = \"\" }\nserde = \"1\"\n"),
            manifest("b", "weir-c.workspace = true\n\n[dev-dependencies]\nweir-a = \"1\"\n"),
            manifest("c", ""),
        ];
        crates(&files).into_iter().map(|problem| problem.message).collect()
    }

    /// Goal: no manifest outside `lab/` names a crate below it, in any of these spellings.
    #[test]
    fn each_way_to_depend_on_the_laboratory_is_named() {
        let found = |text: &str| {
            let manifest = |path: &str, text: &str| SourceFile::of(path, text);
            let files = [
                manifest("lab/plot/Cargo.toml", "[package]\nname = \"weir-plot\"\n"),
                manifest("core/a/Cargo.toml", &format!("[package]\nname = \"weir-a\"\n\n{text}")),
            ];
            laboratory(&files).len()
        };
        for text in [
            "[dependencies]\nweir-plot.workspace = true\n",
            "[dev-dependencies]\n\"weir-plot\" = { path = \"../../lab/plot\" }\n",
            "[dependencies.weir-plot]\nworkspace = true\n",
            "[dependencies]\nplot = { package = \"weir-plot\", version = \"0.1\" }\n",
        ] {
            assert_eq!(found(text), 1, "{text}");
        }
        assert_eq!(found("[dependencies]\nweir-plotter = \"1\" # not weir-plot\n"), 0);
    }

    #[test]
    fn a_page_that_is_gone_is_named() {
        let files = [SourceFile::of("core/a/Cargo.toml", "[package]\nname = \"weir-a\"\n")];
        assert_eq!(crates(&files)[0].message, "the repository has no docs/architecture.md");
    }

    #[test]
    fn ways_and_edges_stand_for_dependencies() {
        assert!(check("  a --> b\n  b --> c").is_empty());
        assert!(check("  a & b --> c\n  a --> b").is_empty());
    }

    #[test]
    fn what_is_missing_and_what_is_too_much_is_named() {
        assert_eq!(
            check("  a --> b"),
            ["weir-a depends on weir-c: draw it", "weir-b depends on weir-c: draw it",]
        );
        assert_eq!(check("  a --> b\n  b --> c & a"), ["weir-b does not depend on weir-a"]);
    }
}
