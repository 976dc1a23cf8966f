// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The meter of a loop: what reads a router's counters (§8.1, the Throughput Collector).

use alloc::string::String;
use core::fmt;

use weir_units::{Instant, Nanos};

/// Reads the counters of one router.
pub trait Meter {
    /// Reads them at `now`, or returns what was read shortly before for many routers at once:
    /// [`Reading::at`] is not after `now`, since a sampler takes that for a clock that was set.
    ///
    /// # Errors
    /// The counters cannot be read, or the router is gone.
    fn read(&mut self, now: Instant) -> Result<Reading, MeterError>;
}

/// The counters of a router at one moment. Each grows from some unknown start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// When they were read, on the caller's clock.
    pub at: Instant,
    /// Packets forwarded.
    pub packets: u64,
    /// Packets offered, where they are metered.
    pub offered: Option<u64>,
    /// CPU time used, where it is metered.
    pub cpu: Option<Nanos>,
}

/// Why the counters of a router could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MeterError {
    /// The counters cannot be read now; the router may still be there.
    Unreadable {
        /// The reason, as in `device v0: not there`.
        why: String,
        /// True if another meter of the router, such as that of its CPU time, still answers.
        router_answers: bool,
    },
    /// The router is gone.
    Gone {
        /// The reason, as in `process 17: not there any more`.
        why: String,
    },
}

impl fmt::Display for MeterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { why, .. } | Self::Gone { why } => f.write_str(why),
        }
    }
}

impl core::error::Error for MeterError {}
