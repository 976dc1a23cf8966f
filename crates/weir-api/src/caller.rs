// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who asks, and what he may.

use axum::http::HeaderMap;

use crate::error::{ApiError, Code};

/// Where a connection comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// The Unix socket, from a process of this user.
    Local {
        /// As the kernel says.
        uid: u32,
    },
}

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// As the record of changes names him.
    pub(crate) who: String,
    /// What he may.
    pub(crate) role: Role,
}

/// What a caller may.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Everything.
    Administrator,
}

impl Caller {
    /// Who sends a request with these headers from there.
    ///
    /// # Errors
    /// Nobody that is known.
    pub(crate) fn of(peer: &Peer, _headers: &HeaderMap) -> Result<Self, ApiError> {
        let Peer::Local { uid } = peer;
        if *uid == 0 {
            return Ok(Self { who: format!("uid {uid}"), role: Role::Administrator });
        }
        let text = format!("uid {uid} is not 0, and there is no token");
        Err(ApiError::new(Code::NotAuthenticated, text))
    }
}
