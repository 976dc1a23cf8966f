// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Live change: another policy takes over, and queued frames stay where they are, in order.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use weir_policy::{Direction, Policy};
use weir_sched::Packet;
use weir_units::Instant;

use crate::counters::Counters;
use crate::fdb::Source;
use crate::police::Meter;
use crate::pool::FramePool;
use crate::reason::Reason;
use crate::remap::Remap;
use crate::state::{self, Domain, Link, Owner, Room, Slot, Stage, VifState, tree_index};
use crate::switch::{Switch, SwitchError, TREES, check, length_max};
use crate::tree::{NO_VIF, Orphans, Tree, TreeKind};

impl Switch {
    /// Replaces the policy. Whatever has the same name goes on: queued frames stay, in order, with
    /// their counters, what they have earned and what they owe. A vif that is gone, or is now in
    /// another slice or on another port, loses its queued frames, counted in [`Switch::removed`].
    /// Interfaces are numbered anew, by the new policy. Costs time in proportion to the number of
    /// classes, and allocates.
    ///
    /// # Errors
    /// As [`Switch::new`]; nothing has changed then.
    pub fn apply<P: FramePool>(
        &mut self,
        now: Instant,
        policy: &Policy,
        pool: &mut P,
    ) -> Result<(), SwitchError> {
        check(policy)?;
        let fresh = fresh_trees(now, policy)?;
        let remap = Remap::new(&self.policy, policy);
        let domains = state::domains(policy);
        let mut vifs = state::vifs(policy, &domains);
        self.release_stages(&remap, pool);
        self.carry_vifs(&remap, &mut vifs);
        self.remap_slots(&remap, policy.node.frames);
        let mut orphans = Orphans::new();
        let trees = self.change_trees(now, policy, &remap, fresh, &mut orphans);
        self.carry_addresses(policy, &remap, &domains, &vifs);
        self.carry_meters(now, policy, &remap, &mut vifs);
        self.carry_interfaces(now, policy, &remap, &domains);
        self.charges = state::link(policy, &mut vifs, &trees);
        (self.trees, self.vifs, self.domains) = (trees, vifs, domains);
        self.policy = policy.clone();
        (self.room, self.length_max) = (Room::of(policy.node.frames), length_max(policy));
        self.carry_taps(&remap);
        self.carry_limits(now, &remap, pool);
        self.mark_ready();
        for (vif, kind, packet) in orphans.iter().copied() {
            self.bury(vif as usize, kind, packet.id, pool);
        }
        Ok(())
    }

    /// Frees what waits for the devices of vifs that leave.
    fn release_stages<P: FramePool>(&mut self, remap: &Remap, pool: &mut P) {
        for vif in 0..self.vifs.len() {
            if remap.vif(vif).is_some() {
                continue;
            }
            let (mut id, tail) = (self.vifs[vif].stage.head, self.vifs[vif].stage.tail);
            while let Some(link) = self.links.get(id as usize) {
                let next = if id == tail { state::NO_FRAME } else { link.next };
                pool.free(id);
                self.queued = self.queued.saturating_sub(1);
                self.removed += 1;
                id = next;
            }
            self.vifs[vif].stage = Stage::EMPTY;
        }
    }

    fn carry_vifs(&self, remap: &Remap, vifs: &mut [VifState]) {
        for (at, before) in self.vifs.iter().enumerate() {
            let Some(after) = remap.vif(at).and_then(|at| vifs.get_mut(at as usize)) else {
                continue;
            };
            after.sending = before.sending;
            after.receiving = before.receiving;
            after.stage = before.stage;
            after.completes = before.completes;
            after.tapped = before.tapped;
        }
    }

    /// Local frames know their receiver by index.
    fn remap_slots(&mut self, remap: &Remap, frames: u32) {
        for link in &mut self.links {
            if link.to != NO_VIF {
                link.to = remap.vif(link.to as usize).unwrap_or(GONE);
            }
        }
        let frames = frames as usize;
        if frames > self.slots.len() {
            self.slots = grown(&mut self.slots, frames, Slot::EMPTY);
            self.links = grown(&mut self.links, frames, Link::NONE);
        }
    }

    /// The trees of the new policy: the old ones where they can follow, else fresh ones with the
    /// packets of the old.
    fn change_trees(
        &mut self,
        now: Instant,
        policy: &Policy,
        remap: &Remap,
        fresh: Vec<Tree>,
        orphans: &mut Orphans,
    ) -> Vec<Tree> {
        let mut old: Vec<Option<Tree>> =
            core::mem::take(&mut self.trees).into_iter().map(Some).collect();
        let mut places: BTreeMap<u32, u32> = BTreeMap::new();
        for (before, _) in self.policy.ports() {
            if let Some(after) = remap.port(before.0 as usize) {
                places.insert(after, before.0);
            }
        }
        let mut trees = Vec::with_capacity(fresh.len());
        for (index, mut tree) in fresh.into_iter().enumerate() {
            let (port, kind) = (index / TREES.len(), TREES[index % TREES.len()]);
            let port = weir_policy::PortId(u32::try_from(port).unwrap_or(u32::MAX));
            let known = orphans.len();
            let before = places.get(&port.0).map(|before| tree_index(*before, kind));
            if let Some(mut before) = before.and_then(|at| old.get_mut(at)?.take()) {
                let policies = (&self.policy, policy);
                if before.can_follow(policy, port)
                    && before.change(now, policies, port, remap, orphans).is_ok()
                {
                    tree = before;
                } else {
                    before.move_into(now, &mut tree, remap, orphans);
                }
            }
            if let Some(port) = places.get(&port.0).filter(|_| kind == TreeKind::Send) {
                self.drop_at_send_tree(*port, &orphans[known..]);
            }
            trees.push(tree);
        }
        // Of ports that are gone.
        for mut tree in old.into_iter().flatten() {
            tree.drain(now, |_, packet, kind| orphans.push((NO_VIF, kind, packet)));
        }
        trees
    }

    /// A port counts what its send tree took as its own, so it counts what that gave up too. By
    /// the old index of the port, under which its counters still are.
    fn drop_at_send_tree(&mut self, port: u32, orphans: &[(u32, TreeKind, Packet)]) {
        let counters = &mut self.counters[port as usize][Direction::Send as usize];
        for (_, _, packet) in orphans {
            let slot = self.slots.get(packet.id as usize).copied().unwrap_or(Slot::EMPTY);
            counters.drop_after(Reason::Removed, slot.len);
        }
    }

    fn carry_addresses(
        &mut self,
        policy: &Policy,
        remap: &Remap,
        domains: &[Domain],
        vifs: &[VifState],
    ) {
        let mut fdb = state::fdb(policy, vifs);
        for (domain, mac, iface, fixed, seen) in self.fdb.iter() {
            let before = self.domains.get(usize::from(domain));
            let iface = remap.iface(&self.policy, policy, iface);
            let (Some(before), Some(iface), false) = (before, iface, fixed) else { continue };
            let source = match (iface as usize).checked_sub(policy.ports.len()) {
                Some(vif) => vifs.get(vif).map(|vif| (vif.domain, vif.source)),
                None => domains
                    .iter()
                    .position(|domain| domain.port == iface && domain.vlan == before.vlan)
                    .and_then(|domain| u16::try_from(domain).ok())
                    .map(|domain| (domain, Source { iface, port: true, fixed: false })),
            };
            if let Some((domain, source)) = source {
                fdb.restore(domain, mac, source, seen);
            }
        }
        self.fdb = fdb;
    }

    fn carry_meters(
        &mut self,
        now: Instant,
        policy: &Policy,
        remap: &Remap,
        vifs: &mut [VifState],
    ) {
        let mut before: BTreeMap<(Owner, Direction), Meter> = BTreeMap::new();
        for (owner, direction, place) in &self.meters {
            let owner = match *owner {
                Owner::Vif(at) => remap.vif(at as usize).map(Owner::Vif),
                Owner::Router(at) => remap.router(at as usize).map(Owner::Router),
                Owner::Slice(at) => remap.slice(at as usize).map(Owner::Slice),
            };
            if let (Some(owner), Some(meter)) = (owner, self.police.take_meter(*place)) {
                before.insert((owner, *direction), meter);
            }
        }
        let continued = |owner, direction| before.remove(&(owner, direction));
        (self.police, self.meters) = state::police(now, policy, vifs, continued);
    }

    /// Ports, limits of flooding and counters.
    fn carry_interfaces(
        &mut self,
        now: Instant,
        policy: &Policy,
        remap: &Remap,
        domains: &[Domain],
    ) {
        let mut ports = state::ports(policy, domains);
        let mut storms = state::storms(now, policy, domains);
        let mut counters = vec![<[Counters; 2]>::default(); storms.len()];
        for (before, (storm, counts)) in self.storms.iter().zip(&self.counters).enumerate() {
            let before = u32::try_from(before).unwrap_or(u32::MAX);
            let Some(after) = remap.iface(&self.policy, policy, before) else { continue };
            let after = after as usize;
            if let (Some(limit), Some(place)) = (storms.get_mut(after), counters.get_mut(after)) {
                *limit = limit.clone().continued(now, storm);
                *place = *counts;
            }
            if let (Some(new), Some(old)) = (ports.get_mut(after), self.ports.get(before as usize))
            {
                new.completes = old.completes;
            }
        }
        (self.ports, self.storms, self.counters) = (ports, storms, counters);
    }

    fn carry_taps(&mut self, remap: &Remap) {
        self.taps.retain_mut(|tap| {
            let vif = remap.vif(tap.vif as usize);
            tap.vif = vif.unwrap_or(NO_VIF);
            vif.is_some()
        });
    }

    fn mark_ready(&mut self) {
        self.ready = vec![0; self.vifs.len().div_ceil(64)];
        for (at, vif) in self.vifs.iter().enumerate() {
            if !vif.stage.is_empty() {
                self.ready[at / 64] |= 1 << (at % 64);
            }
        }
    }

    /// Frees a frame that lost its queue, and settles the accounts of those it belonged to.
    fn bury<P: FramePool>(&mut self, vif: usize, kind: TreeKind, id: u32, pool: &mut P) {
        let slot = self.slots.get(id as usize).copied().unwrap_or(Slot::EMPTY);
        if let Some(link) = self.links.get_mut(id as usize) {
            *link = Link::NONE;
        }
        let direction = match kind {
            TreeKind::Receive => Direction::Receive,
            TreeKind::Send | TreeKind::Local => Direction::Send,
        };
        if let Some(state) = self.vifs.get_mut(vif) {
            let held = match direction {
                Direction::Send => &mut state.sending,
                Direction::Receive => &mut state.receiving,
            };
            *held = held.saturating_sub(1);
            let bytes = VifState::own_length(slot);
            self.vif_counters(vif, direction).drop_after(Reason::Removed, bytes);
        }
        self.queued = self.queued.saturating_sub(1);
        self.removed += 1;
        pool.free(id);
    }
}

/// All trees of a policy, empty: made before anything is changed, so that a policy that a
/// scheduler refuses changes nothing.
fn fresh_trees(now: Instant, policy: &Policy) -> Result<Vec<Tree>, SwitchError> {
    let mut trees = Vec::with_capacity(policy.ports.len() * TREES.len());
    for (port, _) in policy.ports() {
        for kind in TREES {
            let tree = Tree::new(now, policy, port, kind);
            trees.push(tree.map_err(|error| SwitchError::Scheduler { port: port.0, error })?);
        }
    }
    Ok(trees)
}

fn grown<T: Copy>(old: &mut Box<[T]>, length: usize, empty: T) -> Box<[T]> {
    let mut grown = core::mem::take(old).into_vec();
    grown.resize(length, empty);
    grown.into_boxed_slice()
}

/// The receiver of a local frame whose vif is gone. No vif has this index, and it is not
/// [`NO_VIF`], which marks frames that are not local.
const GONE: u32 = NO_VIF - 1;
