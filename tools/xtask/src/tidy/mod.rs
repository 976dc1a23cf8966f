// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Style as a program. Strict: no list of exceptions, and each rule has a test that breaks it.
//!
//! A rule is a function from a [`File`], or from all of them, to its [`Problem`]s. It sees text
//! alone, so its test hands it a text.

use std::process::Command;

use crate::command;
use file::{File, Problem};

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

/// Prints how far the house is in order: cycles between files, names used twice, openings of
/// comments, dependencies on the laboratory. With a path, only problems below it are listed.
pub(crate) fn house(arguments: &[String]) -> Result<(), String> {
    let files = files()?;
    let below = arguments.first().map_or("", String::as_str);
    let rules: [(&str, Vec<Problem>); 4] = [
        ("cycles between files", cycles::cycles(&files)),
        ("public type names used twice", names::types(&files)),
        ("comment openings", files.iter().flat_map(openings::openings).collect()),
        ("dependencies on the laboratory", graph::laboratory(&files)),
    ];
    for (name, problems) in &rules {
        for problem in problems.iter().filter(|problem| problem.path.starts_with(below)) {
            println!("{problem}");
        }
        println!("== {name}: {}\n", problems.len());
    }
    Ok(())
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
    problems.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    for problem in &problems {
        eprintln!("{problem}");
    }
    match problems.len() {
        0 => Ok(()),
        count => Err(format!("tidy: {count} problems in {} files", files.len())),
    }
}

/// The rules that look at one file.
const FILE_RULES: &[fn(&File) -> Vec<Problem>] = &[
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

fn files() -> Result<Vec<File>, String> {
    let arguments = ["ls-files", "--cached", "--others", "--exclude-standard"];
    let listed = command::output(Command::new("git").args(arguments))?;
    // A file that was removed but not yet from the index is listed, and not there.
    let files = listed.lines().filter_map(|path| {
        let bytes = std::fs::read(path).ok()?;
        let size = bytes.len() as u64;
        let text = String::from_utf8(bytes).unwrap_or_default();
        Some(File { path: path.to_string(), size, text })
    });
    let mut files: Vec<_> = files.collect();
    files.sort_by(|a, b| a.path.cmp(&b.path));
    files.dedup_by(|a, b| a.path == b.path);
    Ok(files)
}
