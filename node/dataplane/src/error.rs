// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The errors of the worker.

use weir_ports::PortError;
use weir_switch::SwitchError;

use crate::fixed::FixedValue;

/// Why a worker cannot be made for a policy.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The switch cannot hold the policy.
    #[error("{0}")]
    Switch(#[from] SwitchError),
    /// The histogram of lateness cannot be made.
    #[error("{0}")]
    Lateness(#[from] hdrhistogram::CreationError),
}

/// Why the worker does not take over a policy.
#[derive(Debug, thiserror::Error)]
pub enum ReconfigurationError {
    /// The policy changes a value that is fixed while the node runs.
    #[error("{0}")]
    Fixed(#[from] FixedValue),
    /// A device is missing, or a table of the kernel is full.
    #[error("{0}")]
    Port(#[from] PortError),
    /// The switch cannot hold the policy.
    #[error("{0}")]
    Switch(#[from] SwitchError),
    /// The old policy holds again, but the kernel did not take its redirected paths.
    #[error("{cause}; nothing is redirected any more: {error}")]
    NotRedirected {
        /// Why the new policy was refused.
        cause: Box<Self>,
        /// Why the old paths were.
        error: PortError,
    },
}
