// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How late the worker is: the time from the instant that it asked for to the one it woke at.
//!
//! A late worker is a late packet, so the histogram is part of every status. Sleeping, sharing the
//! core and being preempted by the hypervisor all show here and nowhere else.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use weir_units::{Instant, Nanos};

/// Histogram of lateness, three significant digits, 1 ns to 100 s (later is counted as 100 s).
#[derive(Debug)]
pub struct Lateness {
    histogram: Histogram<u64>,
    sum_ns: u64,
}

/// Quantiles of lateness in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LatenessSummary {
    /// Wake-ups measured.
    pub count: u64,
    /// Median.
    pub p50_ns: u64,
    /// 99 of 100 were not later.
    pub p99_ns: u64,
    /// 999 of 1000 were not later.
    pub p999_ns: u64,
    /// The latest.
    pub max_ns: u64,
    /// All together.
    #[serde(default)]
    pub sum_ns: u64,
}

impl Lateness {
    /// An empty histogram. All of its memory is taken here.
    ///
    /// # Errors
    /// Only if the constants of this file contradict each other.
    pub fn new() -> Result<Self, hdrhistogram::CreationError> {
        let histogram = Histogram::new_with_bounds(1, LATENESS_MAX.as_nanos(), 3)?;
        Ok(Self { histogram, sum_ns: 0 })
    }

    /// Counts a wake-up that was due at `due` and happened at `now`.
    pub fn record(&mut self, due: Instant, now: Instant) {
        let late = now.saturating_since(due).as_nanos();
        self.histogram.saturating_record(late.max(1));
        self.sum_ns = self.sum_ns.saturating_add(late);
    }

    /// The quantiles so far.
    #[must_use]
    pub fn summary(&self) -> LatenessSummary {
        LatenessSummary {
            count: self.histogram.len(),
            p50_ns: self.histogram.value_at_quantile(0.5),
            p99_ns: self.histogram.value_at_quantile(0.99),
            p999_ns: self.histogram.value_at_quantile(0.999),
            max_ns: self.histogram.max(),
            sum_ns: self.sum_ns,
        }
    }
}

/// A worker later than this has been stopped, not delayed.
const LATENESS_MAX: Nanos = Nanos::from_secs(100);
