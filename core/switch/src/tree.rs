// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A schedule tree: a scheduler, the vifs behind its classes, and how it follows a policy.
//!
//! Each port has three. The *send* tree holds what its vifs send out on it and the *receive* tree
//! what comes in for them; both are paced at the port's rate. The *local* tree holds what passes
//! between two of its vifs, queued by sender; only the sender's limits pace it.
//!
//! Below a hierarchical scheduler, vifs hang under their router and slice. A flat one gets a class
//! for each vif; router and slice are then held by policers alone.

use alloc::vec;
use alloc::vec::Vec;

use weir_policy::{Policy, PortId, SchedulerKind, Vif};
use weir_sched::{
    ClassConfig, ClassId, ConfigError, Dequeue, FlowCounters, LinkConfig, Packet, Phase,
    PhaseCounters, Scheduler, WaitReason,
};
use weir_units::{ByteCount, Instant, Nanos};

use crate::ids::Ids;
use crate::shares::TreeShares;
use crate::tree_scheduler::{TreeScheduler, of};

/// The trees of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum TreeKind {
    Send,
    Receive,
    Local,
}

/// One tree.
pub(crate) struct Tree {
    scheduler: TreeScheduler,
    kind: TreeKind,
    scheduler_kind: SchedulerKind,
    classes_max: u32,
    packets_max: u32,
    /// The slot of the vif behind a class; [`NO_VIF`] for a slice or router.
    owners: Vec<u32>,
    /// By the slice's slot.
    slices: Vec<Option<ClassId>>,
    /// By the router's slot; the parent is the slice.
    routers: Vec<Option<TreeClass>>,
    /// By the vif's slot; the parent is the router.
    vifs: Vec<Option<TreeClass>>,
    /// Before this, a dequeue would only wait again.
    next: Instant,
    why: WaitReason,
}

/// A class, and the slot of the router or slice that it hangs under; [`NO_PARENT`] for none.
#[derive(Clone, Copy, Debug)]
struct TreeClass {
    class: ClassId,
    parent: u32,
}

/// The state that a tree is to reach: a port's policy, with the ids and the configuration of its
/// classes.
#[derive(Clone, Copy)]
pub(crate) struct TreeTarget<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) ids: &'a Ids,
    pub(crate) port: PortId,
    pub(crate) shares: &'a TreeShares,
}

/// The answer of [`Tree::dequeue`], with the vif's slot in the place of the class.
pub(crate) enum Served {
    Send { vif: u32, packet: Packet, mark: bool },
    Dropped { vif: u32, packet: Packet },
    Wait { until: Instant, why: WaitReason },
    Idle,
}

/// A packet that lost its class by a change of policy, with the slot of its vif, which may have
/// left.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrphanedPacket {
    pub(crate) vif: u32,
    pub(crate) kind: TreeKind,
    pub(crate) packet: Packet,
    /// The interface of the port that counted the packet as its own, by its slot.
    pub(crate) port: Option<u32>,
}

impl Tree {
    /// Returns the tree of a port, as a policy wants it.
    pub(crate) fn new(now: Instant, target: &TreeTarget<'_>, kind: TreeKind) -> Self {
        let config = &target.policy[target.port];
        let mut tree = Self::empty(
            config.scheduler,
            (kind, kind == TreeKind::Send && config.cycle.is_some()),
            &LinkConfig {
                rate: (kind != TreeKind::Local).then_some(config.rate),
                catch_up: config.catch_up,
                classes_max: classes_max(target.policy),
                packets_max: target.policy.node.frames,
            },
        );
        tree.grow(now, target);
        tree
    }

    /// Returns the tree of a number that no port has: nothing can be queued there.
    pub(crate) fn vacant() -> Self {
        let (catch_up, classes_max, packets_max) = (Nanos::ZERO, 0, 0);
        let link = LinkConfig { rate: None, catch_up, classes_max, packets_max };
        let mut tree = Self::empty(SchedulerKind::Fifo, (TreeKind::Send, false), &link);
        tree.next = Instant::FAR_FUTURE;
        tree
    }

    fn empty(
        scheduler_kind: SchedulerKind,
        (kind, cyclic): (TreeKind, bool),
        link: &LinkConfig,
    ) -> Self {
        Self {
            scheduler: TreeScheduler::new(scheduler_kind, scheduler_kind.nested(), cyclic, link),
            kind,
            scheduler_kind,
            classes_max: link.classes_max,
            packets_max: link.packets_max,
            owners: vec![NO_VIF; link.classes_max as usize],
            slices: Vec::new(),
            routers: Vec::new(),
            vifs: Vec::new(),
            next: Instant::ZERO,
            why: WaitReason::LinkBusy,
        }
    }

    /// Follows a change of policy in place. Packets whose class moves within the tree stay, in
    /// order; those of a vif that left are appended to `orphans`.
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        target: &TreeTarget<'_>,
        orphans: &mut Vec<OrphanedPacket>,
    ) {
        self.next = Instant::ZERO;
        if self.kind != TreeKind::Local {
            self.scheduler.set_link_rate(now, Some(target.policy[target.port].rate));
        }
        let mut moved = Vec::new();
        self.shrink(now, target, &mut moved);
        self.grow(now, target);
        self.take_back(now, moved, orphans);
    }

    /// Tells whether the tree can follow a policy in place, or must be built anew.
    pub(crate) fn can_follow(&self, target: &TreeTarget<'_>) -> bool {
        let port = &target.policy[target.port];
        let cyclic = self.kind == TreeKind::Send && port.cycle.is_some();
        port.scheduler == self.scheduler_kind
            && cyclic == self.scheduler.is_cyclic()
            && target.policy.node.frames == self.packets_max
            && count(target.policy) <= self.classes_max as usize
    }

    /// Takes out every packet, in order within each vif.
    pub(crate) fn drain(&mut self, now: Instant, orphans: &mut Vec<OrphanedPacket>) {
        for vif in 0..self.vifs.len() {
            if let Some(place) = self.vifs[vif].take() {
                self.remove_vif(now, vif, place.class, orphans);
            }
        }
    }

    /// Moves every packet into the tree that takes this one's place.
    pub(crate) fn move_into(
        &mut self,
        now: Instant,
        other: &mut Self,
        orphans: &mut Vec<OrphanedPacket>,
    ) {
        let mut moved = Vec::new();
        self.drain(now, &mut moved);
        other.take_back(now, moved, orphans);
    }

    /// Queues a packet of a vif.
    #[inline(always)]
    pub(crate) fn enqueue(
        &mut self,
        now: Instant,
        class: ClassId,
        packet: Packet,
    ) -> Result<(), weir_sched::DropReason> {
        self.scheduler.enqueue(now, class, packet)?;
        self.wake(now);
        Ok(())
    }

    /// Queues a packet of a vif that was accepted before: the bounds of its queue do not hold.
    pub(crate) fn requeue(
        &mut self,
        now: Instant,
        class: ClassId,
        packet: Packet,
    ) -> Result<(), weir_sched::DropReason> {
        self.scheduler.requeue(now, class, packet)?;
        self.wake(now);
        Ok(())
    }

    /// Notes that a packet was queued, which may end a wait.
    #[inline]
    fn wake(&mut self, now: Instant) {
        // A link that is busy stays so; another wait may end with this packet.
        if self.why != WaitReason::LinkBusy || self.next == Instant::FAR_FUTURE {
            self.next = now;
        }
    }

    /// Returns the next packet, or when and why to ask again.
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

    /// Holds the packets of a class back ([`Scheduler::pause`]).
    pub(crate) fn pause(&mut self, class: ClassId) {
        self.scheduler.pause(class);
    }

    /// Lets packets of a class leave again ([`Scheduler::resume`]).
    pub(crate) fn resume(&mut self, now: Instant, class: ClassId) {
        self.scheduler.resume(now, class);
        self.wake(now);
    }

    /// Returns when a dequeue may give a packet; [`Instant::FAR_FUTURE`] if nothing is queued.
    #[inline]
    pub(crate) const fn next(&self) -> Instant {
        self.next
    }

    /// Returns when the next phase begins that packets wait for; [`Instant::FAR_FUTURE`] without
    /// one.
    pub(crate) fn next_phase(&self) -> Instant {
        if self.why == WaitReason::PhaseClosed { self.next } else { Instant::FAR_FUTURE }
    }

    /// Returns the answer of a dequeue before [`Tree::next`].
    #[inline]
    pub(crate) fn waiting(&self) -> Served {
        if self.next == Instant::FAR_FUTURE {
            return Served::Idle;
        }
        Served::Wait { until: self.next, why: self.why }
    }

    /// Returns the class of a vif, by its slot.
    pub(crate) fn vif(&self, vif: u32) -> Option<ClassId> {
        self.vifs.get(vif as usize).copied().flatten().map(|place| place.class)
    }

    /// Returns the class of a router, by its slot.
    pub(crate) fn router(&self, router: u32) -> Option<ClassId> {
        self.routers.get(router as usize).copied().flatten().map(|place| place.class)
    }

    /// Returns the class of a slice, by its slot.
    pub(crate) fn slice(&self, slice: u32) -> Option<ClassId> {
        self.slices.get(slice as usize).copied().flatten()
    }

    /// Prefetches the queue of a class ([`Scheduler::touch`]).
    #[inline]
    pub(crate) fn touch(&self, class: ClassId) {
        self.scheduler.touch(class);
    }

    /// Returns the number of packets that a class's queue can still take.
    pub(crate) fn room(&self, class: ClassId) -> u32 {
        self.scheduler.room(class)
    }

    /// Returns when the first packet that a class has queued arrived.
    pub(crate) fn head_arrived(&self, class: ClassId) -> Option<Instant> {
        self.scheduler.head_arrived(class)
    }

    /// Returns the backlog of a class, in accounted bytes.
    pub(crate) fn class_backlog(&self, class: ClassId) -> weir_sched::Backlog {
        self.scheduler.class_backlog(class)
    }

    /// Returns the counters of a class's flows.
    pub(crate) fn flow_counters(&self, class: ClassId) -> FlowCounters {
        self.scheduler.flow_counters(class)
    }

    /// Queues packets again that lost their class; those whose vif has none here any more are
    /// appended to `orphans`.
    fn take_back(
        &mut self,
        now: Instant,
        moved: Vec<OrphanedPacket>,
        orphans: &mut Vec<OrphanedPacket>,
    ) {
        for orphan in moved {
            let class = self.vif(orphan.vif);
            let taken = class.map(|class| self.requeue(now, class, orphan.packet));
            if !matches!(taken, Some(Ok(()))) {
                orphans.push(orphan);
            }
        }
    }

    #[inline]
    fn owner(&self, class: ClassId) -> u32 {
        self.owners.get(class.0 as usize).copied().unwrap_or(NO_VIF)
    }

    /// Adds the classes that are missing and changes those that are there, from the top down.
    fn grow(&mut self, now: Instant, target: &TreeTarget<'_>) {
        let TreeTarget { policy, ids, shares, .. } = *target;
        self.slices.resize(ids.slices.capacity(), None);
        self.routers.resize(ids.routers.capacity(), None);
        self.vifs.resize(ids.interface_count(), None);
        let nested = self.scheduler_kind.nested();
        // Where slices have phases, each has a class, whatever schedules inside it.
        let slices = nested || self.scheduler.is_cyclic();
        for ((id, _), config) in policy.slices().zip(&shares.slices).filter(|_| slices) {
            let Some(config) = config else { continue };
            let slot = ids.slice(id);
            self.slices[slot as usize] = self.set(now, self.slice(slot), None, config);
        }
        for ((id, router), config) in policy.routers().zip(&shares.routers).filter(|_| nested) {
            let Some(config) = config else { continue };
            let (slot, slice) = (ids.router(id), ids.slice(router.slice));
            let class = self.set(now, self.router(slot), self.slice(slice), config);
            let place = class.map(|class| TreeClass { class, parent: slice });
            self.routers[slot as usize] = place;
        }
        let vifs = policy.vifs.iter().zip(ids.vif_slots()).zip(&shares.vifs);
        for ((vif, slot), config) in vifs {
            let Some(config) = config else { continue };
            let router = self.parent_of(target, vif);
            let parent = self.router(router).or_else(|| self.slice(ids.slice(vif.slice)));
            let class = self.set(now, self.vif(*slot), parent, config);
            let place = class.map(|class| TreeClass { class, parent: router });
            self.vifs[*slot as usize] = place;
            let owner = class.and_then(|class| self.owners.get_mut(class.0 as usize));
            if let Some(owner) = owner {
                *owner = *slot;
            }
        }
        self.follow_cycle(now, target);
    }

    fn follow_cycle(&mut self, now: Instant, target: &TreeTarget<'_>) {
        let TreeTarget { policy, ids, port, .. } = *target;
        let Some(cycle) = policy[port].cycle.filter(|_| self.scheduler.is_cyclic()) else { return };
        let phase = |(id, slice): (weir_policy::SliceId, &weir_policy::Slice)| {
            let (length, owner) = (slice.phase?, self.slice(ids.slice(id))?);
            Some(Phase { owner, length })
        };
        let phases = policy.slices().filter_map(phase).collect();
        self.scheduler.set_cycle(now, cycle, phases);
    }

    /// Returns how punctually phases were served; `None` without a cycle.
    pub(crate) const fn phase_counters(&self) -> Option<PhaseCounters> {
        self.scheduler.phase_counters()
    }

    fn set(
        &mut self,
        now: Instant,
        class: Option<ClassId>,
        parent: Option<ClassId>,
        config: &ClassConfig,
    ) -> Option<ClassId> {
        let set = match class {
            None => self.scheduler.add_class(now, parent, config),
            Some(class) => self.scheduler.change_class(now, class, config).map(|()| class),
        };
        debug_assert!(set.is_ok(), "a configuration that was checked is refused: {set:?}");
        set.ok().or(class)
    }

    /// Removes the classes that the policy no longer has here: vifs, then routers, then slices.
    fn shrink(&mut self, now: Instant, target: &TreeTarget<'_>, moved: &mut Vec<OrphanedPacket>) {
        let TreeTarget { policy, ids, shares, .. } = *target;
        for slot in 0..self.vifs.len() {
            let Some(place) = self.vifs[slot] else { continue };
            let stays = ids.vif_id(slot).is_some_and(|id| {
                let is_here = shares.vifs.get(id.0 as usize).is_some_and(Option::is_some);
                let router = self.parent_of(target, &policy[id]);
                let router_stays = router == NO_PARENT || self.router_stays(target, router);
                is_here && router == place.parent && router_stays
            });
            if !stays {
                self.vifs[slot] = None;
                self.remove_vif(now, slot, place.class, moved);
            }
        }
        for slot in (0..).take(self.routers.len()) {
            let Some(place) = self.routers[slot as usize] else { continue };
            if !self.router_stays(target, slot) {
                self.routers[slot as usize] = None;
                self.remove_group(now, place.class);
            }
        }
        for slot in 0..self.slices.len() {
            let Some(class) = self.slices[slot] else { continue };
            let position = ids.slices.position(slot);
            let is_here = |at: usize| shares.slices.get(at).is_some_and(Option::is_some);
            if !position.is_some_and(is_here) {
                self.slices[slot] = None;
                self.remove_group(now, class);
            }
        }
    }

    /// Returns the slot of the router under which a vif hangs; [`NO_PARENT`] in a tree of one
    /// level, too.
    fn parent_of(&self, target: &TreeTarget<'_>, vif: &Vif) -> u32 {
        let router = vif.router.filter(|_| self.scheduler_kind.nested());
        router.map_or(NO_PARENT, |router| target.ids.router(router))
    }

    /// Tells whether a router's class stays where it is: the router is on this port and in its
    /// slice.
    fn router_stays(&self, target: &TreeTarget<'_>, slot: u32) -> bool {
        let place = self.routers.get(slot as usize).copied().flatten();
        let position = target.ids.routers.position(slot as usize);
        let (Some(place), Some(position)) = (place, position) else { return false };
        let is_here = target.shares.routers.get(position).is_some_and(Option::is_some);
        let router = target.policy.routers.get(position);
        is_here && router.is_some_and(|router| target.ids.slice(router.slice) == place.parent)
    }

    fn remove_vif(
        &mut self,
        now: Instant,
        vif: usize,
        class: ClassId,
        orphans: &mut Vec<OrphanedPacket>,
    ) {
        let (vif, kind) = (u32::try_from(vif).unwrap_or(NO_VIF), self.kind);
        let mut orphan = |packet| orphans.push(OrphanedPacket { vif, kind, packet, port: None });
        let removed = self.scheduler.remove_class(now, class, &mut orphan);
        debug_assert!(removed.is_ok(), "a leaf that was added can be removed");
        if let Some(owner) = self.owners.get_mut(class.0 as usize) {
            *owner = NO_VIF;
        }
    }

    fn remove_group(&mut self, now: Instant, class: ClassId) {
        let removed = self.scheduler.remove_class(now, class, &mut |_| ());
        debug_assert!(removed.is_ok(), "what hung under it was removed before");
    }
}

/// Checks the configuration of every class that the trees of a port would have.
///
/// # Errors
/// The first value that the port's scheduler would refuse.
pub(crate) fn check(kind: SchedulerKind, shares: &TreeShares) -> Result<(), ConfigError> {
    let groups = shares.slices.iter().chain(&shares.routers).filter(|_| kind.nested());
    let mut configs = groups.chain(&shares.vifs).flatten();
    configs.try_for_each(|config| of(kind).check(config))
}

/// Returns the number of classes that a tree has room for: half as many again as the policy needs,
/// so that it can grow without a new tree.
fn classes_max(policy: &Policy) -> u32 {
    let count = count(policy);
    u32::try_from(count + count / 2 + 16).unwrap_or(u32::MAX)
}

fn count(policy: &Policy) -> usize {
    policy.slices.len() + policy.routers.len() + policy.vifs.len()
}

/// The limits that a scheduler holds; the others are policed.
pub(crate) trait SchedulerLimits {
    /// Tells whether it has levels: a flat one does not hold the limits of routers and slices.
    fn nested(self) -> bool;
    /// Tells whether it holds the limit of a vif.
    fn shapes(self) -> bool;
}

impl SchedulerLimits for SchedulerKind {
    fn nested(self) -> bool {
        self.holds().levels
    }

    fn shapes(self) -> bool {
        self != Self::Fifo
    }
}

/// No vif.
pub(crate) const NO_VIF: u32 = u32::MAX;
const NO_PARENT: u32 = u32::MAX;
