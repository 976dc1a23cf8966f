// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Sources of frames: lengths, bursts and arrival processes.

use weir_switch::IfaceId;
use weir_units::{BitRate, Instant, Nanos, PacketRate, mul_add_div};

use crate::Seed;

/// A sender at an interface of the switch.
#[derive(Clone, Debug)]
pub struct SimSource {
    /// Interface that its frames enter by.
    pub from: IfaceId,
    /// Its address.
    pub mac: [u8; 6],
    /// Address that it sends to.
    pub to: [u8; 6],
    /// Lengths of its frames.
    pub sizes: SizePattern,
    /// Times of its frames.
    pub pace: ArrivalProcess,
    /// Frames that it offers at one instant; at least 1.
    pub burst: u32,
    /// Instant at which it offers its first frame.
    pub start: Instant,
    /// Its reaction when the switch would refuse a frame.
    pub when_full: WhenFull,
    seed: Seed,
    offered: u64,
    /// Bits of all frames so far.
    bits: u64,
    /// Nanoseconds from `start` to the next frame, if the process draws its gaps; in the other
    /// processes the time follows from the counts.
    elapsed: f64,
    next_bytes: u16,
    /// Frames of the current burst that are not offered yet; above 0 between two runs only while
    /// the source waits for room.
    pub(crate) burst_left: u32,
}

/// Lengths of frames, layer 2 without FCS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SizePattern {
    /// One length.
    Fixed(u16),
    /// Drawn from a uniform distribution, both ends included.
    Uniform {
        /// Least length.
        least: u16,
        /// Greatest length.
        most: u16,
    },
    /// A list of lengths, used in turn.
    Cycle(Vec<u16>),
}

/// The rate at which a source offers frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfferedRate {
    /// Bits of layer 2, without FCS.
    Bits(BitRate),
    /// Packets.
    Packets(PacketRate),
}

/// The process by which a source offers frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrivalProcess {
    /// Evenly spaced.
    Constant(OfferedRate),
    /// Evenly spaced for `on`, then silent for `off`, and so on.
    OnOff {
        /// Rate while it sends.
        rate: OfferedRate,
        /// Length of a burst.
        on: Nanos,
        /// Length of a pause.
        off: Nanos,
    },
    /// A Poisson process of this mean rate.
    Poisson(OfferedRate),
    /// Enough frames to keep the queue full; for sources that wait.
    Greedy,
}

/// The reaction of a source when the switch would refuse a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenFull {
    /// It hands the frame in nevertheless; the switch drops and counts it.
    Lose,
    /// It discards the frame itself and continues with the next one.
    Skip,
    /// It waits until there is room, as the ring of a guest does.
    Wait,
}

impl SimSource {
    /// Makes a source that offers frames of `bytes` bytes at a constant rate of `bps` bits a
    /// second from the start on, and loses those that are refused.
    #[must_use]
    pub fn new(from: IfaceId, mac: [u8; 6], to: [u8; 6], bytes: u16, bps: u64) -> Self {
        let pace = ArrivalProcess::Constant(OfferedRate::Bits(BitRate::from_bps(bps)));
        Self::with(from, mac, to, SizePattern::Fixed(bytes), pace, Seed::new(0))
    }

    /// Makes a source whose lengths and times may be drawn from `seed`.
    #[must_use]
    pub fn with(
        from: IfaceId,
        mac: [u8; 6],
        to: [u8; 6],
        sizes: SizePattern,
        pace: ArrivalProcess,
        seed: Seed,
    ) -> Self {
        let (burst, start, when_full) = (1, Instant::ZERO, WhenFull::Lose);
        let (offered, bits, elapsed, next_bytes, burst_left) = (0, 0, 0.0, 0, 0);
        let mut made = Self {
            from,
            mac,
            to,
            sizes,
            pace,
            burst,
            start,
            when_full,
            seed,
            offered,
            bits,
            elapsed,
            next_bytes,
            burst_left,
        };
        made.next_bytes = made.draw_bytes();
        made
    }

    /// Returns this source as one that waits for room instead of losing frames.
    #[must_use]
    pub const fn waiting(mut self) -> Self {
        self.when_full = WhenFull::Wait;
        self
    }

    /// Returns when the next burst begins. A source that waits for room offers the rest of its
    /// current burst before that.
    ///
    /// A constant rate is computed from the counts, so no rounding error gathers: frame `n` is due
    /// at `start + ⌊bits before it · 10⁹ ÷ rate⌋`.
    #[must_use]
    pub fn due(&self) -> Instant {
        match self.pace {
            ArrivalProcess::Constant(rate) => self.start + rate.time_of(self.offered, self.bits),
            ArrivalProcess::OnOff { rate, on, off } => {
                let active = rate.time_of(self.offered, self.bits).as_nanos();
                let pauses = active / on.as_nanos().max(1);
                self.start + Nanos::new(active) + Nanos::new(pauses.saturating_mul(off.as_nanos()))
            }
            ArrivalProcess::Poisson(_) => self.start + whole_nanos(self.elapsed),
            ArrivalProcess::Greedy => self.start,
        }
    }

    /// Returns the length of the next frame.
    #[must_use]
    pub const fn next_bytes(&self) -> u16 {
        self.next_bytes
    }

    /// Returns how many frames were offered so far, skipped ones included.
    #[must_use]
    pub const fn offered(&self) -> u64 {
        self.offered
    }

    /// Begins the burst that is due now.
    pub(crate) fn begin_burst(&mut self) {
        self.burst_left = self.burst.max(1);
    }

    /// Advances to the next frame and returns the number of the present one.
    pub(crate) fn advance(&mut self) -> u64 {
        let number = self.offered;
        if let ArrivalProcess::Poisson(rate) = self.pace {
            let mean = rate.nanos_for(self.next_bytes);
            self.elapsed += self.seed.exponential(mean);
        }
        self.burst_left = self.burst_left.saturating_sub(1);
        self.offered += 1;
        self.bits += u64::from(self.next_bytes) * 8;
        self.next_bytes = self.draw_bytes();
        number
    }

    fn draw_bytes(&mut self) -> u16 {
        match &self.sizes {
            SizePattern::Fixed(bytes) => *bytes,
            SizePattern::Uniform { least, most } => {
                let drawn = self.seed.between((*least).into(), (*most).into());
                u16::try_from(drawn).unwrap_or(*most)
            }
            SizePattern::Cycle(all) => {
                let turn = usize::try_from(self.offered).unwrap_or(0) % all.len().max(1);
                all.get(turn).copied().unwrap_or(0)
            }
        }
    }
}

impl OfferedRate {
    /// Returns the time that `packets` packets of `bits` bits in all take at this rate, rounded
    /// down; the longest time at a rate of zero, so that such a source never sends.
    fn time_of(self, packets: u64, bits: u64) -> Nanos {
        let (units, rate) = match self {
            Self::Bits(rate) => (bits, rate.as_bps()),
            Self::Packets(rate) => (packets, rate.as_pps()),
        };
        Nanos::new(mul_add_div(units, NANOS_PER_SECOND, 0, rate).0)
    }

    /// Returns the time that one packet of `bytes` bytes takes at this rate.
    #[expect(clippy::cast_precision_loss, reason = "rates below 2⁵³ a second")]
    fn nanos_for(self, bytes: u16) -> f64 {
        let (units, rate) = match self {
            Self::Bits(rate) => (f64::from(bytes) * 8.0, rate.as_bps()),
            Self::Packets(rate) => (1.0, rate.as_pps()),
        };
        units * 1e9 / rate.max(1) as f64
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
const fn whole_nanos(nanos: f64) -> Nanos {
    Nanos::new(nanos as u64)
}

const NANOS_PER_SECOND: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    fn source(sizes: SizePattern, pace: ArrivalProcess) -> SimSource {
        SimSource::with(IfaceId(1), [2; 6], [4; 6], sizes, pace, Seed::new(5))
    }

    fn times(mut source: SimSource, frames: usize) -> Vec<u64> {
        let mut next = || {
            let due = source.due().as_nanos();
            source.advance();
            due
        };
        (0..frames).map(|_| next()).collect()
    }

    const MEGABIT: OfferedRate = OfferedRate::Bits(BitRate::from_mbps(1));

    #[test]
    fn a_constant_rate_has_no_error_after_a_million_frames() {
        let rate = OfferedRate::Packets(PacketRate::from_pps(7));
        let mut source = source(SizePattern::Fixed(60), ArrivalProcess::Constant(rate));
        for _ in 0..7_000_000 {
            source.advance();
        }
        assert_eq!(source.due(), Instant::from_nanos(1_000_000_000_000_000));
    }

    #[test]
    fn lengths_alternate_and_pace_follows_them() {
        let sizes = SizePattern::Cycle(vec![125, 250]);
        let times = times(source(sizes, ArrivalProcess::Constant(MEGABIT)), 4);
        assert_eq!(times, [0, 1_000_000, 3_000_000, 4_000_000]);
    }

    #[test]
    fn an_on_off_source_keeps_its_rate_while_it_is_on() {
        let millis = Nanos::from_millis;
        let pace = ArrivalProcess::OnOff { rate: MEGABIT, on: millis(2), off: millis(10) };
        let times = times(source(SizePattern::Fixed(125), pace), 5);
        assert_eq!(times, [0, 1_000_000, 12_000_000, 13_000_000, 24_000_000]);
    }

    #[test]
    fn poisson_arrivals_have_their_rate_and_follow_the_seed() {
        let poisson = || source(SizePattern::Fixed(125), ArrivalProcess::Poisson(MEGABIT));
        let (one, other) = (times(poisson(), 20_001), times(poisson(), 20_001));
        assert_eq!(one, other);
        // 1000 packets a second; the deviation of the mean of 20 000 gaps is 0.7 %.
        assert!((19.5e9..20.5e9).contains(&(one[20_000] as f64)), "{}", one[20_000]);
    }
}
