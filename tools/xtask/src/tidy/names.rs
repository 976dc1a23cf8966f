// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A type that other files use has a name of its own in the whole workspace.
//!
//! A reader who searches for a name is to find one thing. Names that two crates need for two things
//! are on a short list, each with its reason.

use std::collections::BTreeMap;

use super::file::{SourceFile, StyleProblem};
use super::mask::mask;
use super::source::implementation;

/// Reports each type, public or shared within a crate, whose name another file declares, too.
pub(crate) fn types(files: &[SourceFile]) -> Vec<StyleProblem> {
    let mut declared: BTreeMap<String, Vec<(&SourceFile, usize)>> = BTreeMap::new();
    for file in files.iter().filter(|file| in_workspace(&file.path)) {
        let code = mask(implementation(&file.text));
        for (index, line) in code.lines().enumerate() {
            if let Some(name) = public_type(line) {
                declared.entry(name.to_owned()).or_default().push((file, index + 1));
            }
        }
    }
    let mut problems = Vec::new();
    for (name, places) in declared.iter().filter(|(_, places)| places.len() > 1) {
        if ALLOWED.iter().any(|(allowed, _)| allowed == name) {
            continue;
        }
        let (first, rest) = (places[0].0, &places[1..]);
        for (file, line) in rest {
            let text = format!("type '{name}' is in {} too", first.path);
            problems.push(file.problem(*line, text));
        }
    }
    problems
}

fn in_workspace(path: &str) -> bool {
    path.ends_with(".rs") && path.contains("/src/") && !path.starts_with("fuzz/")
}

/// Returns the name of the type that a line declares for other files.
fn public_type(line: &str) -> Option<&str> {
    let rest =
        ["pub ", "pub(crate) ", "pub(super) "].iter().find_map(|lead| line.strip_prefix(lead));
    let rest = rest?;
    let rest = rest.strip_prefix("unsafe ").unwrap_or(rest);
    let kinds = ["struct ", "enum ", "trait ", "type ", "union "];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (end > 0).then_some(&rest[..end])
}

/// Names that may be used twice, and why. At most ten.
const ALLOWED: &[(&str, &str)] = &[("Error", "the field's name for a crate's error")];

const _: () = assert!(ALLOWED.len() <= 10, "shorten the list before a name is added");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_two_files_declare_is_named() {
        let files = [
            SourceFile::of("core/a/src/x.rs", "pub struct Rate(u64);\nstruct Own;\n"),
            SourceFile::of(
                "core/b/src/y.rs",
                "pub enum Rate { A }\nstruct Own;\npub struct Error;\n",
            ),
            SourceFile::of("core/c/src/z.rs", "pub struct Error;\nmod m { pub struct Rate; }\n"),
        ];
        let named: Vec<_> = types(&files).iter().map(ToString::to_string).collect();
        assert_eq!(named, ["core/b/src/y.rs:1: type 'Rate' is in core/a/src/x.rs too"]);
    }
}
