// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why an experiment could not be made. A bound that does not hold is a result, not an error.

use std::path::{Path, PathBuf};

use weir_platform::HostError;
use weir_result::ResultError;
use weir_traffic::TrafficError;

/// Result of a step of an experiment; without a type of its own, a step returns no value.
pub type Result<T = (), E = ExperimentError> = std::result::Result<T, E>;

/// Why an experiment could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ExperimentError {
    /// The lab could not be built or taken down.
    #[error("lab: {0}")]
    Host(#[from] HostError),
    /// A command on the lab failed.
    #[error("lab: {0}")]
    Command(#[from] weir_platform::run::RunError),
    /// A sender or a receiver failed.
    #[error("traffic: {0}")]
    Traffic(#[from] TrafficError),
    /// The node did not start, refused a policy or ended with a failure.
    #[error("node: {0}")]
    Node(String),
    /// A request to the node failed or was refused.
    #[error("node: {0}")]
    Client(#[from] weir_client::ClientError),
    /// An operation on a file or a socket failed.
    #[error("{path}: {error}")]
    Io {
        /// The file or socket.
        path: String,
        /// The cause.
        error: std::io::Error,
    },
    /// A series or a claim does not fit the result format.
    #[error("result: {0}")]
    Result(#[from] ResultError),
    /// A run in virtual time cannot go on.
    #[error("virtual time: {0}")]
    Sim(#[from] weir_sim::SimError),
    /// A network of connections cannot be described, or a charge does not fit.
    #[error("network: {0}")]
    Network(#[from] weir_network::NetworkError),
    /// The memory for frames cannot be had.
    #[error("frames: {0}")]
    Port(#[from] weir_ports::PortError),
    /// A picture cannot be drawn.
    #[error("plot: {0}")]
    Plot(#[from] weir_plot::PlotError),
    /// A scenario cannot be read or run.
    #[error("scenario {name}: {what}")]
    Scenario {
        /// Its name.
        name: String,
        /// The fault, in words.
        what: String,
    },
    /// A shipped program is not beside `weir-lab`.
    #[error(
        "{}: not there; build it: cargo build --package {}",
        .0.display(),
        .0.file_name().unwrap_or_default().display()
    )]
    NoProduct(PathBuf),
    /// The program that was found is of another build.
    #[error("{}: version '{version}', expected '{expected}': build both again", path.display())]
    OtherBuild {
        /// The program.
        path: PathBuf,
        /// The version that the program reports.
        version: String,
        /// The version of the lab's own build.
        expected: String,
    },
    /// SIGINT or SIGTERM ended the experiment, and its lab is taken down.
    #[error("interrupted")]
    Interrupted,
    /// The experiment cannot run here.
    #[error("{what}: needs {needs}")]
    Missing {
        /// The experiment.
        what: String,
        /// The missing requirement.
        needs: String,
    },
}

impl ExperimentError {
    /// The failure of a file or a socket.
    pub fn io(path: impl AsRef<Path>, error: std::io::Error) -> Self {
        Self::Io { path: path.as_ref().display().to_string(), error }
    }
}
