// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why a broker ended.

use std::io;

use crate::store::BrokerStoreError;

/// Why a broker ended.
#[derive(Debug, thiserror::Error)]
pub enum BrokerError {
    /// The interface or the runtime.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The store.
    #[error("{0}")]
    Store(String),
    /// The key for the nodes.
    #[error("{0}")]
    Key(String),
    /// The contents of the store do not fit the configuration.
    #[error("{0}")]
    Configuration(String),
    /// The state of a connection contradicts what its nodes did: a defect of the broker.
    #[error("a connection's state: {0}")]
    State(String),
    /// Another broker has the lease.
    #[error("another broker has taken over")]
    Fenced,
}

impl BrokerError {
    /// Returns true if a broker on a shared store goes on from what the store has: the fault is not
    /// in its own files.
    pub(crate) const fn may_pass(&self) -> bool {
        matches!(self, Self::Store(_) | Self::State(_) | Self::Fenced)
    }
}

impl From<BrokerStoreError> for BrokerError {
    fn from(error: BrokerStoreError) -> Self {
        match error {
            BrokerStoreError::Fenced => Self::Fenced,
            other => Self::Store(other.to_string()),
        }
    }
}
