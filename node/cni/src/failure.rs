// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Failures, in the form in which a container runtime reads them (CNI specification, *Error*).

use serde::Serialize;
use weir_api_types::error::ErrorCode;
use weir_client::ClientError;

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct PluginFailure {
    /// Kind of the failure. Programs can rely on it.
    pub(crate) code: FailureCode,
    /// Names the thing, the value and the bound.
    pub(crate) message: String,
}

/// Codes of the specification, and one of Weir's own (from 100 on).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailureCode {
    /// The version of the configuration is not supported.
    Version = 1,
    /// A key of the configuration is not known.
    UnknownKey = 2,
    /// A variable of the environment is missing or has an invalid value.
    Environment = 4,
    /// Standard input cannot be read, or a command of the host failed.
    Io = 5,
    /// The configuration is no JSON.
    Decode = 6,
    /// A value of the configuration is missing or wrong.
    Configuration = 7,
    /// The node does not answer now, or is busy.
    TryAgain = 11,
    /// The node does not answer or does not forward; this is an answer to `STATUS`.
    NotAvailable = 50,
    /// The node refused the change, or the attachment is not as `ADD` left it.
    Refused = 100,
}

/// The error that a runtime reads on standard output.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ErrorAnswer<'a> {
    cni_version: &'a str,
    code: u32,
    msg: &'a str,
}

impl PluginFailure {
    pub(crate) fn new(code: FailureCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// Returns the error as the runtime reads it. `version` is the version of the configuration, as
    /// far as it is known.
    pub(crate) fn answer<'a>(&'a self, version: &'a str) -> ErrorAnswer<'a> {
        ErrorAnswer { cni_version: version, code: self.code as u32, msg: &self.message }
    }
}

impl From<ClientError> for PluginFailure {
    fn from(error: ClientError) -> Self {
        let code = match &error {
            ClientError::Io { .. } => FailureCode::TryAgain,
            ClientError::Refused(refusal) => match refusal.code {
                ErrorCode::Busy | ErrorCode::NotRunning | ErrorCode::TooSlow => {
                    FailureCode::TryAgain
                }
                _ => FailureCode::Refused,
            },
        };
        Self::new(code, error.to_string())
    }
}
