// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the switch knows of its ports, vifs and queued frames, derived from a policy.

use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;

use weir_policy::{Direction, Kind, Policy, PortId, Share};
use weir_sched::ClassId;
use weir_units::Instant;

use crate::accounting::Accounting;
use crate::fdb::{Fdb, Source};
use crate::filter::number;
use crate::police::{Chain, Meter, Police};
use crate::pool::Frame;
use crate::storm::Storm;
use crate::tree::{Holds, NO_VIF, Tree, TreeKind};

/// A port.
pub(crate) struct PortState {
    pub(crate) accounting: Accounting,
    /// The domain of each VLAN, that of untagged frames at 0; [`NO_DOMAIN`] for those of nobody.
    pub(crate) domains: Box<[u16]>,
    /// Whether its trees hold the limits of routers and slices.
    pub(crate) nested: bool,
    /// Whether checksums of frames from it are completed.
    pub(crate) completes: bool,
    /// Whether a local frame goes before the next frame of the port, which sent a limited one
    /// last. A sender's limit is one for both; whoever is asked first when it opens would
    /// otherwise always have it.
    pub(crate) local_first: bool,
}

/// A vif, as far as every packet needs it: what it sends needs the first cache line, what it
/// receives the second.
#[derive(Clone, Debug)]
#[repr(C, align(64))]
pub(crate) struct VifState {
    /// The source address that was last admitted, and when it was looked up: within
    /// [`Fdb::TRUST`] it cannot have moved.
    pub(crate) last_source: u64,
    pub(crate) last_lookup: Instant,
    pub(crate) port: u32,
    pub(crate) domain: u16,
    /// The tag of its slice; 0 for none.
    pub(crate) vlan: u16,
    pub(crate) send: ClassId,
    pub(crate) send_chain: Chain,
    /// Frames of its own in queues.
    pub(crate) sending: u32,
    /// Frames of its own that it may hold however full the pool is.
    pub(crate) send_floor: u32,
    pub(crate) source: Source,
    /// Whether it must be looked at beyond its Ethernet header.
    pub(crate) has_addresses: bool,
    pub(crate) has_filter: bool,
    pub(crate) completes: bool,
    pub(crate) tapped: bool,
    /// Whether a bit rate limits it, its router or its slice, by direction.
    pub(crate) send_limited: bool,
    pub(crate) receive_limited: bool,
    pub(crate) slice: u32,
    pub(crate) local: ClassId,
    pub(crate) receive: ClassId,
    pub(crate) receive_chain: Chain,
    /// Most frames held towards it.
    pub(crate) receive_bound: u32,
    /// Frames towards it in its port's queue and before its device; those of neighbours once they
    /// have crossed.
    pub(crate) receiving: u32,
    /// Frames towards it that may be held however full the pool is.
    pub(crate) receive_floor: u32,
    /// Frames that were scheduled for it and wait for its device: a list through the slots.
    pub(crate) stage: Stage,
    /// Where its charges stand in [`Charges`]: what it sends, and what it receives.
    pub(crate) send_charges: (u32, u32),
    pub(crate) receive_charges: (u32, u32),
}

const _: () = assert!(size_of::<VifState>() == 128, "two cache lines");

/// A list of frames through the slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

/// What a queued frame needs besides its packet, by its chunk. Eight to a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(8))]
pub(crate) struct Slot {
    pub(crate) offset: u16,
    pub(crate) len: u16,
    /// The tag that it carries; 0 for none.
    pub(crate) vlan: u16,
}

/// What a frame towards a vif needs besides, by its chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// The next frame of the same stage.
    pub(crate) next: u32,
    /// The vif that it goes to, while it is local traffic in a queue or waits for the limit of a
    /// router; [`NO_VIF`] otherwise.
    pub(crate) to: u32,
    /// When it began to wait for the limit of a router.
    pub(crate) since: Instant,
}

/// Which classes of other trees share a limit with a vif: (tree, class).
pub(crate) type Charges = Vec<(u32, ClassId)>;

/// Vifs between which frames may pass at all: a port and a VLAN on it.
#[derive(Clone, Debug)]
pub(crate) struct Domain {
    pub(crate) port: u32,
    pub(crate) vlan: u16,
    pub(crate) members: Vec<u32>,
}

impl VifState {
    /// Length of a frame of it as its own side sees it.
    pub(crate) fn own_length(slot: Slot) -> u16 {
        if slot.vlan == 0 { slot.len } else { slot.len.saturating_sub(crate::vlan::TAG) }
    }
}

impl Stage {
    pub(crate) const EMPTY: Self = Self { head: NO_FRAME, tail: NO_FRAME };

    pub(crate) const fn is_empty(self) -> bool {
        self.head == NO_FRAME
    }
}

impl Slot {
    pub(crate) const EMPTY: Self = Self { offset: 0, len: 0, vlan: 0 };

    pub(crate) const fn frame(self, id: u32) -> Frame {
        Frame { id, offset: self.offset, len: self.len }
    }
}

impl Link {
    pub(crate) const NONE: Self = Self { next: NO_FRAME, to: NO_VIF, since: Instant::ZERO };
}

/// The domains of a policy, in order of port and VLAN.
pub(crate) fn domains(policy: &Policy) -> Vec<Domain> {
    let mut members: BTreeMap<(u32, u16), Vec<u32>> = BTreeMap::new();
    for (id, vif) in policy.vifs() {
        let vlan = policy[vif.slice].vlan.unwrap_or(0);
        members.entry((vif.port.0, vlan)).or_default().push(id.0);
    }
    let domain = |((port, vlan), members)| Domain { port, vlan, members };
    members.into_iter().map(domain).collect()
}

/// The ports of a policy.
pub(crate) fn ports(policy: &Policy, domains: &[Domain]) -> Vec<PortState> {
    let state = |(id, port): (PortId, &weir_policy::Port)| {
        let mut places = vec![NO_DOMAIN; VLANS].into_boxed_slice();
        for (index, domain) in (0u16..).zip(domains) {
            if domain.port == id.0 {
                places[usize::from(domain.vlan & VLAN_MASK)] = index;
            }
        }
        PortState {
            accounting: Accounting::of(port),
            domains: places,
            nested: port.scheduler.nested(),
            completes: carries_unfinished(port.kind),
            local_first: false,
        }
    };
    policy.ports().map(state).collect()
}

/// The vifs of a policy, all queues empty; classes and meters are filled in by others.
pub(crate) fn vifs(policy: &Policy, domains: &[Domain]) -> Vec<VifState> {
    let first = policy.ports.len();
    let all = policy.vifs.iter().flat_map(|vif| Direction::ALL.map(|direction| (vif, direction)));
    let count = all.filter(|(vif, direction)| guaranteed(policy, vif, *direction)).count();
    let reserve = Room::of(policy.node.frames).reserve;
    let floor = u32::try_from(reserve as usize / count.max(1)).unwrap_or(0).max(1);
    let state = |(id, vif): (weir_policy::VifId, &weir_policy::Vif)| {
        let vlan = policy[vif.slice].vlan.unwrap_or(0);
        // In order of port and VLAN, as they were made.
        let key = |domain: &Domain| (domain.port, domain.vlan);
        let domain = domains.binary_search_by_key(&(vif.port.0, vlan), key).ok();
        let router = vif.router.map(|router| &policy[router]);
        let floor = |direction| if guaranteed(policy, vif, direction) { floor } else { 0 };
        let limited = |direction: Direction| {
            let limit = |share: &Share| share.rate.is_some();
            limit(vif.share(direction))
                || limit(policy[vif.slice].share(direction))
                || router.is_some_and(|router| limit(router.share(direction)))
        };
        VifState {
            // No frame from the zero address gets this far.
            last_source: 0,
            last_lookup: Instant::ZERO,
            port: vif.port.0,
            slice: vif.slice.0,
            domain: domain.and_then(|at| u16::try_from(at).ok()).unwrap_or(NO_DOMAIN),
            vlan,
            source: Source {
                iface: u32::try_from(first).unwrap_or(u32::MAX).saturating_add(id.0),
                port: false,
                fixed: !vif.macs.is_empty(),
            },
            send: NO_CLASS,
            receive: NO_CLASS,
            local: NO_CLASS,
            send_chain: Chain::FREE,
            receive_chain: Chain::FREE,
            has_addresses: !vif.addresses.is_empty(),
            has_filter: !vif.filter.is_empty(),
            completes: carries_unfinished(vif.kind),
            tapped: false,
            send_limited: limited(Direction::Send),
            receive_limited: limited(Direction::Receive),
            send_charges: (0, 0),
            receive_charges: (0, 0),
            receive_bound: vif.receive_queue.packets,
            send_floor: floor(Direction::Send),
            receive_floor: floor(Direction::Receive),
            sending: 0,
            receiving: 0,
            stage: Stage::EMPTY,
        }
    };
    policy.vifs().map(state).collect()
}

/// An empty table of addresses with room for what the policy allows, its given ones entered.
pub(crate) fn fdb(policy: &Policy, vifs: &[VifState]) -> Fdb {
    let ports = policy.ports.iter().map(|_| PORT_MACS);
    let own = policy.vifs.iter().map(|vif| if vif.macs.is_empty() { vif.macs_max } else { 0 });
    let bounds: Vec<u32> = ports.chain(own.map(|bound| bound.min(PORT_MACS))).collect();
    let fixed = policy.vifs.iter().map(|vif| vif.macs.len()).sum();
    let mut fdb = Fdb::new(&bounds, fixed);
    for (vif, state) in policy.vifs.iter().zip(vifs) {
        for mac in &vif.macs {
            fdb.fix(state.domain, number(*mac), state.source.iface);
        }
    }
    fdb
}

/// Limits of flooding, ports first.
pub(crate) fn storms(now: Instant, policy: &Policy, domains: &[Domain]) -> Vec<Storm> {
    let of_port = |(id, _): (PortId, &weir_policy::Port)| {
        let sizes = domains.iter().filter(|domain| domain.port == id.0);
        let widest = sizes.map(|domain| domain.members.len()).max().unwrap_or(0);
        Storm::of_port(now, widest as u64)
    };
    let of_vifs = policy.vifs.iter().map(|vif| Storm::of_vif(now, vif));
    policy.ports().map(of_port).chain(of_vifs).collect()
}

/// Builds all meters and links the vifs to them. `before` gives the meter that a share had.
pub(crate) fn police(
    now: Instant,
    policy: &Policy,
    vifs: &mut [VifState],
    mut before: impl FnMut(Owner, Direction) -> Option<Meter>,
) -> (Police, Vec<(Owner, Direction, u32)>) {
    let mut police = Police::default();
    let mut places = Vec::new();
    let mut index: BTreeMap<(Owner, Direction), u32> = BTreeMap::new();
    for (at, vif) in policy.vifs.iter().enumerate() {
        let router = vif.router.map(|router| (Owner::Router(router.0), &policy[router].name));
        let scheduler = policy[vif.port].scheduler;
        for direction in Direction::ALL {
            let mut place = |owner: Owner, share: &Share| {
                // What a tree shapes is not policed too; towards a vif there is local traffic
                // beside the tree, so bits are always metered there.
                let shaped = match owner {
                    Owner::Vif(_) => scheduler.shapes(),
                    Owner::Router(_) | Owner::Slice(_) => scheduler.nested(),
                };
                let bits = direction == Direction::Receive || !shaped;
                *index.entry((owner, direction)).or_insert_with(|| {
                    let fresh = Meter::new(now, share, bits);
                    let meter = match before(owner, direction) {
                        Some(old) => fresh.continued(now, old, share),
                        None => fresh,
                    };
                    let place = police.add(meter);
                    places.push((owner, direction, place));
                    place
                })
            };
            let own = place(Owner::Vif(u32::try_from(at).unwrap_or(NO_VIF)), vif.share(direction));
            let of_router = router.zip(vif.router).map_or(Chain::NONE, |((owner, _), router)| {
                place(owner, policy[router].share(direction))
            });
            let of_slice = place(Owner::Slice(vif.slice.0), policy[vif.slice].share(direction));
            let chain = Chain::new(own, of_router, of_slice);
            match direction {
                Direction::Send => vifs[at].send_chain = chain,
                Direction::Receive => vifs[at].receive_chain = chain,
            }
        }
    }
    places.sort_unstable();
    (police, places)
}

/// Links vifs to their classes and to the classes that share a limit with them.
pub(crate) fn link(policy: &Policy, vifs: &mut [VifState], trees: &[Tree]) -> Charges {
    let mut charges = Charges::new();
    for (at, vif) in policy.vifs.iter().enumerate() {
        let state = &mut vifs[at];
        let tree = |kind| &trees[tree_index(vif.port.0, kind)];
        let class = |kind| tree(kind).vif(at).unwrap_or(NO_CLASS);
        state.send = class(TreeKind::Send);
        state.receive = class(TreeKind::Receive);
        state.local = class(TreeKind::Local);
        let start = charges.len();
        if state.send_limited {
            elsewhere(policy, vif, trees, &[TreeKind::Send, TreeKind::Local], &mut charges);
        }
        state.send_charges = range(start, charges.len());
        let start = charges.len();
        if state.receive_limited {
            elsewhere(policy, vif, trees, &[TreeKind::Receive], &mut charges);
        }
        state.receive_charges = range(start, charges.len());
    }
    charges
}

/// The classes of the vif's router or slice at other ports.
fn elsewhere(
    policy: &Policy,
    vif: &weir_policy::Vif,
    trees: &[Tree],
    kinds: &[TreeKind],
    charges: &mut Charges,
) {
    for (port, _) in policy.ports().filter(|(port, _)| *port != vif.port) {
        for kind in kinds {
            let index = tree_index(port.0, *kind);
            let tree = &trees[index];
            let router = vif.router.and_then(|router| tree.router(router.0 as usize));
            let class = router.or_else(|| tree.slice(vif.slice.0 as usize));
            if let (Some(class), Ok(index)) = (class, u32::try_from(index)) {
                charges.push((index, class));
            }
        }
    }
}

/// Who a meter belongs to, by the policy's index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    Vif(u32),
    Router(u32),
    Slice(u32),
}

/// How the frames of the pool are divided. A quarter stays for the devices' rings, whatever is
/// queued.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// What the queues may hold together, but for the reserve.
    pub(crate) shared: u32,
    /// What the queues of vifs with a guarantee may hold beyond, in equal parts.
    pub(crate) reserve: u32,
}

impl Room {
    pub(crate) const fn of(frames: u32) -> Self {
        let reserve = frames / 8;
        Self { shared: frames - frames / 4 - reserve, reserve }
    }

    /// Frames that a queue may still take: down to an equal share of what is left, so that the
    /// fuller the pool, the shorter the longest queues (Choudhury and Hahne, ToN 6(2), 1998).
    #[inline]
    pub(crate) const fn left(self, queued: u32, held: u32, floor: u32) -> u32 {
        let shared = self.shared.saturating_sub(queued).saturating_sub(held);
        let own = floor.saturating_sub(held);
        if shared > own { shared } else { own }
    }
}

/// Whether a vif is owed a rate, by itself or by what it belongs to.
fn guaranteed(policy: &Policy, vif: &weir_policy::Vif, direction: Direction) -> bool {
    let owed = |share: &Share| !share.min_rate.is_zero();
    owed(vif.share(direction))
        || owed(policy[vif.slice].share(direction))
        || vif.router.is_some_and(|router| owed(policy[router].share(direction)))
}

/// Where a port's tree stands.
#[inline]
pub(crate) const fn tree_index(port: u32, kind: TreeKind) -> usize {
    port as usize * 3 + kind as usize
}

fn range(start: usize, end: usize) -> (u32, u32) {
    (u32::try_from(start).unwrap_or(0), u32::try_from(end).unwrap_or(0))
}

/// Whether frames from such an interface may have checksums that were left to a device: all that
/// come from a kernel. Frames from memory and files are as they are.
const fn carries_unfinished(kind: Kind) -> bool {
    !matches!(kind, Kind::Memory | Kind::Pcap)
}

/// No domain.
pub(crate) const NO_DOMAIN: u16 = u16::MAX;
/// No frame.
pub(crate) const NO_FRAME: u32 = u32::MAX;
/// No class.
pub(crate) const NO_CLASS: ClassId = ClassId(u32::MAX);
/// Addresses learned behind a port, and most behind a vif: a large layer-2 network.
pub(crate) const PORT_MACS: u32 = 4096;
const VLANS: usize = 4096;
const VLAN_MASK: u16 = 0x0fff;
