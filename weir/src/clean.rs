// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir clean`.

use std::process::ExitCode;

use clap::Args;
use weir_platform::StateDir;
use weir_platform::journal::{self, Scope};

use weir_platform::failure::Failure;

/// Undo what runs that were killed left behind.
#[derive(Debug, Args)]
pub(crate) struct Clean {
    /// Also undo what nodes and labs left in place on purpose, such as after `weir node leave`
    #[arg(long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Clean {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let scope = if self.all { Scope::All } else { Scope::Stale };
        let report = journal::clean(&StateDir::from_env(), scope)?;
        report.print(self.json)?;
        Ok(ExitCode::from(u8::from(!report.failed.is_empty())))
    }
}
