// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shapers alone, in virtual time: the smooth window of the product, and those that it is compared
//! with.
//!
//! A shaper decides when a packet leaves as soon as the packet arrives, since packets leave in
//! order and nothing that comes later can pass them. So a run needs no queue of departures, and a
//! sender in a closed loop learns at once when its answer will come: [`run_shaped`].

use weir_sched::{LinkClock, SmoothShaper, TokenBucket, WindowControl};
use weir_units::{BitRate, ByteCount, Instant, Nanos};

/// Gives each packet the instant at which it leaves.
pub trait Shaper {
    /// Takes a packet of `bytes` bytes that arrives now, and returns when it leaves; `None`: the
    /// packet is refused. Instants of arrival never decrease.
    fn admit(&mut self, now: Instant, bytes: u32) -> Option<Instant>;

    /// Returns the window that the delay is to keep to; `None` for a shaper without one.
    fn window(&self) -> Option<Nanos> {
        None
    }

    /// Returns the shaper's own count of packets that left after the end of its window; `None` if
    /// it has no such count.
    fn late(&self) -> Option<u64> {
        None
    }
}

/// A sender whose packets pass a shaper.
pub trait ShapedSource {
    /// Returns when it acts next; [`Instant::FAR_FUTURE`] if never.
    fn due(&self) -> Instant;

    /// Acts at the instant that [`ShapedSource::due`] named; returns the bytes of a packet if it
    /// offers one.
    fn offer(&mut self, now: Instant) -> Option<u32>;

    /// Learns when the packet that it just offered leaves; `None`: it was refused.
    fn outcome(&mut self, now: Instant, leaves: Option<Instant>);
}

/// A packet that was offered to a shaper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShapedPacket {
    /// When it arrived.
    pub arrived: Instant,
    /// When it left; `None`: it was refused.
    pub left: Option<Instant>,
    /// Its length.
    pub bytes: u32,
    /// The beginning of the shaper's window at that time.
    pub window: Option<Nanos>,
}

/// Sends all packets that a source offers before `end` through a shaper, and returns them.
pub fn run_shaped(
    shaper: &mut dyn Shaper,
    source: &mut dyn ShapedSource,
    end: Instant,
) -> Vec<ShapedPacket> {
    let mut packets = Vec::new();
    watch_shaped(shaper, source, end, |packet| packets.push(*packet));
    packets
}

/// Runs like [`run_shaped`], but hands each packet to `watch`, for runs that are too long to keep.
pub fn watch_shaped<S: Shaper + ?Sized, O: ShapedSource + ?Sized>(
    shaper: &mut S,
    source: &mut O,
    end: Instant,
    mut watch: impl FnMut(&ShapedPacket),
) {
    let mut now = Instant::ZERO;
    loop {
        now = now.max(source.due());
        if now >= end {
            return;
        }
        if let Some(bytes) = source.offer(now) {
            let left = shaper.admit(now, bytes);
            source.outcome(now, left);
            watch(&ShapedPacket { arrived: now, left, bytes, window: shaper.window() });
        }
    }
}

impl<C: WindowControl> Shaper for SmoothShaper<C> {
    fn admit(&mut self, now: Instant, bytes: u32) -> Option<Instant> {
        Self::admit(self, now, bytes)
    }

    fn window(&self) -> Option<Nanos> {
        Some(self.position())
    }

    fn late(&self) -> Option<u64> {
        Some(Self::late(self))
    }
}

/// Paces every packet at the rate, with no burst: `pace` in a policy.
#[derive(Clone, Debug)]
pub struct PacedShaper {
    clock: LinkClock,
    wait_max: Nanos,
}

impl PacedShaper {
    /// Makes an idle pacer that refuses packets which would wait for longer than `wait_max`.
    #[must_use]
    pub const fn new(rate: BitRate, wait_max: Nanos) -> Self {
        Self { clock: LinkClock::new(rate, Nanos::ZERO), wait_max }
    }
}

impl Shaper for PacedShaper {
    fn admit(&mut self, now: Instant, bytes: u32) -> Option<Instant> {
        let leaves = self.clock.busy_until().max(now);
        let waits = leaves.saturating_since(now) > self.wait_max;
        (!waits).then(|| self.clock.sent(leaves, ByteCount::new(bytes.into())))?;
        Some(leaves)
    }
}

/// A token bucket that is refilled continuously, as Linux's TBF.
#[derive(Clone, Debug)]
pub struct BucketShaper {
    bucket: TokenBucket,
    last: Instant,
    wait_max: Nanos,
}

impl BucketShaper {
    /// Makes a full bucket that refuses packets which would wait for longer than `wait_max`.
    #[must_use]
    pub fn new(rate: BitRate, burst: ByteCount, wait_max: Nanos) -> Self {
        let bucket = TokenBucket::new(rate.as_bps(), burst.get() * 8, Instant::ZERO);
        Self { bucket, last: Instant::ZERO, wait_max }
    }
}

impl Shaper for BucketShaper {
    fn admit(&mut self, now: Instant, bytes: u32) -> Option<Instant> {
        let (first, bits) = (self.last.max(now), u64::from(bytes) * 8);
        let leaves = self.bucket.ready(first, bits).map_or_else(|until| until, |()| first);
        if leaves.saturating_since(now) > self.wait_max {
            return None;
        }
        self.bucket.take(leaves, bits);
        self.last = leaves;
        Some(leaves)
    }
}

/// The limit of Xen's netback: a credit that is handed out every 50 ms, at ticks of the kernel.
///
/// `tx_add_credit` and `tx_credit_exceeded` of Linux 2.6.32's `drivers/xen/netback`: when a packet
/// is larger than the remaining credit, all packets wait for a timer of 50 ms in whole jiffies.
/// With 250 jiffies a second that is 52 ms for a credit of 50 ms. The remainder is added to the
/// next credit, up to one credit or the next packet, so a remainder below a packet is lost.
#[derive(Clone, Debug)]
pub struct XenBucket {
    credit: u64,
    remaining: u64,
    /// When the credit was handed out last.
    expires: Instant,
    last: Instant,
    wait_max: Nanos,
}

impl XenBucket {
    /// Makes a full bucket of a rate that refuses packets which would wait for longer than
    /// `wait_max`.
    #[must_use]
    pub const fn new(rate: BitRate, wait_max: Nanos) -> Self {
        let credit = rate.bytes_in_floor(CREDIT_TIME).get();
        // Without any credit a packet would wait for ever.
        let credit = if credit == 0 { 1 } else { credit };
        Self { credit, remaining: credit, expires: Instant::ZERO, last: Instant::ZERO, wait_max }
    }

    /// Adds the credit that is due for a packet of `bytes` bytes.
    fn add_credit(&mut self, at: Instant, bytes: u64) {
        self.expires = at;
        self.remaining = (self.remaining + self.credit).min(self.credit.max(bytes));
    }

    fn due(&self) -> Instant {
        self.expires + Nanos::new(CREDIT_TIME.as_nanos().next_multiple_of(JIFFY))
    }
}

impl Shaper for XenBucket {
    fn admit(&mut self, now: Instant, bytes: u32) -> Option<Instant> {
        let (kept, bytes) = (self.clone(), u64::from(bytes));
        let mut leaves = self.last.max(now);
        let tick = Instant::from_nanos(leaves.as_nanos() / JIFFY * JIFFY);
        if tick >= self.due() {
            self.add_credit(tick, bytes);
        }
        // A packet longer than a credit waits for several.
        while bytes > self.remaining && leaves.saturating_since(now) <= self.wait_max {
            leaves = self.due();
            self.add_credit(leaves, bytes);
        }
        if leaves.saturating_since(now) > self.wait_max {
            *self = kept;
            return None;
        }
        debug_assert!(
            bytes <= self.remaining,
            "the loop ends with credit or beyond the longest wait"
        );
        self.remaining -= bytes;
        self.last = leaves;
        Some(leaves)
    }
}

/// The time whose credit netback hands out at once.
const CREDIT_TIME: Nanos = Nanos::from_millis(50);
/// 250 jiffies a second.
const JIFFY: u64 = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Instant {
        Instant::from_nanos(millis * 1_000_000)
    }

    const RATE: BitRate = BitRate::from_mbps(2);
    const LONG: Nanos = Nanos::from_secs(9);

    /// 12 500 bytes are a credit: eight packets of 1500, and 500 bytes that are lost, since the
    /// next credit is capped.
    #[test]
    fn netback_gives_a_credit_each_52_ms() {
        let mut xen = XenBucket::new(RATE, LONG);
        let left: Vec<_> = (0..24).map(|_| xen.admit(at(0), 1500).unwrap()).collect();
        assert_eq!(left[..8], [at(0); 8]);
        assert_eq!(left[8..16], [at(52); 8]);
        assert_eq!(left[16..], [at(104); 8]);
        // 8 · 1500 bytes in 52 ms: 0.923 of the rate.
    }

    /// 625 bytes are a credit: a packet of 1514 takes three, and their remainder is lost.
    #[test]
    fn netback_saves_credits_for_a_packet_that_is_longer_than_one() {
        let rate = BitRate::from_bps(100_000);
        let mut xen = XenBucket::new(rate, LONG);
        let left: Vec<_> = (0..3).map(|_| xen.admit(at(0), 1514).unwrap()).collect();
        assert_eq!(left, [at(104), at(260), at(416)]);
        assert_eq!(XenBucket::new(rate, Nanos::from_millis(60)).admit(at(0), 1514), None);
        let slowest = |wait_max| XenBucket::new(BitRate::from_bps(8), wait_max).admit(at(0), 1514);
        assert_eq!((slowest(LONG), slowest(Nanos::MAX)), (None, Some(at(1513 * 52))));
    }

    #[test]
    fn a_bucket_and_a_pacer_hold_the_rate() {
        let mut bucket = BucketShaper::new(RATE, ByteCount::new(2500), LONG);
        let left: Vec<_> = (0..4).map(|_| bucket.admit(at(0), 1250).unwrap()).collect();
        assert_eq!(left, [at(0), at(0), at(5), at(10)]);
        let mut paced = PacedShaper::new(RATE, Nanos::from_millis(9));
        let left: Vec<_> = (0..3).map(|_| paced.admit(at(0), 1250)).collect();
        assert_eq!(left, [Some(at(0)), Some(at(5)), None]);
    }
}
