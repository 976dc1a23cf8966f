// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures the lateness of the worker: the time from the instant for which it set its alarm to the
//! instant at which it woke.
//!
//! A late worker makes late packets, so the histogram is part of every status. Sleep, a shared core
//! and preemption by a hypervisor all show here, and nowhere else.

use hdrhistogram::Histogram;
use weir_api_types::status::LatenessSummary;
use weir_units::{Instant, Nanos};

/// A histogram of lateness: three significant digits, 1 ns to 100 s. Later wake-ups count as 100 s.
#[derive(Debug)]
pub struct Lateness {
    histogram: Histogram<u64>,
    sum_ns: u64,
    /// The beginning of the current second, and its greatest lateness in nanoseconds.
    second: (Instant, u64),
    /// The greatest lateness of the second before, in nanoseconds.
    recent: u64,
}

impl Lateness {
    /// Makes an empty histogram. All of its memory is allocated here.
    ///
    /// # Errors
    /// Only if the constants of this file contradict each other.
    pub fn new() -> Result<Self, hdrhistogram::CreationError> {
        let histogram = Histogram::new_with_bounds(1, LATENESS_MAX.as_nanos(), 3)?;
        Ok(Self { histogram, sum_ns: 0, second: (Instant::ZERO, 0), recent: 0 })
    }

    /// Counts a wake-up that was due at `due` and happened at `now`.
    pub fn record(&mut self, due: Instant, now: Instant) {
        let late = now.saturating_since(due).as_nanos();
        self.histogram.saturating_record(late.max(1));
        self.sum_ns = self.sum_ns.saturating_add(late);
        self.turn_over(now);
        self.second.1 = self.second.1.max(late);
    }

    /// Returns the quantiles so far, and the greatest lateness of the last whole second.
    #[must_use]
    pub fn summary(&mut self, now: Instant) -> LatenessSummary {
        self.turn_over(now);
        LatenessSummary {
            count: self.histogram.len(),
            p50_ns: self.histogram.value_at_quantile(0.5),
            p99_ns: self.histogram.value_at_quantile(0.99),
            p999_ns: self.histogram.value_at_quantile(0.999),
            max_ns: self.histogram.max(),
            sum_ns: self.sum_ns,
            recent_max_ns: self.recent,
        }
    }

    /// Begins another second if the current one is over.
    fn turn_over(&mut self, now: Instant) {
        let (began, latest) = self.second;
        let passed = now.saturating_since(began);
        if passed >= SECOND {
            // A second without a wake-up has no lateness.
            self.recent = if passed < TWO_SECONDS { latest } else { 0 };
            self.second = (now, 0);
        }
    }
}

/// A worker that is later than this has been stopped, not delayed.
const LATENESS_MAX: Nanos = Nanos::from_secs(100);
const SECOND: Nanos = Nanos::from_secs(1);
const TWO_SECONDS: Nanos = Nanos::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    /// The greatest lateness of a second is shown in the next one, and forgotten in the one after.
    #[test]
    fn the_latest_of_late_is_of_the_last_whole_second() {
        let at = |ms: u64| Instant::ZERO + Nanos::from_millis(10_000 + ms);
        let mut lateness = Lateness::new().unwrap();
        lateness.record(at(0), at(0));
        lateness.record(at(400), at(407));
        assert_eq!(lateness.summary(at(900)).recent_max_ns, 0);
        lateness.record(at(1098), at(1100));
        assert_eq!(lateness.summary(at(1200)).recent_max_ns, 7_000_000);
        assert_eq!(lateness.summary(at(2150)).recent_max_ns, 2_000_000);
        assert_eq!(lateness.summary(at(9000)).recent_max_ns, 0);
        assert_eq!(lateness.summary(at(9000)).max_ns / 100_000, 70);
    }
}
