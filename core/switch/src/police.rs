// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Policers of vif, router and slice: early drop before any queue, all levels or none.
//!
//! A packet passes if every level has room for it, and only then is any level charged: a packet
//! refused by the slice costs its vif and its router nothing.

use alloc::vec::Vec;

use weir_policy::Share;
use weir_sched::TokenBucket;
use weir_units::Instant;

use crate::reason::Reason;

/// The buckets of one vif, router or slice in one direction.
#[derive(Clone, Debug, Default)]
pub(crate) struct Meter {
    packets: Option<TokenBucket>,
    /// In bits.
    bits: Option<TokenBucket>,
}

/// All meters; a [`Chain`] names those that one packet passes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Police {
    meters: Vec<Meter>,
}

/// The meters of a vif, its router and its slice, as indexes; [`Chain::NONE`] for a level without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chain([u32; 3]);

/// What a packet is measured by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Its packet alone: its bits are shaped by a queue.
    Packets,
    /// Its packet and its accounted bytes.
    PacketsAndBytes(u32),
}

impl Meter {
    /// The meter of a share, full. `bits`: whether its bit rate is measured here too.
    #[must_use]
    pub(crate) fn new(now: Instant, share: &Share, bits: bool) -> Self {
        let packets =
            share.max_pps.map(|limit| TokenBucket::new(limit.as_pps(), share.burst_packets(), now));
        let bits = share
            .rate
            .filter(|_| bits)
            .map(|rate| TokenBucket::new(rate.as_bps(), share.burst.get().saturating_mul(8), now));
        Self { packets, bits }
    }

    /// Takes over what another meter of the same thing has earned and owes.
    #[must_use]
    pub(crate) fn continued(self, now: Instant, before: Self, share: &Share) -> Self {
        let packets = match (self.packets, before.packets, share.max_pps) {
            (Some(_), Some(mut bucket), Some(limit)) => {
                bucket.set_rate(now, limit.as_pps(), share.burst_packets());
                Some(bucket)
            }
            (fresh, ..) => fresh,
        };
        let bits = match (self.bits, before.bits, share.rate) {
            (Some(_), Some(mut bucket), Some(rate)) => {
                bucket.set_rate(now, rate.as_bps(), share.burst.get().saturating_mul(8));
                Some(bucket)
            }
            (fresh, ..) => fresh,
        };
        Self { packets, bits }
    }

    fn is_empty(&self) -> bool {
        self.packets.is_none() && self.bits.is_none()
    }
}

impl Chain {
    /// No meter at a level.
    pub(crate) const NONE: u32 = u32::MAX;
    /// No meter at any level.
    pub(crate) const FREE: Self = Self([Self::NONE; 3]);

    /// The meters of vif, router and slice.
    #[must_use]
    pub(crate) const fn new(vif: u32, router: u32, slice: u32) -> Self {
        Self([vif, router, slice])
    }

    /// Whether nothing is measured.
    #[must_use]
    pub(crate) fn is_free(self) -> bool {
        self == Self::FREE
    }
}

impl Police {
    /// Adds a meter; its index, or [`Chain::NONE`] if it limits nothing.
    pub(crate) fn add(&mut self, meter: Meter) -> u32 {
        if meter.is_empty() {
            return Chain::NONE;
        }
        self.meters.push(meter);
        u32::try_from(self.meters.len() - 1).unwrap_or(Chain::NONE)
    }

    /// Takes a meter out, to continue it elsewhere.
    pub(crate) fn take_meter(&mut self, index: u32) -> Option<Meter> {
        self.meters.get_mut(index as usize).map(core::mem::take)
    }

    /// Charges a packet to all levels, or to none.
    ///
    /// # Errors
    /// The first level that refuses, from the vif upwards, packets before bits.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        chain: Chain,
        what: Measure,
    ) -> Result<(), Reason> {
        if chain.is_free() {
            return Ok(());
        }
        for (level, index) in chain.0.iter().enumerate() {
            let Some(meter) = self.meters.get(*index as usize) else { continue };
            if meter.packets.as_ref().is_some_and(|bucket| !bucket.conforms(now, 1)) {
                return Err(PACKETS[level]);
            }
            let Measure::PacketsAndBytes(bytes) = what else { continue };
            let bits = u64::from(bytes) * 8;
            if meter.bits.as_ref().is_some_and(|bucket| !bucket.conforms(now, bits)) {
                return Err(BITS[level]);
            }
        }
        for index in chain.0 {
            let Some(meter) = self.meters.get_mut(index as usize) else { continue };
            if let Some(bucket) = &mut meter.packets {
                bucket.take(now, 1);
            }
            if let (Some(bucket), Measure::PacketsAndBytes(bytes)) = (&mut meter.bits, what) {
                bucket.take(now, u64::from(bytes) * 8);
            }
        }
        Ok(())
    }

    /// Charges bytes that passed by another way, even into debt, so that one limit holds over both.
    #[inline]
    pub(crate) fn charge_bytes(&mut self, now: Instant, chain: Chain, bytes: u32) {
        if chain.is_free() {
            return;
        }
        for index in chain.0 {
            let meter = self.meters.get_mut(index as usize);
            if let Some(bucket) = meter.and_then(|meter| meter.bits.as_mut()) {
                bucket.take(now, u64::from(bytes) * 8);
            }
        }
    }

    /// Packets that would pass all levels now.
    #[must_use]
    pub(crate) fn packets_available(&self, now: Instant, chain: Chain) -> u64 {
        let levels = chain.0.iter().filter_map(|index| self.meters.get(*index as usize));
        let buckets = levels.filter_map(|meter| meter.packets.as_ref());
        buckets.map(|bucket| bucket.available(now)).min().unwrap_or(u64::MAX)
    }
}

const PACKETS: [Reason; 3] = [Reason::VifPackets, Reason::RouterPackets, Reason::SlicePackets];
const BITS: [Reason; 3] = [Reason::VifBits, Reason::RouterBits, Reason::SliceBits];

#[cfg(test)]
mod tests {
    use super::*;
    use weir_units::{BitRate, ByteCount, Nanos, PacketRate};

    fn share(pps: u64, bps: u64, burst: u64) -> Share {
        Share {
            max_pps: (pps > 0).then(|| PacketRate::from_pps(pps)),
            rate: (bps > 0).then(|| BitRate::from_bps(bps)),
            burst: ByteCount::new(burst),
            ..Share::default()
        }
    }

    fn chain(police: &mut Police, shares: [&Share; 3]) -> Chain {
        let [vif, router, slice] =
            shares.map(|share| police.add(Meter::new(Instant::ZERO, share, true)));
        Chain::new(vif, router, slice)
    }

    #[test]
    fn a_refusal_charges_no_level() {
        let mut police = Police::default();
        let (small, large) = (share(64_000, 0, 0), share(1_000_000, 0, 0));
        let chain = chain(&mut police, [&large, &share(0, 0, 0), &small]);
        let now = Instant::ZERO;
        for _ in 0..64 {
            assert_eq!(police.admit(now, chain, Measure::Packets), Ok(()));
        }
        assert_eq!(police.packets_available(now, chain), 0);
        for _ in 0..10_000 {
            assert_eq!(police.admit(now, chain, Measure::Packets), Err(Reason::SlicePackets));
        }
        let vif = Chain::new(0, Chain::NONE, Chain::NONE);
        assert_eq!(police.packets_available(now, vif), 1000 - 64, "the vif paid for 64, no more");
    }

    #[test]
    fn bits_are_measured_where_asked() {
        let mut police = Police::default();
        let limited = share(0, 8_000_000, 3000);
        let chain = chain(&mut police, [&limited, &share(0, 0, 0), &share(0, 0, 0)]);
        let now = Instant::ZERO;
        assert_eq!(police.admit(now, chain, Measure::PacketsAndBytes(1500)), Ok(()));
        assert_eq!(police.admit(now, chain, Measure::Packets), Ok(()));
        police.charge_bytes(now, chain, 1500);
        let refused = police.admit(now, chain, Measure::PacketsAndBytes(1500));
        assert_eq!(refused, Err(Reason::VifBits));
        // 1 byte a microsecond.
        let later = now + Nanos::from_micros(1500);
        assert_eq!(police.admit(later, chain, Measure::PacketsAndBytes(1500)), Ok(()));
    }
}
