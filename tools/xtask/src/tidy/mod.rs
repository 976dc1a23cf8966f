// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks of style. A rule is a function from a [`SourceFile`], or from all of them, to its
//! [`StyleProblem`]s. It sees text alone, so its test gives it a text.
//!
//! Two rules tolerate a few exceptions: a short list of names may be used twice (`names`), and a
//! few comments may open badly ([`OPENINGS_MAX`]). Each rule has a test that breaks it.

use std::process::Command;

use crate::command;
use file::{SourceFile, StyleProblem};

mod commits;
mod cycles;
mod documents;
mod file;
mod functions;
mod graph;
mod mask;
mod names;
mod openings;
mod promises;
mod purity;
mod repository;
mod source;

/// Prints the problems of the rules of [`counted`], each count with its bound. With a path, only
/// problems below it are listed.
pub(crate) fn house(arguments: &[String]) -> Result<(), String> {
    let files = files()?;
    let below = arguments.first().map_or("", String::as_str);
    for (name, most, problems) in counted(&files) {
        for problem in problems.iter().filter(|problem| problem.path.starts_with(below)) {
            println!("{problem}");
        }
        println!("== {name}: {}, at most {most}\n", problems.len());
    }
    Ok(())
}

/// Rules whose problems are counted: a count may fall, and its bound with it, but not rise.
fn counted(files: &[SourceFile]) -> [(&'static str, usize, Vec<StyleProblem>); 4] {
    let openings = files.iter().flat_map(openings::openings).collect();
    [
        ("dependencies on the laboratory", 0, graph::laboratory(files)),
        ("cycles between files", CYCLES_MAX, cycles::cycles(files)),
        ("type names used twice", NAMES_MAX, names::types(files)),
        ("comment openings", OPENINGS_MAX, openings),
    ]
}

/// Checks every file of the work tree, and the form of the latest commits.
pub(crate) fn check_repository() -> Result<(), String> {
    let files = files()?;
    let mut problems = Vec::new();
    for file in &files {
        for rule in FILE_RULES {
            problems.extend(rule(file));
        }
    }
    problems.extend(documents::links(&files));
    problems.extend(promises::promises(&files));
    problems.extend(graph::crates(&files));
    problems.extend(commits::latest()?);
    for (name, most, counted) in counted(&files) {
        if let Some(one) = counted.get(most) {
            let text = format!("{} {name}, at most {most}: {}", counted.len(), one.message);
            problems.push(StyleProblem { path: one.path.clone(), line: one.line, message: text });
        }
    }
    problems.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    for problem in &problems {
        eprintln!("{problem}");
    }
    match problems.len() {
        0 => Ok(()),
        count => Err(format!("tidy: {count} problems in {} files", files.len())),
    }
}

/// No cycle and no name used twice; openings are only an alarm, so a few are tolerated.
const CYCLES_MAX: usize = 0;
const NAMES_MAX: usize = 0;
const OPENINGS_MAX: usize = 50;

/// The rules that look at one file.
const FILE_RULES: &[fn(&SourceFile) -> Vec<StyleProblem>] = &[
    source::columns,
    source::licence,
    source::file_length,
    source::left_over,
    functions::function_length,
    purity::unsafe_code,
    purity::pure_crates,
    purity::declared_no_std,
    documents::one_title,
    documents::changelog,
    repository::blobs,
    repository::machine_paths,
    repository::registries,
];

fn files() -> Result<Vec<SourceFile>, String> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let listed = command::output(Command::new("git").args(arguments))?;
    // A removed file is still listed if it is in the index. It cannot be read and is skipped.
    let files = listed.lines().filter_map(|path| {
        let bytes = std::fs::read(path).ok()?;
        let size = bytes.len() as u64;
        let text = String::from_utf8(bytes).unwrap_or_default();
        Some(SourceFile { path: path.to_string(), size, text })
    });
    let mut files: Vec<_> = files.collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
    Ok(files)
}
