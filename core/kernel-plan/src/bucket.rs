// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Token buckets as the programs keep them: as the time at which a bucket is full again (generic
//! cell rate algorithm, ITU-T I.371).
//!
//! A unit is a packet or a byte. It costs a time, which is kept in 1/256 ns and multiplied by
//! 65 536, and rounded up, so that a rate is never exceeded. A frame passes as long as the bucket
//! is not empty, and is then charged in full, into debt if need be: a super-frame of 64 KB passes a
//! bucket of any depth whole, and the rate is exact over time.

use serde::{Deserialize, Serialize};
use weir_units::{BitRate, ByteCount, PacketRate};

/// The values of one bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BucketTerms {
    /// The time of one unit, in 1/256 ns, times 65 536.
    pub cost: u64,
    /// The time of a full bucket, in 1/256 ns.
    pub depth: u64,
    /// The time of a full bucket while a flood lasts, in 1/256 ns: at most `depth`. Records of
    /// earlier versions lack it.
    #[serde(default)]
    pub flood_depth: u64,
}

impl BucketTerms {
    /// Returns a limit of packets, of which `burst` may pass at once.
    #[must_use]
    pub fn of_packets(rate: PacketRate, burst: u64) -> Self {
        Self::new(SECOND, rate.as_pps(), burst)
    }

    /// Returns a limit of bits, of which `burst` bytes may leave at once and `queued` bytes wait.
    ///
    /// A flood has a quarter of the burst: the class behind the bucket has the same rate and nearly
    /// the whole burst, so that nothing waits there.
    #[must_use]
    pub fn of_bits(rate: BitRate, burst: ByteCount, queued: ByteCount) -> Self {
        let whole = Self::new(8 * SECOND, rate.as_bps(), burst.get().saturating_add(queued.get()));
        let flooded = Self::new(8 * SECOND, rate.as_bps(), burst.get() / 4);
        Self { flood_depth: flooded.depth, ..whole }
    }

    fn new(time: u128, units: u64, burst: u64) -> Self {
        let cost = (time << COST_SHIFT).div_ceil(u128::from(units.max(1)));
        let depth = (cost * u128::from(burst.max(1))) >> COST_SHIFT;
        let (cost, depth) = (cost.min(COST_MAX), depth.min(DEPTH_MAX));
        let depth = narrow(depth);
        Self { cost: narrow(cost), depth, flood_depth: depth }
    }
}

fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// A second in 1/256 ns.
const SECOND: u128 = 256_000_000_000;
const COST_SHIFT: u32 = 16;
/// The cost of a byte at one bit a second; the slowest rate of a policy is a thousand.
const COST_MAX: u128 = (8 * SECOND) << COST_SHIFT;
/// 18 minutes. The programs take a time that is further ahead for one from before their clock
/// wrapped.
const DEPTH_MAX: u128 = 1 << 48;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_costs_what_its_rate_says() {
        // 1 Mpps: 1000 ns a packet; 1 Gb/s: 8 ns a byte.
        let packets = BucketTerms::of_packets(PacketRate::from_pps(1_000_000), 64);
        assert_eq!((packets.cost, packets.depth), ((1000 * 256) << 16, 64_000 * 256));
        assert_eq!(packets.flood_depth, packets.depth, "no class behind it counts packets");
        let (burst, queued) = (ByteCount::new(2000), ByteCount::new(1000));
        let bits = BucketTerms::of_bits(BitRate::from_mbps(1000), burst, queued);
        assert_eq!((bits.cost, bits.depth), ((8 * 256) << 16, 24_000 * 256));
        assert_eq!(bits.flood_depth, 4000 * 256);
        // Rounded up: three packets a second cost a third of a second each, and a little more.
        let third = BucketTerms::of_packets(PacketRate::from_pps(3), 1);
        assert!(3 * u128::from(third.cost) >= SECOND << COST_SHIFT);
    }
}
