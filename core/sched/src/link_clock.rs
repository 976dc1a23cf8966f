// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The virtual clock of a link: when it has sent all that it was given.

use weir_units::{BIT_NANOS_PER_BYTE_SECOND, BitRate, ByteCount, Instant, Nanos, mul_add_div};

/// Paces packets to a link's rate, exactly: the fraction of a nanosecond that a packet ends in is
/// carried into the next, so the rate is right over any time.
///
/// An idle link gathers no credit. Lateness of the caller under backlog is made up for, up to
/// `catch_up`: in any window of length `T` at most `rate · (T + catch_up)` and one packet pass.
/// Where the clock goes back, the latest instant counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkClock {
    rate: BitRate,
    catch_up: Nanos,
    /// When the last packet has left, rounded down.
    due: Instant,
    /// Remainder of the rounding, in 1/`rate` nanoseconds; less than `rate`.
    fraction: u64,
}

impl LinkClock {
    /// Makes an idle link. At rate zero the first packet never ends.
    #[must_use]
    pub const fn new(rate: BitRate, catch_up: Nanos) -> Self {
        Self { rate, catch_up, due: Instant::ZERO, fraction: 0 }
    }

    /// Puts a packet on the link: right behind the one before, or `catch_up` before `now` if that
    /// is later. Call it when [`LinkClock::ready`] allows it; packets of earlier calls queue up,
    /// none is lost.
    #[inline]
    pub fn sent(&mut self, now: Instant, bytes: ByteCount) {
        self.idle_until(now.saturating_sub(self.catch_up));
        let (whole, fraction) =
            mul_add_div(bytes.get(), BIT_NANOS_PER_BYTE_SECOND, self.fraction, self.rate.as_bps());
        self.due += Nanos::new(whole);
        self.fraction = fraction;
    }

    /// Notes that nothing was there to send before `instant`: the time until then is lost.
    #[inline]
    pub fn idle_until(&mut self, instant: Instant) {
        // A caller that is on time comes at the rounded end, and must not lose the fraction.
        if instant > self.busy_until() {
            self.due = instant;
            self.fraction = 0;
        }
    }

    /// Lets the next packet begin at a whole nanosecond.
    pub(crate) fn round_up(&mut self) {
        self.due = self.busy_until();
        self.fraction = 0;
    }

    /// Changes the rate from the next packet on; the one on the link ends as it began.
    pub fn set_rate(&mut self, rate: BitRate) {
        // The old unit of the fraction means nothing at the new rate.
        self.round_up();
        self.rate = rate;
    }

    /// Checks that the link can take a packet.
    ///
    /// # Errors
    /// The exact instant at which it can, later than `now`.
    #[inline]
    pub fn ready(&self, now: Instant) -> Result<(), Instant> {
        let until = self.busy_until();
        if now >= until { Ok(()) } else { Err(until) }
    }

    /// Returns when the last packet has left, rounded up to a nanosecond.
    #[inline]
    #[must_use]
    pub fn busy_until(&self) -> Instant {
        self.due + Nanos::new(u64::from(self.fraction > 0))
    }

    /// Returns the rate.
    #[must_use]
    pub const fn rate(&self) -> BitRate {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// 3 bits a nanosecond: a byte takes 2 2/3 ns.
    const RATE: BitRate = BitRate::from_mbps(3000);

    #[test]
    fn fractions_of_a_nanosecond_add_up() {
        let mut clock = LinkClock::new(RATE, Nanos::ZERO);
        clock.idle_until(at(10));
        let mut ends = [0; 4];
        for end in &mut ends {
            let now = clock.busy_until();
            assert_eq!(clock.ready(now), Ok(()));
            clock.sent(now, ByteCount::new(1));
            *end = clock.busy_until().as_nanos();
        }
        assert_eq!(ends, [13, 16, 18, 21]);
    }

    #[test]
    fn an_idle_link_gathers_no_credit() {
        let mut clock = LinkClock::new(RATE, Nanos::from_millis(1));
        clock.sent(at(0), ByteCount::new(3));
        assert_eq!(clock.ready(at(7)), Err(at(8)));
        clock.idle_until(at(100));
        clock.sent(at(100), ByteCount::new(3));
        assert_eq!(clock.busy_until(), at(108));
    }

    #[test]
    fn lateness_is_made_up_for_within_its_bound() {
        let mut clock = LinkClock::new(RATE, Nanos::new(10));
        clock.sent(at(0), ByteCount::new(3));
        clock.sent(at(15), ByteCount::new(3));
        assert_eq!(clock.busy_until(), at(16), "7 ns late: as if on time");
        clock.sent(at(100), ByteCount::new(3));
        assert_eq!(clock.busy_until(), at(98), "84 ns late: 10 of them made up for");
    }

    #[test]
    fn a_new_rate_holds_from_the_next_packet() {
        let mut clock = LinkClock::new(RATE, Nanos::ZERO);
        clock.sent(at(0), ByteCount::new(1));
        clock.set_rate(BitRate::from_mbps(8000));
        assert_eq!(clock.busy_until(), at(3));
        clock.sent(at(3), ByteCount::new(5));
        assert_eq!(clock.busy_until(), at(8));
    }

    #[test]
    fn extremes_saturate() {
        let mut clock = LinkClock::new(BitRate::ZERO, Nanos::MAX);
        assert_eq!(clock.ready(at(0)), Ok(()));
        clock.sent(at(0), ByteCount::new(u64::MAX));
        assert_eq!(clock.ready(at(u64::MAX - 1)), Err(Instant::FAR_FUTURE));
        let mut clock = LinkClock::new(BitRate::from_bps(u64::MAX), Nanos::ZERO);
        clock.sent(at(5), ByteCount::new(u64::MAX));
        clock.sent(at(1), ByteCount::ZERO);
        assert!(clock.busy_until() > at(5));
    }
}
