// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of sending and receiving traffic.

use std::io;

use weir_platform::HostError;

/// Why a send or receive did not run, or ended early.
#[derive(Debug, thiserror::Error)]
pub enum TrafficError {
    /// Every value of the specification that is out of its bounds, one text each.
    #[error("{}", .0.join("; "))]
    Invalid(Vec<String>),
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    System {
        /// The action and its object.
        action: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A namespace could not be entered, or a device is not there.
    #[error(transparent)]
    Host(#[from] HostError),
    /// An interface of the tester has had no carrier for too long.
    #[error(
        "interface {device} has had no carrier for {seconds} s: connect the device under test, and \
         see that its port is up"
    )]
    NoCarrier {
        /// The interface.
        device: String,
        /// The length of the wait.
        seconds: u64,
    },
    /// A signal stopped the run.
    #[error("stopped by a signal")]
    Stopped,
    /// A device that cannot do what was asked, and what to do about it.
    #[error("{0}")]
    Device(String),
}

impl TrafficError {
    pub(super) fn system(action: impl Into<String>, source: impl Into<io::Error>) -> Self {
        Self::System { action: action.into(), source: source.into() }
    }

    pub(super) fn bpf(action: impl Into<String>, source: libbpf_rs::Error) -> Self {
        Self::system(action, io::Error::other(format!("{source:#}")))
    }
}
