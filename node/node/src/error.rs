// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a node did not start, or did not end well.

use std::path::{Path, PathBuf};

use weir_dataplane::WorkerError;
use weir_kernel::KernelPlaneError;
use weir_platform::HostError;
use weir_policy::Problems;
use weir_ports::PortError;

/// Why a node did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// A file or socket cannot be used.
    #[error("{path}: {error}")]
    Io {
        /// Its path.
        path: String,
        /// The cause.
        error: std::io::Error,
    },
    /// The policy has problems: all of them.
    #[error("{}:\n{problems}", path.display())]
    Policy {
        /// The file.
        path: PathBuf,
        /// The problems, with their lines.
        problems: Problems,
    },
    /// A device could not be opened.
    #[error("{0}")]
    Port(#[from] PortError),
    /// The host could not be prepared, or not brought back.
    #[error("{0}")]
    Host(#[from] HostError),
    /// The kernel's data plane cannot enforce the policy, or refused a step.
    #[error("{0}")]
    Kernel(#[from] KernelPlaneError),
    /// The policy is more than the switch holds.
    #[error("switch: {0}")]
    Switch(#[from] WorkerError),
    /// The worker's processor time could not be reserved.
    #[error("worker: {0}")]
    Reservation(String),
    /// The worker ended by a fault of its own.
    #[error("the worker died; its last words are on standard error")]
    WorkerDied,
}

impl NodeError {
    pub(crate) fn io(path: impl AsRef<Path>, error: std::io::Error) -> Self {
        Self::Io { path: path.as_ref().display().to_string(), error }
    }
}
