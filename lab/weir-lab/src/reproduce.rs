// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir-lab reproduce`: reproduces a paper's experiments, without and with Weir.

mod em;
mod figure_set;
mod iip;
mod jitter;
mod netback;
mod xtc;

use std::process::ExitCode;

use clap::Subcommand;
use weir_platform::failure::Failure;

/// Reproduce a paper's experiments, without and with Weir.
#[derive(Debug, Subcommand)]
pub(crate) enum Reproduce {
    /// Packet scheduling across virtual interfaces: fig5 to fig12, and what the text left open
    Netback(netback::ReproduceNetback),
    /// Processor time and delay at the right moment: activation to shares; a shaper of 2 Mb/s
    Jitter(jitter::ReproduceJitter),
    /// Three parallel internets through one node: fig5 to fig12, table1
    Iip(iip::ReproduceIip),
    /// Guaranteed connections: fig2 to fig4, table1 to table3, the comparison with others
    Em(em::ReproduceEm),
    /// Packet rates held by feedback: fig3 to fig18, fig20, table1, table2
    Xtc(xtc::ReproduceXtc),
}

impl Reproduce {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        match self {
            Self::Netback(command) => command.run(),
            Self::Jitter(command) => command.run(),
            Self::Iip(command) => command.run(),
            Self::Em(command) => command.run(),
            Self::Xtc(command) => command.run(),
        }
    }
}
