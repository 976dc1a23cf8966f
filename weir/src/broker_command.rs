// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command that `weir broker` hands on and `weir-broker` obeys: one description for both.

use std::path::PathBuf;

use clap::Subcommand;

/// A broker of guaranteed connections over a network of routers.
#[derive(Debug, Subcommand)]
pub(crate) enum BrokerCommand {
    /// Run a broker until SIGTERM; connections stay as they are
    Run {
        /// The configuration, as TOML: docs/broker.md
        file: PathBuf,
    },
    /// Check a configuration, and change nothing
    Check {
        /// The configuration
        file: PathBuf,
    },
}
