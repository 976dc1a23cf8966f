// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one error of this crate: a command, a file or a bound that did not hold.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::run::RunError;

/// An error of a change of the host, or of reading the host.
#[derive(Debug)]
pub enum HostError {
    /// A command failed, was not found, or took too long.
    Run(RunError),
    /// A file or a system call.
    Io {
        /// The action, for example "lock the journal".
        action: &'static str,
        /// The file, or the name of the thing.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// A value outside its bound; the text names the thing, the value and the bound.
    Refused(String),
}

impl HostError {
    /// Makes an I/O error from the action and the file.
    pub fn io(action: &'static str, path: impl AsRef<Path>, source: io::Error) -> Self {
        Self::Io { action, path: path.as_ref().to_path_buf(), source }
    }

    /// Makes the error of the last system call from the action and its object.
    pub fn last_os(action: &'static str, path: impl AsRef<Path>) -> Self {
        Self::io(action, path, io::Error::last_os_error())
    }
}

impl fmt::Display for HostError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run(error) => error.fmt(f),
            Self::Io { action, path, source } => {
                write!(f, "cannot {action} {}: {source}", path.display())?;
                if source.kind() == io::ErrorKind::PermissionDenied {
                    f.write_str("; this needs root")?;
                }
                Ok(())
            }
            Self::Refused(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for HostError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Run(error) => Some(error),
            Self::Io { source, .. } => Some(source),
            Self::Refused(_) => None,
        }
    }
}

impl From<RunError> for HostError {
    fn from(error: RunError) -> Self {
        Self::Run(error)
    }
}
