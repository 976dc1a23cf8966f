// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir page`: the node's page in root's browser.

use std::process::ExitCode;

use clap::Args;
use weir_api::Relay;

use crate::node::socket;
use weir_platform::failure::Failure;
use weir_platform::output;

/// Open the node's page to a browser on this machine, as root: prints its address and serves it
/// until this ends. Whoever has the address may change everything.
#[derive(Debug, Args)]
pub(crate) struct Page {
    /// The port on 127.0.0.1; 0: any that is free
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// The node's name, if several run here
    #[arg(long)]
    node: Option<String>,
}

impl Page {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        let relay = Relay::bind(&socket(self.node.as_deref())?, self.port)?;
        output::print(&format!("{}\n", relay.url()))?;
        relay.run(|line| eprintln!("weir page: {line}"))?;
        Ok(ExitCode::SUCCESS)
    }
}
