// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The stage after the trees: a packet rate for each router that a control loop limits.
//!
//! A limit paces what the router's vifs receive together ([`Pacer`]), after everything else that
//! decides about a frame and before its device, whichever way the frame came. A router whose pacer
//! is full gets no credit, so that a flood towards it is dropped before it is copied.
//!
//! Invariant: a frame that waits here is chained in exactly one pacer, and its [`FrameLink::to`]
//! names the vif that it goes to.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use weir_policy::{Policy, RouterId};
use weir_units::{Instant, Nanos, PacketRate};

use crate::frames::FrameLink;
use crate::ids::{Ids, SlotChanges};
use crate::pacer::{Pacer, depth};
use crate::queues::Queues;
use crate::types::IfaceId;

/// The pacers of all routers with a limit.
#[derive(Debug)]
pub(crate) struct Pacers {
    /// By the router's slot.
    pacers: BTreeMap<u32, Pacer>,
    /// The router of each vif, by slots; [`NO_ROUTER`] for a vif without one.
    routers: Vec<u32>,
    /// No frame may pass before this instant, which saves a look at each pacer; there may be a
    /// thousand. May be early.
    due: Instant,
}

/// The outcome for a frame that was handed to a pacer.
pub(crate) struct PacedFrame {
    /// The frame that was given up for want of room, which may be the one handed in.
    pub(crate) given_up: Option<u32>,
    /// The frame that may pass now.
    pub(crate) passes: Option<u32>,
}

impl Default for Pacers {
    fn default() -> Self {
        Self { pacers: BTreeMap::new(), routers: Vec::new(), due: Instant::FAR_FUTURE }
    }
}

impl Pacers {
    /// Follows a policy whose ids were given; returns the pacers of routers that left, whose frames
    /// wait for no limit any more.
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        policy: &Policy,
        ids: &Ids,
        changes: &SlotChanges,
    ) -> Vec<Pacer> {
        self.routers.clear();
        self.routers.resize(ids.interface_count(), NO_ROUTER);
        for (vif, slot) in policy.vifs.iter().zip(ids.vif_slots()) {
            self.routers[*slot as usize] =
                vif.router.map_or(NO_ROUTER, |router| ids.router(router));
        }
        for (id, _) in policy.routers() {
            if let Some(pacer) = self.pacers.get_mut(&ids.router(id)) {
                pacer.change(now, pacer.rate(), depth(policy, id, pacer.rate()));
                self.due = self.due.min(pacer.next());
            }
        }
        changes.removed.iter().filter_map(|slot| self.pacers.remove(slot)).collect()
    }

    /// Sets the rate of a router of the policy in force.
    pub(crate) fn limit(
        &mut self,
        now: Instant,
        (policy, ids): (&Policy, &Ids),
        router: RouterId,
        rate: PacketRate,
    ) {
        let most = depth(policy, router, rate);
        let slot = ids.router(router);
        let pacer = self.pacers.entry(slot).or_insert_with(|| Pacer::new(now, rate, most));
        pacer.change(now, rate, most);
        self.due = self.due.min(pacer.next());
    }

    /// Takes the limit of a router away; its frames wait for no limit any more.
    pub(crate) fn unlimit(&mut self, router: u32) -> Option<Pacer> {
        self.pacers.remove(&router)
    }

    /// Returns the earliest instant at which a frame may pass.
    pub(crate) const fn next(&self) -> Instant {
        self.due
    }

    /// Returns the packet rate of a router, if it has a limit.
    pub(crate) fn rate(&self, router: u32) -> Option<PacketRate> {
        self.pacers.get(&router).map(Pacer::rate)
    }

    /// Returns the time that the first frame which waits for the limit of a vif's router has
    /// waited.
    pub(crate) fn wait(&self, now: Instant, vif: usize, links: &[FrameLink]) -> Nanos {
        self.of_vif(vif).map_or(Nanos::ZERO, |pacer| pacer.wait(now, links))
    }

    /// Notes that a frame for a vif was refused before it came to its router's limit.
    pub(crate) fn refuse(&mut self, now: Instant, vif: usize) {
        if let Some(pacer) = self.of_vif_mut(vif) {
            pacer.refuse(now);
        }
    }

    /// Returns the number of frames from an interface that the limit of a vif's router would take
    /// now.
    pub(crate) fn room(&self, vif: usize, from: IfaceId) -> u32 {
        if self.pacers.is_empty() {
            return u32::MAX;
        }
        self.of_vif(vif).map_or(u32::MAX, |pacer| pacer.room(from.0))
    }

    /// Tells whether frames towards a vif wait for a limit.
    #[inline]
    pub(crate) fn paces(&self, vif: usize) -> bool {
        !self.pacers.is_empty() && self.of_vif(vif).is_some()
    }

    /// Hands a frame that came from an interface to the pacer of a vif's router. A frame that need
    /// not wait goes on at once, since the next step of the grid may be far away.
    pub(crate) fn push(
        &mut self,
        now: Instant,
        (from, vif): (IfaceId, usize),
        id: u32,
        links: &mut [FrameLink],
    ) -> PacedFrame {
        let Some(pacer) = self.of_vif_mut(vif) else {
            return PacedFrame { given_up: None, passes: Some(id) };
        };
        let given_up = pacer.push(now, from.0, id, links);
        let passes = pacer.pop(now, links);
        let next = pacer.next();
        self.due = self.due.min(next);
        PacedFrame { given_up, passes }
    }

    /// Tells whether some frame may be due now.
    #[inline]
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// Hands each frame that may pass by now to `pass`.
    pub(crate) fn release(
        &mut self,
        now: Instant,
        queues: &mut Queues,
        mut pass: impl FnMut(&mut Queues, u32),
    ) {
        self.due = Instant::FAR_FUTURE;
        for pacer in self.pacers.values_mut() {
            while let Some(id) = pacer.pop(now, queues.frames.links()) {
                pass(queues, id);
            }
            self.due = self.due.min(pacer.next());
        }
    }

    fn of_vif(&self, vif: usize) -> Option<&Pacer> {
        self.pacers.get(self.routers.get(vif)?)
    }

    fn of_vif_mut(&mut self, vif: usize) -> Option<&mut Pacer> {
        self.pacers.get_mut(self.routers.get(vif)?)
    }
}

const NO_ROUTER: u32 = u32::MAX;
