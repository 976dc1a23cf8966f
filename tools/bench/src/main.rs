// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What `./x bench` does with figures: a result file of what a bench prints, a comparison of two
//! trees, a line for what is kept, a page of what was kept.
//!
//! Exit status: 0 done, 1 it could not be done, 2 the command line was wrong, 3 a bench's own
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
        ["document", lines, page] => done(document(lines, page)),
        ["check", lines, page] => done(check(lines, page)),
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

fn done(outcome: Result<(), Box<dyn Error>>) -> Result<ExitCode, Box<dyn Error>> {
    outcome.map(|()| ExitCode::SUCCESS)
}

/// Writes the page that follows from the lines.
fn document(lines: &str, page: &str) -> Result<(), Box<dyn Error>> {
    let text = page::document(&kept::read(lines)?);
    fs::write(page, text).map_err(|error| format!("{page}: {error}").into())
}

/// Whether the page is the one that follows from the lines, and these from commits of ours.
fn check(lines: &str, page: &str) -> Result<(), Box<dyn Error>> {
    let found = fs::read_to_string(page).map_err(|error| format!("{page}: {error}"))?;
    if found != page::document(&kept::read(lines)?) {
        let text = format!("{page} is not what follows from {lines}: ./x bench --document");
        return Err(text.into());
    }
    Ok(())
}

const USAGE: &str = "\
usage: weir-bench collect OUT COMMAND COMMIT START SECONDS < WHAT A BENCH PRINTED
       weir-bench compare BASE.. -- HEAD..
       weir-bench keep LINES BENCH RESULT
       weir-bench document|check LINES PAGE";
