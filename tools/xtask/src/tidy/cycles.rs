// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rule that the files of a crate depend on each other in one direction.
//!
//! A file depends on another file if it names one of that file's items. A name is followed to the
//! file that defines it: an item that a parent only re-exports counts as the child's. Tests do not
//! count. Files that reach each other form a cycle: none can be understood without the others. Each
//! such group, a strongly connected component of the graph, is a problem.
//!
//! The code is not parsed as by a compiler: strings and comments are masked, then `use` statements
//! and paths are found by their text. That is exact enough for code in rustfmt's form. A method
//! call does not say which file has the `impl` block, so it is no dependency here: the files over
//! which one type spreads its methods may call each other.

use std::collections::{BTreeMap, BTreeSet};

use super::file::{SourceFile, StyleProblem};
use super::mask::mask;
use super::source::implementation;

/// Returns a problem for each group of files that form a cycle.
pub(crate) fn cycles(files: &[SourceFile]) -> Vec<StyleProblem> {
    let mut crates: BTreeMap<&str, Vec<Module<'_>>> = BTreeMap::new();
    for file in files {
        let Some((root, inside)) = file.path.split_once("/src/") else { continue };
        if let Some(path) = module_path(inside) {
            crates.entry(root).or_default().push(Module::of(file, path));
        }
    }
    crates.values().flat_map(|modules| groups(modules)).collect()
}

/// One file of a crate.
struct Module<'f> {
    file: &'f SourceFile,
    path: Vec<String>,
    /// Paths that the file uses, from the root of the crate.
    uses: Vec<Vec<String>>,
    /// Names that the file re-exports, and the paths that they stand for.
    exports: BTreeMap<String, Vec<String>>,
}

impl<'f> Module<'f> {
    fn of(file: &'f SourceFile, path: Vec<String>) -> Self {
        let code = mask(implementation(&file.text));
        let mut module = Self { file, path, uses: Vec::new(), exports: BTreeMap::new() };
        let mut rest = code.as_str();
        while let Some(at) = next_use(rest) {
            let (before, statement) = rest.split_at(at);
            module.add_paths(before);
            let end = statement.find(';').unwrap_or(statement.len());
            let is_export = EXPORTS.iter().any(|visibility| before.ends_with(visibility));
            module.add_use(&statement[..end], is_export);
            rest = &statement[end..];
        }
        module.add_paths(rest);
        module
    }

    /// Adds the names of a `use` statement, which comes without its semicolon.
    fn add_use(&mut self, statement: &str, is_public: bool) {
        let tree: String = statement[4..].split_whitespace().collect::<Vec<_>>().join(" ");
        for (path, name) in leaves(&tree) {
            let Some(path) = self.absolute(&path) else { continue };
            if is_public {
                self.exports.insert(name, path);
            } else {
                self.uses.push(path);
            }
        }
    }

    /// Adds the paths in code, such as `crate::a::B` or `super::f`.
    fn add_paths(&mut self, code: &str) {
        let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        for word in code.split(|c| !is_path(c)) {
            if word.starts_with("crate::") || word.starts_with("super::") {
                let words: Vec<_> = word.split("::").map(str::to_owned).collect();
                self.uses.extend(self.absolute(&words));
            } else if let Some((first, _)) = word.split_once("::") {
                // A child module, if there is one of that name.
                let mut path = self.path.clone();
                path.push(first.to_owned());
                path.extend(word.split("::").skip(1).map(str::to_owned));
                self.uses.push(path);
            }
        }
    }

    /// Returns a path from the root of the crate. A path that begins with a plain name is taken as
    /// that of a child module; [`owner`] drops it if there is no such child.
    fn absolute(&self, path: &[String]) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        let mut base = match first.as_str() {
            "crate" => Vec::new(),
            "self" => self.path.clone(),
            "super" => {
                let mut base = self.path.clone();
                base.pop();
                let ups = rest.iter().take_while(|word| *word == "super").count();
                base.truncate(base.len().saturating_sub(ups));
                base.extend(rest[ups..].iter().cloned());
                return Some(base);
            }
            // A path of another crate, or of a child.
            _ => {
                let mut base = self.path.clone();
                base.extend(path.iter().cloned());
                return Some(base);
            }
        };
        base.extend(rest.iter().cloned());
        Some(base)
    }
}

/// Returns the path of the module in a file: `a::b` for `a/b.rs` and `a/b/mod.rs`, the root for
/// `lib.rs`. Returns `None` for a file that is not Rust or holds tests.
fn module_path(inside: &str) -> Option<Vec<String>> {
    let path = inside.strip_suffix(".rs")?;
    let mut words: Vec<_> = path.split('/').map(str::to_owned).collect();
    if words.iter().any(|word| word == "tests" || word.ends_with("_tests")) {
        return None;
    }
    match (words.len(), words.last()?.as_str()) {
        (1, "lib" | "main") => words.clear(),
        (_, "mod") => drop(words.pop()),
        _ => {}
    }
    Some(words)
}

/// Finds the beginning of the next `use` statement.
fn next_use(code: &str) -> Option<usize> {
    let starts = code.match_indices("use ");
    let mut starts = starts.filter(|(at, _)| {
        let before = code[..*at].trim_end_matches("pub ").trim_end_matches("pub(crate) ");
        let before = before.trim_end_matches("pub(super) ").trim_end_matches(' ');
        before.is_empty() || before.ends_with('\n')
    });
    starts.next().map(|(at, _)| at)
}

/// Returns the paths in a tree such as `a::{b, c::{self, d as e}}`, each with the name that it
/// gets.
fn leaves(tree: &str) -> Vec<(Vec<String>, String)> {
    let Some(open) = tree.find('{') else {
        let (path, renamed) = tree.split_once(" as ").unwrap_or((tree, ""));
        let words: Vec<_> = path.split("::").map(|word| word.trim().to_owned()).collect();
        let last = words.last().cloned().unwrap_or_default();
        return vec![(words, if renamed.is_empty() { last } else { renamed.trim().to_owned() })];
    };
    let prefix: Vec<_> =
        tree[..open].split("::").map(str::trim).filter(|w| !w.is_empty()).collect();
    let inside = tree[open + 1..].trim_end().trim_end_matches('}');
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, c) in inside.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inside[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inside[start..]);
    let mut all = Vec::new();
    for part in parts.iter().map(|part| part.trim()).filter(|part| !part.is_empty()) {
        for (path, name) in leaves(part) {
            let mut whole: Vec<_> = prefix.iter().map(|word| (*word).to_owned()).collect();
            whole.extend(path.into_iter().filter(|word| word != "self"));
            all.push((whole, name));
        }
    }
    all
}

/// Finds the groups of one crate.
fn groups(modules: &[Module<'_>]) -> Vec<StyleProblem> {
    let at: BTreeMap<&[String], usize> =
        modules.iter().enumerate().map(|(index, module)| (&module.path[..], index)).collect();
    let edges: Vec<BTreeSet<usize>> = (0..modules.len())
        .map(|index| {
            let uses = modules[index].uses.iter();
            uses.filter_map(|path| owner(modules, &at, path, 0)).filter(|to| *to != index).collect()
        })
        .collect();
    let reach: Vec<BTreeSet<usize>> = (0..modules.len()).map(|from| reach(&edges, from)).collect();
    let mut seen = BTreeSet::new();
    let mut problems = Vec::new();
    for from in 0..modules.len() {
        let circle: Vec<_> =
            reach[from].iter().copied().filter(|to| reach[*to].contains(&from)).collect();
        if circle.is_empty() || !seen.insert(circle.clone()) {
            continue;
        }
        let names: Vec<_> = circle.iter().map(|index| modules[*index].path.join("::")).collect();
        let names = names.iter().map(|name| if name.is_empty() { "(root)" } else { name });
        let text = format!("depend on each other: {}", names.collect::<Vec<_>>().join(", "));
        problems.push(modules[circle[0]].file.problem(1, text));
    }
    problems
}

/// Finds the file that defines what a path names.
fn owner(
    modules: &[Module<'_>],
    at: &BTreeMap<&[String], usize>,
    path: &[String],
    depth: usize,
) -> Option<usize> {
    let length = (0..=path.len()).rev().find(|length| at.contains_key(&path[..*length]))?;
    let index = at[&path[..length]];
    let Some(name) = path.get(length) else { return Some(index) };
    match modules[index].exports.get(name) {
        Some(origin) if depth < RENAMES_MAX => {
            let mut whole = origin.clone();
            whole.extend(path[length + 1..].iter().cloned());
            owner(modules, at, &whole, depth + 1)
        }
        // The path begins with a name of another crate, or of this file.
        _ if is_foreign(modules, index, path, length) => None,
        _ => Some(index),
    }
}

/// Returns true if the next name of a path is no item of the module.
fn is_foreign(modules: &[Module<'_>], index: usize, path: &[String], length: usize) -> bool {
    let name = &path[length];
    let text = &modules[index].file.text;
    let kinds =
        ["struct", "enum", "trait", "fn", "const", "static", "type", "macro_rules!", "union"];
    name != "*" && !kinds.iter().any(|kind| text.contains(&format!("{kind} {name}")))
}

/// Returns all files that can be reached from one.
fn reach(edges: &[BTreeSet<usize>], from: usize) -> BTreeSet<usize> {
    let (mut ahead, mut seen) = (vec![from], BTreeSet::new());
    while let Some(at) = ahead.pop() {
        for to in &edges[at] {
            if seen.insert(*to) {
                ahead.push(*to);
            }
        }
    }
    seen
}

/// The most re-exports that are followed for one name.
const RENAMES_MAX: usize = 8;

/// The visibilities of a re-export within the crate.
const EXPORTS: [&str; 3] = ["pub ", "pub(crate) ", "pub(super) "];

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files
            .iter()
            .map(|(path, text)| SourceFile::of(&format!("core/x/src/{path}"), text))
            .collect();
        cycles(&files).into_iter().map(|problem| problem.message).collect()
    }

    #[test]
    fn files_that_name_each_other_are_a_cycle() {
        let a = ("a.rs", "use crate::b::B;\npub struct A;\n");
        let lib = ("lib.rs", "mod a;\nmod b;\npub use a::A;\n");
        let named = check(&[lib, a, ("b.rs", "pub struct B(super::a::A);\n")]);
        assert_eq!(named, ["depend on each other: a, b"]);
        assert_eq!(check(&[lib, a, ("b.rs", "pub struct B;\n")]), [""; 0]);
    }

    /// The root only re-exports the child's type, so a use of it leads to the child.
    #[test]
    fn a_re_export_leads_to_the_file_that_defines() {
        let lib = ("lib.rs", "mod a;\nmod b;\npub use b::B;\nfn f() { a::g(); }\n");
        let a = ("a.rs", "use crate::{B, b};\npub fn g() { b::h() }\n");
        assert_eq!(check(&[lib, a, ("b.rs", "pub struct B;\npub fn h() {}\n")]), [""; 0]);
        let back = ("b.rs", "pub struct B;\npub fn h() { crate::a::g() }\n");
        assert_eq!(check(&[lib, a, back]), ["depend on each other: a, b"]);
    }

    #[test]
    fn a_re_export_within_the_crate_is_one() {
        let parent = ("p/mod.rs", "mod c;\nmod d;\npub(crate) use c::C;\n");
        let c = ("p/c.rs", "use super::d::D;\npub struct C(D);\n");
        let d = ("p/d.rs", "use super::C;\npub struct D;\nfn f(_: C) {}\n");
        assert_eq!(check(&[parent, c, d]), ["depend on each other: p::c, p::d"]);
    }

    #[test]
    fn a_child_that_needs_its_parent_is_a_cycle_and_tests_are_not() {
        let child = ("p/c.rs", "use super::P;\nimpl P { pub fn f() {} }\n");
        let parent = ("p/mod.rs", "mod c;\npub struct P;\nfn g() { c::k() }\n");
        let child_k = ("p/c.rs", "use super::P;\npub fn k() {}\n");
        assert_eq!(check(&[parent, child_k]), ["depend on each other: p, p::c"]);
        assert_eq!(check(&[("p/mod.rs", "mod c;\npub struct P;\n"), child]), [""; 0]);
        let tests =
            ("p/c.rs", "pub fn k() {}\n#[cfg(test)]\nmod tests {\n use super::super::P;\n}\n");
        assert_eq!(check(&[parent, tests]), [""; 0]);
    }
}
