// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of sending and receiving traffic.

use std::{fmt, io};

use weir_platform::HostError;

/// Why a send or receive did not run, or ended early.
#[derive(Debug)]
pub enum TrafficError {
    /// Every value of the specification that is out of its bounds, one text each.
    Invalid(Vec<String>),
    /// A system call failed.
    System {
        /// The action and its object.
        action: String,
        /// The system's answer.
        source: io::Error,
    },
    /// A namespace could not be entered.
    Host(HostError),
    /// A device that cannot do what was asked, and what to do about it.
    Device(String),
}

impl TrafficError {
    pub(super) fn system(action: impl Into<String>, source: io::Error) -> Self {
        Self::System { action: action.into(), source }
    }

    /// The error of the system call that just failed.
    pub(super) fn last_os(action: impl Into<String>) -> Self {
        Self::system(action, io::Error::last_os_error())
    }

    pub(super) fn bpf(action: impl Into<String>, source: libbpf_rs::Error) -> Self {
        Self::system(action, io::Error::other(format!("{source:#}")))
    }
}

impl fmt::Display for TrafficError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(problems) => f.write_str(&problems.join("; ")),
            Self::System { action, source } => write!(f, "cannot {action}: {source}"),
            Self::Host(error) => error.fmt(f),
            Self::Device(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for TrafficError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            Self::Host(error) => Some(error),
            Self::Invalid(_) | Self::Device(_) => None,
        }
    }
}

impl From<HostError> for TrafficError {
    fn from(error: HostError) -> Self {
        Self::Host(error)
    }
}
