// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The switch: its parts, how they are made from a policy, and the state that they show.
//!
//! A frame goes through the parts in this order, and each has its own invariants:
//!
//! ```text
//!               stages before           stage after
//!  forwarding ─► police ─► smoothing ─► queues ─► pacers ─► ready for the device
//!      │            │          │          │          │
//!      └────────────┴──────────┴── ledger ┴──────────┘   counts each frame, with a reason where
//!                                                        it is dropped
//! ```
//!
//! [`crate::Switch`] itself only passes frames on. The modules `from_vif` and `from_port` hold the
//! way in, `transmit` the way out, and `apply` a change of policy.

mod apply;
mod from_port;
mod from_vif;
mod receive;
mod smooth;
mod transmit;

use alloc::vec::Vec;
use core::fmt;

use weir_policy::{Direction, Policy, PortId, RouterId, VifId};
use weir_sched::{Backlog, ConfigError, FlowCounters};
use weir_units::{ByteCount, Instant, Nanos, PacketRate};

use crate::capture::{CaptureConfig, CaptureCounters, Captured, Taps};
use crate::counters::{Counters, Tally};
use crate::forwarding::Forwarding;
use crate::ids::Ids;
use crate::ledger::Ledger;
use crate::pacers::Pacers;
use crate::police::Police;
use crate::queues::Queues;
use crate::reason::Reason;
use crate::shares::TreeShares;
use crate::smoothing::{SmoothState, Smoothing};
use crate::tree;
use crate::types::IfaceId;

/// The switch of one node: see the crate's documentation.
///
/// **The run loop: hand in what arrived ([`Switch::receive_batch`]); for each port whose device has
/// room, ask [`Switch::transmit`] until it gives no frame; call [`Switch::advance`] and do the same
/// for each vif of [`Switch::ready`]; then sleep until [`Switch::next_event`] or an arrival.**
pub struct Switch {
    policy: Policy,
    ids: Ids,
    forwarding: Forwarding,
    /// The stages before the trees.
    police: Police,
    smoothing: Smoothing,
    queues: Queues,
    /// The stage after the trees.
    pacers: Pacers,
    ledger: Ledger,
    taps: Taps,
    /// The key of the hash of flows.
    flow_seed: u64,
}

/// A policy that the switch cannot take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchError {
    /// A scheduler refuses a class of a port's tree.
    Scheduler {
        /// The port's index.
        port: u32,
        /// Why.
        error: ConfigError,
    },
    /// More of a thing than the switch can hold.
    TooMany {
        /// The things, in the plural.
        what: &'static str,
        /// The number of them in the policy.
        count: usize,
        /// The most there may be.
        bound: usize,
    },
    /// A reference of the policy leads nowhere.
    Dangling {
        /// The key of the reference.
        key: &'static str,
        /// The index that does not exist.
        index: u32,
    },
    /// Two items of a kind have the same name, so that a change could not tell them apart.
    NotUnique {
        /// The kind.
        key: &'static str,
        /// The index of the second.
        index: u32,
    },
}

impl Switch {
    /// Returns the switch that a policy describes, all queues empty.
    ///
    /// # Errors
    /// [`SwitchError`], by the checks of [`Switch::validate`].
    pub fn new(policy: &Policy, now: Instant) -> Result<Self, SwitchError> {
        let shares = check(policy)?;
        let mut switch = Self {
            policy: policy.clone(),
            ids: Ids::default(),
            forwarding: Forwarding::default(),
            police: Police::default(),
            smoothing: Smoothing::default(),
            queues: Queues::default(),
            pacers: Pacers::default(),
            ledger: Ledger::default(),
            taps: Taps::default(),
            flow_seed: 0,
        };
        let (lost, _) = switch.follow(now, policy, &shares);
        debug_assert!(lost.is_empty(), "nothing is queued in a new switch");
        Ok(switch)
    }

    /// Checks that a switch can take a policy, without building anything.
    ///
    /// # Errors
    /// [`SwitchError`]; a policy that passed its own checks gives none but
    /// [`SwitchError::TooMany`].
    pub fn validate(policy: &Policy) -> Result<(), SwitchError> {
        check(policy).map(drop)
    }

    /// Sets whether frames from an interface may carry checksums that their sender left to its
    /// device; the switch then completes them. By default all may but frames from memory and files.
    pub fn set_completes_checksums(&mut self, iface: IfaceId, completes: bool) {
        self.forwarding.set_completes(&self.ids, iface, completes);
    }

    /// Sets the key of the hash by which queues tell flows apart, so that nobody without the key
    /// can make a flow share another's queue. Call it before the first frame: it moves flows to
    /// other queues.
    pub const fn set_flow_seed(&mut self, seed: u64) {
        self.flow_seed = seed;
    }

    /// Returns the number of packets that a vif may hand in now without a refusal (`send`), or that
    /// may be handed in for it (`receive`). The credit is the least of the room in its queues, in
    /// its smooth window and (`receive`) at its router's limit, its share of the pool, and the
    /// packet tokens of the policers of vif, router and slice; zero for a vif that does not exist.
    /// Bits that are policed do not count. Vifs of one router or slice share tokens, so grant these
    /// to one vif at a time.
    #[must_use]
    pub fn credit(&self, now: Instant, vif: VifId, direction: Direction) -> u32 {
        let Some(vif) = self.slot(vif) else { return 0 };
        self.window_room(now, vif, direction).min(self.other_room(now, vif, direction))
    }

    /// Returns the part of [`Self::credit`] that a smooth window lets in.
    fn window_room(&self, now: Instant, vif: usize, direction: Direction) -> u32 {
        let held = self.queues.held(vif, direction);
        let longest = self.policy.node.frame_size.packet_max().get();
        let longest = u32::try_from(longest).unwrap_or(u32::MAX);
        self.smoothing.room(now, (vif, direction), held, longest)
    }

    /// Returns the part of [`Self::credit`] that queues, limits and policers let in.
    fn other_room(&self, now: Instant, vif: usize, direction: Direction) -> u32 {
        let mut room = self.queues.room(vif, direction);
        if direction == Direction::Receive {
            room = room.min(self.pacers.room(vif, self.port_of_vif(vif)));
        }
        let tokens = self.police.packets_available(now, vif, direction);
        room.min(u32::try_from(tokens).unwrap_or(u32::MAX))
    }

    /// Counts frames of a vif that were dropped before they reached the switch, so that the
    /// counters include every frame. A smooth window that had no room for them moves as if it had
    /// refused them.
    pub fn account_early_drop(
        &mut self,
        now: Instant,
        vif: VifId,
        direction: Direction,
        reason: Reason,
        frames: Tally,
    ) {
        let Some(vif) = self.slot(vif) else { return };
        self.ledger.of(vif, direction).drop_many(reason, frames.packets, frames.bytes);
        if direction == Direction::Receive && frames.packets > 0 {
            self.pacers.refuse(now, vif);
        }
        let smoothed = reason == Reason::NoCredit && self.smoothing.smooths(vif, direction);
        if smoothed && self.window_room(now, vif, direction) <= self.other_room(now, vif, direction)
        {
            self.smoothing.count_early_drop(vif, direction, ByteCount::new(frames.bytes));
        }
    }

    /// Counts frames of this interface that were forwarded without the switch, so that the counters
    /// include every frame.
    pub fn account_redirected(&mut self, iface: IfaceId, direction: Direction, frames: Tally) {
        let Some(slot) = self.ids.slot_of(iface) else { return };
        let Counters { received, enqueued, sent, redirected, .. } = self.ledger.of(slot, direction);
        for tally in [received, enqueued, sent, redirected] {
            *tally = tally.plus(frames);
        }
    }

    /// Renews a learned address whose frames are forwarded without the switch. Only an address in
    /// the second half of its life is renewed, so that such frames do not hinder a migration.
    pub fn keep_address(&mut self, now: Instant, port: PortId, vlan: u16, mac: u64) {
        let port = self.ids.port(port);
        self.forwarding.keep_address(now, &self.ids, (port, vlan), mac);
    }

    /// Lets at most `limit` packets a second pass to the vifs of `router` together, from the next
    /// packet on; `None` removes the limit. The policy's own limit still holds. Packets above the
    /// limit wait: up to 50 ms of the rate, and half of the room of the vif with the least. The
    /// limit outlives [`Switch::apply`] as long as the router exists, and includes vifs that are
    /// added later. Returns whether the router exists.
    pub fn limit_router<P: crate::FramePool>(
        &mut self,
        now: Instant,
        router: RouterId,
        limit: Option<PacketRate>,
        pool: &mut P,
    ) -> bool {
        if self.policy.routers.get(router.0 as usize).is_none() {
            return false;
        }
        match limit {
            Some(rate) => self.pacers.limit(now, (&self.policy, &self.ids), router, rate),
            None => {
                if let Some(pacer) = self.pacers.unlimit(self.ids.router(router)) {
                    self.let_out(pacer, pool);
                }
            }
        }
        true
    }

    /// Starts a capture at a vif; it replaces an earlier one. Returns whether the vif exists.
    pub fn capture_start(&mut self, vif: VifId, config: &CaptureConfig) -> bool {
        let Some(vif) = self.slot(vif) else { return false };
        self.taps.start(self.ids.iface(vif), config);
        true
    }

    /// Ends a capture. Frames that were not read are discarded.
    pub fn capture_stop(&mut self, vif: VifId) {
        self.taps.stop(self.vif_iface(vif));
    }

    /// Hands each captured frame to `take`, the oldest first, and forgets it. Returns the counters
    /// of the capture so far; `None` if there is no capture at this vif.
    pub fn capture_read(
        &mut self,
        vif: VifId,
        take: impl FnMut(Captured<'_>),
    ) -> Option<CaptureCounters> {
        let vif = self.vif_iface(vif);
        self.taps.read(vif, take)
    }

    /// Returns the policy in force.
    #[must_use]
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the interface of a port of the policy in force. For a port that does not exist, it
    /// returns an id that no interface has.
    #[must_use]
    pub fn port_iface(&self, port: PortId) -> IfaceId {
        self.ids.iface(self.ids.port_slot(port))
    }

    /// Returns the interface of a vif of the policy in force. For a vif that does not exist, it
    /// returns an id that no interface has.
    #[must_use]
    pub fn vif_iface(&self, vif: VifId) -> IfaceId {
        self.ids.iface(self.ids.vif_slot(vif))
    }

    /// Returns the vif of the policy in force behind an interface; `None` for a port, or if there
    /// is none.
    #[must_use]
    pub fn vif_of(&self, iface: IfaceId) -> Option<VifId> {
        self.ids.vif_id(self.ids.vif_of(iface)?)
    }

    /// Returns the counters of an interface in one direction; `None` if it does not exist.
    #[must_use]
    pub fn counters(&self, iface: IfaceId, direction: Direction) -> Option<&Counters> {
        self.ledger.get(self.ids.slot_of(iface)?, direction)
    }

    /// Returns the number of frames that wait on behalf of a vif. `send`: frames from it, in the
    /// queues of port and bridge. `receive`: frames towards it, in queues and before its device.
    #[must_use]
    pub fn waiting(&self, vif: VifId, direction: Direction) -> u32 {
        self.slot(vif).map_or(0, |vif| self.queues.waiting(vif, direction))
    }

    /// Returns the backlog of a vif before and in the tree of its port, in accounted bytes.
    #[must_use]
    pub fn queue_backlog(&self, vif: VifId, direction: Direction) -> Backlog {
        let Some(vif) = self.slot(vif) else { return Backlog::default() };
        let (smoothed, queued) =
            (self.smoothing.waiting(vif, direction), self.queues.backlog(vif, direction));
        Backlog { packets: smoothed.packets + queued.packets, bytes: smoothed.bytes + queued.bytes }
    }

    /// Returns the counters of a vif's flows; zero where its flows share a queue.
    #[must_use]
    pub fn flow_counters(&self, vif: VifId, direction: Direction) -> FlowCounters {
        let vif = self.slot(vif);
        vif.map_or_else(FlowCounters::default, |vif| self.queues.flow_counters(vif, direction))
    }

    /// Returns the time that the first of a vif's queued frames has waited: the delay of the next
    /// frame to leave. Zero if none waits. Frames that wait for the limit of a router count for
    /// each of its vifs. Time in a device before a frame is read is not included.
    #[must_use]
    pub fn wait(&self, now: Instant, vif: VifId, direction: Direction) -> Nanos {
        let Some(vif) = self.slot(vif) else { return Nanos::ZERO };
        let smoothed = self.smoothing.oldest(vif, direction);
        let oldest = self.queues.oldest(vif, direction).into_iter().chain(smoothed).min();
        let queued = oldest.map_or(Nanos::ZERO, |arrived| now.saturating_since(arrived));
        match direction {
            Direction::Send => queued,
            Direction::Receive => {
                queued.max(self.pacers.wait(now, vif, self.queues.frames.links()))
            }
        }
    }

    /// Returns the state of a vif's smooth window in one direction, if its policy has one.
    #[must_use]
    pub fn smooth_state(&self, vif: VifId, direction: Direction) -> Option<SmoothState> {
        self.smoothing.state(self.slot(vif)?, direction)
    }

    /// Returns the packet rate that [`Switch::limit_router`] set; `None` without a limit.
    #[must_use]
    pub fn router_limit(&self, router: RouterId) -> Option<PacketRate> {
        self.pacers.rate(self.ids.router(router))
    }

    /// Returns the number of frames in all queues.
    #[must_use]
    pub const fn queued(&self) -> u32 {
        self.queues.queued()
    }

    /// Returns the number of frames dropped because a change of policy removed their queue or
    /// requires headers for which they have no room, or because no interface could be charged with
    /// them.
    #[must_use]
    pub const fn removed(&self) -> u64 {
        self.ledger.removed
    }

    /// Returns all addresses of the bridges: (port, VLAN or 0, MAC as a number, interface, true if
    /// the policy gives it and false if it was learned).
    pub fn addresses(&self) -> impl Iterator<Item = (PortId, u16, u64, IfaceId, bool)> + '_ {
        self.forwarding.addresses().filter_map(|(port, vlan, mac, iface, fixed)| {
            let position = self.ids.ports.position(port as usize)?;
            let port = PortId(u32::try_from(position).ok()?);
            Some((port, vlan, mac, IfaceId(iface), fixed))
        })
    }

    /// Returns the slot of a vif of the policy in force.
    fn slot(&self, vif: VifId) -> Option<usize> {
        let slot = self.ids.vif_slot(vif);
        (slot < self.ids.interface_count()).then_some(slot)
    }

    /// Returns the interface of the port whose bridge a vif is attached to.
    fn port_of_vif(&self, vif: usize) -> IfaceId {
        self.ids.iface(self.queues.vif(vif).port_slot())
    }
}

impl fmt::Debug for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ports, vifs) = (self.policy.ports.len(), self.policy.vifs.len());
        write!(f, "Switch {{ ports: {ports}, vifs: {vifs}, queued: {} }}", self.queued())
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
            Self::NotUnique { key, index } => {
                write!(f, "{key}: entry {index} has the name of another")
            }
        }
    }
}

impl core::error::Error for SwitchError {}

/// Checks all that a switch relies on: indexes that resolve, unique names, tables that are large
/// enough, shares that each scheduler takes. Returns the shares of each port's trees.
fn check(policy: &Policy) -> Result<Vec<[TreeShares; 3]>, SwitchError> {
    check_references(policy)?;
    let bound = |what, count: usize, bound: usize| {
        if count <= bound { Ok(()) } else { Err(SwitchError::TooMany { what, count, bound }) }
    };
    bound("ports", policy.ports.len(), PORTS_MAX)?;
    bound("vifs", policy.vifs.len(), VIFS_MAX)?;
    bound("frames", policy.node.frames as usize, FRAMES_MAX)?;
    unique("port", policy.ports.iter().map(|port| &port.name))?;
    unique("slice", policy.slices.iter().map(|slice| &slice.name))?;
    unique("router", policy.routers.iter().map(|router| &router.name))?;
    unique("vif", policy.vifs.iter().map(|vif| (&vif.name, vif.slice, vif.port)))?;
    let of_port = |(id, port): (PortId, &weir_policy::Port)| {
        let shares = TreeShares::of_trees(policy, id);
        let refused = |error| SwitchError::Scheduler { port: id.0, error };
        let mut trees = shares.iter();
        trees.try_for_each(|shares| tree::check(port.scheduler, shares)).map_err(refused)?;
        Ok(shares)
    };
    policy.ports().map(of_port).collect()
}

fn check_references(policy: &Policy) -> Result<(), SwitchError> {
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
    Ok(())
}

fn unique<K: Ord>(key: &'static str, names: impl Iterator<Item = K>) -> Result<(), SwitchError> {
    let mut known = alloc::collections::BTreeSet::new();
    for (index, name) in (0..).zip(names) {
        if !known.insert(name) {
            return Err(SwitchError::NotUnique { key, index });
        }
    }
    Ok(())
}

/// Few, since each port has a table of all numbers of bridges and room for 16384 learned addresses.
const PORTS_MAX: usize = 64;
/// Twice as many as a policy may have. A slot has 16 bits, and the vifs of two policies have slots
/// while one replaces the other.
const VIFS_MAX: usize = 16_384;
/// 32 GiB of 2 KiB frames.
const FRAMES_MAX: usize = 1 << 24;
const _: () = assert!(2 * (PORTS_MAX + VIFS_MAX) < 1 << 16, "every interface has a slot");
