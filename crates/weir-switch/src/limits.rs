// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of packets beside the policy's: what a control loop says that a router may be sent.
//!
//! A limit paces what the router's vifs receive together ([`Pacer`]), after everything else that
//! decides about a frame and before its device: exact, whatever ways the frames come by. Frames of
//! a flood have no credit while its queues are full, and are dropped before they are copied.

use alloc::collections::BTreeMap;

use weir_policy::{Direction, RouterId};
use weir_sched::Packet;
use weir_units::{Instant, PacketRate};

use crate::pacer::{Pacer, depth};
use crate::pool::FramePool;
use crate::reason::Reason;
use crate::remap::Remap;
use crate::switch::Switch;
use crate::tree::NO_VIF;

/// The limits in force, by the policy's index of the router.
#[derive(Clone, Debug, Default)]
pub(crate) struct Limits(BTreeMap<u32, Pacer>);

impl Limits {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The earliest instant at which a frame may pass.
    pub(crate) fn next(&self) -> Instant {
        self.0.values().map(Pacer::next).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Frames of an interface that a router's limit would take now.
    pub(crate) fn room(&self, router: Option<RouterId>, iface: u32) -> u32 {
        let pacer = router.and_then(|router| self.0.get(&router.0));
        pacer.map_or(u32::MAX, |pacer| pacer.room(iface))
    }
}

impl Switch {
    /// Lets at most `limit` packets a second pass to the vifs of `router` together, from the next
    /// packet on; `None`: as many as the policy does. What the policy says stays the upper bound.
    /// What comes too early waits, up to half of what each vif's queue has room for.
    /// The limit outlives [`Switch::apply`] as long as the router does, and is there for vifs that
    /// come later. Whether there is such a router.
    pub fn limit_router<P: FramePool>(
        &mut self,
        now: Instant,
        router: RouterId,
        limit: Option<PacketRate>,
        pool: &mut P,
    ) -> bool {
        if self.policy.routers.get(router.0 as usize).is_none() {
            return false;
        }
        let Some(rate) = limit else {
            if let Some(pacer) = self.limits.0.remove(&router.0) {
                self.let_out(pacer, pool);
            }
            return true;
        };
        let most = depth(&self.policy, router, rate);
        match self.limits.0.get_mut(&router.0) {
            Some(pacer) => pacer.change(now, rate, most),
            None => {
                self.limits.0.insert(router.0, Pacer::new(now, rate, most));
            }
        }
        true
    }

    /// A frame that came from `iface` was scheduled for a vif: it waits for the limit of the vif's
    /// router, or for the device alone.
    pub(crate) fn hand_on<P: FramePool>(
        &mut self,
        now: Instant,
        iface: u32,
        vif: usize,
        id: u32,
        pool: &mut P,
    ) {
        let router = match self.limits.is_empty() {
            true => None,
            false => self.policy.vifs.get(vif).and_then(|vif| vif.router),
        };
        let Some(pacer) = router.and_then(|router| self.limits.0.get_mut(&router.0)) else {
            return self.stage(vif, id);
        };
        if let Some(link) = self.links.get_mut(id as usize) {
            link.to = u32::try_from(vif).unwrap_or(NO_VIF);
        }
        let Some(id) = pacer.push(now, iface, id, &mut self.links) else { return };
        let to = self.arrive(id);
        self.give_up(to, Direction::Receive, Packet::new(id, 0, now), Reason::RouterPackets, pool);
    }

    /// Hands on what the limits let pass by now.
    pub(crate) fn release_paced<P: FramePool>(&mut self, now: Instant, pool: &mut P) {
        if self.limits.is_empty() {
            return;
        }
        let mut limits = core::mem::take(&mut self.limits);
        for pacer in limits.0.values_mut() {
            while let Some(id) = pacer.pop(now, &self.links) {
                self.let_pass(id, pool);
            }
        }
        self.limits = limits;
    }

    /// The limits by a new policy's indexes, which is in force by now; what waits for a router that
    /// it has not waits for its device alone.
    pub(crate) fn carry_limits<P: FramePool>(&mut self, remap: &Remap, pool: &mut P) {
        for (before, pacer) in core::mem::take(&mut self.limits).0 {
            match remap.router(before as usize) {
                Some(after) => {
                    self.limits.0.insert(after, pacer);
                }
                None => self.let_out(pacer, pool),
            }
        }
    }

    fn let_out<P: FramePool>(&mut self, mut pacer: Pacer, pool: &mut P) {
        while let Some(id) = pacer.take(&self.links) {
            self.let_pass(id, pool);
        }
    }

    /// A frame that waited for a limit waits for its device.
    fn let_pass<P: FramePool>(&mut self, id: u32, pool: &mut P) {
        let to = self.arrive(id);
        if to < self.vifs.len() {
            return self.stage(to, id);
        }
        // Its vif was taken away by a change of policy.
        self.queued = self.queued.saturating_sub(1);
        self.removed += 1;
        pool.free(id);
    }

    /// Which vif a frame that a pacer held is for.
    fn arrive(&mut self, id: u32) -> usize {
        let link = self.links.get_mut(id as usize);
        link.map_or(NO_VIF, |link| core::mem::replace(&mut link.to, NO_VIF)) as usize
    }
}
