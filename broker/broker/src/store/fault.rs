// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Faults of the store, and the bounds that they name.

use std::time::Duration;

/// Why the store cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BrokerStoreError {
    /// The database refused.
    #[error("store: {0}")]
    Database(#[from] sqlx::Error),
    /// Another broker has the lease.
    #[error("store: another broker has taken the lease")]
    Fenced,
    /// A row does not have the form of one.
    #[error("store: {0}")]
    Row(#[from] serde_json::Error),
    /// A later version of Weir wrote it.
    #[error("store: version {0}; this Weir reads {VERSION}")]
    Version(i64),
    /// The database does not answer.
    #[error("store: no answer within {} s", PATIENCE.as_secs())]
    Silent,
    /// The system gives no random bits.
    #[error("the system gives no random bits")]
    NoRandomBits,
    /// Others have committed more than is kept since the last look: everything is to be read again.
    #[error("store: more than {CHANGES_KEPT} transactions behind")]
    Behind,
}

/// Version of the tables.
pub(super) const VERSION: i64 = 6;

/// The time for an answer of a database on another machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Transactions whose changes are kept for other brokers: more than happen while one of them reads
/// a full store.
pub(super) const CHANGES_KEPT: i64 = 10_000;
