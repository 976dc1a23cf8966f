// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a plan was not applied, or the data plane cannot be read.

use std::path::Path;

use weir_kernel_plan::KernelProblem;
use weir_platform::HostError;
use weir_platform::run::RunError;

/// Why a plan was not applied, or the data plane cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum KernelPlaneError {
    /// A command failed, or an operation on a file.
    #[error("{0}")]
    Host(#[from] HostError),
    /// The kernel refused a program or a table.
    #[error("{step}: {error}")]
    Bpf {
        /// The step, for example "attach weir_from_vif to tap0".
        step: String,
        /// The kernel's answer.
        error: std::io::Error,
    },
    /// A step of a plan failed. Everything is as before.
    #[error("{source}")]
    Step {
        /// The device of the step; `None` if it is of several devices, or of none.
        device: Option<String>,
        /// True if only a tree failed, so that the device can still have programs.
        has_programs: bool,
        /// The kernel's answer.
        source: Box<Self>,
    },
    /// The policy cannot be enforced here, for these reasons.
    #[error("{}", lines(.0))]
    Refused(Vec<KernelProblem>),
    /// There is no BPF file system, on which programs and tables outlive the process.
    #[error(
        "node.dataplane = \"kernel\" needs a BPF file system: `mount -t bpf bpf /sys/fs/bpf` makes \
         one"
    )]
    NoBpfSystem,
}

impl KernelPlaneError {
    pub(crate) fn bpf(step: impl Into<String>, error: impl std::fmt::Display) -> Self {
        Self::Bpf { step: step.into(), error: std::io::Error::other(error.to_string()) }
    }

    pub(crate) fn io(action: &'static str, path: &Path, error: std::io::Error) -> Self {
        Self::Host(HostError::io(action, path, error))
    }
}

fn lines(problems: &[KernelProblem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

impl From<RunError> for KernelPlaneError {
    fn from(error: RunError) -> Self {
        Self::Host(error.into())
    }
}
