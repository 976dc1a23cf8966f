// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Errors of opening and working a port.

use std::{fmt, io};

/// A failed step, the device or file it failed on, and why.
#[derive(Debug)]
pub enum PortError {
    /// A system call failed.
    System {
        /// Device, file or resource.
        name: String,
        /// The step that was attempted.
        step: &'static str,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A value lies outside its bounds.
    Bound {
        /// Device, file or setting.
        name: String,
        /// The value and its bound.
        message: String,
    },
}

impl PortError {
    /// Returns the error of a system call for device, file or setting `name` that failed at a step.
    #[must_use]
    pub fn system(name: &str, step: &'static str, source: io::Error) -> Self {
        Self::System { name: name.to_owned(), step, source }
    }

    /// Returns the error of the system call that just failed.
    pub(crate) fn last(name: &str, step: &'static str) -> Self {
        Self::system(name, step, io::Error::last_os_error())
    }

    /// Returns the error of a value of device, file or setting `name` that is out of its range.
    pub fn bound(name: &str, message: impl Into<String>) -> Self {
        Self::Bound { name: name.to_owned(), message: message.into() }
    }

    /// Returns the kernel's error number, if a system call failed.
    #[must_use]
    pub fn raw_os_error(&self) -> Option<i32> {
        match self {
            Self::System { source, .. } => source.raw_os_error(),
            Self::Bound { .. } => None,
        }
    }
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::System { name, step, source } => write!(f, "{name}: cannot {step}: {source}"),
            Self::Bound { name, message } => write!(f, "{name}: {message}"),
        }
    }
}

impl std::error::Error for PortError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::System { source, .. } => Some(source),
            Self::Bound { .. } => None,
        }
    }
}
