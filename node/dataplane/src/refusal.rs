// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The refusal of a request to a running node.

use weir_policy::KeyPath;

/// Why a request is not followed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind: what the caller can do about it.
    pub kind: RefusalKind,
    /// The thing, the value and the bound.
    pub message: String,
    /// The keys of the policy that it is about, if it is about some.
    pub keys: Vec<KeyPath>,
}

/// Kinds of refusals, by what the caller can do about them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// Ask again later.
    Busy,
    /// The node is starting or ending.
    NotRunning,
    /// There is no such thing.
    NotFound,
    /// The present state differs from the one that the request assumes.
    Conflict,
    /// The resulting policy is not sound, or the node cannot take it over while it runs.
    Refused,
    /// The caller may not have it.
    Forbidden,
    /// The record of changes cannot be written.
    NotRecorded,
}

impl Refusal {
    /// Makes a refusal of this kind.
    #[must_use]
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), keys: Vec::new() }
    }

    /// Names the keys of the policy that the refusal is about.
    #[must_use]
    pub fn about(self, keys: impl IntoIterator<Item = KeyPath>) -> Self {
        Self { keys: keys.into_iter().collect(), ..self }
    }
}
