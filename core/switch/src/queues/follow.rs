// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queues follow a change of policy: classes change in place, and only classes of vifs that
//! left, or that moved to another scheduler, give up their packets.

use alloc::vec::Vec;

use weir_policy::{Direction, Policy, QueueKind, Share, Vif};
use weir_units::Instant;

use super::device::DeviceBacklog;
use super::{
    ChargeRange, LostFrames, NO_CLASS, PortQueues, QueueTraits, Queues, TREES, VifQueues,
    tree_index,
};
use crate::accounting::Accounting;
use crate::ids::{IdChanges, Ids};
use crate::pool_shares::PoolShares;
use crate::shares::TreeShares;
use crate::tree::{OrphanedPacket, SchedulerLimits, Tree, TreeKind, TreeTarget};

impl Queues {
    /// Follows a policy whose ids were given: classes change in place, and queued packets stay
    /// where they are, in order. Returns the frames that lost their place.
    pub(crate) fn follow(
        &mut self,
        now: Instant,
        (policy, shares): (&Policy, &[[TreeShares; 3]]),
        ids: &Ids,
        changes: &IdChanges,
    ) -> LostFrames {
        self.follow_internets(policy);
        self.pool = PoolShares::of(policy.node.frames);
        self.frames.grow(policy.node.frames as usize);
        self.resume_all(now);
        let orphans = self.follow_ports(now, (policy, shares), ids, changes);
        let ready = self.follow_vifs(policy, ids, changes);
        self.link_charges(policy, ids);
        LostFrames { ready, orphans }
    }

    fn follow_ports(
        &mut self,
        now: Instant,
        (policy, shares): (&Policy, &[[TreeShares; 3]]),
        ids: &Ids,
        changes: &IdChanges,
    ) -> Vec<OrphanedPacket> {
        let mut orphans = Vec::new();
        self.ports.resize(ids.ports.capacity(), PortQueues::NONE);
        self.trees.resize_with(ids.ports.capacity() * TREES.len(), Tree::vacant);
        for number in &changes.ports.removed {
            for kind in TREES {
                let tree = &mut self.trees[tree_index(*number, kind)];
                core::mem::replace(tree, Tree::vacant()).drain(now, &mut orphans);
            }
        }
        for ((id, port), shares) in policy.ports().zip(shares) {
            let number = ids.port(id);
            let state = &mut self.ports[number as usize];
            state.slot = u32::try_from(ids.port_slot(id)).unwrap_or(u32::MAX);
            state.accounting = Accounting::of(port);
            state.nested = port.scheduler.nested();
            let slot = state.slot;
            for (kind, shares) in TREES.into_iter().zip(shares) {
                let known = orphans.len();
                let target = TreeTarget { policy, ids, port: id, shares };
                let tree = &mut self.trees[tree_index(number, kind)];
                if tree.can_follow(&target) {
                    tree.follow(now, &target, &mut orphans);
                } else {
                    let mut before = core::mem::replace(tree, Tree::new(now, &target, kind));
                    before.move_into(now, tree, &mut orphans);
                }
                if kind == TreeKind::Send {
                    orphans[known..].iter_mut().for_each(|orphan| orphan.port = Some(slot));
                }
            }
        }
        orphans
    }

    /// Returns the chunks of frames that waited for the devices of vifs that left.
    fn follow_vifs(&mut self, policy: &Policy, ids: &Ids, changes: &IdChanges) -> Vec<u32> {
        let mut lost = Vec::new();
        for slot in &changes.interfaces.removed {
            let frames = core::iter::from_fn(|| self.pop_ready(*slot as usize));
            lost.extend(frames.map(|(_, frame)| frame.id));
        }
        self.vifs.resize(ids.interface_count(), VifQueues::NONE);
        self.ready.resize(self.vifs.len().div_ceil(64), 0);
        self.devices.resize(self.vifs.len(), DeviceBacklog::NONE);
        for slot in changes.interfaces.added.iter().chain(&changes.interfaces.removed) {
            self.vifs[*slot as usize] = VifQueues::NONE;
            self.devices[*slot as usize] = DeviceBacklog::NONE;
        }
        let all =
            policy.vifs.iter().flat_map(|vif| Direction::ALL.map(|direction| (vif, direction)));
        let count = all.filter(|(vif, direction)| guaranteed(policy, vif, *direction)).count();
        let part = u32::try_from(self.pool.reserve as usize / count.max(1)).unwrap_or(0).max(1);
        for (vif, slot) in policy.vifs.iter().zip(ids.vif_slots()) {
            let floor = |direction| if guaranteed(policy, vif, direction) { part } else { 0 };
            let port = ids.port(vif.port);
            let port_slot = ids.port_slot(vif.port);
            let class = |kind| self.trees[tree_index(port, kind)].vif(*slot).unwrap_or(NO_CLASS);
            let (send, local) = (class(TreeKind::Send), class(TreeKind::Local));
            let receive = class(TreeKind::Receive);
            self.devices[*slot as usize].follow(policy, vif);
            let state = &mut self.vifs[*slot as usize];
            *state = VifQueues {
                send,
                local,
                receive,
                port: u16::try_from(port).unwrap_or(u16::MAX),
                port_slot: u16::try_from(port_slot).unwrap_or(u16::MAX),
                send_floor: floor(Direction::Send),
                receive_floor: floor(Direction::Receive),
                receive_bound: vif.receive_queue.packets,
                bridge: policy.bridge_of(vif.port, vif.slice),
                send_traits: traits(policy, vif, Direction::Send),
                receive_traits: traits(policy, vif, Direction::Receive),
                ..*state
            };
        }
        lost
    }

    /// Finds, for each vif with a limit, the classes at other ports that share it.
    fn link_charges(&mut self, policy: &Policy, ids: &Ids) {
        self.charges.clear();
        for (vif, slot) in policy.vifs.iter().zip(ids.vif_slots()) {
            let state = &self.vifs[*slot as usize];
            let (sends, receives) = (state.send_traits.limited(), state.receive_traits.limited());
            let kinds: &[_] = if sends { &[TreeKind::Send, TreeKind::Local] } else { &[] };
            let send_charges = self.add_charges(policy, ids, vif, kinds);
            let kinds: &[_] = if receives { &[TreeKind::Receive] } else { &[] };
            let receive_charges = self.add_charges(policy, ids, vif, kinds);
            let state = &mut self.vifs[*slot as usize];
            (state.send_charges, state.receive_charges) = (send_charges, receive_charges);
        }
    }

    fn add_charges(
        &mut self,
        policy: &Policy,
        ids: &Ids,
        vif: &Vif,
        kinds: &[TreeKind],
    ) -> ChargeRange {
        let start = u32::try_from(self.charges.len()).unwrap_or(0);
        for (port, _) in policy.ports().filter(|(port, _)| *port != vif.port) {
            for kind in kinds {
                let index = tree_index(ids.port(port), *kind);
                let tree = &self.trees[index];
                let router = vif.router.and_then(|router| tree.router(ids.router(router)));
                let class = router.or_else(|| tree.slice(ids.slice(vif.slice)));
                if let (Some(class), Ok(index)) = (class, u32::try_from(index)) {
                    self.charges.push((index, class));
                }
            }
        }
        ChargeRange { start, end: u32::try_from(self.charges.len()).unwrap_or(0) }
    }
}

/// Tells whether a vif is guaranteed a rate, by itself, its router or its slice.
fn guaranteed(policy: &Policy, vif: &Vif, direction: Direction) -> bool {
    let own = !vif.share(direction).min_rate.is_zero();
    own || groups_of(policy, vif, direction).any(|share| !share.min_rate.is_zero())
}

/// Tells whether a bit rate limits a vif, by its class in the tree, its router or its slice.
fn limited(policy: &Policy, vif: &Vif, direction: Direction) -> bool {
    let own = vif.share(direction).rate.is_some() && vif.shaper(direction).is_none();
    own || groups_of(policy, vif, direction).any(|share| share.rate.is_some())
}

fn traits(policy: &Policy, vif: &Vif, direction: Direction) -> QueueTraits {
    let flows = vif.queue(direction).kind == QueueKind::Flows;
    QueueTraits::new(limited(policy, vif, direction), flows)
}

/// Returns the shares of a vif's router and slice.
fn groups_of<'a>(
    policy: &'a Policy,
    vif: &'a Vif,
    direction: Direction,
) -> impl Iterator<Item = &'a Share> {
    let router = vif.router.map(|router| policy[router].share(direction));
    router.into_iter().chain([policy[vif.slice].share(direction)])
}
