// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The queues: every frame that the switch holds, and the trees that decide which leaves next.
//!
//! A port has three trees (see [`Tree`]). A frame that was scheduled for a vif then waits for the
//! vif's device alone, in a list of frames that are *ready*.
//!
//! Invariants, checked by [`Queues::check`] after each change of policy in debug builds: a frame is
//! in one queue or list, and counted in `queued` and in one vif's `sending` or `receiving`; a vif's
//! ready bit is set exactly while its list holds a frame.

mod before;
mod device;
mod follow;
mod internets;
mod label;
mod ready;

use alloc::vec::Vec;

use weir_policy::Direction;
use weir_sched::{Backlog, ClassId, DropReason, FlowCounters, Packet};
use weir_units::Instant;

use crate::accounting::Accounting;
use crate::frames::{FrameList, FrameTable};
use crate::pih::PortHeaders;
use crate::pool::{Frame, FramePool};
use crate::pool_shares::PoolShares;
use crate::reason::Reason;
use crate::tree::{OrphanedPacket, Served, Tree, TreeKind};
use crate::types::IfaceId;

use self::device::DeviceBacklog;
pub(crate) use self::label::{FlowLabel, QueueTraits};

/// The queues of all ports and vifs.
pub(crate) struct Queues {
    /// By the port's number, three each: see [`tree_index`].
    trees: Vec<Tree>,
    ports: Vec<PortQueues>,
    /// By the interface's slot; those of ports are unused.
    vifs: Vec<VifQueues>,
    /// Classes of other trees that share a limit with a vif, as (tree, class). Each vif names two
    /// ranges of this list.
    charges: Vec<(u32, ClassId)>,
    /// Queued frames, by their chunk of the pool.
    pub(crate) frames: FrameTable,
    /// A bit for each vif, by slot: set if a frame is ready for its device.
    ready: Vec<u64>,
    /// By the slot of the vif.
    devices: Vec<DeviceBacklog>,
    /// Frames in queues and lists.
    queued: u32,
    pool: PoolShares,
    /// The VLAN of each parallel internet; 0 for none.
    pih_vlans: [u16; 256],
}

/// A port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortQueues {
    /// The slot of its interface.
    pub(crate) slot: u32,
    pub(crate) accounting: Accounting,
    /// Set if its trees hold the limits of routers and slices.
    pub(crate) nested: bool,
    /// Set if a local frame goes before the port's next frame, because the port's last frame came
    /// from a limited vif. A sender has one limit for both trees. Without this turn, the tree that
    /// is asked first would win each time the limit lets a frame pass.
    pub(crate) local_first: bool,
}

/// A vif: one cache line, first for the frames that it sends, then for those that it receives.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
pub(crate) struct VifQueues {
    pub(crate) send: ClassId,
    /// Frames of its own in queues.
    pub(crate) sending: u32,
    /// Frames of its own that it may hold however full the pool is.
    send_floor: u32,
    /// The number of its port, and the slot of the port's interface.
    port: u16,
    port_slot: u16,
    /// The bridge of its slice at that port.
    bridge: u16,
    pub(crate) send_traits: QueueTraits,
    pub(crate) receive_traits: QueueTraits,
    pub(crate) local: ClassId,
    pub(crate) receive: ClassId,
    /// Frames towards it in its port's queue and before its device. A neighbour's frame counts here
    /// from when it crosses; until then it counts in the neighbour's `sending`.
    pub(crate) receiving: u32,
    /// Most frames held towards it.
    receive_bound: u32,
    /// Frames towards it that may be held however full the pool is.
    receive_floor: u32,
    ready: FrameList,
    /// Its ranges of [`Queues::charges`].
    send_charges: ChargeRange,
    receive_charges: ChargeRange,
}

/// A range of [`Queues::charges`].
#[derive(Clone, Copy, Debug, Default)]
struct ChargeRange {
    start: u32,
    end: u32,
}

/// Frames that lost their place by a change of policy; they count as queued until they are
/// forgotten.
pub(crate) struct LostFrames {
    /// Chunks of frames that waited for the devices of vifs that left.
    pub(crate) ready: Vec<u32>,
    pub(crate) orphans: Vec<OrphanedPacket>,
}

impl Default for Queues {
    fn default() -> Self {
        Self {
            trees: Vec::new(),
            ports: Vec::new(),
            vifs: Vec::new(),
            charges: Vec::new(),
            frames: FrameTable::default(),
            ready: Vec::new(),
            devices: Vec::new(),
            queued: 0,
            pool: PoolShares::of(0),
            pih_vlans: [0; 256],
        }
    }
}

impl Queues {
    /// Returns a port's part of the state.
    pub(crate) fn port(&self, port: u32) -> &PortQueues {
        &self.ports[port as usize]
    }

    /// Notes whether a local frame of a port goes before its next frame.
    #[inline]
    pub(crate) fn set_local_first(&mut self, port: u32, local_first: bool) {
        self.ports[port as usize].local_first = local_first;
    }

    /// Numbers that ports have or had.
    pub(crate) fn port_numbers(&self) -> core::ops::Range<u32> {
        0..u32::try_from(self.ports.len()).unwrap_or(u32::MAX)
    }

    /// Returns the number of a vif's port.
    #[inline]
    pub(crate) fn port_of(&self, vif: usize) -> u32 {
        self.vifs[vif].port.into()
    }

    /// Returns a vif's part of the state, by the vif's slot.
    #[inline]
    pub(crate) fn vif(&self, vif: usize) -> &VifQueues {
        &self.vifs[vif]
    }

    /// Returns the number of frames in queues and lists.
    #[inline]
    pub(crate) const fn queued(&self) -> u32 {
        self.queued
    }

    /// Checks that a vif's share of the pool lets it queue one more frame.
    ///
    /// # Errors
    /// [`Reason::PoolShare`].
    #[inline]
    pub(crate) fn check_send_room(&self, vif: usize) -> Result<(), Reason> {
        let state = &self.vifs[vif];
        match self.pool.left(self.queued, state.sending, state.send_floor) {
            0 => Err(Reason::PoolShare),
            _ => Ok(()),
        }
    }

    /// Checks that a vif may queue one more frame for a neighbour.
    ///
    /// # Errors
    /// The bound that it would break.
    pub(crate) fn check_local_room(&self, vif: usize) -> Result<(), Reason> {
        self.check_send_room(vif)?;
        let state = &self.vifs[vif];
        if self.trees[tree_index(state.port.into(), TreeKind::Local)].room(state.local) == 0 {
            return Err(Reason::QueuePackets);
        }
        Ok(())
    }

    /// Checks that one more frame may be held towards a vif, where `queued` others are held in all.
    ///
    /// # Errors
    /// The bound that it would break.
    #[inline]
    pub(crate) fn check_receive_room(&self, vif: usize, queued: u32) -> Result<(), Reason> {
        let state = &self.vifs[vif];
        if state.receiving >= state.receive_bound {
            return Err(Reason::QueuePackets);
        }
        match self.pool.left(queued, state.receiving, state.receive_floor) {
            0 => Err(Reason::PoolShare),
            _ => Ok(()),
        }
    }

    /// Checks that a vif's queue at its port takes one more packet.
    ///
    /// # Errors
    /// [`Reason::QueuePackets`].
    #[inline]
    pub(crate) fn check_receive_queue(&self, vif: usize) -> Result<(), Reason> {
        let state = &self.vifs[vif];
        match self.trees[tree_index(state.port.into(), TreeKind::Receive)].room(state.receive) {
            0 => Err(Reason::QueuePackets),
            _ => Ok(()),
        }
    }

    /// Queues a frame of a vif for its port. Returns its length with the headers of its slice, and
    /// the slot of the port.
    ///
    /// # Errors
    /// The queue's reason, or that the frame has no room for the tag.
    pub(crate) fn queue_for_port<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        (frame, label): (Frame, FlowLabel),
        pool: &mut P,
    ) -> Result<(u16, usize), Reason> {
        self.check_send_room(vif)?;
        self.enqueue_for_port(now, vif, (frame, label), now, pool)
    }

    /// Does [`Self::queue_for_port`] for a frame that arrived earlier and has its share of the
    /// pool.
    ///
    /// # Errors
    /// The queue's reason, or that the frame has no room for the tag.
    #[inline(always)]
    pub(crate) fn enqueue_for_port<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        (frame, label): (Frame, FlowLabel),
        arrived: Instant,
        pool: &mut P,
    ) -> Result<(u16, usize), Reason> {
        let state = &self.vifs[vif];
        let (class, port, headers) = (state.send, u32::from(state.port), self.headers(state));
        let frame = if headers == PortHeaders::NONE { frame } else { headers.push(pool, frame)? };
        let bytes = self.ports[port as usize].accounting.bytes(frame.len, headers.bytes());
        let packet = label.packet(frame.id, bytes, arrived);
        self.enqueue(now, (port, TreeKind::Send), class, packet, label)?;
        self.hold(frame, headers);
        let state = &mut self.vifs[vif];
        state.sending += 1;
        Ok((frame.len, state.port_slot.into()))
    }

    /// Queues a frame from a port for a vif, which arrived at `arrived`; `bytes` is its accounted
    /// length.
    ///
    /// # Errors
    /// The queue's reason.
    pub(crate) fn queue_for_vif(
        &mut self,
        now: Instant,
        vif: usize,
        (frame, label): (Frame, FlowLabel),
        (bytes, arrived): (u32, Instant),
    ) -> Result<(), Reason> {
        let (port, class) = (self.vifs[vif].port.into(), self.vifs[vif].receive);
        let packet = label.packet(frame.id, bytes, arrived);
        self.enqueue(now, (port, TreeKind::Receive), class, packet, label)?;
        self.hold(frame, PortHeaders::NONE);
        self.vifs[vif].receiving += 1;
        Ok(())
    }

    /// Queues a frame of a vif for another vif of its bridge; `bytes` is its accounted length.
    ///
    /// # Errors
    /// The queue's reason.
    pub(crate) fn queue_local(
        &mut self,
        now: Instant,
        (from, to): (usize, IfaceId),
        (frame, label): (Frame, FlowLabel),
        bytes: u32,
    ) -> Result<(), Reason> {
        let (class, port) = (self.vifs[from].local, self.vifs[from].port.into());
        let packet = label.packet(frame.id, bytes, now);
        self.enqueue(now, (port, TreeKind::Local), class, packet, label)?;
        self.hold(frame, PortHeaders::NONE);
        self.frames.set_destination(frame.id, to);
        self.vifs[from].sending += 1;
        Ok(())
    }

    #[inline(always)]
    fn enqueue(
        &mut self,
        now: Instant,
        (port, kind): (u32, TreeKind),
        class: ClassId,
        packet: Packet,
        label: FlowLabel,
    ) -> Result<(), DropReason> {
        let tree = &mut self.trees[tree_index(port, kind)];
        match label.accepted {
            true => tree.requeue(now, class, packet),
            false => tree.enqueue(now, class, packet),
        }
    }

    /// Returns the next packet of a tree, or when and why to ask again.
    #[inline]
    pub(crate) fn dequeue(&mut self, now: Instant, port: u32, kind: TreeKind) -> Served {
        self.trees[tree_index(port, kind)].dequeue(now)
    }

    /// Returns one of a port's trees.
    #[inline]
    pub(crate) fn tree(&self, port: u32, kind: TreeKind) -> &Tree {
        &self.trees[tree_index(port, kind)]
    }

    /// Returns the least instant at which a tree may give a packet; [`Instant::FAR_FUTURE`] if all
    /// are empty.
    pub(crate) fn next(&self) -> Instant {
        self.trees.iter().map(Tree::next).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Does [`Self::next`] without the send trees of the ports whose numbers `skips` names.
    pub(crate) fn next_without(&self, skips: impl Fn(usize) -> bool) -> Instant {
        let ports = self.trees.chunks(TREES.len()).enumerate();
        let least = ports.flat_map(|(port, trees)| {
            let skipped = usize::from(skips(port));
            trees.get(skipped..).unwrap_or(&[]).iter().map(Tree::next)
        });
        least.min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Counts a frame of a vif that left the queues.
    #[inline]
    pub(crate) fn left_by_port(&mut self, vif: usize) {
        self.forget();
        let state = &mut self.vifs[vif];
        debug_assert!(state.sending > 0, "a frame that leaves was counted as it came");
        state.sending = state.sending.saturating_sub(1);
    }

    /// Counts a local frame that crosses: from now on it takes room of its receiver, not of its
    /// sender.
    #[inline]
    pub(crate) fn crossed(&mut self, from: usize, to: usize) {
        debug_assert!(self.vifs[from].sending > 0, "a frame that crosses was counted as it came");
        self.vifs[from].sending = self.vifs[from].sending.saturating_sub(1);
        self.vifs[to].receiving += 1;
    }

    /// Counts a frame out that was held for a vif and is given up; `vif` may have left.
    pub(crate) fn given_up(&mut self, vif: usize, direction: Direction) {
        self.forget();
        if let Some(state) = self.vifs.get_mut(vif) {
            let held = match direction {
                Direction::Send => &mut state.sending,
                Direction::Receive => &mut state.receiving,
            };
            *held = held.saturating_sub(1);
        }
    }

    /// Counts one held frame less.
    #[inline]
    pub(crate) fn forget(&mut self) {
        debug_assert!(self.queued > 0, "a frame is forgotten once");
        self.queued = self.queued.saturating_sub(1);
    }

    /// Charges the bytes that a vif sent through one tree to the other trees that share its limits.
    pub(crate) fn charge_sender(&mut self, now: Instant, vif: usize, bytes: u32, other: TreeKind) {
        let state = &self.vifs[vif];
        let class = if other == TreeKind::Send { state.send } else { state.local };
        let range = state.send_charges;
        self.trees[tree_index(state.port.into(), other)].charge(now, class, bytes);
        self.charge_range(now, range, bytes);
    }

    /// Charges the bytes that a vif was given to the other trees that share its limits. A `local`
    /// frame is charged to the tree of the vif's own port too.
    pub(crate) fn charge_receiver(&mut self, now: Instant, vif: usize, bytes: u32, local: bool) {
        let state = &self.vifs[vif];
        let range = state.receive_charges;
        if local {
            let tree = tree_index(state.port.into(), TreeKind::Receive);
            self.trees[tree].charge(now, state.receive, bytes);
        }
        self.charge_range(now, range, bytes);
    }

    fn charge_range(&mut self, now: Instant, range: ChargeRange, bytes: u32) {
        let ChargeRange { start, end } = range;
        for (tree, class) in self.charges.get(start as usize..end as usize).unwrap_or(&[]) {
            if let Some(tree) = self.trees.get_mut(*tree as usize) {
                tree.charge(now, *class, bytes);
            }
        }
    }

    /// Returns the number of packets of a vif, or towards it, that its queues and its share of the
    /// pool can take.
    pub(crate) fn room(&self, vif: usize, direction: Direction) -> u32 {
        let state = &self.vifs[vif];
        let tree = |kind| &self.trees[tree_index(state.port.into(), kind)];
        let (room, held, floor) = match direction {
            Direction::Send => {
                let out = tree(TreeKind::Send).room(state.send);
                let room = out.min(tree(TreeKind::Local).room(state.local));
                (room, state.sending, state.send_floor)
            }
            Direction::Receive => {
                let bound = state.receive_bound.saturating_sub(state.receiving);
                let room = tree(TreeKind::Receive).room(state.receive).min(bound);
                (room, state.receiving, state.receive_floor)
            }
        };
        room.min(self.pool.left(self.queued, held, floor))
    }

    /// Returns the number of frames that wait on behalf of a vif.
    pub(crate) fn waiting(&self, vif: usize, direction: Direction) -> u32 {
        match direction {
            Direction::Send => self.vifs[vif].sending,
            Direction::Receive => self.vifs[vif].receiving,
        }
    }

    /// Returns the backlog of a vif in the tree of its port, in accounted bytes.
    pub(crate) fn backlog(&self, vif: usize, direction: Direction) -> Backlog {
        let state = &self.vifs[vif];
        let (kind, class) = match direction {
            Direction::Send => (TreeKind::Send, state.send),
            Direction::Receive => (TreeKind::Receive, state.receive),
        };
        self.trees[tree_index(state.port.into(), kind)].class_backlog(class)
    }

    /// Returns the counters of a vif's flows.
    pub(crate) fn flow_counters(&self, vif: usize, direction: Direction) -> FlowCounters {
        let state = &self.vifs[vif];
        let of = |kind, class| {
            let tree = &self.trees[tree_index(state.port.into(), kind)];
            tree.flow_counters(class)
        };
        match direction {
            Direction::Send => {
                of(TreeKind::Send, state.send).plus(of(TreeKind::Local, state.local))
            }
            Direction::Receive => of(TreeKind::Receive, state.receive),
        }
    }

    /// Returns when the first of a vif's queued packets arrived.
    pub(crate) fn oldest(&self, vif: usize, direction: Direction) -> Option<Instant> {
        let state = &self.vifs[vif];
        let tree = |kind| &self.trees[tree_index(state.port.into(), kind)];
        match direction {
            Direction::Send => {
                let local = tree(TreeKind::Local).head_arrived(state.local);
                tree(TreeKind::Send).head_arrived(state.send).into_iter().chain(local).min()
            }
            Direction::Receive => tree(TreeKind::Receive).head_arrived(state.receive),
        }
    }

    /// Prefetches the memory that queueing a frame of a vif, or towards it, will need. The returned
    /// value means nothing: a caller that uses it keeps the compiler from removing the read.
    #[inline]
    pub(crate) fn fetch(&self, vif: usize, direction: Direction) -> u32 {
        let state = &self.vifs[vif];
        match direction {
            Direction::Send => {
                self.trees[tree_index(state.port.into(), TreeKind::Send)].touch(state.send);
                state.sending
            }
            Direction::Receive => {
                self.trees[tree_index(state.port.into(), TreeKind::Receive)].touch(state.receive);
                state.receiving
            }
        }
    }

    /// Reads the memory that sending a frame of a vif will need. The returned value means nothing,
    /// as with [`Self::fetch`].
    #[inline]
    pub(crate) fn fetch_sent(&self, vif: usize) -> u32 {
        self.vifs.get(vif).map_or(0, |state| state.sending)
    }

    /// Notes where a queued frame lies.
    #[inline]
    fn hold(&mut self, frame: Frame, headers: PortHeaders) {
        self.queued += 1;
        self.frames.put(frame, headers);
    }

    /// Asserts the invariants that are not asserted where they could break.
    pub(crate) fn check(&self) {
        for (vif, state) in self.vifs.iter().enumerate() {
            let bit = self.ready.get(vif / 64).is_some_and(|word| word & (1 << (vif % 64)) != 0);
            debug_assert_eq!(bit, !state.ready.is_empty(), "the bit tells of the list");
        }
        let held: u32 = self.vifs.iter().map(|state| state.sending + state.receiving).sum();
        // A frame that waits in a pacer for a removed vif is in `queued`, but counts for no vif.
        debug_assert!(held <= self.queued, "each held frame is one vif's: {held} of all");
    }
}

impl LostFrames {
    /// Tells whether no frame lost its place.
    pub(crate) const fn is_empty(&self) -> bool {
        self.ready.is_empty() && self.orphans.is_empty()
    }
}

impl PortQueues {
    const NONE: Self =
        Self { slot: u32::MAX, accounting: Accounting::NONE, nested: false, local_first: false };
}

impl VifQueues {
    /// Returns the slot of the interface of its port.
    #[inline]
    pub(crate) fn port_slot(&self) -> usize {
        self.port_slot.into()
    }

    const NONE: Self = Self {
        send: NO_CLASS,
        sending: 0,
        send_floor: 0,
        port: 0,
        port_slot: 0,
        bridge: 0,
        send_traits: QueueTraits::NONE,
        receive_traits: QueueTraits::NONE,
        local: NO_CLASS,
        receive: NO_CLASS,
        receiving: 0,
        receive_bound: 0,
        receive_floor: 0,
        ready: FrameList::EMPTY,
        send_charges: ChargeRange { start: 0, end: 0 },
        receive_charges: ChargeRange { start: 0, end: 0 },
    };
}

/// Returns the place of a port's tree.
#[inline]
const fn tree_index(port: u32, kind: TreeKind) -> usize {
    port as usize * TREES.len() + kind as usize
}

const _: () = assert!(size_of::<VifQueues>() == 64, "one cache line");
/// All trees of a port, in the order of [`tree_index`]. What a port sends comes first.
const TREES: [TreeKind; 3] = [TreeKind::Send, TreeKind::Receive, TreeKind::Local];
const NO_CLASS: ClassId = ClassId(u32::MAX);
