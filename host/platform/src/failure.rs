// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Failures of subcommands.

/// A failure of a subcommand, with a text for a person.
pub type Failure = Box<dyn std::error::Error>;

/// A command line that is wrong in a way that only the subcommand can see.
#[derive(Debug)]
pub struct UsageError(pub String);

impl std::fmt::Display for UsageError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UsageError {}
