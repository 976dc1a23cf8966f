// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules on what is checked in at all.

use super::file::{SourceFile, StyleProblem};

/// No file above 300 kB: larger files are generated, not kept.
pub(crate) fn blobs(file: &SourceFile) -> Vec<StyleProblem> {
    if file.size <= BLOB_BYTES_MAX {
        return Vec::new();
    }
    vec![file.problem(1, format!("{} bytes, at most {BLOB_BYTES_MAX}", file.size))]
}

/// No text contains a path of its author's machine.
pub(crate) fn machine_paths(file: &SourceFile) -> Vec<StyleProblem> {
    let mut problems = Vec::new();
    for (index, line) in file.text.lines().enumerate() {
        for directory in MACHINE_PATHS {
            let begins = |at: usize| {
                let before = line[..at].chars().next_back();
                before.is_none_or(|c| !(c.is_alphanumeric() || "._-})$*~".contains(c)))
            };
            if line.match_indices(directory).any(|(at, _)| begins(at)) {
                let message = format!("'{directory}' is a path of one machine");
                problems.push(file.problem(index + 1, message));
            }
        }
    }
    problems
}

/// Dependencies come from crates.io, whatever mirror a machine uses for it.
pub(crate) fn registries(file: &SourceFile) -> Vec<StyleProblem> {
    let lock = file.path.ends_with("Cargo.lock");
    let config = file.path.contains(".cargo/");
    if !lock && !config {
        return Vec::new();
    }
    let foreign = |line: &str| {
        if lock {
            return line.starts_with("source = ") && line != format!("source = \"{REGISTRY}\"");
        }
        let line = line.trim();
        ["[source", "[registr", "registry", "replace-with"].iter().any(|key| line.starts_with(key))
    };
    let lines = file.text.lines().enumerate().filter(|(_, line)| foreign(line));
    lines.map(|(index, line)| file.problem(index + 1, format!("'{line}': use crates.io"))).collect()
}

const BLOB_BYTES_MAX: u64 = 300_000;

/// Cut in two, so that this file passes.
const MACHINE_PATHS: &[&str] =
    &[concat!("/ho", "me/"), concat!("/wo", "rk/"), concat!("/ro", "ot/")];

const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(rule: fn(&SourceFile) -> Vec<StyleProblem>, path: &str, text: &str) -> Vec<String> {
        rule(&SourceFile::of(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_blob_is_above_three_hundred_kilobytes() {
        assert_eq!(messages(blobs, "a.json", &"a".repeat(300_000)), [""; 0]);
        let large = messages(blobs, "a.json", &"a".repeat(300_001));
        assert_eq!(large, ["a.json:1: 300001 bytes, at most 300000"]);
    }

    #[test]
    fn a_path_of_one_machine_is_found_and_a_path_of_ours_is_not() {
        for directory in MACHINE_PATHS {
            let text = format!("ok\nsee {directory}me\n");
            let expected = [format!("a.md:2: '{directory}' is a path of one machine")];
            assert_eq!(messages(machine_paths, "a.md", &text), expected);
            assert_eq!(messages(machine_paths, "a.md", &format!("lab{directory}x\n")), [""; 0]);
        }
    }

    #[test]
    fn a_foreign_registry_is_refused() {
        let ours = format!("source = \"{REGISTRY}\"\n");
        assert_eq!(messages(registries, "Cargo.lock", &ours), [""; 0]);
        let git = "source = \"git+https://example.org/a\"\n";
        assert_eq!(messages(registries, "Cargo.lock", git).len(), 1);
        let mirror = "[source.crates-io]\nreplace-with = \"mirror\"\n";
        assert_eq!(messages(registries, ".cargo/config.toml", mirror).len(), 2);
    }
}
