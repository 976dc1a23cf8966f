// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Stable ids: each port, slice, router, vif and bridge keeps its slot while policies come and go.
//!
//! A policy refers to its parts by their position, which shifts whenever something in front of them
//! is added or removed. State that outlives a policy (queues, counters, tokens, learned addresses)
//! would have to be moved from old positions to new ones at each change, one table at a time. So a
//! part gets a *slot* when its name first appears, keeps it as long as a policy has a part of that
//! name, and all state is kept by slot. A change of policy then changes values in place.
//!
//! A free slot is given to the next newcomer. An id that may outlive its owner (a queued frame's
//! destination, a caller's [`IfaceId`]) therefore has a *generation* beside the slot, which is
//! raised whenever the slot becomes free; an id of an earlier generation leads nowhere.
//! (Generational indexes: C. West, "Using Rust for game development", `RustConf` 2018.) A slot
//! whose generations are used up is never given again, so no id ever becomes valid a second time.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;

use weir_policy::{Policy, PortId, RouterId, SliceId, VifId};

use crate::types::IfaceId;

/// The slots of all parts of the policy in force.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    /// Ports, numbered on their own, since each has trees of classes.
    pub(crate) ports: SlotTable<String>,
    pub(crate) slices: SlotTable<String>,
    pub(crate) routers: SlotTable<String>,
    /// Bridges: a port and a number on it, [`weir_policy::Policy::bridge_of`].
    pub(crate) bridges: SlotTable<(u32, u16)>,
    /// Ports and vifs together.
    interfaces: SlotTable<InterfaceKey>,
    /// The id of the vif that has a slot; [`NO_IFACE`] if none has.
    vif_ids: Vec<u32>,
    /// The id of the interface that has a slot, and the number of its port; [`NO_PORT`] for a vif.
    all_ids: Vec<(u32, u32)>,
    /// Ports of the policy in force: its vifs follow them in `interfaces`.
    port_count: usize,
}

/// The identity of an interface. A vif that moves to another slice or port is another vif: frames
/// of one slice do not become those of another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum InterfaceKey {
    Port(String),
    Vif { name: String, slice: u32, port: u32 },
}

/// Parts that a change of policy added and removed, by slot.
#[derive(Debug, Default)]
pub(crate) struct IdChanges {
    pub(crate) ports: SlotChanges,
    pub(crate) slices: SlotChanges,
    pub(crate) routers: SlotChanges,
    pub(crate) bridges: SlotChanges,
    pub(crate) interfaces: SlotChanges,
}

/// Slots of one table that were given and became free.
#[derive(Debug, Default)]
pub(crate) struct SlotChanges {
    pub(crate) added: Vec<u32>,
    pub(crate) removed: Vec<u32>,
}

/// Slots by key.
#[derive(Debug)]
pub(crate) struct SlotTable<K> {
    by_key: BTreeMap<K, u32>,
    /// The slot of each position of the policy in force.
    by_position: Vec<u32>,
    slots: Vec<SlotState>,
    free: BTreeSet<u32>,
}

#[derive(Clone, Copy, Debug)]
struct SlotState {
    generation: u16,
    /// The position in the policy in force; [`FREE`] for a free slot.
    position: u32,
}

impl Ids {
    /// Gives each part of `policy` its slot: the one that it had, or a free one. Slots that become
    /// free are not given again before the next call, so that their state can be released.
    pub(crate) fn follow(&mut self, policy: &Policy) -> IdChanges {
        let ports = self.ports.follow(policy.ports.iter().map(|port| port.name.clone()));
        let slices = self.slices.follow(policy.slices.iter().map(|slice| slice.name.clone()));
        let routers = self.routers.follow(policy.routers.iter().map(|router| router.name.clone()));
        let keys = policy.ports.iter().map(|port| InterfaceKey::Port(port.name.clone()));
        let vif_key = |vif: &weir_policy::Vif| InterfaceKey::Vif {
            name: vif.name.clone(),
            slice: self.slices.slot(vif.slice.0 as usize),
            port: self.ports.slot(vif.port.0 as usize),
        };
        let interfaces = self.interfaces.follow(keys.chain(policy.vifs.iter().map(vif_key)));
        let bridges: BTreeSet<_> =
            policy.vifs.iter().map(|vif| self.bridge_key(policy, vif)).collect();
        let bridges = self.bridges.follow(bridges.into_iter());
        self.port_count = policy.ports.len();
        self.number_interfaces();
        IdChanges { ports, slices, routers, bridges, interfaces }
    }

    /// Returns the port of a vif's bridge, and its number there.
    pub(crate) fn bridge_key(&self, policy: &Policy, vif: &weir_policy::Vif) -> (u32, u16) {
        let number = policy.bridge_of(vif.port, vif.slice);
        (self.ports.slot(vif.port.0 as usize), number)
    }

    /// Slots that interfaces have or had: the length of every table by interface.
    #[inline]
    pub(crate) fn interface_count(&self) -> usize {
        self.vif_ids.len()
    }

    /// Returns the slot of the vif behind an interface; `None` for a port, or if there is none.
    #[inline]
    pub(crate) fn vif_of(&self, iface: IfaceId) -> Option<usize> {
        let slot = iface.slot();
        self.vif_ids.get(slot).filter(|id| **id == iface.0).map(|_| slot)
    }

    /// Returns the number of the port behind an interface; `None` for a vif, or if there is none.
    #[inline]
    pub(crate) fn port_of(&self, iface: IfaceId) -> Option<u32> {
        let (id, port) = *self.all_ids.get(iface.slot())?;
        (id == iface.0 && port != NO_PORT).then_some(port)
    }

    /// Returns the slot of an interface; `None` if there is none.
    #[inline]
    pub(crate) fn slot_of(&self, iface: IfaceId) -> Option<usize> {
        let slot = iface.slot();
        self.all_ids.get(slot).filter(|(id, _)| *id == iface.0).map(|_| slot)
    }

    /// Returns the id of the interface that has a slot.
    #[inline]
    pub(crate) fn iface(&self, slot: usize) -> IfaceId {
        IfaceId(self.all_ids.get(slot).map_or(NO_IFACE, |(id, _)| *id))
    }

    /// Returns the slot of a vif of the policy in force; one that no table has if there is no such
    /// vif.
    pub(crate) fn vif_slot(&self, vif: VifId) -> usize {
        self.interfaces.slot((vif.0 as usize).saturating_add(self.port_count)) as usize
    }

    /// Returns the slot, among the interfaces, of a port of the policy in force.
    pub(crate) fn port_slot(&self, port: PortId) -> usize {
        let position = port.0 as usize;
        let slot = if position < self.port_count { self.interfaces.slot(position) } else { FREE };
        slot as usize
    }

    /// Returns the vif of the policy in force that has a slot.
    pub(crate) fn vif_id(&self, slot: usize) -> Option<VifId> {
        let position = self.interfaces.position(slot)?.checked_sub(self.port_count)?;
        u32::try_from(position).ok().map(VifId)
    }

    /// Returns the slots of all vifs, in the order of the policy in force.
    pub(crate) fn vif_slots(&self) -> &[u32] {
        self.interfaces.by_position.get(self.port_count..).unwrap_or(&[])
    }

    /// Returns the number of a port of the policy in force.
    pub(crate) fn port(&self, port: PortId) -> u32 {
        self.ports.slot(port.0 as usize)
    }

    /// Returns the slot of a slice of the policy in force.
    pub(crate) fn slice(&self, slice: SliceId) -> u32 {
        self.slices.slot(slice.0 as usize)
    }

    /// Returns the slot of a router of the policy in force.
    pub(crate) fn router(&self, router: RouterId) -> u32 {
        self.routers.slot(router.0 as usize)
    }

    /// Fills the tables by slot that the hot path reads.
    fn number_interfaces(&mut self) {
        let count = self.interfaces.capacity();
        debug_assert!(count < 1 << IfaceId::SLOT_BITS, "every interface has a slot");
        self.vif_ids.clear();
        self.vif_ids.resize(count, NO_IFACE);
        self.all_ids.clear();
        self.all_ids.resize(count, (NO_IFACE, NO_PORT));
        for (position, slot) in self.interfaces.by_position.iter().enumerate() {
            let (at, id) = (*slot as usize, self.interfaces.id(*slot as usize));
            if position < self.port_count {
                self.all_ids[at] = (id, self.ports.slot(position));
            } else {
                self.all_ids[at] = (id, NO_PORT);
                self.vif_ids[at] = id;
            }
        }
    }
}

impl<K> Default for SlotTable<K> {
    fn default() -> Self {
        let (by_key, by_position) = (BTreeMap::new(), Vec::new());
        Self { by_key, by_position, slots: Vec::new(), free: BTreeSet::new() }
    }
}

impl<K: Ord> SlotTable<K> {
    /// Follows the keys of a policy, in its order; each at most once.
    fn follow(&mut self, keys: impl Iterator<Item = K>) -> SlotChanges {
        let mut before = core::mem::take(&mut self.by_key);
        let mut changes = SlotChanges::default();
        self.by_position.clear();
        for (position, key) in (0..).zip(keys) {
            let slot = before.remove(&key).unwrap_or_else(|| {
                let slot = self.take_free();
                changes.added.push(slot);
                slot
            });
            self.slots[slot as usize].position = position;
            self.by_position.push(slot);
            let twice = self.by_key.insert(key, slot);
            debug_assert!(twice.is_none(), "the names of a policy were checked to be unique");
        }
        for slot in before.into_values() {
            self.release(slot);
            changes.removed.push(slot);
        }
        changes
    }

    fn take_free(&mut self) -> u32 {
        self.free.pop_first().unwrap_or_else(|| {
            self.slots.push(SlotState { generation: 0, position: FREE });
            u32::try_from(self.slots.len() - 1).unwrap_or(FREE)
        })
    }

    fn release(&mut self, slot: u32) {
        let state = &mut self.slots[slot as usize];
        state.position = FREE;
        if let Some(next) = state.generation.checked_add(1) {
            state.generation = next;
            self.free.insert(slot);
        }
    }
}

impl<K> SlotTable<K> {
    /// Returns the slot of a position of the policy in force; one that no table has beyond its end.
    pub(crate) fn slot(&self, position: usize) -> u32 {
        self.by_position.get(position).copied().unwrap_or(FREE)
    }

    /// Returns the position, in the policy in force, of the part that has a slot.
    pub(crate) fn position(&self, slot: usize) -> Option<usize> {
        let state = self.slots.get(slot).filter(|state| state.position != FREE)?;
        Some(state.position as usize)
    }

    /// Returns the key's slot.
    pub(crate) fn of_key(&self, key: &K) -> Option<u32>
    where
        K: Ord,
    {
        self.by_key.get(key).copied()
    }

    /// Returns every key with its slot, in the order of the keys.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, u32)> {
        self.by_key.iter().map(|(key, slot)| (key, *slot))
    }

    /// Slots that are or were in use: the length of every table by slot.
    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn id(&self, slot: usize) -> u32 {
        let generation = self.slots.get(slot).map_or(0, |state| state.generation);
        u32::from(generation) << IfaceId::SLOT_BITS | u32::try_from(slot).unwrap_or(FREE)
    }
}

/// The id of no interface: its slot is beyond every table.
pub(crate) const NO_IFACE: u32 = u32::MAX;
/// The position of a free slot; as a slot, one that no table has.
const FREE: u32 = u32::MAX;
const NO_PORT: u32 = u32::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec;
    use weir_policy::{Port, Slice, Vif};
    use weir_units::BitRate;

    fn policy(vifs: &[&str]) -> Policy {
        let mut policy = Policy::new("edge");
        let port = policy.add_port(Port::new("up0", BitRate::from_mbps(100)));
        let slice = policy.add_slice(Slice::new("gold"));
        for name in vifs {
            policy.add_vif(Vif::new(name, slice, port));
        }
        policy
    }

    /// Goal: what stays keeps its id, what leaves leaves an id that leads nowhere, and a newcomer
    /// in the slot of one that left has another id.
    #[test]
    fn a_vif_keeps_its_id_whatever_comes_and_goes_around_it() {
        let mut ids = Ids::default();
        let _all_new = ids.follow(&policy(&["a", "b", "c"]));
        let [a, b, c] = [0, 1, 2].map(|vif| ids.iface(ids.vif_slot(VifId(vif))));
        assert_eq!([a, b, c], [1, 2, 3].map(IfaceId), "at the start: ports, then vifs");

        let changes = ids.follow(&policy(&["d", "c", "a"]));
        assert_eq!((changes.interfaces.added, changes.interfaces.removed), (vec![4], vec![2]));
        let now = [0, 1, 2].map(|vif| ids.iface(ids.vif_slot(VifId(vif))));
        assert_eq!(now, [IfaceId(4), c, a]);
        assert_eq!((ids.vif_of(b), ids.vif_of(c)), (None, Some(3)));
        assert_eq!((ids.vif_id(2), ids.vif_id(3)), (None, Some(VifId(1))));

        let _again = ids.follow(&policy(&["b", "c", "a", "d"]));
        let back = ids.iface(ids.vif_slot(VifId(0)));
        assert_eq!((back.slot(), back == b), (2, false), "the slot again, in another generation");
        assert_eq!((ids.vif_of(b), ids.vif_of(back)), (None, Some(2)));
    }

    /// Goal: a vif in another slice, or in a slice that was removed and added again, is another.
    #[test]
    fn a_vif_in_another_slice_is_another_vif() {
        let mut ids = Ids::default();
        let mut moved = policy(&["a"]);
        let _all_new = ids.follow(&moved);
        let before = ids.iface(1);
        moved.vifs[0].slice = moved.add_slice(Slice::new("silver"));
        let changes = ids.follow(&moved);
        assert_eq!((changes.interfaces.added, changes.interfaces.removed), (vec![2], vec![1]));
        assert_eq!(ids.vif_of(before), None);
    }

    /// Goal: no id becomes valid twice, however often its slot is given.
    #[test]
    fn a_slot_whose_generations_are_used_up_is_given_no_more() {
        let mut table = SlotTable::default();
        for _ in 0..=u16::MAX {
            assert_eq!(table.follow([1].into_iter()).added, [0]);
            assert_eq!(table.follow([].into_iter()).removed, [0]);
        }
        assert_eq!(table.follow([1].into_iter()).added, [1]);
    }
}
