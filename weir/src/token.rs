// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir token`: a new token, and what the policy file says of it.

use std::process::ExitCode;

use clap::Args;
use serde_json::json;

use weir_platform::failure::Failure;
use weir_platform::output;

/// Make a token for the node's interface. It is printed once and kept nowhere: the policy file has
/// its digest.
#[derive(Debug, Args)]
pub(crate) struct TokenCommand {
    /// The name of its owner, as the record of changes has it
    name: String,
    /// Slice of a tenant; without it the token is an administrator's, or a reader's
    #[arg(long, conflicts_with = "reader")]
    slice: Option<String>,
    /// Sees all slices and changes nothing: for monitoring, such as Prometheus
    #[arg(long)]
    reader: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl TokenCommand {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let (token, digest) = weir_api::token::new()?;
        let Self { name, slice, reader, json } = self;
        let role = match &slice {
            Some(_) => "tenant",
            None if reader => "reader",
            None => "administrator",
        };
        let sha256 = digest.to_string();
        if json {
            output::print_own(&json!({
                "token": token, "name": name, "role": role, "slice": slice, "sha256": sha256
            }))?;
            return Ok(ExitCode::SUCCESS);
        }
        let slice = slice.map(|slice| format!("slice = {slice:?}\n")).unwrap_or_default();
        output::print(&format!(
            "# For {name}, and for nobody else: {token}\n\n# For the policy file:\n[[api.token]]\n\
             name = {name:?}\nrole = \"{role}\"\n{slice}sha256 = \"{sha256}\"\n"
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}
