// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Counts how often documents are read and written, so that a test can prove a bound on it.
//!
//! Both cost time in proportion to the whole document, some 10 ms at 1000 vifs, although a change
//! concerns one key. The counts are kept with the feature `count` alone.

#[cfg(feature = "count")]
use core::sync::atomic::{AtomicU64, Ordering};

/// Documents read and written since the program started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentCounts {
    /// Texts parsed.
    pub parsed: u64,
    /// Texts written.
    pub serialised: u64,
}

/// Returns the counts of this program; `None` without the feature `count`.
#[must_use]
pub fn documents() -> Option<DocumentCounts> {
    #[cfg(feature = "count")]
    return Some(DocumentCounts {
        parsed: PARSED.load(Ordering::Relaxed),
        serialised: SERIALISED.load(Ordering::Relaxed),
    });
    #[cfg(not(feature = "count"))]
    None
}

pub(crate) fn parsed() {
    #[cfg(feature = "count")]
    PARSED.fetch_add(1, Ordering::Relaxed);
}

pub(crate) fn serialised() {
    #[cfg(feature = "count")]
    SERIALISED.fetch_add(1, Ordering::Relaxed);
}

#[cfg(feature = "count")]
static PARSED: AtomicU64 = AtomicU64::new(0);
#[cfg(feature = "count")]
static SERIALISED: AtomicU64 = AtomicU64::new(0);
