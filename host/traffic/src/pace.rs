// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pace of a sender through sockets: when the next packet is due, and how large it is.
//!
//! A sender that is kept from sending catches up by at most [`CATCH_UP`] afterwards. Time beyond
//! that is given up, and the result says how much, so that a gap in the load is not taken for loss.

use weir_sched::LinkClock;
use weir_units::{BitRate, ByteCount, Instant, Nanos};

use super::spec::{FrameSizes, Rate};

/// Says when packets are due; without a rate, always.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    clock: Option<LinkClock>,
    /// Set for a bit rate; at a packet rate each packet counts as one byte.
    by_bytes: bool,
}

impl Pace {
    /// A pace whose first packet is due at `start_ns`.
    pub(super) fn new(rate: Option<Rate>, start_ns: u64) -> Self {
        // The clock paces bytes: a packet rate is the bit rate of packets of one byte.
        let (bits, by_bytes) = match rate {
            None => return Self { clock: None, by_bytes: false },
            Some(Rate::Pps(pps)) => (pps.saturating_mul(8), false),
            Some(Rate::Bps(bps)) => (bps, true),
        };
        let mut clock = LinkClock::new(BitRate::from_bps(bits), CATCH_UP);
        clock.idle_until(Instant::from_nanos(start_ns));
        Self { clock: Some(clock), by_bytes }
    }

    /// Checks that a packet is due.
    ///
    /// # Errors
    /// No packet is due yet; the error is the instant at which one will be.
    pub(super) fn ready(&self, now_ns: u64) -> Result<(), u64> {
        let Some(clock) = &self.clock else { return Ok(()) };
        clock.ready(Instant::from_nanos(now_ns)).map_err(Instant::as_nanos)
    }

    /// Returns how late the next packet is at `now_ns`, in ns.
    pub(super) fn lateness_ns(&self, now_ns: u64) -> u64 {
        self.clock.as_ref().map_or(0, |clock| {
            Instant::from_nanos(now_ns).saturating_since(clock.busy_until()).as_nanos()
        })
    }

    /// Counts a sent packet of `bytes`. Returns the time given up, in ns: the lateness beyond what
    /// the sender may catch up with.
    pub(super) fn sent(&mut self, now_ns: u64, bytes: u64) -> u64 {
        let Some(clock) = &mut self.clock else { return 0 };
        let now = Instant::from_nanos(now_ns);
        let lateness = now.saturating_since(clock.busy_until());
        clock.sent(now, ByteCount::new(if self.by_bytes { bytes } else { 1 }));
        lateness.saturating_sub(CATCH_UP).as_nanos()
    }
}

/// A sequence of frame sizes.
#[derive(Clone, Debug)]
pub(super) struct Sizes {
    list: Vec<u16>,
    /// The number of sizes to draw from, beginning with the first one; `None`: the list in turn.
    span: Option<u64>,
    next: usize,
    random: u64,
}

impl Sizes {
    pub(super) fn new(sizes: &FrameSizes) -> Self {
        let list = sizes.list();
        let span = match sizes {
            FrameSizes::Uniform { min, max } => Some(u64::from(max.saturating_sub(*min)) + 1),
            _ => None,
        };
        Self { list, span, next: 0, random: RANDOM_SEED }
    }

    /// The next size; 0 only for an empty list, which the checks refuse.
    pub(super) fn next(&mut self) -> u16 {
        let Some(span) = self.span else {
            let size = self.list.get(self.next).copied().unwrap_or(0);
            self.next = if self.next + 1 < self.list.len() { self.next + 1 } else { 0 };
            return size;
        };
        // xorshift64 (Marsaglia 2003), scaled without a division.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let above = ((self.random >> 32) * span) >> 32;
        let first = self.list.first().copied().unwrap_or(0);
        first.saturating_add(u16::try_from(above).unwrap_or(0))
    }
}

/// The most lateness that is caught up with, which is the generator's default, too. A shared
/// machine may take a processor away for that long.
const CATCH_UP: Nanos = Nanos::from_millis(20);
/// Not zero, and always the same, so that a run can be repeated.
const RANDOM_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_rate_does_not_look_at_sizes() {
        let mut pace = Pace::new(Some(Rate::Pps(3)), 1_000);
        let mut due = Vec::new();
        for bytes in [60, 1514, 60, 1514] {
            let now = pace.ready(0).unwrap_err();
            due.push(now - 1_000);
            assert_eq!(pace.sent(now, bytes), 0);
        }
        // A third of a second, with its remainder, rounded up.
        assert_eq!(due, [0, 333_333_334, 666_666_667, 1_000_000_000]);
    }

    #[test]
    fn a_bit_rate_does() {
        let mut pace = Pace::new(Some(Rate::Bps(8_000)), 0);
        pace.sent(0, 100);
        assert_eq!(pace.ready(0), Err(100_000_000));
    }

    #[test]
    fn what_is_too_late_is_given_up() {
        let mut pace = Pace::new(Some(Rate::Pps(1_000)), 0);
        assert_eq!(pace.sent(25_000_000, 60), 5_000_000);
        assert_eq!(pace.ready(25_000_000), Ok(()));
    }

    #[test]
    fn sizes_come_in_turn_or_from_the_whole_span() {
        let mut sizes = Sizes::new(&FrameSizes::Mix(vec![1, 2, 3]));
        assert_eq!([1, 2, 3, 1], std::array::from_fn(|_| sizes.next()));
        let mut sizes = Sizes::new(&FrameSizes::Uniform { min: 60, max: 63 });
        let mut seen = [0; 4];
        for _ in 0..4_000 {
            seen[usize::from(sizes.next() - 60)] += 1;
        }
        assert!(seen.iter().all(|count| (900..=1100).contains(count)), "{seen:?}");
    }
}
