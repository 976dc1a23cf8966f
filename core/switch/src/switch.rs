// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The switch: its state, what it is made from, and what can be read from it.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use weir_policy::{Direction, Policy, PortId, RouterId, VifId};
use weir_sched::{Backlog, ConfigError};
use weir_units::{Instant, Nanos, PacketRate};

use crate::capture::Tap;
use crate::counters::{Counters, Tally};
use crate::fdb::Fdb;
use crate::limits::Limits;
use crate::police::Police;
use crate::reason::Reason;
use crate::state::{
    self, Charges, Domain, Link, Owner, PORT_MACS, PortState, Room, Slot, VifState, tree_index,
};
use crate::storm::Storm;
use crate::tree::{Tree, TreeKind};
use crate::types::IfaceId;

/// The switch of one node: see the crate's documentation.
///
/// **The run loop: hand in what arrived ([`Switch::receive_batch`]); for each port whose device has
/// room, ask [`Switch::transmit`] until it gives no frame; call [`Switch::advance`] and do the same
/// for each vif of [`Switch::ready`]; then sleep until [`Switch::next_event`] or an arrival.**
pub struct Switch {
    pub(crate) policy: Policy,
    pub(crate) ports: Vec<PortState>,
    pub(crate) vifs: Vec<VifState>,
    pub(crate) domains: Vec<Domain>,
    pub(crate) trees: Vec<Tree>,
    pub(crate) charges: Charges,
    pub(crate) fdb: Fdb,
    pub(crate) police: Police,
    /// By owner and direction.
    pub(crate) meters: Vec<(Owner, Direction, u32)>,
    /// Of routers, beside the policy's.
    pub(crate) limits: Limits,
    pub(crate) storms: Vec<Storm>,
    /// By interface, then direction: send, receive.
    pub(crate) counters: Vec<[Counters; 2]>,
    pub(crate) slots: Box<[Slot]>,
    pub(crate) links: Box<[Link]>,
    /// Vifs with a frame in their stage, a bit each.
    pub(crate) ready: Vec<u64>,
    /// Frames in queues and stages.
    pub(crate) queued: u32,
    /// How many may be.
    pub(crate) room: Room,
    /// Longest frame, without a tag.
    pub(crate) length_max: u16,
    pub(crate) taps: Vec<Tap>,
    /// Frames of vifs and queues that a change of policy took away.
    pub(crate) removed: u64,
}

/// A policy that the switch cannot take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchError {
    /// A scheduler refused a class of a port's tree.
    Scheduler {
        /// The port's index.
        port: u32,
        /// Why.
        error: ConfigError,
    },
    /// More of something than the switch can hold.
    TooMany {
        /// What.
        what: &'static str,
        /// How many there are.
        count: usize,
        /// How many there may be.
        bound: usize,
    },
    /// A reference of the policy leads nowhere.
    Dangling {
        /// The key of the reference.
        key: &'static str,
        /// The index that does not exist.
        index: u32,
    },
}

impl Switch {
    /// The switch that a policy describes, all queues empty.
    ///
    /// # Errors
    /// [`SwitchError`]; a policy that passed its own checks gives none but
    /// [`SwitchError::TooMany`].
    pub fn new(policy: &Policy, now: Instant) -> Result<Self, SwitchError> {
        check(policy)?;
        let domains = state::domains(policy);
        let ports = state::ports(policy, &domains);
        let mut vifs = state::vifs(policy, &domains);
        let mut trees = Vec::with_capacity(ports.len() * TREES.len());
        for (port, _) in policy.ports() {
            for kind in TREES {
                let tree = Tree::new(now, policy, port, kind);
                trees.push(tree.map_err(|error| SwitchError::Scheduler { port: port.0, error })?);
            }
        }
        let charges = state::link(policy, &mut vifs, &trees);
        let fdb = state::fdb(policy, &vifs);
        let (police, meters) = state::police(now, policy, &mut vifs, |_, _| None);
        let storms = state::storms(now, policy, &domains);
        let interfaces = policy.ports.len() + policy.vifs.len();
        let frames = policy.node.frames;
        Ok(Self {
            ports,
            domains,
            trees,
            charges,
            fdb,
            police,
            meters,
            limits: Limits::default(),
            storms,
            counters: vec![<[Counters; 2]>::default(); interfaces],
            slots: vec![Slot::EMPTY; frames as usize].into_boxed_slice(),
            links: vec![Link::NONE; frames as usize].into_boxed_slice(),
            ready: vec![0; vifs.len().div_ceil(64)],
            vifs,
            queued: 0,
            room: Room::of(frames),
            length_max: length_max(policy),
            taps: Vec::new(),
            removed: 0,
            policy: policy.clone(),
        })
    }

    /// Checks that the switch can hold a policy, without building anything.
    ///
    /// # Errors
    /// [`SwitchError`], but for [`SwitchError::Scheduler`]: only a policy that did not pass its own
    /// checks gives that.
    pub fn validate(policy: &Policy) -> Result<(), SwitchError> {
        check(policy)
    }

    /// Says whether frames from an interface may carry checksums that a device was to complete.
    /// Unless said otherwise, all but those from memory and files may.
    pub fn set_completes_checksums(&mut self, iface: IfaceId, completes: bool) {
        match self.vif_of(iface) {
            Some(vif) => self.vifs[vif].completes = completes,
            None => {
                if let Some(port) = self.ports.get_mut(iface.0 as usize) {
                    port.completes = completes;
                }
            }
        }
    }

    /// Packets that a vif may hand in now without being refused, or (`receive`) that may be handed
    /// in for it: the room of its queues and its share of the pool, within what the policers of
    /// vif, router and slice let pass. Zero for a vif that does not exist. The policers' part is
    /// shared with other vifs of the same router and slice: grant it to one at a time.
    #[must_use]
    pub fn credit(&self, now: Instant, vif: VifId, direction: Direction) -> u32 {
        let Some(state) = self.vifs.get(vif.0 as usize) else { return 0 };
        let tree = |kind| &self.trees[tree_index(state.port, kind)];
        let (room, held, floor, chain) = match direction {
            Direction::Send => {
                let out = tree(TreeKind::Send).room(state.send);
                let room = out.min(tree(TreeKind::Local).room(state.local));
                (room, state.sending, state.send_floor, state.send_chain)
            }
            Direction::Receive => {
                let bound = state.receive_bound.saturating_sub(state.receiving);
                let room = tree(TreeKind::Receive).room(state.receive).min(bound);
                let room = room.min(self.room_before(vif, state.port));
                (room, state.receiving, state.receive_floor, state.receive_chain)
            }
        };
        let share = self.room.left(self.queued, held, floor);
        let tokens = self.police.packets_available(now, chain);
        room.min(share).min(u32::try_from(tokens).unwrap_or(u32::MAX))
    }

    /// Counts frames that were dropped for this vif before they reached the switch, for want of
    /// credit, so that the counters tell of every frame.
    pub fn account_early_drop(
        &mut self,
        now: Instant,
        vif: VifId,
        direction: Direction,
        reason: Reason,
        frames: Tally,
    ) {
        let at = self.ports.len() + vif.0 as usize;
        let Some(counters) = self.counters.get_mut(at) else { return };
        counters[direction as usize].drop_many(reason, frames.packets, frames.bytes);
        if direction == Direction::Receive && frames.packets > 0 {
            self.limits.refuse(now, self.router_of(vif.0 as usize));
        }
    }

    /// Counts frames that were handed on for this interface without the switch, so that the
    /// counters tell of every frame.
    pub fn account_redirected(&mut self, iface: IfaceId, direction: Direction, frames: Tally) {
        let Some(counters) = self.counters.get_mut(iface.0 as usize) else { return };
        let counters = &mut counters[direction as usize];
        let Counters { received, enqueued, sent, redirected, .. } = counters;
        for tally in [received, enqueued, sent, redirected] {
            *tally = tally.plus(frames);
        }
    }

    /// Keeps a learned address that is in use without the switch seeing its frames. Only one that
    /// was silent for half of its life is touched, so that a use does not hinder a migration.
    pub fn keep_address(&mut self, now: Instant, port: PortId, vlan: u16, mac: u64) {
        let same = |domain: &Domain| domain.port == port.0 && domain.vlan == vlan;
        let domain = self.domains.iter().position(same).and_then(|at| u16::try_from(at).ok());
        if let Some(domain) = domain {
            self.fdb.keep(now, domain, mac);
        }
    }

    /// Frames from `iface` that the limit of a vif's router would take now.
    fn room_before(&self, vif: VifId, iface: u32) -> u32 {
        if self.limits.is_empty() {
            return u32::MAX;
        }
        self.limits.room(self.router_of(vif.0 as usize), iface)
    }

    /// The router that a vif belongs to, if there is such a vif and it does.
    pub(crate) fn router_of(&self, vif: usize) -> Option<RouterId> {
        self.policy.vifs.get(vif).and_then(|vif| vif.router)
    }

    /// The policy in force.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// The interface of a port.
    #[must_use]
    pub const fn port_iface(port: PortId) -> IfaceId {
        IfaceId(port.0)
    }

    /// The interface of a vif.
    #[must_use]
    pub fn vif_iface(&self, vif: VifId) -> IfaceId {
        let ports = u32::try_from(self.ports.len()).unwrap_or(u32::MAX);
        IfaceId(ports.saturating_add(vif.0))
    }

    /// What happened at an interface in one direction; `None` if it does not exist.
    #[must_use]
    pub fn counters(&self, iface: IfaceId, direction: Direction) -> Option<&Counters> {
        Some(&self.counters.get(iface.0 as usize)?[direction as usize])
    }

    /// Frames that wait on behalf of a vif: its own in the queues of port and bridge, or those
    /// towards it in queues and before its device.
    #[must_use]
    pub fn waiting(&self, vif: VifId, direction: Direction) -> u32 {
        let state = self.vifs.get(vif.0 as usize);
        state.map_or(0, |state| match direction {
            Direction::Send => state.sending,
            Direction::Receive => state.receiving,
        })
    }

    /// What a vif has in the tree of its port, in accounted bytes.
    #[must_use]
    pub fn queue_backlog(&self, vif: VifId, direction: Direction) -> Backlog {
        let Some(state) = self.vifs.get(vif.0 as usize) else { return Backlog::default() };
        let (kind, class) = match direction {
            Direction::Send => (TreeKind::Send, state.send),
            Direction::Receive => (TreeKind::Receive, state.receive),
        };
        self.trees[tree_index(state.port, kind)].class_backlog(class)
    }

    /// How long the first of a vif's queued frames has waited, and so the delay of the next one to
    /// leave; zero where none waits. Before the limit of its router the frames of all the router's
    /// vifs wait together. What a device holds back before it is read is not in it.
    #[must_use]
    pub fn wait(&self, now: Instant, vif: VifId, direction: Direction) -> Nanos {
        let Some(state) = self.vifs.get(vif.0 as usize) else { return Nanos::ZERO };
        let tree = |kind| &self.trees[tree_index(state.port, kind)];
        let heads = match direction {
            Direction::Send => [
                tree(TreeKind::Send).head_arrived(state.send),
                tree(TreeKind::Local).head_arrived(state.local),
            ],
            Direction::Receive => [tree(TreeKind::Receive).head_arrived(state.receive), None],
        };
        let oldest = heads.into_iter().flatten().min();
        let queued = oldest.map_or(Nanos::ZERO, |arrived| now.saturating_since(arrived));
        let router = self.policy[vif].router.filter(|_| direction == Direction::Receive);
        queued.max(router.map_or(Nanos::ZERO, |id| self.limits.wait(now, id, &self.links)))
    }

    /// The packet rate that [`Switch::limit_router`] set, if it did.
    #[must_use]
    pub fn router_limit(&self, router: RouterId) -> Option<PacketRate> {
        self.limits.rate(router)
    }

    /// Frames in all queues.
    #[must_use]
    pub const fn queued(&self) -> u32 {
        self.queued
    }

    /// Frames that lost their queue to changes of policy, or that no interface was charged with.
    #[must_use]
    pub const fn removed(&self) -> u64 {
        self.removed
    }

    /// Learned and given addresses: (port, VLAN or 0, MAC as a number, interface, given).
    pub fn addresses(&self) -> impl Iterator<Item = (PortId, u16, u64, IfaceId, bool)> + '_ {
        self.fdb.iter().filter_map(|(domain, mac, iface, fixed, _)| {
            let domain = self.domains.get(usize::from(domain))?;
            Some((PortId(domain.port), domain.vlan, mac, IfaceId(iface), fixed))
        })
    }

    /// The index of the vif behind an interface; `None` for a port or none.
    #[inline]
    pub(crate) fn vif_of(&self, iface: IfaceId) -> Option<usize> {
        let vif = (iface.0 as usize).checked_sub(self.ports.len())?;
        (vif < self.vifs.len()).then_some(vif)
    }

    /// The counters of a vif.
    #[inline]
    pub(crate) fn vif_counters(&mut self, vif: usize, direction: Direction) -> &mut Counters {
        let at = self.ports.len() + vif;
        &mut self.counters[at][direction as usize]
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ports, vifs) = (self.ports.len(), self.vifs.len());
        write!(f, "Switch {{ ports: {ports}, vifs: {vifs}, queued: {} }}", self.queued)
    }
}

impl fmt::Display for SwitchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheduler { port, error } => write!(f, "port {port}: {error}"),
            Self::TooMany { what, count, bound } => {
                write!(f, "{count} {what}, may be at most {bound}")
            }
            Self::Dangling { key, index } => write!(f, "{key}: no entry has index {index}"),
        }
    }
}

impl core::error::Error for SwitchError {}

/// What the code relies on when it follows an index of the policy.
pub(crate) fn check(policy: &Policy) -> Result<(), SwitchError> {
    let dangling = |key, index: u32, length: usize| {
        let inside = (index as usize) < length;
        if inside { Ok(()) } else { Err(SwitchError::Dangling { key, index }) }
    };
    for router in &policy.routers {
        dangling("router.slice", router.slice.0, policy.slices.len())?;
    }
    for vif in &policy.vifs {
        dangling("vif.slice", vif.slice.0, policy.slices.len())?;
        dangling("vif.port", vif.port.0, policy.ports.len())?;
        if let Some(router) = vif.router {
            dangling("vif.router", router.0, policy.routers.len())?;
        }
    }
    let bound = |what, count: usize, bound: usize| {
        if count <= bound { Ok(()) } else { Err(SwitchError::TooMany { what, count, bound }) }
    };
    bound("ports", policy.ports.len(), PORTS_MAX)?;
    bound("vifs", policy.vifs.len(), VIFS_MAX)?;
    bound("frames", policy.node.frames as usize, FRAMES_MAX)
}

pub(crate) fn length_max(policy: &Policy) -> u16 {
    u16::try_from(policy.node.frame_size.packet_max().get()).unwrap_or(u16::MAX)
}

/// All trees of a port, in the order of [`tree_index`].
pub(crate) const TREES: [TreeKind; 3] = [TreeKind::Send, TreeKind::Receive, TreeKind::Local];
/// A port's table of addresses has room for [`PORT_MACS`]; more ports than this have no slots.
const PORTS_MAX: usize = 64;
/// A domain is numbered in 16 bits, and each may hold one vif.
const VIFS_MAX: usize = 65_000;
/// 32 GiB of 2 KiB frames.
const FRAMES_MAX: usize = 1 << 24;
const _: () = assert!(PORT_MACS.is_power_of_two());
