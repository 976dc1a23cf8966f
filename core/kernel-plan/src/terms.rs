// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Shares of a policy in the terms of the kernel's schedulers.
//!
//! **HFSC** has a curve for each term of a policy. The real-time curve is `min_rate`, with `delay`
//! for a packet of `delay_packet` bytes; the link-share curve is `priority`; the upper limit is
//! `rate`. Only leaves have real-time curves.
//!
//! **HTB** has two rates for each class: the assured rate, and the ceiling up to which the class
//! borrows from its parent.
//!
//! - The ceiling is `rate`.
//! - The assured rate is what the class gets if all classes are busy: `min_rate`, or its part of
//!   the link by `priority`, whichever is more. So a busy link is shared by tokens, frame by frame.
//!   HTB knows no class without a rate, so a class without a part gets the smallest rate.
//! - Leaves that borrow take turns by their quantum; quanta of inner classes have no effect. A
//!   leaf's quantum therefore stands for the `priority` of all levels above it too, in units of
//!   what the link sends in 2 ms. A turn of the highest priority then lasts 0.2 s at most, except
//!   on links so slow that a unit is one frame.
//! - A leaf sends a whole super-frame in its turn, however small its quantum. TCP limits a
//!   super-frame to what it sends in 1 ms (at twice its rate during slow start).
//! - A `delay` cannot be expressed.
//!
//! Both count the bytes of a super-frame with the headers of its segments, since the kernel adds
//! these before a discipline sees the frame.

use serde::{Deserialize, Serialize};
use weir_policy::Share;
use weir_units::{BitRate, ByteCount, Nanos};

/// The scheduler of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QdiscTree {
    /// Hierarchical fair service curves.
    Hfsc,
    /// Hierarchical token buckets.
    Htb,
}

/// The values of one class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClassTerms {
    /// Values of HTB.
    Htb {
        /// The assured rate, bits a second.
        rate: u64,
        /// Bits a second up to which it borrows.
        ceil: u64,
        /// Bytes that may exceed `rate` at once.
        burst: u64,
        /// Bytes that may exceed `ceil` at once.
        cburst: u64,
        /// Bytes of a turn among those that borrow.
        quantum: u64,
    },
    /// Values of HFSC.
    Hfsc {
        /// The real-time curve of a leaf with a minimum.
        rt: Option<RealTimeTerms>,
        /// The link-share curve, bits a second; only ratios matter.
        ls: u64,
        /// The upper limit, bits a second.
        ul: Option<u64>,
    },
}

/// A real-time curve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RealTimeTerms {
    /// Bits a second.
    pub rate: u64,
    /// Bytes that are served within a time in nanoseconds, whatever the rate.
    pub within: Option<(u64, u64)>,
}

/// The queue of a leaf.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeafKind {
    /// A queue for each flow, kept short by `CoDel`.
    FqCodel {
        /// Packets that wait at most.
        packets: u32,
        /// Standing delay that is tolerated, microseconds.
        target_us: u64,
        /// Time within which the delay must once fall below the target, microseconds.
        interval_us: u64,
        /// Marks packets that can carry ECN.
        ecn: bool,
    },
    /// One queue, bounded in bytes.
    Bfifo {
        /// Bytes that wait at most.
        bytes: u64,
    },
}

/// The demands on a class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClassDemand {
    pub(crate) min_rate: BitRate,
    /// Its rate if all classes of the tree are busy, bits a second: at least its minimum.
    pub(crate) busy: u64,
    pub(crate) rate: Option<BitRate>,
    pub(crate) priority: u32,
    /// Its part of what is left beyond the guarantees, among the leaves of the tree, as numerator
    /// and denominator. A slice of priority 1 has the part 1.
    pub(crate) part: [u64; 2],
    pub(crate) burst: ByteCount,
    /// A delay, and the packet that it is promised for.
    pub(crate) delay: Option<(Nanos, ByteCount)>,
    pub(crate) is_leaf: bool,
}

/// The link above all classes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LinkTerms {
    pub(crate) rate: BitRate,
    pub(crate) packet: ByteCount,
    /// The lateness of wake-ups that bursts compensate.
    pub(crate) late: Nanos,
}

impl QdiscTree {
    /// Returns the name for `tc`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hfsc => "hfsc",
            Self::Htb => "htb",
        }
    }

    /// Returns the largest priority that the scheduler can tell from others.
    #[must_use]
    pub const fn priority_max(self) -> u32 {
        match self {
            Self::Hfsc => 340_000,
            Self::Htb => 100,
        }
    }

    pub(crate) fn terms(self, demand: &ClassDemand, link: &LinkTerms) -> ClassTerms {
        let priority = u64::from(demand.priority.clamp(1, self.priority_max()));
        let whole = link.rate.as_bps();
        match self {
            Self::Hfsc => {
                // The kernel cannot remove a curve: a curve that a change leaves out stays in force
                // (`hfsc_change_class`). So each curve is always given, with a value that has no
                // effect if the policy has none.
                let guaranteed = RealTimeTerms {
                    rate: demand.min_rate.as_bps(),
                    within: demand.delay.map(|(time, bytes)| (bytes.get(), time.as_nanos())),
                };
                let least = RealTimeTerms { rate: RT_LEAST_BPS, within: None };
                let own = if demand.min_rate.is_zero() { least } else { guaranteed };
                let ul = demand.rate.map_or(whole, |rate| rate.as_bps().min(whole));
                let rt = demand.is_leaf.then_some(own);
                ClassTerms::Hfsc { rt, ls: priority * LS_UNIT_BPS, ul: Some(ul) }
            }
            Self::Htb => {
                let ceil = demand.rate.unwrap_or(link.rate).as_bps().min(whole);
                let rate = demand.busy.max(demand.min_rate.as_bps());
                let rate = rate.clamp(RATE_LEAST_BPS.min(ceil), ceil);
                let lasting =
                    |rate, time| Share::burst_lasting(Some(rate), link.packet, time).get();
                let late = |bps| lasting(BitRate::from_bps(bps), link.late);
                // A class that has any token left sends a whole frame, so the burst is a frame
                // shorter.
                let frame = link.packet.get();
                let most = BitRate::from_bps(ceil).bytes_in_floor(BURST_LASTS_MAX).get();
                let limited = demand.burst.get().saturating_sub(frame).min(most).max(frame);
                let cburst = if demand.rate.is_some() { limited } else { late(ceil) };
                let [above, below] = demand.part;
                let unit = link.rate.bytes_in_floor(QUANTUM_LASTS).get();
                let unit = unit.min(QUANTUM_BYTES_MAX).max(frame);
                let quantum = above.saturating_mul(unit) / below.max(1);
                let most = u64::from(self.priority_max()) * unit;
                let quantum = quantum.clamp(QUANTUM_LEAST_BYTES, most);
                ClassTerms::Htb { rate, ceil, burst: late(rate), cburst, quantum }
            }
        }
    }

    /// Returns the terms of the class that stands for the link.
    pub(crate) fn link_terms(self, link: &LinkTerms, burst: ByteCount) -> ClassTerms {
        let demand = ClassDemand {
            min_rate: link.rate,
            busy: link.rate.as_bps(),
            rate: Some(link.rate),
            priority: 1,
            part: [1, 1],
            burst,
            delay: None,
            is_leaf: false,
        };
        self.terms(&demand, link)
    }
}

/// The real-time curve of an HFSC class without a minimum: a byte a second, the least there is, so
/// that a thousand of them guarantee nothing that counts.
const RT_LEAST_BPS: u64 = 8;

/// The rate of an HTB class without a minimum.
const RATE_LEAST_BPS: u64 = 8_000;

/// The longest burst of HTB, in time at its rate. `tc` tells it to the kernel in 32 bits, in units
/// of 64 ns, and cuts off higher bits: of 268 MB at 1 Mbit/s only a tenth was left.
const BURST_LASTS_MAX: Nanos = Nanos::from_secs(270);

/// The quantum of priority 1 is what the link sends in this time.
const QUANTUM_LASTS: Nanos = Nanos::from_millis(2);
/// The largest quantum of priority 1, the largest super-frame.
const QUANTUM_BYTES_MAX: u64 = 65_536;
/// The least quantum, a frame.
const QUANTUM_LEAST_BYTES: u64 = 1_514;

/// The link-share curve of priority 1. The kernel's rates end at 2³² bytes a second.
const LS_UNIT_BPS: u64 = 100_000;

/// The fastest link that the kernel's HFSC can be told.
pub(crate) const HFSC_BPS_MAX: u64 = 34_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: a burst beyond what `tc` can tell the kernel is the longest that it can, not what is
    /// left of it modulo 2³². A shorter one is whole.
    #[test]
    fn a_burst_is_not_cut_to_what_is_left_of_it() {
        let link = LinkTerms {
            rate: BitRate::from_mbps(1_000),
            packet: ByteCount::new(1_518),
            late: Nanos::from_millis(5),
        };
        let cburst = |rate: BitRate, burst: u64| {
            let demand = ClassDemand {
                min_rate: BitRate::ZERO,
                busy: 0,
                rate: Some(rate),
                priority: 1,
                part: [1, 1],
                burst: ByteCount::new(burst),
                delay: None,
                is_leaf: true,
            };
            match QdiscTree::Htb.terms(&demand, &link) {
                ClassTerms::Htb { cburst, .. } => cburst,
                ClassTerms::Hfsc { .. } => 0,
            }
        };
        let (slow, fast) = (BitRate::from_mbps(1), BitRate::from_mbps(100));
        assert_eq!(cburst(fast, 268_000_000), 268_000_000 - 1_518);
        assert_eq!(cburst(slow, 268_000_000), 270 * 1_000_000 / 8);
        // In the units of `tc`, 64 ns, it fits.
        assert!(cburst(slow, u64::MAX) * 8 * 1_000 / 64 < 1 << 32);
    }
}
