// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Limits of packets beside the policy's: what a control loop says that a router may be sent.
//!
//! A limit paces what the router's vifs receive together ([`Pacer`]), after everything else that
//! decides about a frame and before its device, whatever ways the frames come by. Frames of
//! a flood have no credit while its queues are full, and are dropped before they are copied.

use alloc::collections::BTreeMap;

use weir_policy::{Direction, RouterId};
use weir_sched::Packet;
use weir_units::{Instant, Nanos, PacketRate};

use crate::pacer::{Pacer, depth};
use crate::pool::FramePool;
use crate::reason::Reason;
use crate::remap::Remap;
use crate::state::Link;
use crate::switch::Switch;
use crate::tree::NO_VIF;

/// The limits in force.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    /// By the policy's index of the router.
    pacers: BTreeMap<u32, Pacer>,
    /// No frame may pass before: known without a look at all of them, of which there may be a
    /// thousand. May be early.
    due: Instant,
}

impl Default for Limits {
    fn default() -> Self {
        Self { pacers: BTreeMap::new(), due: Instant::FAR_FUTURE }
    }
}

impl Limits {
    pub(crate) fn is_empty(&self) -> bool {
        self.pacers.is_empty()
    }

    /// The earliest instant at which a frame may pass.
    pub(crate) const fn next(&self) -> Instant {
        self.due
    }

    /// The packet rate at which a router is held.
    pub(crate) fn rate(&self, router: RouterId) -> Option<PacketRate> {
        self.pacers.get(&router.0).map(Pacer::rate)
    }

    /// How long the first frame before a router has waited.
    pub(crate) fn wait(&self, now: Instant, router: RouterId, links: &[Link]) -> Nanos {
        self.pacers.get(&router.0).map_or(Nanos::ZERO, |pacer| pacer.wait(now, links))
    }

    /// Something for a router was refused before it came to its limit.
    pub(crate) fn refuse(&mut self, now: Instant, router: Option<RouterId>) {
        let pacer = router.and_then(|router| self.pacers.get_mut(&router.0));
        if let Some(pacer) = pacer {
            pacer.refuse(now);
        }
    }

    /// Frames of an interface that a router's limit would take now.
    pub(crate) fn room(&self, router: Option<RouterId>, iface: u32) -> u32 {
        let pacer = router.and_then(|router| self.pacers.get(&router.0));
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
            if let Some(pacer) = self.limits.pacers.remove(&router.0) {
                self.let_out(pacer, pool);
            }
            return true;
        };
        let most = depth(&self.policy, router, rate);
        let Limits { pacers, due } = &mut self.limits;
        let pacer = pacers.entry(router.0).or_insert_with(|| Pacer::new(now, rate, most));
        pacer.change(now, rate, most);
        *due = (*due).min(pacer.next());
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
            false => self.router_of(vif),
        };
        let pacer = router.and_then(|router| self.limits.pacers.get_mut(&router.0));
        let Some(pacer) = pacer else { return self.stage(vif, id) };
        if let Some(link) = self.links.get_mut(id as usize) {
            link.to = u32::try_from(vif).unwrap_or(NO_VIF);
        }
        let given_up = pacer.push(now, iface, id, &mut self.links);
        // What need not wait goes on at once: its turn of the grid may be far away.
        let passes = pacer.pop(now, &self.links);
        self.limits.due = self.limits.due.min(pacer.next());
        if let Some(id) = given_up {
            let (to, packet) = (self.arrive(id), Packet::new(id, 0, now));
            self.give_up(to, Direction::Receive, packet, Reason::RouterPackets, pool);
        }
        if let Some(id) = passes {
            self.let_pass(id, pool);
        }
    }

    /// Hands on what the limits let pass by now.
    pub(crate) fn release_paced<P: FramePool>(&mut self, now: Instant, pool: &mut P) {
        if now < self.limits.due {
            return;
        }
        let mut limits = core::mem::take(&mut self.limits);
        limits.due = Instant::FAR_FUTURE;
        for pacer in limits.pacers.values_mut() {
            while let Some(id) = pacer.pop(now, &self.links) {
                self.let_pass(id, pool);
            }
            limits.due = limits.due.min(pacer.next());
        }
        self.limits = limits;
    }

    /// The limits by a new policy's indexes, which is in force by now; what waits for a router that
    /// it has not waits for its device alone.
    pub(crate) fn carry_limits<P: FramePool>(&mut self, now: Instant, remap: &Remap, pool: &mut P) {
        for (before, mut pacer) in core::mem::take(&mut self.limits).pacers {
            match remap.router(before as usize) {
                Some(after) => {
                    let most = depth(&self.policy, RouterId(after), pacer.rate());
                    pacer.change(now, pacer.rate(), most);
                    self.limits.due = self.limits.due.min(pacer.next());
                    self.limits.pacers.insert(after, pacer);
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
