// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts of refused requests, for the metrics.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use axum::http::StatusCode;

/// Counts since the start of the node.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounts {
    by_reason: [AtomicU64; TurnAwayReason::ALL.len()],
    by_status: Mutex<BTreeMap<u16, u64>>,
}

/// A reason for which the interface gave up on a request before any route saw it, or on its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnAwayReason {
    /// The caller is unknown.
    Unknown,
    /// The caller is unknown, and has failed so often that its failures are no longer logged.
    WrongTokens,
    /// The caller exceeds its request rate.
    Requests,
    /// A tenant or reader was refused something, and it exceeds the rate at which its refusals are
    /// logged.
    Untold,
    /// The peer did not read its answer.
    Reader,
}

impl TurnAwayReason {
    pub(crate) const ALL: [Self; 5] =
        [Self::Unknown, Self::WrongTokens, Self::Requests, Self::Untold, Self::Reader];

    /// Returns the label of the metric.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::WrongTokens => "wrong_tokens",
            Self::Requests => "requests",
            Self::Untold => "untold",
            Self::Reader => "reader",
        }
    }
}

impl RefusalCounts {
    /// Counts a request that was turned away.
    pub(crate) fn turn_away(&self, reason: TurnAwayReason) {
        self.by_reason[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts an answer if its status is that of a refusal.
    pub(crate) fn answer(&self, status: StatusCode) {
        if status.is_client_error() || status.is_server_error() {
            let mut refusals = self.by_status.lock().unwrap_or_else(PoisonError::into_inner);
            *refusals.entry(status.as_u16()).or_default() += 1;
        }
    }

    /// Returns the number of requests that were turned away for this reason.
    pub(crate) fn turned_away(&self, reason: TurnAwayReason) -> u64 {
        self.by_reason[reason as usize].load(Ordering::Relaxed)
    }

    /// Returns the number of refusals of each status.
    pub(crate) fn by_status(&self) -> BTreeMap<u16, u64> {
        self.by_status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
