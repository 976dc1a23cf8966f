// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir doctor`: what this host offers.

use std::process::ExitCode;

use clap::Args;
use weir_host::doctor;

use crate::{Failure, output};

/// Say what this host offers, found by trying, as JSON.
#[derive(Debug, Args)]
pub(crate) struct Doctor {}

impl Doctor {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        output::print_json(&doctor::probe()?)?;
        Ok(ExitCode::SUCCESS)
    }
}
