// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands that moved to `weir-lab`. They are kept for one release, to say where they went.

use std::process::ExitCode;

use clap::Args;

use weir_platform::failure::{Failure, UsageError};

/// Any arguments of a command that has moved.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Moved {
    /// The arguments of the command
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Moved {
    /// Refuses the command `name`, and names the one to run instead.
    pub(crate) fn run(self, name: &str) -> Result<ExitCode, Failure> {
        let mut words = vec!["weir-lab".to_owned(), name.to_owned()];
        words.extend(self.arguments);
        Err(UsageError(format!("`weir {name}` is now a command of weir-lab: {}", words.join(" ")))
            .into())
    }
}
