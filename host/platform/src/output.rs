// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Standard output of a command, as text for people and as JSON for programs.

use std::io::{self, ErrorKind, Write};

use serde::Serialize;

/// Prints to standard output. A reader that has seen enough, as `head` does, is no failure.
///
/// # Errors
/// Standard output cannot be written.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error),
        _ => Ok(()),
    }
}

/// Prints a value as JSON for people and programs.
///
/// # Errors
/// The value cannot be written as JSON, or standard output cannot be written.
pub fn print_json(value: &impl Serialize) -> io::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}

/// Prints a value whose shape is the program's own, not a body of the node's interface, as JSON
/// with the version of these shapes: another one when a key goes or changes its meaning.
///
/// # Errors
/// The value cannot be written as JSON, or standard output cannot be written.
pub fn print_own(value: &impl Serialize) -> io::Result<()> {
    #[derive(Serialize)]
    struct Versioned<'v, T> {
        version: u32,
        #[serde(flatten)]
        value: &'v T,
    }
    print_json(&Versioned { version: VERSION, value })
}

/// The version of all shapes that [`print_own`] prints.
const VERSION: u32 = 1;
