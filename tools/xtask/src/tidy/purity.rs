// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Purity: which crates may make system calls, read clocks, use the standard library.

use super::file::{SourceFile, StyleProblem};
use super::mask::{line_of_word, mask};
use super::source::implementation;

/// `unsafe` is allowed in the crates that talk to the kernel, and in counting allocators of tests.
pub(crate) fn unsafe_code(file: &SourceFile) -> Vec<StyleProblem> {
    let may = UNSAFE.iter().any(|directory| file.path.starts_with(directory));
    if may || !file.has_extension(&["rs"]) {
        return Vec::new();
    }
    let code = mask(&file.text);
    let in_tests = file.path.contains("/tests/") || file.path.contains("/benches/");
    if in_tests && code.contains("impl GlobalAlloc for") {
        return Vec::new();
    }
    let line = line_of_word(&code, "unsafe");
    let message = "unsafe code belongs into the crates below host/";
    line.map(|line| file.problem(line, message)).into_iter().collect()
}

/// A pure crate takes time as an argument and its input from its caller.
pub(crate) fn pure_crates(file: &SourceFile) -> Vec<StyleProblem> {
    let within = |name: &&&str| file.path.starts_with(&format!("core/{name}/src/"));
    if !file.has_extension(&["rs"]) {
        return Vec::new();
    }
    let no_std = NO_STD.iter().find(within);
    let Some(name) = no_std.or_else(|| PURE.iter().find(within)) else { return Vec::new() };
    let code = mask(implementation(&file.text));
    let mut problems = Vec::new();
    let mut refuse = |word: &str, why: &str| {
        if let Some(line) = line_of_word(&code, word) {
            problems.push(file.problem(line, format!("weir-{name} is pure: '{word}': {why}")));
        }
    };
    for (word, why) in IMPURE {
        refuse(word, why);
    }
    if no_std.is_some() {
        refuse("std::", "it is no_std: use core or alloc");
    }
    problems
}

/// The crates of the proof declare `#![no_std]` themselves.
pub(crate) fn declared_no_std(file: &SourceFile) -> Vec<StyleProblem> {
    let root = |name: &&str| file.path == format!("core/{name}/src/lib.rs");
    let declared = mask(&file.text).lines().any(|line| line.trim() == "#![no_std]");
    if declared || !NO_STD.iter().any(root) {
        return Vec::new();
    }
    vec![file.problem(1, "has no line '#![no_std]'")]
}

/// Folders in which `unsafe` is allowed. The proof has an allocator that always fails.
const UNSAFE: &[&str] = &["host/", "proof/no-std/"];

/// Pure, and linked without an operating system.
const NO_STD: &[&str] = &["units", "sched", "control", "policy", "switch", "kernel-plan"];

/// Pure, on top of the standard library.
const PURE: &[&str] = &["network", "plan", "result", "sim", "tester"];

/// Words that read a clock, draw entropy, wait, or reach outside of the process.
const IMPURE: &[(&str, &str)] = &[
    ("Instant::now", "take the time as an argument"),
    ("SystemTime", "take the time as an argument"),
    ("thread::sleep", "return the instant to wait for"),
    ("std::thread", "leave threads to the caller"),
    ("std::fs", "take text or bytes as an argument"),
    ("std::io", "take text or bytes as an argument"),
    ("std::net", "leave addresses in the crate's own types, sockets to the caller"),
    ("std::process", "leave processes to the caller"),
    ("std::env", "take it as an argument"),
    ("rand::", "take a seed as an argument"),
    ("RandomState", "use a BTreeMap, or a hasher without a seed"),
    ("HashMap", "its order is random: use a BTreeMap, or a table of one's own"),
    ("HashSet", "its order is random: use a BTreeSet, or a table of one's own"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(rule: fn(&SourceFile) -> Vec<StyleProblem>, path: &str, text: &str) -> Vec<String> {
        rule(&SourceFile::of(path, text)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn unsafe_code_stays_where_it_may() {
        let text = "// unsafe\nfn a() { unsafe { b() } }\n";
        let refused = "unsafe code belongs into the crates below host/";
        let expected = [format!("core/sched/src/a.rs:2: {refused}")];
        assert_eq!(messages(unsafe_code, "core/sched/src/a.rs", text), expected);
        assert_eq!(messages(unsafe_code, "host/ports/src/a.rs", text), [""; 0]);
        let counting = "unsafe impl GlobalAlloc for Counting {}\n";
        assert_eq!(messages(unsafe_code, "core/switch/tests/a.rs", counting), [""; 0]);
        assert_eq!(messages(unsafe_code, "core/switch/tests/a.rs", text).len(), 1);
    }

    #[test]
    fn a_pure_crate_names_nothing_impure() {
        for (word, why) in IMPURE {
            // Names in a comment, a string or the tests harm nobody.
            let quiet = format!("// {word}\nfn a() {{ b(\"{word}\") }}\n");
            let tests = format!("#[cfg(test)]\nmod tests {{\n    {word}\n}}\n");
            let path = "core/result/src/a.rs";
            assert_eq!(messages(pure_crates, path, &format!("{quiet}{tests}")), [""; 0]);
            let loud = messages(pure_crates, path, &format!("{quiet}{word}x\n"));
            let expected = format!("{path}:3: weir-result is pure: '{word}': {why}");
            // A word that must end there is not found with more behind it.
            let loud = if loud.is_empty() {
                messages(pure_crates, path, &format!("{quiet}{word}\n"))
            } else {
                loud
            };
            assert_eq!(loud, [expected]);
        }
        let text = "use std::vec::Vec;\n";
        let refused = "is pure: 'std::': it is no_std: use core or alloc";
        let path = "core/units/src/a.rs";
        let expected = [format!("{path}:1: weir-units {refused}")];
        assert_eq!(messages(pure_crates, path, text), expected);
        assert_eq!(messages(pure_crates, "host/platform/src/a.rs", text), [""; 0]);
    }

    #[test]
    fn a_crate_of_the_proof_declares_itself() {
        let path = "core/units/src/lib.rs";
        let expected = [format!("{path}:1: has no line '#![no_std]'")];
        assert_eq!(messages(declared_no_std, path, "// #![no_std]\n"), expected);
        assert_eq!(messages(declared_no_std, path, "#![no_std]\n"), [""; 0]);
    }
}
