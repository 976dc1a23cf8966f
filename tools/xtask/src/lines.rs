// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `cargo xtask lines [REVISION]`: lines of code that no product binary reaches.
//!
//! Experiments, fixtures, labs, plots and scenarios are recognized by their folder or file alone,
//! in the working tree or in any revision since the crates stood in `crates/`. Tests of product
//! crates and the developer's other tools are not counted; tests of lab code are. `host/traffic` is
//! not counted, since `weir measure` sends with it; its predecessors in `crates/` are.

use std::collections::BTreeMap;
use std::process::Command;

use crate::command;

/// Prints the lines of each part and their sum.
pub(crate) fn call(arguments: &[String]) -> Result<(), String> {
    let mut git = Command::new("git");
    // Each file with the count of its lines; `-I` leaves out binary files.
    git.args(["grep", "-I", "--untracked", "-c", ""]);
    let prefix = match arguments {
        [] => String::new(),
        [revision] => {
            git = Command::new("git");
            git.args(["grep", "-I", "-c", "", revision]);
            format!("{revision}:")
        }
        _ => return Err("usage: cargo xtask lines [REVISION]".to_owned()),
    };
    let parts = count(&command::output(&mut git)?, &prefix);
    for (part, lines) in &parts {
        println!("{lines:>7}  {part}");
    }
    println!("{:>7}  in all", parts.values().sum::<u64>());
    Ok(())
}

/// Sums the lines of each part of the lab, from lines `PREFIXpath:count`.
fn count(listing: &str, prefix: &str) -> BTreeMap<&'static str, u64> {
    let mut parts = BTreeMap::new();
    for line in listing.lines() {
        let entry = line.strip_prefix(prefix).unwrap_or(line);
        let Some((path, lines)) = entry.rsplit_once(':') else { continue };
        let is_code = CODE.iter().any(|ending| path.ends_with(ending));
        let part = LAB.iter().find(|(_, paths)| paths.iter().any(|lab| path.starts_with(lab)));
        if let (true, Some((part, _)), Ok(lines)) = (is_code, part, lines.parse::<u64>()) {
            *parts.entry(*part).or_default() += lines;
        }
    }
    parts
}

/// Endings of files that are code. Goldens and pages are not.
const CODE: &[&str] = &[".rs", ".c", ".h", ".toml", ".sh", ".py", ".ts", ".js"];

/// Parts of the laboratory's code, each with prefixes of its paths, present and earlier ones. A
/// path counts for the first part that matches.
const LAB: &[(&str, &[&str])] = &[
    (
        "traffic",
        &[
            "crates/weir-host/src/traffic/",
            "crates/weir-host/src/delay_line.rs",
            "crates/weir-host/tests/traffic",
            "bpf/generator.bpf.c",
            "bpf/sink.bpf.c",
            "bpf/traffic.h",
        ],
    ),
    (
        "testbed",
        &[
            "lab/testbed/",
            "crates/weir-host/src/lab/",
            "crates/weir-host/tests/host.rs",
            "crates/weir-host/tests/lab.rs",
        ],
    ),
    ("plot", &["lab/plot/", "crates/weir-plot/"]),
    ("peers in C and C++", &["bench/peers/"]),
    (
        "subcommands",
        &[
            "lab/weir-lab/",
            "weir/src/conformance.rs",
            "weir/src/demo.rs",
            "weir/src/lab.rs",
            "weir/src/reproduce",
            "weir/src/traffic.rs",
            "weir/src/verify.rs",
            "weir/tests/conformance.rs",
            "weir/tests/reproduce.rs",
            "crates/weir/src/conformance.rs",
            "crates/weir/src/demo.rs",
            "crates/weir/src/lab.rs",
            "crates/weir/src/reproduce",
            "crates/weir/src/traffic.rs",
            "crates/weir/src/verify.rs",
            "crates/weir/tests/conformance.rs",
            "crates/weir/tests/reproduce.rs",
        ],
    ),
    ("Xen lab of xtask", &["tools/xtask/src/xen", "crates/xtask/src/xen"]),
    ("experiments and scenarios", &["lab/", "crates/weir-trials/"]),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the same file is the same part wherever it stood, and product code is no part.
    #[test]
    fn parts_are_told_by_path() {
        let listing = "HEAD:lab/plot/src/bars.rs:100\nHEAD:crates/weir-plot/src/bars.rs:7\n\
                       HEAD:lab/trials/src/run.rs:20\nHEAD:lab/trials/page.txt:500\n\
                       HEAD:core/sched/src/lib.rs:9\nHEAD:lab/netback/fig5.toml:3\n";
        let expected = BTreeMap::from([("plot", 107), ("experiments and scenarios", 23)]);
        assert_eq!(count(listing, "HEAD:"), expected);
    }
}
