// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The figures of `./x bench`: converts the output of a bench to a result file, compares two trees,
//! keeps a line for each run, and writes the page of the kept lines.
//!
//! Exit status: 0 success, 1 the command failed, 2 the command line was wrong, 3 a bench's own
//! bound does not hold.

mod collect;
mod compare;
mod kept;
mod page;

use std::error::Error;
use std::fs;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        ["collect", out, command, commit, start, seconds] => {
            collect::collect(out, [command, commit, start], seconds)
        }
        ["compare", sides @ ..] if sides.contains(&"--") => compare::compare(sides),
        ["keep", lines, name, result] => done(kept::append(lines, name, result)),
        ["document", lines, page, readme] => done(document(lines, page, readme)),
        ["check", lines, page, readme] => done(check(lines, page, readme)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    done.unwrap_or_else(|error| {
        eprintln!("weir-bench: {error}");
        ExitCode::FAILURE
    })
}

/// Returns the exit status 0 for work that has no status of its own.
fn done(outcome: Result<(), Box<dyn Error>>) -> Result<ExitCode, Box<dyn Error>> {
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Writes the page and the README's table, which follow from the lines.
fn document(lines: &str, page: &str, readme: &str) -> Result<(), Box<dyn Error>> {
    for (path, text) in documents(lines, page, readme)? {
        fs::write(path, text).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

/// Refuses a page or a README that does not follow from the lines.
fn check(lines: &str, page: &str, readme: &str) -> Result<(), Box<dyn Error>> {
    for (path, text) in documents(lines, page, readme)? {
        if read(path)? != text {
            let text = format!("{path} is not what follows from {lines}: ./x bench --document");
            return Err(text.into());
        }
    }
    Ok(())
}

/// Returns the paths of both documents, each with the text that follows from the lines.
fn documents<'p>(
    lines: &str,
    page: &'p str,
    readme: &'p str,
) -> Result<[(&'p str, String); 2], Box<dyn Error>> {
    let known = kept::read(lines)?;
    let excerpt = page::excerpt::renew(&read(readme)?, &known);
    let excerpt = excerpt.map_err(|error| format!("{readme}: {error}"))?;
    Ok([(page, page::document(&known)), (readme, excerpt)])
}

fn read(path: &str) -> Result<String, Box<dyn Error>> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}").into())
}

const USAGE: &str = "\
usage: weir-bench collect OUT COMMAND COMMIT START SECONDS < WHAT A BENCH PRINTED
       weir-bench compare BASE.. -- HEAD..
       weir-bench keep LINES BENCH RESULT
       weir-bench document|check LINES PAGE README";
