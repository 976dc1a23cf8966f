// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts of the interface's answers, and times of set-ups, for the metrics.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::{Method, StatusCode};

/// Counts since the start of the broker.
#[derive(Debug, Default)]
pub(crate) struct AnswerCounts(Mutex<CountedAnswers>);

/// The counts at one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct CountedAnswers {
    /// Answers by kind of the request and status.
    pub(crate) by: BTreeMap<(RequestKind, u16), u64>,
    pub(crate) setups: SetupTimes,
}

/// Times from a request for a connection received to its answer, of those that were made.
#[derive(Clone, Debug, Default)]
pub(crate) struct SetupTimes {
    /// The number that took no longer than each of [`SETUP_BOUNDS_MS`].
    pub(crate) within: [u64; SETUP_BOUNDS_MS.len()],
    pub(crate) count: u64,
    pub(crate) sum: Duration,
}

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequestKind {
    Create,
    TryOut,
    Change,
    Remove,
    Commit,
    Renew,
    SetLink,
    /// It only reads.
    Read,
    /// The interface has no such request.
    Unknown,
}

impl RequestKind {
    pub(crate) fn of(method: &Method, path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').skip(1).take(PARTS_MAX).collect();
        match (method.as_str(), parts.as_slice()) {
            ("GET" | "HEAD", _) => Self::Read,
            ("POST", ["v1", "connections"]) => Self::Create,
            ("POST", ["v1", "connections", "dry-run"]) => Self::TryOut,
            ("POST", ["v1", "connections", _, "commit"]) => Self::Commit,
            ("POST", ["v1", "connections", _, "renew"]) => Self::Renew,
            ("PATCH", ["v1", "connections", _]) => Self::Change,
            ("DELETE", ["v1", "connections", _]) => Self::Remove,
            ("PATCH", ["v1", "networks", _, "links", _]) => Self::SetLink,
            _ => Self::Unknown,
        }
    }

    /// Returns the label of the metric.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::TryOut => "dry_run",
            Self::Change => "change",
            Self::Remove => "remove",
            Self::Commit => "commit",
            Self::Renew => "renew",
            Self::SetLink => "set_link",
            Self::Read => "read",
            Self::Unknown => "unknown",
        }
    }
}

impl AnswerCounts {
    /// Returns the counts.
    pub(crate) fn now(&self) -> CountedAnswers {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts an answer, which took that long.
    pub(crate) fn count(&self, kind: RequestKind, status: StatusCode, took: Duration) {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Few statuses are answered with, so that few counts are kept.
        *counted.by.entry((kind, status.as_u16())).or_default() += 1;
        if kind == RequestKind::Create && status.is_success() {
            counted.setups.add(took);
        }
    }
}

impl SetupTimes {
    fn add(&mut self, took: Duration) {
        for (bound, within) in SETUP_BOUNDS_MS.into_iter().zip(&mut self.within) {
            *within += u64::from(took <= Duration::from_millis(bound));
        }
        self.count += 1;
        self.sum = self.sum.saturating_add(took);
    }
}

/// Parts of a path that are looked at: one more than any path of a request has.
const PARTS_MAX: usize = 6;

/// Upper bounds of the classes of set-up times, in milliseconds: from one router on the same
/// machine to ITU-T E.721's 6 s and beyond.
pub(crate) const SETUP_BOUNDS_MS: [u64; 11] =
    [5, 10, 25, 50, 100, 250, 500, 1000, 2500, 6000, 10_000];
