// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits on the rate of requests of each caller: a virtual clock (GCRA) for each, in a table of
//! bounded size.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A limit of requests in a period, for each key.
#[derive(Debug)]
pub struct RateLimits {
    /// Due time of the next request of each key, if they were evenly spaced.
    due: Mutex<BTreeMap<String, Instant>>,
    step: Duration,
    ahead: Duration,
}

impl RateLimits {
    /// Allows a burst of `most` requests, and `most` more in each `period`.
    #[must_use]
    pub fn new(most: u32, period: Duration) -> Self {
        let step = period / most.max(1);
        Self { due: Mutex::default(), step, ahead: period.saturating_sub(step) }
    }

    /// Admits a request of this key at `now`, or returns false. A new key is refused while the
    /// table is full of keys in use.
    pub fn admit(&self, key: &str, now: Instant) -> bool {
        let mut due = self.due.lock().unwrap_or_else(PoisonError::into_inner);
        if !due.contains_key(key) {
            if due.len() >= KEYS_MAX {
                due.retain(|_, due| *due > now);
            }
            if due.len() >= KEYS_MAX {
                return false;
            }
        }
        let at = due.get(key).copied().unwrap_or(now).max(now);
        if at > now + self.ahead {
            return false;
        }
        due.insert(key.to_owned(), at + self.step);
        true
    }
}

/// Bound on the number of keys.
const KEYS_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_key_has_so_many_a_period() {
        let rates = RateLimits::new(10, Duration::from_secs(1));
        let start = Instant::now();
        let admitted = |key, at: u64| {
            (0..50).filter(|_| rates.admit(key, start + Duration::from_millis(at))).count()
        };
        assert_eq!((admitted("a", 0), admitted("b", 0)), (10, 10));
        assert_eq!((admitted("a", 500), admitted("a", 2000)), (5, 10));
    }

    /// Goal: a table that is full of active callers has no place for one more.
    #[test]
    fn the_table_is_bounded() {
        let rates = RateLimits::new(1, Duration::from_secs(1));
        let start = Instant::now();
        (0..KEYS_MAX).for_each(|key| assert!(rates.admit(&key.to_string(), start)));
        assert!(!rates.admit("one more", start));
        assert!(rates.admit("one more", start + Duration::from_secs(2)));
    }
}
