// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Forwarding: checks that a frame is what it claims to be, and finds where it goes.
//!
//! Each port is a bridge for every VLAN that a slice with a vif on the port has, for every parallel
//! internet, and for every slice that is told by five-tuples. A frame from a vif goes to the vifs
//! of its own slice on that bridge and to the port; a frame from the port goes to the vifs of its
//! bridge. Before that, a vif's frame has to pass the vif's filter, carry no tag, come from an
//! address that is the vif's, and be within the limit of flooded frames ([`Storm`]).
//!
//! This part holds no frame and no queue. Its one invariant: every address in the table ([`Fdb`])
//! belongs to an interface and a bridge that exist, so a reused slot starts without addresses.

mod from_port;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;

use weir_policy::{Direction, Filter, Kind, MacAddr, PihForm, Policy, Port};
use weir_units::Instant;

use crate::checksum;
use crate::fdb::{AddressBounds, AddressSource, Fdb};
use crate::filter::{self, number};
use crate::five_tuples::FiveTuples;
use crate::frame::{Ethernet, is_group};
use crate::ids::{IdChanges, Ids, NO_IFACE};
use crate::pih::{ETHERTYPE_PIH, Pih};
use crate::pool::{Frame, FramePool};
use crate::reason::Reason;
use crate::spoof;
use crate::storm::Storm;
use crate::types::IfaceId;
use crate::vlan;

pub(crate) use from_port::{MemberPlace, PortBridges};

/// The bridges of a switch, with their ports, vifs and addresses.
#[derive(Default)]
pub(crate) struct Forwarding {
    /// By the port's number.
    ports: Vec<BridgePort>,
    /// By the interface's slot; those of ports are unused.
    vifs: Vec<BridgeVif>,
    /// By the interface's slot.
    rules: Vec<VifRules>,
    /// By the interface's slot.
    storms: Vec<Storm>,
    /// By the bridge's slot.
    bridges: Vec<Bridge>,
    fdb: Fdb,
    /// Longest frame, without headers of its slice.
    length_max: u16,
    /// Set if any slice is a parallel internet. Vifs may then send no frame with such a header.
    has_pih: bool,
    /// All five-tuples of the policy, with which frames without a header are compared.
    five_tuples: FiveTuples,
}

/// A frame that passed the checks of its interface, untagged.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) frame: Frame,
    pub(crate) ethernet: Ethernet,
    /// The two ECN bits of an IP packet, else 0.
    pub(crate) ecn: u8,
    /// Length as it arrived, with headers of its slice, but without a vif's priority tag.
    pub(crate) wire: u16,
}

/// The destination of a frame from a vif.
pub(crate) enum Destination {
    Port,
    /// The vif with this slot.
    Vif(usize),
    /// The other vifs of the slice, and the port.
    Flood,
}

/// A port, as its bridges see it.
#[derive(Clone)]
struct BridgePort {
    iface: u32,
    /// The bridge of each number of [`Policy::bridge_of`]; [`NO_BRIDGE`] where there is none.
    by_number: Box<[u16]>,
    /// The form of the numbers of parallel internets; `None` without any.
    pih: Option<PihForm>,
    /// The bridges of slices that have no header, if some are told by five-tuples.
    untagged: Vec<u16>,
    /// Set if unfinished checksums of frames from it are completed.
    completes: bool,
}

/// A vif, as its bridge sees it: one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct BridgeVif {
    /// The source address that was admitted last, and when it was looked up. Within [`Fdb::TRUST`]
    /// of that time the address cannot have moved.
    last_source: u64,
    last_lookup: Instant,
    source: AddressSource,
    slice: u32,
    bridge: u16,
    has_addresses: bool,
    has_filter: bool,
    completes: bool,
}

/// The rules that a vif's frames are checked against, if it has any.
#[derive(Clone, Debug, Default)]
struct VifRules {
    filter: Vec<Filter>,
    addresses: Vec<IpAddr>,
    macs: Vec<MacAddr>,
    macs_max: u32,
}

/// The vifs between which frames may pass at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Bridge {
    port: u32,
    number: u16,
    /// The tag that frames of a parallel internet carry beside its header; 0 for none.
    tag: u16,
    /// Slots, in the policy's order.
    members: Vec<u32>,
}

impl Forwarding {
    /// Follows a policy whose ids were given: changes values in place, and moves learned addresses
    /// only where a bridge, a bound or a given address changed.
    pub(crate) fn follow(&mut self, now: Instant, policy: &Policy, ids: &Ids, changes: &IdChanges) {
        self.length_max =
            u16::try_from(policy.node.frame_size.packet_max().get()).unwrap_or(u16::MAX);
        self.has_pih = policy.slices.iter().any(|slice| slice.pih.is_some());
        self.five_tuples = FiveTuples::of(policy);
        self.follow_bridges(policy, ids);
        self.follow_ports(policy, ids, changes);
        self.follow_vifs(policy, ids, changes);
        self.follow_storms(now, policy, ids, changes);
    }

    fn follow_bridges(&mut self, policy: &Policy, ids: &Ids) {
        self.bridges.clear();
        self.bridges.resize(ids.bridges.capacity(), Bridge::default());
        for ((port, number), slot) in ids.bridges.iter() {
            let bridge = Bridge { port: *port, number: *number, tag: 0, members: Vec::new() };
            self.bridges[slot as usize] = bridge;
        }
        for (vif, slot) in policy.vifs.iter().zip(ids.vif_slots()) {
            let bridge = ids.bridges.of_key(&ids.bridge_key(policy, vif));
            let bridge = bridge.and_then(|bridge| self.bridges.get_mut(bridge as usize));
            debug_assert!(bridge.is_some(), "each vif has a bridge");
            if let Some(bridge) = bridge {
                bridge.members.push(*slot);
                bridge.tag = policy[vif.slice].vlan.unwrap_or(0);
            }
        }
    }

    fn follow_ports(&mut self, policy: &Policy, ids: &Ids, changes: &IdChanges) {
        self.ports.resize(ids.ports.capacity(), BridgePort::none());
        for number in &changes.ports.removed {
            self.ports[*number as usize] = BridgePort::none();
        }
        for (id, port) in policy.ports() {
            let number = ids.port(id);
            let state = &mut self.ports[number as usize];
            if changes.ports.added.contains(&number) {
                state.by_number = vec![NO_BRIDGE; BRIDGES].into_boxed_slice();
                state.completes = carries_unfinished(port.kind);
            }
            state.iface = ids.iface(ids.port_slot(id)).0;
            state.by_number.fill(NO_BRIDGE);
            state.pih = None;
            state.untagged.clear();
        }
        for ((port, number), slot) in ids.bridges.iter() {
            let state = &mut self.ports[*port as usize];
            state.pih = state.pih.or_else(|| Pih::of_bridge(*number).map(|pih| pih.form));
            let slot = u16::try_from(slot).unwrap_or(NO_BRIDGE);
            if let Some(place) = state.by_number.get_mut(usize::from(*number)) {
                *place = slot;
            }
            if *number == 0 || Port::is_by_five_tuple(*number) {
                state.untagged.push(slot);
            }
        }
    }

    fn follow_vifs(&mut self, policy: &Policy, ids: &Ids, changes: &IdChanges) {
        let interfaces = &changes.interfaces;
        let mut is_other = !interfaces.added.is_empty()
            || !interfaces.removed.is_empty()
            || !changes.bridges.removed.is_empty();
        self.vifs.resize(ids.interface_count(), BridgeVif::NONE);
        self.rules.resize(ids.interface_count(), VifRules::default());
        for slot in interfaces.removed.iter().chain(&interfaces.added) {
            self.vifs[*slot as usize] = BridgeVif::NONE;
            self.rules[*slot as usize] = VifRules::default();
        }
        for (vif, slot) in policy.vifs.iter().zip(ids.vif_slots()) {
            let (state, rules) = (&mut self.vifs[*slot as usize], &mut self.rules[*slot as usize]);
            let bridge = ids.bridges.of_key(&ids.bridge_key(policy, vif));
            let bridge = bridge.and_then(|slot| u16::try_from(slot).ok()).unwrap_or(NO_BRIDGE);
            let iface = ids.iface(*slot as usize).0;
            let is_new = state.source.iface != iface;
            is_other |=
                state.bridge != bridge || rules.macs != vif.macs || rules.macs_max != vif.macs_max;
            *state = BridgeVif {
                source: AddressSource { iface, port: false, fixed: !vif.macs.is_empty() },
                bridge,
                slice: ids.slice(vif.slice),
                has_addresses: !vif.addresses.is_empty(),
                has_filter: !vif.filter.is_empty(),
                completes: if is_new { carries_unfinished(vif.kind) } else { state.completes },
                ..*state
            };
            rules.macs.clone_from(&vif.macs);
            rules.macs_max = vif.macs_max;
            rules.filter.clone_from(&vif.filter);
            rules.addresses.clone_from(&vif.addresses);
        }
        if is_other {
            self.move_addresses(policy, ids, changes);
        }
    }

    /// Rebuilds the table of addresses from the addresses that `policy` gives and the learned
    /// addresses whose interface and bridge still exist. Only this table is rebuilt, since the
    /// policy decides its size and keys; all other state is changed in place.
    fn move_addresses(&mut self, policy: &Policy, ids: &Ids, changes: &IdChanges) {
        let bounds = self.address_bounds(policy, ids);
        let fixed = policy.vifs.iter().map(|vif| vif.macs.len()).sum();
        let before = core::mem::replace(&mut self.fdb, Fdb::new(&bounds, fixed));
        for (vif, slot) in policy.vifs.iter().zip(ids.vif_slots()) {
            let state = &mut self.vifs[*slot as usize];
            state.last_source = 0;
            for mac in &vif.macs {
                self.fdb.fix(state.bridge, number(*mac), state.source.iface);
            }
        }
        for address in before.iter().filter(|address| !address.fixed) {
            let iface = IfaceId(address.iface);
            let kept = match (ids.vif_of(iface), ids.port_of(iface)) {
                (Some(vif), _) => Some((self.vifs[vif].bridge, self.vifs[vif].source)),
                (None, Some(_)) => {
                    let bridge = address.bridge;
                    let stays = !changes.bridges.removed.contains(&u32::from(bridge));
                    stays.then_some((bridge, AddressSource::port(address.iface)))
                }
                (None, None) => None,
            };
            if let Some((bridge, source)) = kept {
                self.fdb.restore(bridge, address.mac, source, address.seen);
            }
        }
    }

    /// Returns the most addresses to learn from each vif, and behind a port for each of its
    /// bridges: equal parts, so that no slice's network takes the room of another's.
    fn address_bounds(&self, policy: &Policy, ids: &Ids) -> AddressBounds {
        let mut bounds = AddressBounds {
            vifs: vec![0; ids.interface_count()],
            bridges: vec![0; self.bridges.len()],
        };
        for (vif, slot) in policy.vifs.iter().zip(ids.vif_slots()) {
            let bound = if vif.macs.is_empty() { vif.macs_max.min(BRIDGE_MACS_MOST) } else { 0 };
            bounds.vifs[*slot as usize] = bound;
        }
        let mut of_port = vec![0; self.ports.len()];
        for ((port, _), _) in ids.bridges.iter() {
            of_port[*port as usize] += 1;
        }
        for ((port, _), slot) in ids.bridges.iter() {
            let part = PORT_MACS / of_port[*port as usize];
            bounds.bridges[slot as usize] = part.clamp(BRIDGE_MACS_LEAST, BRIDGE_MACS_MOST);
        }
        bounds
    }

    fn follow_storms(&mut self, now: Instant, policy: &Policy, ids: &Ids, changes: &IdChanges) {
        self.storms.resize(ids.interface_count(), Storm::default());
        for slot in &changes.interfaces.added {
            self.storms[*slot as usize] = Storm::default();
        }
        for (id, _) in policy.ports() {
            let own = self.bridges.iter().filter(|bridge| bridge.port == ids.port(id));
            let of = |bridge: &Bridge| bridge.members.len();
            // ARP and neighbour discovery reach all bridges without a header at once.
            let untagged = self.ports[ids.port(id) as usize].untagged.iter();
            let untagged = untagged.filter_map(|slot| self.bridges.get(usize::from(*slot)));
            let widest = own.map(of).max().unwrap_or(0).max(untagged.map(of).sum());
            self.storms[ids.port_slot(id)].set(now, Storm::of_port(now, widest as u64));
        }
        for (vif, slot) in policy.vifs.iter().zip(ids.vif_slots()) {
            self.storms[*slot as usize].set(now, Storm::of_vif(now, vif));
        }
    }

    /// Checks a frame from a vif, its source addresses included, takes off a priority tag and reads
    /// its ECN bits.
    ///
    /// # Errors
    /// The reason to drop it.
    #[inline]
    pub(crate) fn admit_from_vif<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        arrival: &mut Arrival,
        pool: &mut P,
    ) -> Result<(), Reason> {
        let Arrival { frame, ethernet, ecn, wire } = arrival;
        let state = &self.vifs[vif];
        if state.has_filter {
            let rules = &self.rules[vif].filter;
            if !filter::passes(rules, Direction::Send, pool.data(*frame), ethernet) {
                return Err(Reason::Filtered);
            }
        }
        match ethernet.vlan {
            None => {}
            // A priority tag is no VLAN (802.1Q §6.9.1).
            Some(0) => {
                *frame = vlan::pop(pool, *frame)?;
                (ethernet.vlan, ethernet.payload, *wire) = (None, UNTAGGED, frame.len);
            }
            Some(_) => return Err(Reason::UnexpectedTag),
        }
        if self.has_pih && ethernet.ethertype == ETHERTYPE_PIH {
            return Err(Reason::UnexpectedTag);
        }
        check_ethernet(ethernet, frame.len, self.length_max)?;
        let data = pool.data(*frame);
        if state.has_addresses && !spoof::passes(&self.rules[vif].addresses, data, ethernet) {
            return Err(Reason::SpoofedAddress);
        }
        if state.completes {
            checksum::complete(data, ethernet);
        }
        *ecn = ethernet.ecn(data);
        let lately = now.saturating_since(state.last_lookup) < Fdb::TRUST;
        if state.last_source != ethernet.source || !lately {
            let (bridge, source) = (state.bridge, state.source);
            self.fdb.learn(now, bridge, ethernet.source, source)?;
            let state = &mut self.vifs[vif];
            (state.last_source, state.last_lookup) = (ethernet.source, now);
        }
        Ok(())
    }

    /// Finds where a frame from a vif goes, by its destination; a flooded frame is counted against
    /// the vif's limit.
    ///
    /// # Errors
    /// The reason to drop it.
    #[inline]
    pub(crate) fn route_from_vif(
        &mut self,
        now: Instant,
        ids: &Ids,
        vif: usize,
        ethernet: &Ethernet,
    ) -> Result<Destination, Reason> {
        let state = &self.vifs[vif];
        let known = match ethernet.is_group() {
            true => None,
            false => self.fdb.lookup(now, state.bridge, ethernet.destination),
        };
        let Some(iface) = known else {
            let passes = self.storms[vif].admit(now, 1);
            return if passes { Ok(Destination::Flood) } else { Err(Reason::Storm) };
        };
        match ids.vif_of(IfaceId(iface)) {
            Some(to) if to == vif => Err(Reason::NoDestination),
            Some(to) if self.vifs[to].slice == state.slice => Ok(Destination::Vif(to)),
            // The address is another slice's at the same port: only the wire leads there.
            _ => Ok(Destination::Port),
        }
    }

    /// Counts the copies of a flooded frame against the limit of the interface that it came from.
    pub(crate) fn admit_flood(&mut self, now: Instant, interface: usize, copies: usize) -> bool {
        self.storms.get_mut(interface).is_none_or(|storm| storm.admit(now, copies as u64))
    }

    /// Returns the next vif, among the members of its bridge from `member` on, that gets a frame
    /// which a vif floods (each other vif of its slice), and the member to go on from.
    pub(crate) fn next_from_vif(&self, vif: usize, member: usize) -> Option<(usize, usize)> {
        let from = &self.vifs[vif];
        let members = &self.bridges.get(usize::from(from.bridge))?.members;
        let wants = |to: usize| to != vif && self.vifs[to].slice == from.slice;
        next_member(members, member, wants)
    }

    /// Tells whether a vif's filter lets a frame towards the vif pass.
    #[inline]
    pub(crate) fn passes_to_vif<P: FramePool>(
        &self,
        vif: usize,
        arrival: Arrival,
        pool: &mut P,
    ) -> bool {
        if !self.vifs[vif].has_filter {
            return true;
        }
        let (rules, data) = (&self.rules[vif].filter, pool.data(arrival.frame));
        filter::passes(rules, Direction::Receive, data, &arrival.ethernet)
    }

    /// Reads the memory that a frame from a vif will need. The returned value means nothing: a
    /// caller that uses it keeps the compiler from removing the read.
    #[inline]
    pub(crate) fn fetch_from_vif(&self, now: Instant, vif: usize, ethernet: &Ethernet) -> u32 {
        let state = &self.vifs[vif];
        let known = match state.last_source == ethernet.source {
            true => None,
            false => self.fdb.lookup(now, state.bridge, ethernet.source),
        };
        known.unwrap_or(0)
    }

    /// Returns the vif that a frame from a port is for, if its address is known.
    #[inline]
    pub(crate) fn fetch_from_port(
        &self,
        now: Instant,
        ids: &Ids,
        port: u32,
        ethernet: &Ethernet,
    ) -> Option<usize> {
        let by_number = &self.ports.get(port as usize)?.by_number;
        let bridge = by_number.get(usize::from(ethernet.vlan.unwrap_or(0)))?;
        let iface = self.fdb.lookup(now, *bridge, ethernet.destination)?;
        ids.vif_of(IfaceId(iface))
    }

    /// Sets whether checksums of frames from an interface are completed.
    pub(crate) fn set_completes(&mut self, ids: &Ids, iface: IfaceId, completes: bool) {
        if let Some(vif) = ids.vif_of(iface) {
            self.vifs[vif].completes = completes;
        } else if let Some(port) = ids.port_of(iface) {
            self.ports[port as usize].completes = completes;
        }
    }

    /// Renews a learned address that is in use by frames that the switch does not see.
    pub(crate) fn keep_address(&mut self, now: Instant, ids: &Ids, key: (u32, u16), mac: u64) {
        let bridge = ids.bridges.of_key(&key).and_then(|slot| u16::try_from(slot).ok());
        if let Some(bridge) = bridge {
            self.fdb.keep(now, bridge, mac);
        }
    }

    /// Returns every address, as a tuple: the number of its port, that of its bridge there
    /// ([`Policy::bridge_of`]), the address, its interface, and whether it is given.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (u32, u16, u64, u32, bool)> + '_ {
        self.fdb.iter().filter_map(|address| {
            let bridge = self.bridges.get(usize::from(address.bridge))?;
            Some((bridge.port, bridge.number, address.mac, address.iface, address.fixed))
        })
    }
}

impl BridgePort {
    fn none() -> Self {
        let (by_number, untagged) = (Box::default(), Vec::new());
        Self { iface: NO_IFACE, by_number, pih: None, untagged, completes: false }
    }
}

impl BridgeVif {
    const NONE: Self = Self {
        // No frame from the zero address gets this far.
        last_source: 0,
        last_lookup: Instant::ZERO,
        source: AddressSource { iface: NO_IFACE, port: false, fixed: false },
        slice: u32::MAX,
        bridge: NO_BRIDGE,
        has_addresses: false,
        has_filter: false,
        completes: false,
    };
}

/// Checks what must hold for every frame, wherever it came from.
#[inline]
fn check_ethernet(ethernet: &Ethernet, length: u16, length_max: u16) -> Result<(), Reason> {
    if is_group(ethernet.source) || ethernet.source == 0 {
        return Err(Reason::BadSource);
    }
    if ethernet.is_reserved() {
        return Err(Reason::ReservedGroup);
    }
    if length > length_max {
        return Err(Reason::Oversize);
    }
    Ok(())
}

fn next_member(
    members: &[u32],
    from: usize,
    wants: impl Fn(usize) -> bool,
) -> Option<(usize, usize)> {
    let rest = members.iter().enumerate().skip(from);
    let mut wanted = rest.map(|(at, slot)| (*slot as usize, at + 1));
    wanted.find(|(vif, _)| wants(*vif))
}

/// Tells whether frames from such an interface may have checksums that were left to a device:
/// frames that come from a kernel may. Frames from memory and files are complete.
const fn carries_unfinished(kind: Kind) -> bool {
    !matches!(kind, Kind::Memory | Kind::Pcap)
}

const _: () = assert!(size_of::<BridgeVif>() == 64, "one cache line");
/// Offset of the payload of an untagged frame.
const UNTAGGED: usize = 14;
/// No bridge.
const NO_BRIDGE: u16 = u16::MAX;
/// Addresses learned behind a port in all, in equal parts for its bridges.
const PORT_MACS: u32 = 16_384;
/// The most of them on one bridge: a large layer-2 network.
const BRIDGE_MACS_MOST: u32 = 4096;
/// The least on a bridge, however many the port has.
const BRIDGE_MACS_LEAST: u32 = 16;
/// One for each VLAN, each parallel internet in each form, each slice that is told by five-tuples,
/// and frames of none of them.
const BRIDGES: usize = Port::BRIDGES as usize;
