// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The forwarding database: maps (bridge, MAC address) to the interface behind which it lives.
//!
//! A *bridge* is a port and a VLAN on it: within a bridge, a MAC has one place. Addresses are
//! learned from the source fields of frames, and forgotten after [`AGE`] of silence. Each vif has a
//! bound on its addresses, and so has each bridge on those behind its port, so that no guest and no
//! slice's network takes room from others.
//!
//! **Moves.** In a plain bridge the last sender of an address owns it, so a tenant can steal
//! another's traffic by sending a frame in its name. Here an address moves from a vif to a port, as
//! in a migration, only after [`SETTLE`] of silence, and never between two vifs while it is known.
//! From a port to a vif, two kinds of address move so soon: a vif's first address, since the guest
//! may have come from another host, and an address of VRRP. A frame that claims another's address
//! is a spoof or a loop, and is refused.
//!
//! **Table.** Open addressing with linear probing, at most half full, and a bound on the probes.
//! Crafted addresses fill the bound of their sender, never the table, and never slow a lookup
//! beyond [`PROBES`]. Nothing is allocated after construction.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use weir_units::{Instant, Nanos};

use crate::reason::Reason;
use crate::types::IfaceId;

/// The forwarding database of all bridges.
#[derive(Debug)]
pub(crate) struct Fdb {
    entries: Box<[AddressSlot]>,
    /// 64 less the bits of an index into `entries`.
    shift: u32,
    /// The index at which the sweep for aged entries continues.
    sweep: usize,
    /// By the slot of a vif's interface: the room for addresses learned from it.
    vifs: Vec<AddressRoom>,
    /// By the slot of a bridge: the room for addresses learned behind its port.
    bridges: Vec<AddressRoom>,
}

/// The most addresses that are learned.
#[derive(Debug, Default)]
pub(crate) struct AddressBounds {
    /// From each vif, by the slot of its interface.
    pub(crate) vifs: Vec<u32>,
    /// Behind the port of each bridge, by the bridge's slot.
    pub(crate) bridges: Vec<u32>,
}

/// A number of learned addresses, and the bound on it.
#[derive(Clone, Copy, Debug)]
struct AddressRoom {
    learned: u32,
    bound: u32,
    /// The time at which a frame from one of them was last noted.
    heard: Instant,
}

/// The interface that a frame came from, as far as [`Fdb::learn`] needs to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct AddressSource {
    /// The interface.
    pub(crate) iface: u32,
    /// Set for a port.
    pub(crate) port: bool,
    /// Set if its addresses are given, so that none is learned.
    pub(crate) fixed: bool,
}

/// An address of the table, for a caller that reads all of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BridgeAddress {
    pub(crate) bridge: u16,
    pub(crate) mac: u64,
    pub(crate) iface: u32,
    /// Set if the policy gives the address.
    pub(crate) fixed: bool,
    pub(crate) seen: Instant,
}

/// An entry of the table; two share a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct AddressSlot {
    /// The bridge in the upper 16 bits, MAC in the lower 48; [`FREE`] if unused.
    key: u64,
    iface: u32,
    port: bool,
    fixed: bool,
    seen: Instant,
}

impl Fdb {
    /// The time for which a caller may rely on an address that it has learned without learning it
    /// again: an address moves only after a longer silence.
    pub(crate) const TRUST: Nanos = Nanos::from_secs(1);

    /// Makes a table with room for learned addresses within `bounds`, and for `fixed` given ones.
    #[must_use]
    pub(crate) fn new(bounds: &AddressBounds, fixed: usize) -> Self {
        let all = bounds.vifs.iter().chain(&bounds.bridges);
        let wanted = all.map(|bound| *bound as usize).sum::<usize>() + fixed;
        let rooms = |bounds: &[u32]| {
            bounds
                .iter()
                .map(|bound| AddressRoom { learned: 0, bound: *bound, heard: Instant::ZERO })
                .collect()
        };
        let size = (wanted * 2).next_power_of_two().clamp(64, TABLE_MAX);
        Self {
            entries: vec![AddressSlot::FREE; size].into_boxed_slice(),
            shift: u64::BITS - size.trailing_zeros(),
            sweep: 0,
            vifs: rooms(&bounds.vifs),
            bridges: rooms(&bounds.bridges),
        }
    }

    /// Enters an address that is given by the policy; returns whether there was room.
    pub(crate) fn fix(&mut self, bridge: u16, mac: u64, iface: u32) -> bool {
        let entry = AddressSlot { fixed: true, iface, key: key(bridge, mac), ..AddressSlot::FREE };
        match self.find(entry.key) {
            Ok(at) => {
                self.forget_count(at);
                self.entries[at] = entry;
                true
            }
            Err(Some(free)) => {
                self.entries[free] = entry;
                true
            }
            Err(None) => false,
        }
    }

    /// Takes over a learned address of another table, as long as there is room for it.
    pub(crate) fn restore(&mut self, bridge: u16, mac: u64, source: AddressSource, seen: Instant) {
        let key = key(bridge, mac);
        if self.find(key).is_err() && !source.fixed {
            // An address beyond the bound is dropped; a later frame may teach it again.
            let _ = self.insert(seen, key, source);
        }
    }

    /// Notes that a frame from `mac` came in from `source`.
    ///
    /// # Errors
    /// [`Reason::SpoofedMac`] if the interface's addresses are given and this is none of them,
    /// [`Reason::Moved`] if the address is another's, [`Reason::MacsFull`] at its bound.
    #[inline]
    pub(crate) fn learn(
        &mut self,
        now: Instant,
        bridge: u16,
        mac: u64,
        source: AddressSource,
    ) -> Result<(), Reason> {
        let key = key(bridge, mac);
        match self.find(key) {
            Ok(at) if self.entries[at].iface == source.iface => {
                let entry = &mut self.entries[at];
                if now.saturating_since(entry.seen) >= REFRESH {
                    entry.seen = now;
                    if let Some(room) = self.room(key, source.iface, source.port) {
                        room.heard = room.heard.max(now);
                    }
                }
                Ok(())
            }
            Ok(at) => self.move_to(now, at, source),
            Err(_) if source.fixed => Err(Reason::SpoofedMac),
            Err(_) => self.insert(now, key, source),
        }
    }

    /// Renews an entry in the second half of its life.
    pub(crate) fn keep(&mut self, now: Instant, bridge: u16, mac: u64) {
        if let Ok(at) = self.find(key(bridge, mac)) {
            let entry = &mut self.entries[at];
            if now.saturating_since(entry.seen).as_nanos() >= AGE.as_nanos() / 2 {
                entry.seen = now;
            }
        }
    }

    /// Forgets aged entries among the next `slots` places of the table.
    pub(crate) fn expire(&mut self, now: Instant, slots: usize) {
        for _ in 0..slots.min(self.entries.len()) {
            let at = self.sweep;
            let entry = &self.entries[at];
            if entry.key != FREE && !entry.fixed && now.saturating_since(entry.seen) >= AGE {
                // Another entry may have moved here: the sweep stays at this index.
                self.remove(at);
            } else {
                self.sweep = (at + 1) & (self.entries.len() - 1);
            }
        }
    }

    /// Returns the interface behind which an address lives.
    #[inline]
    #[must_use]
    pub(crate) fn lookup(&self, now: Instant, bridge: u16, mac: u64) -> Option<u32> {
        let entry = &self.entries[self.find(key(bridge, mac)).ok()?];
        let alive = entry.fixed || now.saturating_since(entry.seen) < AGE;
        alive.then_some(entry.iface)
    }

    /// Returns every address of the table.
    pub(crate) fn iter(&self) -> impl Iterator<Item = BridgeAddress> + '_ {
        self.entries.iter().filter(|entry| entry.key != FREE).map(|entry| {
            let [b0, b1, ..] = entry.key.to_be_bytes();
            BridgeAddress {
                bridge: u16::from_be_bytes([b0, b1]),
                mac: entry.key & MAC_BITS,
                iface: entry.iface,
                fixed: entry.fixed,
                seen: entry.seen,
            }
        })
    }

    /// Returns the room that a learned address counts in.
    fn room(&mut self, key: u64, iface: u32, port: bool) -> Option<&mut AddressRoom> {
        let [b0, b1, ..] = key.to_be_bytes();
        match port {
            true => self.bridges.get_mut(usize::from(u16::from_be_bytes([b0, b1]))),
            false => self.vifs.get_mut(slot(iface)),
        }
    }

    /// Returns the index of a key; otherwise a free index for it within the bound of probes, if
    /// any.
    #[inline]
    fn find(&self, key: u64) -> Result<usize, Option<usize>> {
        let mask = self.entries.len() - 1;
        let mut at = self.home(key);
        for _ in 0..PROBES {
            let found = self.entries[at].key;
            if found == key {
                return Ok(at);
            }
            if found == FREE {
                return Err(Some(at));
            }
            at = (at + 1) & mask;
        }
        Err(None)
    }

    /// Hashes a key (Fibonacci hashing): takes the upper bits of a product with 2⁶⁴/φ. The key is
    /// folded first, so that bridge and vendor bits reach them.
    #[inline]
    fn home(&self, key: u64) -> usize {
        let mixed = (key ^ (key >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        #[expect(clippy::cast_possible_truncation, reason = "shifted below the table's size")]
        return (mixed >> self.shift) as usize;
    }

    #[cold]
    fn insert(&mut self, now: Instant, key: u64, source: AddressSource) -> Result<(), Reason> {
        self.expire(now, SWEEP);
        // The sweep may have moved entries: find the free index only now.
        let Err(Some(at)) = self.find(key) else { return Err(Reason::MacsFull) };
        let room = self.room(key, source.iface, source.port).ok_or(Reason::Unknown)?;
        if room.learned >= room.bound {
            return Err(Reason::MacsFull);
        }
        (room.learned, room.heard) = (room.learned + 1, room.heard.max(now));
        let AddressSource { iface, port, fixed } = source;
        self.entries[at] = AddressSlot { key, iface, port, fixed, seen: now };
        Ok(())
    }

    /// Moves an address that shows up at another interface, if it may move and that interface has
    /// room for it.
    #[cold]
    fn move_to(&mut self, now: Instant, at: usize, source: AddressSource) -> Result<(), Reason> {
        let entry = self.entries[at];
        if source.fixed {
            return Err(Reason::SpoofedMac);
        }
        let room = self.room(entry.key, source.iface, source.port);
        // Aged addresses are swept later: they do not count.
        let has_none =
            room.is_some_and(|room| room.learned == 0 || now.saturating_since(room.heard) >= AGE);
        let moves_soon = source.port || (entry.port && (has_none || is_virtual(entry.key)));
        let wanted = if moves_soon { SETTLE } else { AGE };
        if entry.fixed || now.saturating_since(entry.seen) < wanted {
            return Err(Reason::Moved);
        }
        self.remove(at);
        let moved = self.insert(now, entry.key, source);
        if let (Err(_), Err(Some(free))) = (moved, self.find(entry.key)) {
            // Refused at the bound of its new place: the address stays where it was.
            self.entries[free] = entry;
            if let Some(room) = self.room(entry.key, entry.iface, entry.port) {
                room.learned += 1;
            }
        }
        moved
    }

    fn forget_count(&mut self, at: usize) {
        let AddressSlot { key, iface, port, fixed, .. } = self.entries[at];
        if let (false, Some(room)) = (fixed, self.room(key, iface, port)) {
            room.learned = room.learned.saturating_sub(1);
        }
    }

    /// Removes an entry and shifts its followers back, so that no lookup meets a hole.
    fn remove(&mut self, at: usize) {
        self.forget_count(at);
        let mask = self.entries.len() - 1;
        let mut hole = at;
        let mut next = (hole + 1) & mask;
        while self.entries[next].key != FREE {
            let home = self.home(self.entries[next].key);
            if (next.wrapping_sub(home) & mask) >= (next.wrapping_sub(hole) & mask) {
                self.entries[hole] = self.entries[next];
                hole = next;
            }
            next = (next + 1) & mask;
        }
        self.entries[hole] = AddressSlot::FREE;
    }
}

/// An empty table for no interface, the smallest there is.
impl Default for Fdb {
    fn default() -> Self {
        Self::new(&AddressBounds::default(), 0)
    }
}

impl AddressSource {
    /// Makes a port, behind which any address may be.
    pub(crate) const fn port(iface: u32) -> Self {
        Self { iface, port: true, fixed: false }
    }
}

impl AddressSlot {
    const FREE: Self =
        Self { key: FREE, iface: u32::MAX, port: false, fixed: false, seen: Instant::ZERO };
}

fn slot(iface: u32) -> usize {
    IfaceId(iface).slot()
}

fn key(bridge: u16, mac: u64) -> u64 {
    (u64::from(bridge) << 48) | (mac & MAC_BITS)
}

/// Returns true for an address of VRRP (RFC 9568, 7.3), which moves when a router takes over.
const fn is_virtual(key: u64) -> bool {
    matches!((key & MAC_BITS) >> 8, 0x0000_005e_0001 | 0x0000_005e_0002)
}

/// Learned addresses are forgotten after this silence (IEEE 802.1Q §8.8.3 recommends 300 s).
pub(crate) const AGE: Nanos = Nanos::from_secs(300);
/// An address that may move soon moves after this silence; a frame that loops is back sooner.
pub(crate) const SETTLE: Nanos = Nanos::from_secs(2);
/// The most that `seen` may lag behind the latest frame. Without the lag every frame would write to
/// the entry's cache line.
const REFRESH: Nanos = Nanos::from_millis(250);
const _: () = assert!(Fdb::TRUST.as_nanos() + REFRESH.as_nanos() < SETTLE.as_nanos());
/// Most entries compared for one key. At half load, a run of honest addresses is shorter than 30
/// with probability 1 − 10⁻⁶.
const PROBES: usize = 64;
/// Places swept for aged entries when an address is learned.
const SWEEP: usize = 16;
/// Largest table: 128 MiB.
const TABLE_MAX: usize = 1 << 22;
/// All ones is the broadcast address on bridge 65 535, which is never a source.
const FREE: u64 = u64::MAX;
const MAC_BITS: u64 = 0xffff_ffff_ffff;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    const PORT: AddressSource = AddressSource { iface: 0, port: true, fixed: false };

    fn vif(iface: u32) -> AddressSource {
        AddressSource { iface, port: false, fixed: false }
    }

    /// Returns a table whose bridges learn as many addresses behind the port, and vifs 1, 2 …
    /// these.
    fn table(behind_port: u32, of_vifs: &[u32]) -> Fdb {
        let vifs = core::iter::once(0).chain(of_vifs.iter().copied()).collect();
        Fdb::new(&AddressBounds { vifs, bridges: vec![behind_port; 4] }, 1)
    }

    /// Returns the number of learned addresses of an interface.
    fn learned(fdb: &Fdb, iface: u32) -> usize {
        fdb.iter().filter(|address| address.iface == iface && !address.fixed).count()
    }

    fn at(seconds: u64) -> Instant {
        Instant::ZERO + Nanos::from_secs(seconds)
    }

    #[test]
    fn a_vif_learns_up_to_its_bound() {
        let mut fdb = table(16, &[2, 2]);
        assert_eq!(fdb.learn(at(0), 0, 1, vif(1)), Ok(()));
        assert_eq!(fdb.learn(at(0), 0, 2, vif(1)), Ok(()));
        assert_eq!(fdb.learn(at(0), 0, 3, vif(1)), Err(Reason::MacsFull));
        assert_eq!(fdb.learn(at(0), 0, 3, vif(2)), Ok(()));
        assert_eq!((learned(&fdb, 1), learned(&fdb, 2)), (2, 1));
        assert_eq!(fdb.lookup(at(0), 0, 1), Some(1));
        assert_eq!(fdb.lookup(at(0), 1, 1), None, "another bridge");
    }

    /// Goal: what stations of one bridge send takes no room from those of another.
    #[test]
    fn each_bridge_learns_up_to_its_own_bound_behind_its_port() {
        let mut fdb = table(2, &[2]);
        for mac in 1..=2 {
            assert_eq!(fdb.learn(at(0), 0, mac, PORT), Ok(()));
        }
        assert_eq!(fdb.learn(at(0), 0, 3, PORT), Err(Reason::MacsFull));
        assert_eq!(fdb.learn(at(0), 1, 3, PORT), Ok(()));
        assert_eq!(fdb.learn(at(0), 0, 4, vif(1)), Ok(()), "nor from a vif");
        assert_eq!((fdb.lookup(at(0), 0, 3), fdb.lookup(at(0), 1, 3)), (None, Some(0)));
    }

    #[test]
    fn an_address_moves_only_when_its_old_place_is_silent() {
        let mut fdb = table(16, &[2, 2]);
        fdb.learn(at(10), 0, 7, vif(1)).unwrap();
        assert_eq!(fdb.learn(at(11), 0, 7, PORT), Err(Reason::Moved), "a loop is back at once");
        assert_eq!(fdb.learn(at(200), 0, 7, vif(2)), Err(Reason::Moved), "never vif to vif");
        assert_eq!(fdb.learn(at(12), 0, 7, PORT), Ok(()), "a guest that moved away");
        assert_eq!((learned(&fdb, 0), learned(&fdb, 1)), (1, 0));
        assert_eq!(fdb.learn(at(13), 0, 7, vif(2)), Err(Reason::Moved));
        assert_eq!(fdb.learn(at(14), 0, 7, vif(2)), Ok(()), "a guest that arrived");
        assert_eq!(fdb.learn(at(314), 0, 7, vif(1)), Ok(()), "forgotten after its age");
    }

    /// Goal: a guest that is here already does not take the address of a silent gateway; one of
    /// VRRP moves.
    #[test]
    fn only_a_first_address_or_one_of_vrrp_moves_from_a_port_soon() {
        let mut fdb = table(16, &[4, 4]);
        let gateway = 7;
        let [ipv4, ipv6, other] = [0x0000_5e00_0133, 0x0000_5e00_0233, 0x0000_5e00_0333];
        for mac in [gateway, ipv4, ipv6, other] {
            fdb.learn(at(0), 0, mac, PORT).unwrap();
        }
        fdb.learn(at(0), 0, 8, vif(1)).unwrap();
        assert_eq!(fdb.learn(at(2), 0, ipv4, vif(1)), Ok(()));
        assert_eq!(fdb.learn(at(2), 0, ipv6, vif(1)), Ok(()));
        assert_eq!(fdb.learn(at(2), 0, other, vif(1)), Err(Reason::Moved));
        assert_eq!(fdb.learn(at(299), 0, gateway, vif(1)), Err(Reason::Moved));
        assert_eq!(fdb.learn(at(300), 0, gateway, vif(1)), Ok(()));
        assert_eq!((learned(&fdb, 0), learned(&fdb, 1)), (1, 4));
    }

    /// Goal: a guest that comes after another stopped goes on at once, though the table still has
    /// the other's aged addresses.
    #[test]
    fn aged_addresses_of_a_vif_do_not_count() {
        let mut fdb = table(16, &[4, 4]);
        fdb.learn(at(0), 0, 8, vif(1)).unwrap();
        fdb.learn(at(1), 0, 8, vif(1)).unwrap();
        fdb.learn(at(299), 0, 7, PORT).unwrap();
        assert_eq!(fdb.learn(at(300), 0, 7, vif(1)), Err(Reason::Moved));
        assert_eq!(fdb.learn(at(301), 0, 7, vif(1)), Ok(()));
    }

    #[test]
    fn a_refused_move_leaves_the_address_where_it_was() {
        let mut fdb = table(16, &[1, 2]);
        let virtual_router = 0x0000_5e00_0107;
        fdb.learn(at(0), 0, virtual_router, PORT).unwrap();
        fdb.learn(at(0), 0, 8, vif(1)).unwrap();
        assert_eq!(fdb.learn(at(5), 0, virtual_router, vif(1)), Err(Reason::MacsFull));
        let known = fdb.lookup(at(5), 0, virtual_router);
        assert_eq!(known, Some(0), "the port's station is still known");
        assert_eq!((learned(&fdb, 0), learned(&fdb, 1)), (1, 1));
    }

    #[test]
    fn given_addresses_never_move_and_admit_no_other() {
        let mut fdb = table(16, &[0, 2]);
        let fixed = AddressSource { iface: 1, port: false, fixed: true };
        assert!(fdb.fix(0, 7, 1));
        assert_eq!(fdb.learn(at(0), 0, 7, fixed), Ok(()));
        assert_eq!(fdb.learn(at(0), 0, 8, fixed), Err(Reason::SpoofedMac));
        assert_eq!(fdb.learn(at(900), 0, 7, PORT), Err(Reason::Moved));
        assert_eq!(fdb.lookup(at(9_000), 0, 7), Some(1));
    }

    #[test]
    fn aged_addresses_make_room() {
        let mut fdb = table(0, &[4]);
        for mac in 1..=4 {
            fdb.learn(at(0), 0, mac, vif(1)).unwrap();
        }
        assert_eq!(fdb.learn(at(299), 0, 9, vif(1)), Err(Reason::MacsFull));
        assert_eq!(fdb.lookup(at(300), 0, 1), None);
        for _ in 0..2 {
            fdb.expire(at(300), 64);
        }
        assert_eq!(learned(&fdb, 1), 0);
        assert_eq!(fdb.learn(at(300), 0, 9, vif(1)), Ok(()));
    }

    proptest! {
        /// The table answers like an obvious map, whatever is learned and however time passes.
        #[test]
        fn the_table_is_a_map(
            steps in prop::collection::vec((0u64..40, 0u32..4, 0u64..100), 1..300),
        ) {
            let mut fdb = table(64, &[64; 3]);
            let mut map: BTreeMap<u64, (u32, Instant)> = BTreeMap::new();
            let mut heard: BTreeMap<u32, Instant> = BTreeMap::new();
            let mut now = at(0);
            for (mac, iface, wait) in steps {
                now += Nanos::from_secs(wait);
                let known = map.get(&mac).filter(|(_, seen)| now - *seen < AGE).copied();
                let moves = known.is_some_and(|(old, _)| old != iface);
                let is_silent = heard.get(&iface).is_none_or(|at| now - *at >= AGE);
                let has_none = learned(&fdb, iface) == 0 || is_silent;
                let settled = known.is_some_and(|(old, seen)| {
                    (iface == 0 || (old == 0 && has_none)) && now - seen >= SETTLE
                });
                let source = AddressSource { iface, port: iface == 0, fixed: false };
                let answer = fdb.learn(now, 3, mac * 0x0001_0001, source);
                if moves && !settled {
                    prop_assert_eq!(answer, Err(Reason::Moved));
                } else {
                    prop_assert_eq!(answer, Ok(()));
                    map.insert(mac, (iface, now));
                    heard.insert(iface, now);
                }
                for (mac, (iface, seen)) in &map {
                    let expected = (now - *seen < AGE).then_some(*iface);
                    prop_assert_eq!(fdb.lookup(now, 3, mac * 0x0001_0001), expected);
                }
            }
            let rooms = fdb.vifs.iter().chain(&fdb.bridges);
            let total: u32 = rooms.map(|room| room.learned).sum();
            prop_assert_eq!(total as usize, fdb.iter().count());
        }
    }
}
