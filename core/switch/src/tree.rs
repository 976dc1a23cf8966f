// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A schedule tree: a scheduler, the vifs behind its classes, and how it follows a policy.
//!
//! Each port has three. The *send* tree holds what its vifs send out on it and the *receive* tree
//! what comes in for them; both are paced at the port's rate. The *local* tree holds what passes
//! between two of its vifs, queued by sender; nothing paces it but the sender's limits.
//!
//! Below a hierarchical scheduler, vifs hang under their router and slice. A flat one gets a class
//! for each vif; router and slice are then held by policers alone.

use alloc::vec;
use alloc::vec::Vec;

use weir_policy::{Direction, Policy, PortId, SchedulerKind};
use weir_sched::{
    AnyScheduler, ClassConfig, ClassId, ConfigError, Dequeue, LinkConfig, Paced, Packet, Scheduler,
    WaitReason,
};
use weir_units::{ByteCount, Instant};

use crate::remap::Remap;
use crate::shares::Shares;

/// Which of a port's trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum TreeKind {
    Send,
    Receive,
    Local,
}

/// One tree.
pub(crate) struct Tree {
    scheduler: Paced<AnyScheduler>,
    kind: TreeKind,
    scheduler_kind: SchedulerKind,
    classes_max: u32,
    packets_max: u32,
    /// The vif behind a class; [`NO_VIF`] for a slice or router.
    owners: Vec<u32>,
    slices: Vec<Option<ClassId>>,
    routers: Vec<Option<ClassId>>,
    vifs: Vec<Option<ClassId>>,
    /// Before this, a dequeue would only wait again.
    next: Instant,
    why: WaitReason,
}

/// The answer of [`Tree::dequeue`], with the vif in the place of the class.
pub(crate) enum Served {
    Send { vif: u32, packet: Packet, mark: bool },
    Dropped { vif: u32, packet: Packet },
    Wait { until: Instant, why: WaitReason },
    Idle,
}

/// Packets that lost their class by a change of policy, with the vif (new index, [`NO_VIF`] if it
/// is gone) that they belonged to.
pub(crate) type Orphans = Vec<(u32, TreeKind, Packet)>;

impl Tree {
    /// The tree of a port, as the policy wants it.
    pub(crate) fn new(
        now: Instant,
        policy: &Policy,
        port: PortId,
        kind: TreeKind,
    ) -> Result<Self, ConfigError> {
        let count = policy.slices.len() + policy.routers.len() + policy.vifs.len();
        // Half as many again, so that a policy can grow without a new tree.
        let classes_max = u32::try_from(count + count / 2 + 16).unwrap_or(u32::MAX);
        let config = &policy[port];
        let rate = (kind != TreeKind::Local).then_some(config.rate);
        let packets_max = policy.node.frames;
        let link = LinkConfig { rate, catch_up: config.catch_up, classes_max, packets_max };
        let mut tree = Self {
            scheduler: Paced::new(AnyScheduler::new(of(config.scheduler), &link), &link),
            kind,
            scheduler_kind: config.scheduler,
            classes_max,
            packets_max,
            owners: vec![NO_VIF; classes_max as usize],
            slices: vec![None; policy.slices.len()],
            routers: vec![None; policy.routers.len()],
            vifs: vec![None; policy.vifs.len()],
            next: Instant::ZERO,
            why: WaitReason::LinkBusy,
        };
        tree.grow(now, policy, &tree.shares(policy, port))?;
        Ok(tree)
    }

    /// Follows a change from `old` to `new` policy, in place. Packets whose class moves within the
    /// tree stay, in order; those of a vif that left are appended to `orphans` under its new index
    /// ([`NO_VIF`] if it is gone).
    pub(crate) fn change(
        &mut self,
        now: Instant,
        (old, new): (&Policy, &Policy),
        port: PortId,
        remap: &Remap,
        orphans: &mut Orphans,
    ) -> Result<(), ConfigError> {
        self.next = Instant::ZERO;
        let shares = self.shares(new, port);
        if self.kind != TreeKind::Local {
            self.scheduler.set_link_rate(now, Some(new[port].rate));
        }
        let mut moved = Vec::new();
        self.shrink(now, (old, new), &shares, remap, &mut moved)?;
        self.adopt(remap, new);
        self.grow(now, new, &shares)?;
        for (vif, packet) in moved {
            if !self.take_back(now, vif, packet) {
                orphans.push((vif, self.kind, packet));
            }
        }
        Ok(())
    }

    /// Whether the tree can follow `policy`, or must be built anew.
    pub(crate) fn can_follow(&self, policy: &Policy, port: PortId) -> bool {
        let count = policy.slices.len() + policy.routers.len() + policy.vifs.len();
        policy[port].scheduler == self.scheduler_kind
            && policy.node.frames == self.packets_max
            && count <= self.classes_max as usize
    }

    /// Takes out every packet, in order within each vif, under the vif's index.
    pub(crate) fn drain(&mut self, now: Instant, mut orphan: impl FnMut(u32, Packet, TreeKind)) {
        let kind = self.kind;
        for (vif, class) in (0u32..).zip(&mut self.vifs) {
            let Some(class) = class.take() else { continue };
            let removed =
                self.scheduler.remove_class(now, class, &mut |packet| orphan(vif, packet, kind));
            debug_assert!(removed.is_ok(), "a leaf that was added can be removed");
        }
    }

    /// Moves every packet into the tree that takes this one's place.
    pub(crate) fn move_into(
        &mut self,
        now: Instant,
        other: &mut Self,
        remap: &Remap,
        orphans: &mut Orphans,
    ) {
        self.drain(now, |vif, packet, kind| {
            let vif = remap.vif(vif as usize).unwrap_or(NO_VIF);
            if !other.take_back(now, vif, packet) {
                orphans.push((vif, kind, packet));
            }
        });
    }

    /// Queues a packet of a vif.
    #[inline]
    pub(crate) fn enqueue(
        &mut self,
        now: Instant,
        class: ClassId,
        packet: Packet,
    ) -> Result<(), weir_sched::DropReason> {
        self.scheduler.enqueue(now, class, packet)?;
        // A link that is busy stays so; another wait may end with this packet.
        if self.why != WaitReason::LinkBusy || self.next == Instant::FAR_FUTURE {
            self.next = now;
        }
        Ok(())
    }

    /// The next packet, or when and why to ask again.
    #[inline]
    pub(crate) fn dequeue(&mut self, now: Instant) -> Served {
        if self.next > now {
            return self.waiting();
        }
        match self.scheduler.dequeue(now) {
            Dequeue::Send { class, packet, mark } => {
                Served::Send { vif: self.owner(class), packet, mark }
            }
            Dequeue::Dropped { class, packet, .. } => {
                Served::Dropped { vif: self.owner(class), packet }
            }
            Dequeue::Wait { until, why } => {
                (self.next, self.why) = (until, why);
                Served::Wait { until, why }
            }
            Dequeue::Idle => {
                self.next = Instant::FAR_FUTURE;
                Served::Idle
            }
        }
    }

    /// Charges a class for bytes that it sent through another tree.
    #[inline]
    pub(crate) fn charge(&mut self, now: Instant, class: ClassId, bytes: u32) {
        self.scheduler.charge(now, class, ByteCount::new(u64::from(bytes)));
    }

    /// When a dequeue may give a packet; [`Instant::FAR_FUTURE`] if nothing is queued.
    #[inline]
    pub(crate) const fn next(&self) -> Instant {
        self.next
    }

    /// What a dequeue would answer before [`Tree::next`].
    #[inline]
    pub(crate) fn waiting(&self) -> Served {
        if self.next == Instant::FAR_FUTURE {
            return Served::Idle;
        }
        Served::Wait { until: self.next, why: self.why }
    }

    /// The class of a vif.
    pub(crate) fn vif(&self, vif: usize) -> Option<ClassId> {
        self.vifs.get(vif).copied().flatten()
    }

    /// The class of a router.
    pub(crate) fn router(&self, router: usize) -> Option<ClassId> {
        self.routers.get(router).copied().flatten()
    }

    /// The class of a slice.
    pub(crate) fn slice(&self, slice: usize) -> Option<ClassId> {
        self.slices.get(slice).copied().flatten()
    }

    /// [`Scheduler::touch`].
    #[inline]
    pub(crate) fn touch(&self, class: ClassId) {
        self.scheduler.touch(class);
    }

    /// Packets that a class's queue can still take.
    pub(crate) fn room(&self, class: ClassId) -> u32 {
        self.scheduler.room(class)
    }

    /// When the first packet that a class has queued arrived.
    pub(crate) fn head_arrived(&self, class: ClassId) -> Option<Instant> {
        self.scheduler.head_arrived(class)
    }

    /// What a class has queued, in accounted bytes.
    pub(crate) fn class_backlog(&self, class: ClassId) -> weir_sched::Backlog {
        self.scheduler.class_backlog(class)
    }

    /// Queues a packet again that lost its class; whether it found one.
    fn take_back(&mut self, now: Instant, vif: u32, packet: Packet) -> bool {
        let class = self.vif(vif as usize);
        class.is_some_and(|class| self.enqueue(now, class, packet).is_ok())
    }

    fn owner(&self, class: ClassId) -> u32 {
        self.owners.get(class.0 as usize).copied().unwrap_or(NO_VIF)
    }

    fn shares(&self, policy: &Policy, port: PortId) -> Shares {
        let direction = match self.kind {
            TreeKind::Send | TreeKind::Local => Direction::Send,
            TreeKind::Receive => Direction::Receive,
        };
        Shares::of(policy, port, direction, self.kind != TreeKind::Local)
    }

    /// Adds the classes that are missing and changes those that are there, from the top down.
    fn grow(&mut self, now: Instant, policy: &Policy, shares: &Shares) -> Result<(), ConfigError> {
        let nested = self.scheduler_kind.nested();
        for at in 0..policy.slices.len() {
            let Some(config) = shares.slices[at].as_ref().filter(|_| nested) else { continue };
            self.slices[at] = Some(self.set(now, self.slices[at], None, config)?);
        }
        for (at, router) in policy.routers.iter().enumerate() {
            let Some(config) = shares.routers[at].as_ref().filter(|_| nested) else { continue };
            let parent = self.slice(router.slice.0 as usize);
            self.routers[at] = Some(self.set(now, self.routers[at], parent, config)?);
        }
        for (at, vif) in policy.vifs.iter().enumerate() {
            let Some(config) = shares.vifs[at].as_ref() else { continue };
            let router = vif.router.and_then(|router| self.router(router.0 as usize));
            let parent = router.or_else(|| self.slice(vif.slice.0 as usize));
            let class = self.set(now, self.vifs[at], parent, config)?;
            self.vifs[at] = Some(class);
            if let (Some(owner), Ok(vif)) =
                (self.owners.get_mut(class.0 as usize), u32::try_from(at))
            {
                *owner = vif;
            }
        }
        Ok(())
    }

    fn set(
        &mut self,
        now: Instant,
        class: Option<ClassId>,
        parent: Option<ClassId>,
        config: &ClassConfig,
    ) -> Result<ClassId, ConfigError> {
        let Some(class) = class else { return self.scheduler.add_class(now, parent, config) };
        self.scheduler.change_class(now, class, config)?;
        Ok(class)
    }

    /// Removes what the new policy has no more, or elsewhere: vifs, then routers, then slices.
    fn shrink(
        &mut self,
        now: Instant,
        (old, new): (&Policy, &Policy),
        shares: &Shares,
        remap: &Remap,
        orphans: &mut Vec<(u32, Packet)>,
    ) -> Result<(), ConfigError> {
        let wanted = |new: Option<u32>, of: &[Option<ClassConfig>]| {
            new.is_some_and(|at| of.get(at as usize).is_some_and(Option::is_some))
        };
        for at in 0..self.vifs.len() {
            let Some(class) = self.vifs[at] else { continue };
            let vif = remap.vif(at);
            if wanted(vif, &shares.vifs) && remap.vif_stays(old, new, at) {
                continue;
            }
            let index = vif.unwrap_or(NO_VIF);
            self.scheduler.remove_class(now, class, &mut |packet| orphans.push((index, packet)))?;
            self.vifs[at] = None;
            if let Some(owner) = self.owners.get_mut(class.0 as usize) {
                *owner = NO_VIF;
            }
        }
        for at in 0..self.routers.len() {
            let Some(class) = self.routers[at] else { continue };
            let stays = wanted(remap.router(at), &shares.routers);
            if !(stays && remap.router_stays(old, new, at)) {
                self.scheduler.remove_class(now, class, &mut |_| ())?;
                self.routers[at] = None;
            }
        }
        for at in 0..self.slices.len() {
            let Some(class) = self.slices[at] else { continue };
            if !wanted(remap.slice(at), &shares.slices) {
                self.scheduler.remove_class(now, class, &mut |_| ())?;
                self.slices[at] = None;
            }
        }
        Ok(())
    }

    /// Turns old indexes into new ones.
    fn adopt(&mut self, remap: &Remap, new: &Policy) {
        self.vifs = permuted(&self.vifs, new.vifs.len(), |at| remap.vif(at));
        self.routers = permuted(&self.routers, new.routers.len(), |at| remap.router(at));
        self.slices = permuted(&self.slices, new.slices.len(), |at| remap.slice(at));
    }
}

fn permuted(
    old: &[Option<ClassId>],
    length: usize,
    new: impl Fn(usize) -> Option<u32>,
) -> Vec<Option<ClassId>> {
    let mut permuted = vec![None; length];
    for (at, class) in old.iter().enumerate() {
        if let Some(place) = new(at).and_then(|new| permuted.get_mut(new as usize)) {
            *place = *class;
        }
    }
    permuted
}

/// The scheduler that a policy names.
const fn of(kind: SchedulerKind) -> weir_sched::SchedulerKind {
    match kind {
        SchedulerKind::Hfsc => weir_sched::SchedulerKind::Hfsc,
        SchedulerKind::Wrr => weir_sched::SchedulerKind::Wrr,
        SchedulerKind::Drr => weir_sched::SchedulerKind::Drr,
        SchedulerKind::Wfq => weir_sched::SchedulerKind::Wfq,
        SchedulerKind::Strict => weir_sched::SchedulerKind::Strict,
        SchedulerKind::Fifo => weir_sched::SchedulerKind::Fifo,
    }
}

/// Which limits a scheduler holds; what it does not is policed.
pub(crate) trait Holds {
    /// Whether it has levels: a flat one does not hold the limits of routers and slices.
    fn nested(self) -> bool;
    /// Whether it holds the limit of a vif.
    fn shapes(self) -> bool;
}

impl Holds for SchedulerKind {
    fn nested(self) -> bool {
        self == Self::Hfsc
    }

    fn shapes(self) -> bool {
        self != Self::Fifo
    }
}

/// No vif.
pub(crate) const NO_VIF: u32 = u32::MAX;
