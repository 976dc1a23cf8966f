// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The smooth window: a shaper that holds a rate and keeps the delay that it adds nearly constant.
//!
//! **Problem.** A token bucket holds a rate, but the delay that it adds swings between nothing,
//! while tokens last, and a whole refill, once they are gone. A media stream can stand a long
//! delay; a delay that varies costs it a play-out buffer. So the shaper should delay each packet
//! by about the same time, which is just long enough to hold the sender to its rate.
//!
//! **Idea.** Each packet is delayed by `D` to `D + width`: a window, whose position `D` moves once
//! in an interval. A closed loop of `n` clients that fetch `S` bytes with a round trip `T₀` has the
//! throughput `n·S / (T₀ + D)`. So a longer delay slows the sender down, and the right `D` is the
//! one at which it sends at its rate.
//!
//! **Release law.** The virtual clock `c` is when all packets so far would have left at the rate.
//! A packet that arrives at `a` leaves at
//!
//! ```text
//! d = max( clamp( max(c, a), a + D, a + D + width ), c - credit, the release before )
//! ```
//!
//! Inside the window packets are paced. At a low rate the window is shorter than the transmission
//! of a packet, so a packet may leave ahead of its turn, by `credit` at most. Hence the *byte law*:
//! in any time `τ` at most `rate · (τ + credit)` and one packet leave, whatever arrives.
//!
//! **Refusal.** A packet that would leave more than `delay_max + width` after its arrival is
//! refused as it arrives. An admitted packet is never dropped.
//!
//! **Control.** [`WindowControl`] moves the window by the measures of an interval;
//! [`LogarithmicControl`] is the default. Its reasoning is on the page `smooth.md` of the
//! algorithms. [`LinearPid`] is the law of the text, for comparison.

use weir_units::{ByteCount, Instant, Nanos};

use crate::LinkClock;
use crate::smooth_control::{IntervalMeasures, LogarithmicControl, SmoothConfig, WindowControl};

/// Gives each packet the instant at which it leaves, in O(1) and without a queue of its own: the
/// instants never decrease, so a first-in-first-out queue holds the packets meanwhile.
///
/// ```
/// use weir_sched::{SmoothConfig, SmoothShaper};
/// use weir_units::{BitRate, Instant, Nanos};
///
/// // 2 Mb/s: a packet of 1250 bytes takes 5 ms.
/// let mut shaper = SmoothShaper::new(SmoothConfig::new(BitRate::from_mbps(2)), Instant::ZERO);
/// let releases: Vec<_> =
///     (0..3).map(|_| shaper.admit(Instant::ZERO, 1250).unwrap().as_nanos() / 1_000_000).collect();
/// // The first is on time; the others leave at the end of the window, ahead of the rate.
/// assert_eq!(releases, [0, 3, 3]);
/// // 100 ms of credit are 20 packets. Later packets wait for the rate.
/// let last = (3..23).map(|_| shaper.admit(Instant::ZERO, 1250).unwrap()).last();
/// assert_eq!(last, Some(Instant::ZERO + Nanos::from_millis(10)));
/// // No packet waits for longer than 203 ms: 38 more are admitted, the rest is refused.
/// assert_eq!((23..100).filter(|_| shaper.admit(Instant::ZERO, 1250).is_some()).count(), 38);
/// ```
#[derive(Clone, Debug)]
pub struct SmoothShaper<C = LogarithmicControl> {
    config: SmoothConfig,
    control: C,
    /// When the packets released so far would have left at the rate.
    clock: LinkClock,
    /// Position of the window: the least delay.
    position: Nanos,
    released: Instant,
    interval: IntervalMeasures,
    latest: Instant,
    late: u64,
    refused: u64,
}

impl SmoothShaper {
    /// Makes a shaper that has sent nothing, with its window at zero.
    #[must_use]
    pub fn new(config: SmoothConfig, now: Instant) -> Self {
        Self::with_control(config, LogarithmicControl, now)
    }

    /// Makes a shaper that releases nothing before `released`, when the last packet of the shaper
    /// that it replaces leaves.
    #[must_use]
    pub fn after(config: SmoothConfig, now: Instant, released: Instant) -> Self {
        Self { released, ..Self::new(config, now) }
    }
}

impl<C: WindowControl> SmoothShaper<C> {
    /// Makes a shaper whose window is moved by `control`.
    #[must_use]
    pub fn with_control(config: SmoothConfig, control: C, now: Instant) -> Self {
        let clock = LinkClock::new(config.rate, Nanos::ZERO);
        let interval = IntervalMeasures::begin(now, Nanos::ZERO);
        let (position, released, latest) = (Nanos::ZERO, Instant::ZERO, now);
        let (late, refused) = (0, 0);
        Self { config, control, clock, position, released, interval, latest, late, refused }
    }

    /// Takes a packet of `bytes` bytes that arrives now; returns when it leaves. `None`: it is
    /// refused, since it would have to wait for longer than [`SmoothConfig::longest`].
    ///
    /// A clock that goes back counts as the latest instant seen.
    pub fn admit(&mut self, now: Instant, bytes: u32) -> Option<Instant> {
        self.latest = self.latest.max(now);
        let now = self.latest;
        self.close_interval(now);
        let bytes = ByteCount::new(bytes.into());
        let (turn, leaves) = self.next_release(now);
        if leaves > now + self.config.longest() {
            self.refused += 1;
            self.interval.refuse(bytes);
            return None;
        }
        let window_ends = now + self.position + self.config.width;
        self.late += u64::from(leaves > window_ends);
        self.interval.release(bytes, leaves - now, (leaves, turn));
        self.clock.sent(leaves, bytes);
        self.released = leaves;
        debug_assert!(
            turn <= leaves + self.config.credit,
            "a packet leaves ahead of its turn by the credit at most"
        );
        Some(leaves)
    }

    /// Returns the turn of the next packet at the rate, and when it leaves if it arrives now.
    fn next_release(&self, now: Instant) -> (Instant, Instant) {
        let turn = self.clock.busy_until();
        let first = now + self.position;
        let paced = turn.max(now).clamp(first, first + self.config.width);
        let leaves = paced.max(turn.saturating_sub(self.config.credit)).max(self.released);
        (turn, leaves)
    }

    /// Returns the number of packets of `bytes` bytes that would be admitted now, one after the
    /// other.
    #[must_use]
    pub fn room(&self, now: Instant, bytes: u32) -> u64 {
        let now = self.latest.max(now);
        let horizon = now + self.config.longest();
        // The first packet may move the window.
        let mut then = self.clone();
        then.close_interval(now);
        let (turn, leaves) = then.next_release(now);
        if leaves > horizon {
            return 0;
        }
        // A packet is admitted while its turn is at most this horizon; the first packet is.
        let horizon = horizon + self.config.credit;
        let free = self.config.rate.bytes_in_floor(horizon.saturating_since(turn.max(leaves)));
        free.get().checked_div(bytes.into()).map_or(u64::MAX, |packets| packets + 1)
    }

    /// Changes the parameters from the next packet on. The window stays, within its new bound, and
    /// so does the credit that was used; measuring begins anew.
    pub fn change(&mut self, now: Instant, config: SmoothConfig) {
        if config == self.config {
            return;
        }
        if config.rate != self.config.rate {
            self.clock.set_rate(config.rate);
        }
        self.latest = self.latest.max(now);
        self.position = self.position.min(config.delay_max);
        // The debt from before stays: the next interval does not count it as growth.
        self.interval = IntervalMeasures::begin(self.latest, self.interval.standing_lead());
        self.config = config;
    }

    /// Counts bytes that were dropped early, before they could arrive, because [`Self::room`] was
    /// used up. They move the window just as refused bytes do.
    pub fn count_early_drop(&mut self, bytes: ByteCount) {
        self.interval.refuse(bytes);
    }

    /// Closes the interval if it is over: the window moves, and a new interval begins.
    ///
    /// An interval lasts for twice the delay at least, so that a closed loop has reacted to the
    /// last move of the window. It ends early once a quarter of it went unused. It need not end
    /// early for over-use, which the credit bounds. An interval with a pause teaches nothing and
    /// moves no window.
    fn close_interval(&mut self, now: Instant) {
        let lasted = now.saturating_since(self.interval.start);
        let least = SETTLE_LEAST.max(Nanos::new(self.position.as_nanos().saturating_mul(2)));
        let whole = self.config.interval.max(least);
        // The time lost since the last turn belongs to the interval in which it passed.
        let mut measured = self.interval.clone();
        measured.lose(self.clock.busy_until(), now);
        if lasted < whole {
            let quarter = Nanos::new(self.config.interval.as_nanos() / 4);
            if lasted <= least || measured.idle <= quarter {
                return;
            }
        }
        let paused = lasted.as_nanos() > whole.as_nanos().saturating_mul(2);
        if measured.packets > 0 && !paused {
            let next = self.control.next(self.position, lasted, &measured, &self.config);
            self.position = next.min(self.config.delay_max);
        }
        self.interval = IntervalMeasures::begin(now, measured.standing_lead());
    }

    /// Returns the least delay of a packet now: where the window begins.
    #[must_use]
    pub const fn position(&self) -> Nanos {
        self.position
    }

    /// Returns the parameters.
    #[must_use]
    pub const fn config(&self) -> &SmoothConfig {
        &self.config
    }

    /// Returns the number of packets that left after the end of the window.
    #[must_use]
    pub const fn late(&self) -> u64 {
        self.late
    }

    /// Returns the number of packets that were refused.
    #[must_use]
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

/// Least length of an interval.
const SETTLE_LEAST: Nanos = Nanos::from_millis(50);

#[cfg(test)]
mod tests {
    use weir_units::BitRate;

    use super::*;

    fn shaper(config: SmoothConfig) -> SmoothShaper {
        SmoothShaper::new(config, Instant::ZERO)
    }

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Nanos::from_micros(micros)
    }

    const CONFIG: SmoothConfig = SmoothConfig::new(BitRate::from_mbps(2));

    #[test]
    fn room_is_what_is_taken() {
        for micros in [0, 1_000, 40_000, 250_000, 900_000] {
            let mut shaper = shaper(CONFIG);
            for _ in 0..40 {
                shaper.admit(at(0), 1500);
            }
            let room = shaper.room(at(micros), 1500);
            assert!(room > 0, "at {micros}");
            for _ in 0..room {
                assert!(shaper.admit(at(micros), 1500).is_some(), "{room} at {micros}");
            }
            assert_eq!(shaper.admit(at(micros), 1500), None, "{room} at {micros}");
            assert_eq!(shaper.room(at(micros), 1500), 0);
        }
    }

    #[test]
    fn a_change_keeps_order_and_debt() {
        let mut shaper = shaper(CONFIG);
        let mut last = Instant::ZERO;
        for _ in 0..50 {
            last = shaper.admit(at(0), 1250).unwrap();
        }
        // 50 packets of 5 ms each, 100 ms of which the credit covers.
        assert_eq!(last, at(145_000));
        let slower = SmoothConfig::new(BitRate::from_mbps(1));
        shaper.change(at(1_000), slower);
        assert_eq!(shaper.admit(at(1_000), 1250), Some(at(150_000)));
        assert_eq!(shaper.admit(at(1_000), 1250), Some(at(160_000)));
        shaper.change(at(2_000), SmoothConfig { credit: Nanos::from_secs(1), ..CONFIG });
        assert_eq!(shaper.admit(at(2_000), 1250), Some(at(160_000)), "no earlier than the last");
    }

    /// Sends a packet of 1250 bytes each 5 ms, which is the rate, from `start` on.
    fn keep_rate(shaper: &mut SmoothShaper, start: u64, packets: u64) {
        for packet in 0..packets {
            shaper.admit(at(start + packet * 5_000), 1250);
        }
    }

    /// Returns a shaper after two seconds of overload, with its window at 24 ms.
    fn overloaded() -> SmoothShaper {
        let mut shaper = shaper(SmoothConfig { delay_max: Nanos::from_millis(24), ..CONFIG });
        for packet in 0..1000 {
            shaper.admit(at(packet * 2_000), 1250);
        }
        assert_eq!(shaper.position(), Nanos::from_millis(24));
        shaper
    }

    #[test]
    fn a_pause_of_two_intervals_teaches_nothing() {
        let mut shaper = overloaded();
        keep_rate(&mut shaper, 5_000_000, 600);
        // Only the 24 ms of the first packet's own delay are lost.
        assert!(shaper.position() > Nanos::from_millis(23), "{}", shaper.position());
    }

    #[test]
    fn a_think_time_counts_once_in_the_interval_that_it_ends() {
        let mut shaper = overloaded();
        keep_rate(&mut shaper, 2_000_000, 120);
        // The debt lasts until 2.72 s, so 0.38 s of the 1.1 s until 3.1 s are lost.
        let before = shaper.position().as_nanos();
        keep_rate(&mut shaper, 3_100_000, 60);
        let after = shaper.position().as_nanos();
        assert!(after < before && after > before / 2, "{before} ns to {after} ns");
    }

    #[test]
    fn the_time_before_the_start_is_not_lost() {
        let start = 3_600_000_000;
        let mut shaper = SmoothShaper::new(CONFIG, at(start));
        // Twice the rate from the start on: the window rises with the first interval.
        for packet in 0..402 {
            shaper.admit(at(start + packet * 2_500), 1250);
        }
        assert!(shaper.position() > Nanos::ZERO);
    }

    #[test]
    fn a_change_does_not_count_the_standing_lead_as_growth() {
        let config = SmoothConfig { delay_max: Nanos::from_secs(1), ..CONFIG };
        let run = |changed: bool| {
            let mut shaper = shaper(config.clone());
            for packet in 0..20 {
                shaper.admit(at(packet), 1250);
            }
            keep_rate(&mut shaper, 1_000, 420);
            if changed {
                let credit = Nanos::from_millis(101);
                shaper.change(at(2_100_000), SmoothConfig { credit, ..config.clone() });
            }
            keep_rate(&mut shaper, 2_101_000, 220);
            shaper.position().as_nanos()
        };
        let (with, without) = (run(true), run(false));
        assert!(with < without * 5 / 4, "{with} ns after a change, {without} ns without");
    }

    #[test]
    fn early_drops_move_the_window_without_a_credit() {
        let mut shaper = shaper(SmoothConfig { credit: Nanos::ZERO, ..CONFIG });
        for packet in 0..6_000 {
            let now = at(packet * 2_000);
            match shaper.room(now, 1250) {
                0 => shaper.count_early_drop(ByteCount::new(1250)),
                _ => drop(shaper.admit(now, 1250)),
            }
        }
        assert_eq!((shaper.position(), shaper.refused()), (CONFIG.delay_max, 0));
    }

    #[test]
    fn a_clock_that_goes_back_counts_as_the_latest() {
        let mut shaper = shaper(CONFIG);
        assert_eq!(shaper.admit(at(50_000), 1250), Some(at(50_000)));
        assert_eq!(shaper.admit(at(10_000), 1250), Some(at(53_000)));
    }

    #[test]
    fn extremes_neither_overflow_nor_panic() {
        let wide = SmoothConfig {
            rate: BitRate::ZERO,
            credit: Nanos::MAX,
            width: Nanos::MAX,
            interval: Nanos::ZERO,
            delay_max: Nanos::MAX,
        };
        for rate in [0, 1, u64::MAX] {
            let mut shaper = shaper(SmoothConfig { rate: BitRate::from_bps(rate), ..wide.clone() });
            for at in [0, 1, u64::MAX / 2, u64::MAX, 7] {
                shaper.admit(Instant::from_nanos(at), u32::MAX);
                let _any = shaper.room(Instant::from_nanos(at), 0);
            }
            shaper.change(Instant::FAR_FUTURE, CONFIG);
            shaper.admit(Instant::FAR_FUTURE, 0);
        }
    }
}
