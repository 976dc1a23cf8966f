// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of packets beside the policy's: what a control loop says that a router may be sent.
//!
//! A limit is a lower `max_pps` of what the router's vifs receive together, in the bucket that the
//! policy's own would have: exact, before any queue, and at no cost for frames of others.

use alloc::collections::BTreeMap;

use weir_policy::{Direction, Policy, RouterId, Share};
use weir_units::{Instant, PacketRate};

use crate::police::Meter;
use crate::remap::Remap;
use crate::state::Owner;
use crate::switch::Switch;

/// The limits in force, by the policy's index of the router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits(BTreeMap<u32, PacketRate>);

impl Limits {
    /// What holds for a router: the policy's share, or less.
    pub(crate) fn share(&self, policy: &Policy, router: RouterId, direction: Direction) -> Share {
        let share = policy[router].share(direction).clone();
        match self.0.get(&router.0).filter(|_| direction == Direction::Receive) {
            Some(limit) => {
                let most = share.max_pps.map_or(*limit, |most| most.min(*limit));
                Share { max_pps: Some(most), ..share }
            }
            None => share,
        }
    }

    /// The same by a new policy's indexes; without the routers that it has not.
    pub(crate) fn remapped(&self, remap: &Remap) -> Self {
        let moved =
            |(router, limit): (&u32, &PacketRate)| Some((remap.router(*router as usize)?, *limit));
        Self(self.0.iter().filter_map(moved).collect())
    }
}

impl Switch {
    /// Lets at most `limit` packets a second pass to the vifs of `router` together, from the next
    /// packet on; `None`: as many as the policy does. What the policy says stays the upper bound.
    /// The limit outlives [`Switch::apply`] as long as the router does, and is there for vifs that
    /// come later. Whether there is such a router.
    pub fn limit_router(
        &mut self,
        now: Instant,
        router: RouterId,
        limit: Option<PacketRate>,
    ) -> bool {
        if self.policy.routers.get(router.0 as usize).is_none() {
            return false;
        }
        let before = match limit {
            Some(limit) => self.limits.0.insert(router.0, limit),
            None => self.limits.0.remove(&router.0),
        };
        let key = (Owner::Router(router.0), Direction::Receive);
        let found = self.meters.binary_search_by_key(&key, |(owner, way, _)| (*owner, *way));
        let Some((_, _, place)) = found.ok().and_then(|at| self.meters.get_mut(at)) else {
            // No vif of it is there.
            return true;
        };
        if before == limit {
            return true;
        }
        let share = self.limits.share(&self.policy, router, Direction::Receive);
        // Bits towards a vif are always metered.
        let fresh = Meter::new(now, &share, true);
        let meter = match self.police.take_meter(*place) {
            Some(old) => fresh.continued(now, old, &share),
            None => fresh,
        };
        let now_at = self.police.put_meter(*place, meter);
        if *place != now_at {
            *place = now_at;
            for (vif, state) in self.policy.vifs.iter().zip(&mut self.vifs) {
                if vif.router == Some(router) {
                    state.receive_chain = state.receive_chain.with_router(now_at);
                }
            }
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_policy::{Port, Router, Slice, Vif, VifId};
    use weir_units::{BitRate, Nanos};

    const VIF: VifId = VifId(0);

    fn policy(max_pps: Option<u64>) -> Policy {
        let mut policy = Policy::new("edge");
        let port = policy.add_port(Port::new("up0", BitRate::from_mbps(10_000)));
        let slice = policy.add_slice(Slice::new("gold"));
        let mut router = Router::new("vr1", slice);
        router.receive.max_pps = max_pps.map(PacketRate::from_pps);
        let router = policy.add_router(router);
        for name in ["a", "b"] {
            let mut vif = Vif { router: Some(router), ..Vif::new(name, slice, port) };
            vif.receive_queue.packets = 8192;
            policy.add_vif(vif);
        }
        policy
    }

    /// Packets that may pass to the router in the second that follows `from` nanoseconds.
    fn passed(switch: &mut Switch, from: u64) -> u64 {
        let mut passed = 0;
        for ms in 0..1000 {
            let now = Instant::from_nanos(from) + Nanos::from_millis(ms);
            for chain in [0, 1].map(|vif: usize| switch.vifs[vif].receive_chain) {
                for _ in 0..60 {
                    let admitted = switch.police.admit(now, chain, crate::police::Measure::Packets);
                    passed += u64::from(admitted.is_ok());
                }
            }
        }
        passed
    }

    fn within(passed: u64, rate: u64) -> bool {
        (rate..=rate + 64 + rate / 1000).contains(&passed)
    }

    /// 120 000 packets a second come for the two vifs: the limit holds for both together.
    #[test]
    fn a_limit_comes_moves_and_goes_between_two_packets() {
        let mut switch = Switch::new(&policy(None), Instant::ZERO).unwrap();
        let limit = |pps| Some(PacketRate::from_pps(pps));
        assert_eq!(passed(&mut switch, 0), 120_000, "nothing is limited");
        assert!(switch.limit_router(
            Instant::from_nanos(1_000_000_000),
            RouterId(0),
            limit(50_000)
        ));
        let second = passed(&mut switch, 1_000_000_000);
        assert!(within(second, 50_000), "{second}");
        let later = Instant::from_nanos(2_000_000_000);
        assert!(switch.limit_router(later, RouterId(0), limit(1_000)));
        assert!(switch.credit(later, VIF, Direction::Receive) <= 64, "early drop follows");
        let third = passed(&mut switch, 2_000_000_000);
        assert!(within(third + 1, 1_000), "{third}");
        assert!(switch.limit_router(Instant::from_nanos(3_000_000_000), RouterId(0), None));
        assert_eq!(passed(&mut switch, 3_000_000_000), 120_000);
        assert!(!switch.limit_router(later, RouterId(1), None), "there is no such router");
    }

    #[test]
    fn the_policys_own_limit_stays_the_upper_bound() {
        let mut switch = Switch::new(&policy(Some(20_000)), Instant::ZERO).unwrap();
        switch.limit_router(Instant::ZERO, RouterId(0), Some(PacketRate::from_pps(90_000)));
        let first = passed(&mut switch, 0);
        assert!(within(first, 20_000), "{first}");
        switch.limit_router(Instant::ZERO, RouterId(0), Some(PacketRate::from_pps(5_000)));
        let second = passed(&mut switch, 1_000_000_000);
        assert!(within(second + 1, 5_000), "{second}");
        switch.limit_router(Instant::ZERO, RouterId(0), None);
        let third = passed(&mut switch, 2_000_000_000);
        assert!(within(third + 1, 20_000), "{third}");
    }

    /// The router moves to another place in the policy, and a vif of it comes later.
    #[test]
    fn a_limit_stays_with_its_router_through_a_change_of_policy() {
        struct NoFrames;
        impl crate::FramePool for NoFrames {
            fn alloc(&mut self) -> Option<u32> {
                None
            }
            fn free(&mut self, _: u32) {}
            fn data(&mut self, _: crate::Frame) -> &mut [u8] {
                &mut []
            }
            fn room_before(&self, _: crate::Frame) -> usize {
                0
            }
            fn chunks(&self) -> u32 {
                0
            }
            fn chunk_size(&self) -> usize {
                0
            }
            fn headroom(&self) -> u16 {
                0
            }
        }
        let mut old = policy(None);
        let vifs = core::mem::take(&mut old.vifs);
        let mut switch = Switch::new(&old, Instant::ZERO).unwrap();
        switch.limit_router(Instant::ZERO, RouterId(0), Some(PacketRate::from_pps(30_000)));
        let mut new = old.clone();
        new.routers.insert(0, Router::new("vr0", weir_policy::SliceId(0)));
        new.vifs = vifs;
        new.vifs.iter_mut().for_each(|vif| vif.router = Some(RouterId(1)));
        switch.apply(Instant::ZERO, &new, &mut NoFrames).unwrap();
        let first = passed(&mut switch, 0);
        assert!(within(first, 30_000), "{first}");
        new.routers.remove(1);
        new.vifs.iter_mut().for_each(|vif| vif.router = Some(RouterId(0)));
        switch.apply(Instant::ZERO, &new, &mut NoFrames).unwrap();
        assert_eq!(passed(&mut switch, 1_000_000_000), 120_000, "it went with its router");
    }
}
