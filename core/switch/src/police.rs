// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stage before the trees: policers of vif, router and slice, which refuse a packet at entry.
//!
//! A packet that is refused here takes no room in a queue and no turn of a scheduler. It passes if
//! every level has tokens for it, and only then is any level charged: a packet that the slice
//! refuses costs its vif and its router nothing. (If levels were charged one by one, a flooding vif
//! would spend its own tokens on packets that never leave.) Each level is a token bucket of packets
//! and, where no tree shapes its bits, one of bits.

use alloc::vec;
use alloc::vec::Vec;

use weir_policy::{Direction, Policy, Share};
use weir_sched::TokenBucket;
use weir_units::Instant;

use crate::ids::{IdChanges, Ids, SlotChanges};
use crate::reason::Reason;
use crate::tree::SchedulerLimits;

/// The policers of all vifs, routers and slices, by slot.
#[derive(Default)]
pub(crate) struct Police {
    vifs: Vec<[Meter; 2]>,
    routers: Vec<[Meter; 2]>,
    slices: Vec<[Meter; 2]>,
    /// By the vif's slot, then direction.
    chains: Vec<[MeterChain; 2]>,
}

/// The buckets of one vif, router or slice in one direction.
#[derive(Clone, Debug, Default)]
struct Meter {
    packets: Option<TokenBucket>,
    /// In bits.
    bits: Option<TokenBucket>,
}

/// The levels above a vif whose meters its packets pass, in one direction.
#[derive(Clone, Copy, Debug)]
struct MeterChain {
    /// Set if any level has a bucket: most vifs have none.
    any: bool,
    /// The slot of the router; [`MeterChain::NONE`] for a vif without one.
    router: u32,
    slice: u32,
}

/// The amount that a packet takes from the buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketMeasure {
    /// One packet; a queue shapes its bits.
    Packets,
    /// One packet, and the bits of so many accounted bytes.
    PacketsAndBytes(u32),
}

impl Police {
    /// Follows a change of policy, whose `ids` are assigned already. Limits change in place, and
    /// tokens that are spent stay spent.
    pub(crate) fn follow(&mut self, now: Instant, policy: &Policy, ids: &Ids, changes: &IdChanges) {
        reset_slots(&mut self.vifs, ids.interface_count(), &changes.interfaces);
        reset_slots(&mut self.routers, ids.routers.capacity(), &changes.routers);
        reset_slots(&mut self.slices, ids.slices.capacity(), &changes.slices);
        // A tree with levels shapes the bits that routers and slices send through it.
        let mut polices_router = vec![false; policy.routers.len()];
        let mut polices_slice = vec![false; policy.slices.len()];
        for vif in policy.vifs.iter().filter(|vif| !policy[vif.port].scheduler.nested()) {
            polices_slice[vif.slice.0 as usize] = true;
            if let Some(router) = vif.router {
                polices_router[router.0 as usize] = true;
            }
        }
        for direction in Direction::ALL {
            let at = direction as usize;
            // Towards a vif there is local traffic beside the tree, so bits are always metered.
            let always = direction == Direction::Receive;
            for ((id, slice), polices) in policy.slices().zip(&polices_slice) {
                let meter = &mut self.slices[ids.slice(id) as usize][at];
                meter.set(now, slice.share(direction), always || *polices);
            }
            for ((id, router), polices) in policy.routers().zip(&polices_router) {
                let meter = &mut self.routers[ids.router(id) as usize][at];
                meter.set(now, router.share(direction), always || *polices);
            }
            for (vif, slot) in policy.vifs.iter().zip(ids.vif_slots()) {
                let shaped = vif.shaper(direction).is_some();
                let bits = !shaped && (always || !policy[vif.port].scheduler.shapes());
                self.vifs[*slot as usize][at].set(now, vif.share(direction), bits);
            }
        }
        self.chains.clear();
        self.chains.resize(ids.interface_count(), [MeterChain::FREE; 2]);
        for (vif, slot) in policy.vifs.iter().zip(ids.vif_slots()) {
            let router = vif.router.map_or(MeterChain::NONE, |router| ids.router(router));
            let chain = MeterChain { any: true, router, slice: ids.slice(vif.slice) };
            let any = |direction| {
                let mut levels = (0..LEVELS)
                    .filter_map(|level| self.meter(*slot as usize, direction, chain, level));
                levels.any(|meter| !meter.is_empty())
            };
            let both = Direction::ALL.map(|direction| MeterChain { any: any(direction), ..chain });
            self.chains[*slot as usize] = both;
        }
    }

    /// Charges a packet of a vif to all levels, or to none.
    ///
    /// # Errors
    /// The first level that refuses, from the vif upwards, packets before bits.
    #[inline]
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        vif: usize,
        direction: Direction,
        measure: PacketMeasure,
    ) -> Result<(), Reason> {
        let chain = self.chains[vif][direction as usize];
        if !chain.any {
            return Ok(());
        }
        self.admit_metered(now, vif, direction, chain, measure)
    }

    fn admit_metered(
        &mut self,
        now: Instant,
        vif: usize,
        direction: Direction,
        chain: MeterChain,
        measure: PacketMeasure,
    ) -> Result<(), Reason> {
        for level in 0..LEVELS {
            let Some(meter) = self.meter(vif, direction, chain, level) else { continue };
            if meter.packets.as_ref().is_some_and(|bucket| !bucket.conforms(now, 1)) {
                return Err(PACKETS[level]);
            }
            let PacketMeasure::PacketsAndBytes(bytes) = measure else { continue };
            let bits = u64::from(bytes) * 8;
            if meter.bits.as_ref().is_some_and(|bucket| !bucket.conforms(now, bits)) {
                return Err(BITS[level]);
            }
        }
        for level in 0..LEVELS {
            let Some(meter) = self.meter_mut(vif, direction, chain, level) else { continue };
            if let Some(bucket) = &mut meter.packets {
                bucket.take(now, 1);
            }
            if let (Some(bucket), PacketMeasure::PacketsAndBytes(bytes)) =
                (&mut meter.bits, measure)
            {
                bucket.take(now, u64::from(bytes) * 8);
            }
        }
        Ok(())
    }

    /// Charges bytes that passed elsewhere, even into debt, so that one limit holds over both.
    #[inline]
    pub(crate) fn charge_bytes(
        &mut self,
        now: Instant,
        vif: usize,
        direction: Direction,
        bytes: u32,
    ) {
        let chain = self.chains[vif][direction as usize];
        if !chain.any {
            return;
        }
        for level in 0..LEVELS {
            let meter = self.meter_mut(vif, direction, chain, level);
            if let Some(bucket) = meter.and_then(|meter| meter.bits.as_mut()) {
                bucket.take(now, u64::from(bytes) * 8);
            }
        }
    }

    /// Returns the number of packets of a vif that would pass the packet limits of all levels now;
    /// the limits of bits do not count.
    #[must_use]
    pub(crate) fn packets_available(&self, now: Instant, vif: usize, direction: Direction) -> u64 {
        let chain = self.chains[vif][direction as usize];
        if !chain.any {
            return u64::MAX;
        }
        let meters = (0..LEVELS).filter_map(|level| self.meter(vif, direction, chain, level));
        let buckets = meters.filter_map(|meter| meter.packets.as_ref());
        buckets.map(|bucket| bucket.available(now)).min().unwrap_or(u64::MAX)
    }

    #[inline]
    fn meter(
        &self,
        vif: usize,
        direction: Direction,
        chain: MeterChain,
        level: usize,
    ) -> Option<&Meter> {
        let meters = match level {
            0 => self.vifs.get(vif),
            1 => self.routers.get(chain.router as usize),
            _ => self.slices.get(chain.slice as usize),
        };
        meters.map(|both| &both[direction as usize])
    }

    #[inline]
    fn meter_mut(
        &mut self,
        vif: usize,
        direction: Direction,
        chain: MeterChain,
        level: usize,
    ) -> Option<&mut Meter> {
        let meters = match level {
            0 => self.vifs.get_mut(vif),
            1 => self.routers.get_mut(chain.router as usize),
            _ => self.slices.get_mut(chain.slice as usize),
        };
        meters.map(|both| &mut both[direction as usize])
    }
}

impl Meter {
    /// Changes the limits; a new bucket starts full. `meters_bits` is false if a tree shapes the
    /// bits.
    fn set(&mut self, now: Instant, share: &Share, meters_bits: bool) {
        let packets = share.max_pps.map(|limit| (limit.as_pps(), share.packets_at_once()));
        let burst = share.burst.get().saturating_mul(8);
        let bits = share.rate.filter(|_| meters_bits).map(|rate| (rate.as_bps(), burst));
        for (bucket, limit) in [(&mut self.packets, packets), (&mut self.bits, bits)] {
            match (&mut *bucket, limit) {
                (_, None) => *bucket = None,
                (Some(bucket), Some((rate, burst))) => bucket.set_rate(now, rate, burst),
                (None, Some((rate, burst))) => *bucket = Some(TokenBucket::new(rate, burst, now)),
            }
        }
    }

    const fn is_empty(&self) -> bool {
        self.packets.is_none() && self.bits.is_none()
    }
}

impl MeterChain {
    /// A slot beyond every table.
    const NONE: u32 = u32::MAX;
    /// The chain of a slot without a vif.
    const FREE: Self = Self { any: false, router: Self::NONE, slice: Self::NONE };
}

/// Resizes the table, and empties the meters of slots whose owner came or went.
fn reset_slots(meters: &mut Vec<[Meter; 2]>, length: usize, changes: &SlotChanges) {
    meters.resize(length, Default::default());
    for slot in changes.added.iter().chain(&changes.removed) {
        meters[*slot as usize] = Default::default();
    }
}

/// Vif, router and slice.
const LEVELS: usize = 3;
const PACKETS: [Reason; 3] = [Reason::VifPackets, Reason::RouterPackets, Reason::SlicePackets];
const BITS: [Reason; 3] = [Reason::VifBits, Reason::RouterBits, Reason::SliceBits];

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::{Port, Router, SchedulerKind, Slice, Vif};
    use weir_units::{BitRate, ByteCount, Nanos, PacketRate};

    const NOW: Instant = Instant::ZERO;
    const SEND: Direction = Direction::Send;

    fn share(pps: u64, bps: u64, burst: u64) -> Share {
        Share {
            max_pps: (pps > 0).then(|| PacketRate::from_pps(pps)),
            rate: (bps > 0).then(|| BitRate::from_bps(bps)),
            burst: ByteCount::new(burst),
            ..Share::default()
        }
    }

    /// Returns the policers of one vif (slot 1), its router and its slice, on a port without a
    /// shaper.
    fn police(shares: [Share; 3]) -> Police {
        let [vif_share, router_share, slice_share] = shares;
        let mut policy = Policy::new("node");
        let port = policy.add_port(Port::new("up0", BitRate::from_mbps(100)));
        policy[port].scheduler = SchedulerKind::Fifo;
        let slice = policy.add_slice(Slice { send: slice_share, ..Slice::new("gold") });
        let router = policy.add_router(Router { send: router_share, ..Router::new("r", slice) });
        let vif = Vif::new("a", slice, port);
        policy.add_vif(Vif { router: Some(router), send: vif_share, ..vif });
        let (mut ids, mut police) = (Ids::default(), Police::default());
        let changes = ids.follow(&policy);
        police.follow(NOW, &policy, &ids, &changes);
        police
    }

    #[test]
    fn a_refusal_charges_no_level() {
        let (small, large) = (share(64_000, 0, 0), share(1_000_000, 0, 0));
        let mut police = police([large, share(0, 0, 0), small]);
        for _ in 0..64 {
            assert_eq!(police.admit(NOW, 1, SEND, PacketMeasure::Packets), Ok(()));
        }
        assert_eq!(police.packets_available(NOW, 1, SEND), 0);
        for _ in 0..10_000 {
            let refused = police.admit(NOW, 1, SEND, PacketMeasure::Packets);
            assert_eq!(refused, Err(Reason::SlicePackets));
        }
        let left = police.vifs[1][0].packets.as_ref().unwrap().available(NOW);
        assert_eq!(left, 1000 - 64, "the vif paid for 64, no more");
    }

    #[test]
    fn as_many_packets_pass_at_once_as_the_policy_says() {
        let once = Share { burst_packets: Some(500), ..share(1_000, 0, 0) };
        let mut police = police([once, share(0, 0, 0), share(0, 0, 0)]);
        assert_eq!(police.packets_available(NOW, 1, SEND), 500);
        let admit = |_: &u32| police.admit(NOW, 1, SEND, PacketMeasure::Packets).is_ok();
        assert_eq!((0..600).filter(admit).count(), 500);
    }

    #[test]
    fn bits_are_measured_where_asked() {
        let mut police = police([share(0, 8_000_000, 3000), share(0, 0, 0), share(0, 0, 0)]);
        let packet = PacketMeasure::PacketsAndBytes(1500);
        assert_eq!(police.admit(NOW, 1, SEND, packet), Ok(()));
        assert_eq!(police.admit(NOW, 1, SEND, PacketMeasure::Packets), Ok(()));
        police.charge_bytes(NOW, 1, SEND, 1500);
        assert_eq!(police.admit(NOW, 1, SEND, packet), Err(Reason::VifBits));
        // 1 byte a microsecond.
        let later = NOW + Nanos::from_micros(1500);
        assert_eq!(police.admit(later, 1, SEND, packet), Ok(()));
    }
}
