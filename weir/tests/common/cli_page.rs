// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The page of a command line, as the program prints it.

use std::fmt::Write;
use std::process::Command;

/// Returns `head`, then the help of the program `name` at `path` and of all commands below it.
pub(crate) fn page(head: &str, name: &str, path: &str) -> String {
    let mut page = head.to_owned();
    add(&mut page, [name, path], &[]);
    page
}

/// Adds the help of a command, then those of the commands below it.
fn add(page: &mut String, program: [&str; 2], words: &[String]) {
    let [name, path] = program;
    let output = Command::new(path).args(words).arg("--help").output();
    let output = output.unwrap();
    assert!(output.status.success(), "{words:?}: {output:?}");
    let help = String::from_utf8(output.stdout).unwrap();
    let name = words.iter().fold(name.to_owned(), |name, word| name + " " + word);
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    write!(page, "\n## {name}\n\n```text\n{}\n```\n", lines.join("\n").trim()).unwrap();
    for below in commands(&help) {
        add(page, program, &[words, &[below]].concat());
    }
}

/// The names under `Commands:`, without `help`.
fn commands(help: &str) -> Vec<String> {
    let listed = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let names = listed.take_while(|line| line.starts_with("  "));
    let first = names.filter_map(|line| line.split_whitespace().next());
    first.filter(|name| *name != "help").map(ToOwned::to_owned).collect()
}
