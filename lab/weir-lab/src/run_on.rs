// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The choice between the laboratory and the simulator.

use clap::ValueEnum;

/// The place where experiments run. Help shows the two words alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum RunOn {
    // This machine.
    Lab,
    // Virtual time: the same claims, without a lab and without privileges.
    Sim,
}

impl RunOn {
    /// Returns the folder of a result; those of the two places are not mixed.
    pub(crate) fn folder(self, name: &str) -> String {
        match self {
            Self::Lab => name.to_owned(),
            Self::Sim => format!("{name}-sim"),
        }
    }
}
