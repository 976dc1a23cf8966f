// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The one token bucket of the workspace: polices and shapes, in bytes, bits or packets.
//!
//! A bucket that divides at each refill loses a fraction of a token each time, and the more often
//! it is asked the slower it fills. This one never divides to refill: the level is kept in 10⁻⁹
//! units, of which a nanosecond at `rate` units a second is worth exactly `rate`. So a refill in
//! many steps equals a refill in one. It reads no clock and polls nothing: an amount that does not
//! conform is answered with the exact instant at which it will.

use weir_units::{Instant, Nanos};

/// Lets at most `burst + rate · T` units pass in any window of length `T`. It returns the exact
/// instant at which an amount conforms.
///
/// If the clock goes back, the latest instant seen is used.
///
/// An amount above the burst could never pass. It passes when the bucket is full and leaves a
/// debt, so a shaper does not stall; the window law then holds with that amount as the burst.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Units a second, and so 10⁻⁹ units a nanosecond.
    rate: u64,
    /// Level of a full bucket, in 10⁻⁹ units; at least 0.
    full: i64,
    /// In 10⁻⁹ units; below zero while there is a debt.
    level: i64,
    /// The instant of the last refill.
    updated: Instant,
}

impl TokenBucket {
    /// The largest burst in units; a larger one is clipped to it.
    pub const BURST_MAX: u64 = i64::MAX.unsigned_abs() / NANOS_PER_SECOND;

    /// Makes a full bucket. `rate_per_second` and `burst` are in the unit that the caller counts.
    #[must_use]
    pub fn new(rate_per_second: u64, burst: u64, now: Instant) -> Self {
        let full = in_nanos(burst);
        Self { rate: rate_per_second, full, level: full, updated: now }
    }

    /// Takes `count` units if they conform.
    ///
    /// # Errors
    /// The exact instant at which they will, if nothing is taken before; [`Instant::FAR_FUTURE`] at
    /// rate zero. Nothing has been taken.
    pub fn try_take(&mut self, now: Instant, count: u64) -> Result<(), Instant> {
        self.ready(now, count)?;
        self.take(now, count);
        Ok(())
    }

    /// Takes `count` units whether they conform or not; a shortfall becomes a debt.
    pub fn take(&mut self, now: Instant, count: u64) {
        self.refill(now);
        self.level = self.level.saturating_sub(in_nanos(count));
    }

    /// Changes rate and burst from `now` on. What was earned before stays, up to the new burst.
    pub fn set_rate(&mut self, now: Instant, rate_per_second: u64, burst: u64) {
        self.refill(now);
        self.rate = rate_per_second;
        self.full = in_nanos(burst);
        self.level = self.level.min(self.full);
    }

    /// Tells whether `count` units conform now.
    #[must_use]
    pub fn conforms(&self, now: Instant, count: u64) -> bool {
        self.ready(now, count).is_ok()
    }

    /// Checks that `count` units conform now, and takes none.
    ///
    /// # Errors
    /// The instant at which they will, as for [`TokenBucket::try_take`]; later than `now`.
    pub fn ready(&self, now: Instant, count: u64) -> Result<(), Instant> {
        let needed = in_nanos(count).min(self.full);
        if needed <= self.level {
            return Ok(());
        }
        if self.rate == 0 {
            return Err(Instant::FAR_FUTURE);
        }
        // Up to twice what a level can hold.
        let missing = needed.abs_diff(self.level);
        let wait = Nanos::new(missing.div_ceil(self.rate));
        let due = self.updated + wait;
        if now >= due { Ok(()) } else { Err(due) }
    }

    /// Returns the whole units available now, at least zero.
    #[must_use]
    pub fn available(&self, now: Instant) -> u64 {
        u64::try_from(self.level_at(now)).unwrap_or(0) / NANOS_PER_SECOND
    }

    /// Returns the rate in units a second.
    #[must_use]
    pub const fn rate(&self) -> u64 {
        self.rate
    }

    /// Returns the units in a full bucket: the burst, clipped to [`TokenBucket::BURST_MAX`].
    #[must_use]
    pub const fn burst(&self) -> u64 {
        self.full.unsigned_abs() / NANOS_PER_SECOND
    }

    fn refill(&mut self, now: Instant) {
        self.level = self.level_at(now);
        self.updated = self.updated.max(now);
    }

    fn level_at(&self, now: Instant) -> i64 {
        let elapsed = now.saturating_since(self.updated).as_nanos();
        let earned = u128::from(elapsed) * u128::from(self.rate);
        // Compared before it is added, so that the sum stays in range after any pause.
        let room = self.full.abs_diff(self.level);
        match u64::try_from(earned) {
            Ok(earned) if earned < room => self.level.saturating_add_unsigned(earned),
            _ => self.full,
        }
    }
}

/// Converts `count` units to 10⁻⁹ units, clipped to what a level can hold.
fn in_nanos(count: u64) -> i64 {
    i64::try_from(count.min(TokenBucket::BURST_MAX) * NANOS_PER_SECOND).unwrap_or(i64::MAX)
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// Goal: no state of a small bucket breaks a law. Method: every rate, burst, amount and pair
    /// of steps in a small domain, compared with rational arithmetic by cross-multiplication.
    #[test]
    fn every_small_bucket_keeps_the_laws() {
        let mut delayed = 0;
        for (rate, burst, first) in product(0..=6, 0..=4, 0..=5) {
            // Rates of some 10⁸ units a second make a unit worth a few nanoseconds.
            let rate = rate * 150_000_000;
            for (second, pause, split) in product(0..=5, 0..=12, 0..=3) {
                let mut bucket = TokenBucket::new(rate, burst, at(0));
                bucket.take(at(0), first);
                let mut stepped = bucket.clone();
                stepped.refill(at(pause * split / 3));
                stepped.refill(at(pause));
                bucket.refill(at(pause));
                assert_eq!(stepped, bucket, "refill in two steps equals one");
                let left = i128::from(burst) - i128::from(first);
                let refilled = left * 1_000_000_000 + i128::from(pause * rate);
                let level = refilled.min(i128::from(burst) * 1_000_000_000);
                assert_eq!(i128::from(bucket.level), level);
                let needed = i128::from(second.min(burst)) * 1_000_000_000;
                assert_eq!(bucket.conforms(at(pause), second), level >= needed);
                let Err(until) = bucket.try_take(at(pause), second) else { continue };
                if until < Instant::FAR_FUTURE {
                    delayed += 1;
                    assert!(!bucket.conforms(at(until.as_nanos() - 1), second));
                    assert_eq!(bucket.try_take(until, second), Ok(()));
                }
            }
        }
        assert!(delayed > 1000, "the domain reaches waits: {delayed}");
    }

    #[test]
    fn a_clock_that_goes_back_earns_nothing() {
        let mut bucket = TokenBucket::new(1_000_000_000, 10, at(100));
        bucket.take(at(100), 10);
        bucket.take(at(50), 0);
        assert_eq!(bucket.available(at(50)), 0);
        assert_eq!(bucket.available(at(105)), 5);
    }

    #[test]
    fn more_than_the_burst_passes_when_full_and_leaves_a_debt() {
        let mut bucket = TokenBucket::new(1_000_000_000, 10, at(0));
        assert_eq!(bucket.try_take(at(0), 15), Ok(()));
        assert_eq!(bucket.try_take(at(0), 1), Err(at(6)));
        assert_eq!(bucket.try_take(at(0), 15), Err(at(15)));
    }

    #[test]
    fn a_change_keeps_what_was_earned_up_to_the_new_burst() {
        let mut bucket = TokenBucket::new(1_000_000_000, 10, at(0));
        bucket.take(at(0), 10);
        bucket.set_rate(at(4), 2_000_000_000, 20);
        assert_eq!(bucket.available(at(4)), 4);
        assert_eq!(bucket.available(at(5)), 6);
        bucket.set_rate(at(5), 0, 3);
        assert_eq!(bucket.available(at(1 << 60)), 3);
        assert_eq!(bucket.try_take(at(5), 3), Ok(()));
        assert_eq!(bucket.try_take(at(5), 1), Err(Instant::FAR_FUTURE));
    }

    #[test]
    fn extremes_neither_overflow_nor_panic() {
        let mut bucket = TokenBucket::new(u64::MAX, u64::MAX, at(0));
        bucket.take(at(0), u64::MAX);
        bucket.take(at(1), u64::MAX);
        bucket.take(at(u64::MAX), u64::MAX);
        assert_eq!(bucket.available(at(u64::MAX)), 0);
        assert!(bucket.ready(at(0), u64::MAX).is_err());
    }

    /// Goal: a wait from the deepest debt to the largest burst, twice what a level can hold, is
    /// exact.
    #[test]
    fn the_longest_wait_is_exact() {
        let mut bucket = TokenBucket::new(1_000_000_000, u64::MAX, at(0));
        (0..3).for_each(|_| bucket.take(at(0), u64::MAX));
        let until = bucket.try_take(at(0), u64::MAX).unwrap_err();
        assert_eq!(bucket.available(at(until.as_nanos() - 1)), TokenBucket::BURST_MAX - 1);
        assert_eq!(bucket.available(until), TokenBucket::BURST_MAX);
    }

    fn product(
        a: core::ops::RangeInclusive<u64>,
        b: core::ops::RangeInclusive<u64>,
        c: core::ops::RangeInclusive<u64>,
    ) -> impl Iterator<Item = (u64, u64, u64)> {
        a.flat_map(move |a| {
            let c = c.clone();
            b.clone().flat_map(move |b| c.clone().map(move |c| (a, b, c)))
        })
    }
}
