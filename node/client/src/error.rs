// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Failures of requests.

use std::io;

use weir_api_types::error::ApiError;

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The node did not answer, or the answer is not one of a node.
    #[error("{endpoint}: {error}")]
    Io {
        /// Address of the node.
        endpoint: String,
        /// The failure.
        error: io::Error,
    },
    /// The node refused the request.
    #[error(transparent)]
    Refused(#[from] ApiError),
}

/// Says that the connection broke, and why.
pub(crate) fn broken(error: hyper::Error) -> io::Error {
    io::Error::other(format!("the connection broke: {error}"))
}
