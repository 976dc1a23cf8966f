// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way out: the next frame of a port's tree, or of what was scheduled for a vif.

use weir_policy::Direction;
use weir_sched::Packet;
use weir_units::Instant;

use crate::frame::mark_congestion;
use crate::pool::{Frame, FramePool};
use crate::reason::Reason;
use crate::state::{NO_FRAME, Slot, Stage, VifState, tree_index};
use crate::switch::Switch;
use crate::tree::{NO_VIF, Served, TreeKind};
use crate::types::{IfaceId, Transmit};
use crate::vlan;

impl Switch {
    /// The next frame for an interface, or exactly when and why to ask again. Called only while
    /// its device can take a frame: nothing is dropped after this. Early calls are harmless.
    pub fn transmit<P: FramePool>(&mut self, now: Instant, to: IfaceId, pool: &mut P) -> Transmit {
        match self.vif_of(to) {
            Some(vif) => self.transmit_to_vif(now, vif, pool),
            None if (to.0 as usize) < self.ports.len() => self.transmit_to_port(now, to.0, pool),
            None => Transmit::Idle,
        }
    }

    /// As many frames for an interface as are due now and fit into `out`: how many. As
    /// [`Switch::transmit`] again and again, but what the frames need is fetched together.
    pub fn transmit_batch<P: FramePool>(
        &mut self,
        now: Instant,
        to: IfaceId,
        pool: &mut P,
        out: &mut [Frame],
    ) -> usize {
        let mut count = 0;
        while count < out.len() {
            let before = count;
            if (to.0 as usize) < self.ports.len() {
                count += self.transmit_some(now, to.0, pool, &mut out[count..]);
            } else if let Transmit::Frame(frame) = self.transmit(now, to, pool) {
                out[count] = frame;
                count += 1;
            }
            if count == before {
                break;
            }
        }
        count
    }

    /// Counts a frame of [`Switch::transmit`] that the device refused: it was not sent after all.
    /// Its chunk is the caller's, who frees it.
    pub fn account_refused(&mut self, to: IfaceId, frame: Frame) {
        let direction = match self.vif_of(to) {
            Some(_) => Direction::Receive,
            None => Direction::Send,
        };
        // As it was counted: a new tag came after that.
        let bytes = self.slots.get(frame.id as usize).map_or(frame.len, |slot| slot.len);
        if let Some(counters) = self.counters.get_mut(to.0 as usize) {
            counters[direction as usize].take_back(Reason::RefusedByPort, bytes);
        }
    }

    /// Moves what is due from the trees of all ports to the vifs it is for: see
    /// [`Switch::ready`]. Bounded, in local frames, to a batch a port.
    pub fn advance<P: FramePool>(&mut self, now: Instant, pool: &mut P) {
        for port in (0u32..).take(self.ports.len()) {
            self.advance_port(now, port, pool);
        }
    }

    /// The vifs with a frame that waits for nothing but their device, in order.
    pub fn ready(&self) -> impl Iterator<Item = IfaceId> + '_ {
        let first = u32::try_from(self.ports.len()).unwrap_or(u32::MAX);
        (0u32..).zip(&self.ready).flat_map(move |(word, bits)| {
            let mut bits = *bits;
            core::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros())?;
                bits &= bits - 1;
                Some(IfaceId(first + word * 64 + bit))
            })
        })
    }

    /// The next vif with a frame that waits for nothing but its device, from `from` on. For loops
    /// that transmit as they go.
    #[must_use]
    pub fn next_ready(&self, from: IfaceId) -> Option<IfaceId> {
        let first = u32::try_from(self.ports.len()).unwrap_or(u32::MAX);
        let start = from.0.saturating_sub(first);
        let mut word = (start / 64) as usize;
        let mut bits = self.ready.get(word)? & (u64::MAX << (start % 64));
        while bits == 0 {
            word += 1;
            bits = *self.ready.get(word)?;
        }
        let bit = bits.trailing_zeros();
        Some(IfaceId(first + u32::try_from(word).unwrap_or(u32::MAX) * 64 + bit))
    }

    /// When something is due: the lesser of [`Switch::next_scheduled`] and [`Switch::next_paced`].
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        self.next_scheduled().into_iter().chain(self.next_paced()).min()
    }

    /// The least instant at which a tree may give a frame. `None` if nothing is queued in any.
    /// Frames that only wait for a vif's device are [`Switch::ready`], and have no instant. May
    /// change with every call of a method that takes `&mut self`.
    #[must_use]
    pub fn next_scheduled(&self) -> Option<Instant> {
        let least = self.trees.iter().map(crate::tree::Tree::next).min();
        least.filter(|next| *next < Instant::FAR_FUTURE)
    }

    /// The least instant at which a router's limit may let a frame pass, on its grid: who looks a
    /// little later loses nothing. `None` if nothing waits for a limit.
    #[must_use]
    pub fn next_paced(&self) -> Option<Instant> {
        Some(self.limits.next()).filter(|next| *next < Instant::FAR_FUTURE)
    }

    fn transmit_to_port<P: FramePool>(
        &mut self,
        now: Instant,
        port: u32,
        pool: &mut P,
    ) -> Transmit {
        let tree = tree_index(port, TreeKind::Send);
        if self.ports[port as usize].local_first {
            let moved = self.advance_local(now, port, 1, pool);
            self.ports[port as usize].local_first = moved == 0;
        }
        loop {
            match self.trees[tree].dequeue(now) {
                Served::Send { vif, packet, mark } => {
                    if let Some(frame) = self.leave_by_port(now, port, vif, packet, mark, pool) {
                        return Transmit::Frame(frame);
                    }
                }
                Served::Dropped { vif, packet } => {
                    self.give_up_at_port(port, vif, packet, Reason::Codel, pool);
                }
                Served::Wait { until, why } => return Transmit::Wait { until, why },
                Served::Idle => return Transmit::Idle,
            }
        }
    }

    /// Up to [`TRANSMIT_BATCH`] frames for a port.
    fn transmit_some<P: FramePool>(
        &mut self,
        now: Instant,
        port: u32,
        pool: &mut P,
        out: &mut [Frame],
    ) -> usize {
        let Some(first) = out.first_mut() else { return 0 };
        // The first goes the common way: it minds local frames, and drops what was given up.
        let Transmit::Frame(frame) = self.transmit_to_port(now, port, pool) else { return 0 };
        *first = frame;
        let tree = tree_index(port, TreeKind::Send);
        let none = (NO_VIF, Packet::new(0, 0, now), false);
        let (mut due, mut found) = ([none; TRANSMIT_BATCH], 0);
        let room = (out.len() - 1).min(TRANSMIT_BATCH);
        while let Some(place) = due.get_mut(found).filter(|_| found < room) {
            match self.trees[tree].dequeue(now) {
                Served::Send { vif, packet, mark } => *place = (vif, packet, mark),
                Served::Dropped { vif, packet } => {
                    self.give_up_at_port(port, vif, packet, Reason::Codel, pool);
                    continue;
                }
                Served::Wait { .. } | Served::Idle => break,
            }
            found += 1;
        }
        let mut sum = 0u32;
        for (vif, packet, _) in &due[..found] {
            sum ^= self.slots.get(packet.id as usize).map_or(0, |slot| u32::from(slot.len));
            sum ^= self.vifs.get(*vif as usize).map_or(0, |state| state.sending);
            let counters = self.counters.get(self.ports.len() + *vif as usize);
            sum ^= u32::from(counters.is_some_and(|each| each[0].sent.packets == 1));
        }
        core::hint::black_box(sum);
        let mut count = 1;
        for (vif, packet, mark) in due.into_iter().take(found) {
            if let Some(frame) = self.leave_by_port(now, port, vif, packet, mark, pool) {
                out[count] = frame;
                count += 1;
            }
        }
        count
    }

    /// A frame of a vif leaves by its port.
    #[inline]
    fn leave_by_port<P: FramePool>(
        &mut self,
        now: Instant,
        port: u32,
        vif: u32,
        packet: Packet,
        mark: bool,
        pool: &mut P,
    ) -> Option<Frame> {
        let slot = *self.slots.get(packet.id as usize)?;
        let mut frame = slot.frame(packet.id);
        let at = vif as usize;
        let state = self.vifs.get(at).map(|state| (state.vlan, state.send_limited));
        let (wanted, limited) = state.unwrap_or((slot.vlan, false));
        if wanted != slot.vlan {
            let Some(retagged) = retag(pool, frame, slot.vlan, wanted) else {
                self.removed += 1;
                self.give_up_at_port(port, vif, packet, Reason::NoHeadroom, pool);
                return None;
            };
            frame = retagged;
        }
        self.queued = self.queued.saturating_sub(1);
        let counters = &mut self.counters[port as usize][Direction::Send as usize];
        counters.sent.add(slot.len);
        counters.marked += u64::from(mark);
        let Some(state) = self.vifs.get_mut(at) else { return Some(frame) };
        state.sending = state.sending.saturating_sub(1);
        let counters = self.vif_counters(at, Direction::Send);
        counters.sent.add(VifState::own_length(slot));
        counters.marked += u64::from(mark);
        if limited {
            self.charge_sender(now, at, packet.bytes(), TreeKind::Local);
            self.ports[port as usize].local_first = true;
        }
        if mark {
            mark_congestion(pool.data(frame));
        }
        Some(frame)
    }

    fn transmit_to_vif<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        pool: &mut P,
    ) -> Transmit {
        let port = self.vifs[vif].port;
        if self.vifs[vif].stage.is_empty() {
            self.advance_port(now, port, pool);
        }
        let Some((slot, frame)) = self.unstage(vif) else {
            return self.wait_of_vif(port);
        };
        self.queued = self.queued.saturating_sub(1);
        let state = &mut self.vifs[vif];
        state.receiving = state.receiving.saturating_sub(1);
        if state.tapped {
            self.capture(now, vif, Direction::Receive, pool.data(frame));
        }
        self.vif_counters(vif, Direction::Receive).sent.add(slot.len);
        Transmit::Frame(frame)
    }

    /// The earlier wait of the two trees that feed a vif.
    fn wait_of_vif(&self, port: u32) -> Transmit {
        let receive = &self.trees[tree_index(port, TreeKind::Receive)];
        let local = &self.trees[tree_index(port, TreeKind::Local)];
        let first = if receive.next() <= local.next() { receive } else { local };
        match first.waiting() {
            Served::Wait { until, why } => Transmit::Wait { until, why },
            _ => Transmit::Idle,
        }
    }

    fn advance_port<P: FramePool>(&mut self, now: Instant, port: u32, pool: &mut P) {
        let tree = tree_index(port, TreeKind::Receive);
        while self.trees[tree].next() <= now {
            match self.trees[tree].dequeue(now) {
                Served::Send { vif, packet, mark } => {
                    self.reach_vif(now, vif as usize, packet, mark, pool);
                }
                Served::Dropped { vif, packet } => {
                    self.give_up(vif as usize, Direction::Receive, packet, Reason::Codel, pool);
                }
                Served::Wait { .. } | Served::Idle => break,
            }
        }
        self.advance_local(now, port, LOCAL_BATCH, pool);
        self.release_paced(now, pool);
    }

    /// Moves local frames to the vifs they are for; how many.
    fn advance_local<P: FramePool>(
        &mut self,
        now: Instant,
        port: u32,
        most: usize,
        pool: &mut P,
    ) -> usize {
        let tree = tree_index(port, TreeKind::Local);
        for moved in 0..most {
            if self.trees[tree].next() > now {
                return moved;
            }
            match self.trees[tree].dequeue(now) {
                Served::Send { vif, packet, mark } => {
                    self.cross(now, vif as usize, packet, mark, pool);
                }
                Served::Dropped { vif, packet } => {
                    self.give_up_local(vif as usize, packet, pool);
                }
                Served::Wait { .. } | Served::Idle => return moved,
            }
        }
        most
    }

    /// A frame from a port has been scheduled for a vif.
    fn reach_vif<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        packet: Packet,
        mark: bool,
        pool: &mut P,
    ) {
        let Some(state) = self.vifs.get(vif) else { return self.lose(packet, pool) };
        let (limited, chain) = (state.receive_limited, state.receive_chain);
        let port = state.port;
        if limited {
            if self.ports[port as usize].nested {
                self.police.charge_bytes(now, chain, packet.bytes());
            }
            self.charge_receiver(now, vif, packet.bytes(), false);
        }
        self.mark(vif, Direction::Receive, packet, mark, pool);
        self.hand_on(now, port, vif, packet.id, pool);
    }

    /// A frame of one vif has been scheduled for another.
    fn cross<P: FramePool>(
        &mut self,
        now: Instant,
        from: usize,
        packet: Packet,
        mark: bool,
        pool: &mut P,
    ) {
        let slot = self.slots.get(packet.id as usize).copied().unwrap_or(Slot::EMPTY);
        let link = self.links.get_mut(packet.id as usize);
        let to = link.map_or(NO_VIF, |link| core::mem::replace(&mut link.to, NO_VIF)) as usize;
        if from >= self.vifs.len() {
            return self.lose(packet, pool);
        }
        if to >= self.vifs.len() {
            // The receiver was taken away by a change of policy.
            self.removed += 1;
            return self.give_up(from, Direction::Send, packet, Reason::Removed, pool);
        }
        // Until it crosses it takes room of its sender alone, so that a sender's backlog takes
        // nothing from what others may send here. It has its place in the pool already.
        if let Err(reason) = self.check_receive_room(to, self.queued.saturating_sub(1)) {
            let counters = self.vif_counters(to, Direction::Receive);
            counters.received.add(slot.len);
            counters.drop(reason, slot.len);
            return self.give_up(from, Direction::Send, packet, Reason::RefusedByReceiver, pool);
        }
        let sender = &mut self.vifs[from];
        sender.sending = sender.sending.saturating_sub(1);
        let limited = sender.send_limited;
        if limited {
            self.charge_sender(now, from, packet.bytes(), TreeKind::Send);
        }
        if self.vifs[to].receive_limited {
            self.charge_receiver(now, to, packet.bytes(), true);
        }
        self.vif_counters(from, Direction::Send).sent.add(slot.len);
        self.mark(from, Direction::Send, packet, mark, pool);
        let counters = self.vif_counters(to, Direction::Receive);
        counters.received.add(slot.len);
        counters.enqueued.add(slot.len);
        self.vifs[to].receiving += 1;
        let iface = self.vifs[from].source.iface;
        self.hand_on(now, iface, to, packet.id, pool);
    }

    /// Charges what a vif sent through one tree to the others that share its limits.
    fn charge_sender(&mut self, now: Instant, vif: usize, bytes: u32, other: TreeKind) {
        let state = &self.vifs[vif];
        let class = if other == TreeKind::Send { state.send } else { state.local };
        let (start, end) = state.send_charges;
        self.trees[tree_index(state.port, other)].charge(now, class, bytes);
        self.charge_range(now, start, end, bytes);
    }

    /// Charges what a vif was given to the other trees that share its limits; `local`: to that of
    /// its own port too.
    fn charge_receiver(&mut self, now: Instant, vif: usize, bytes: u32, local: bool) {
        let state = &self.vifs[vif];
        let (start, end) = state.receive_charges;
        if local {
            let tree = tree_index(state.port, TreeKind::Receive);
            self.trees[tree].charge(now, state.receive, bytes);
        }
        self.charge_range(now, start, end, bytes);
    }

    fn charge_range(&mut self, now: Instant, start: u32, end: u32, bytes: u32) {
        for (tree, class) in self.charges.get(start as usize..end as usize).unwrap_or(&[]) {
            if let Some(tree) = self.trees.get_mut(*tree as usize) {
                tree.charge(now, *class, bytes);
            }
        }
    }

    /// Marks a frame, if asked to.
    fn mark<P: FramePool>(
        &mut self,
        vif: usize,
        direction: Direction,
        packet: Packet,
        mark: bool,
        pool: &mut P,
    ) {
        if mark {
            self.vif_counters(vif, direction).marked += 1;
            if let Some(slot) = self.slots.get(packet.id as usize) {
                mark_congestion(pool.data(slot.frame(packet.id)));
            }
        }
    }

    /// Appends a frame to those that wait for a vif's device.
    pub(crate) fn stage(&mut self, vif: usize, id: u32) {
        let Stage { head, tail } = self.vifs[vif].stage;
        if let Some(last) = self.links.get_mut(tail as usize).filter(|_| head != NO_FRAME) {
            last.next = id;
        }
        let head = if head == NO_FRAME { id } else { head };
        self.vifs[vif].stage = Stage { head, tail: id };
        if let Some(word) = self.ready.get_mut(vif / 64) {
            *word |= 1 << (vif % 64);
        }
    }

    /// Takes the first of them.
    fn unstage(&mut self, vif: usize) -> Option<(Slot, Frame)> {
        let Stage { head, tail } = self.vifs[vif].stage;
        let slot = *self.slots.get(head as usize)?;
        if head == tail {
            self.vifs[vif].stage = Stage::EMPTY;
            if let Some(word) = self.ready.get_mut(vif / 64) {
                *word &= !(1 << (vif % 64));
            }
        } else {
            self.vifs[vif].stage.head =
                self.links.get(head as usize).map_or(NO_FRAME, |link| link.next);
        }
        Some((slot, slot.frame(head)))
    }

    /// A frame that was queued for a vif's port is given up.
    fn give_up_at_port<P: FramePool>(
        &mut self,
        port: u32,
        vif: u32,
        packet: Packet,
        reason: Reason,
        pool: &mut P,
    ) {
        let slot = self.slots.get(packet.id as usize).copied().unwrap_or(Slot::EMPTY);
        let counters = &mut self.counters[port as usize][Direction::Send as usize];
        counters.drop_after(reason, slot.len);
        self.give_up(vif as usize, Direction::Send, packet, reason, pool);
    }

    pub(crate) fn give_up<P: FramePool>(
        &mut self,
        vif: usize,
        direction: Direction,
        packet: Packet,
        reason: Reason,
        pool: &mut P,
    ) {
        let slot = self.slots.get(packet.id as usize).copied().unwrap_or(Slot::EMPTY);
        if let Some(state) = self.vifs.get_mut(vif) {
            let held = match direction {
                Direction::Send => &mut state.sending,
                Direction::Receive => &mut state.receiving,
            };
            *held = held.saturating_sub(1);
            let bytes = VifState::own_length(slot);
            self.vif_counters(vif, direction).drop_after(reason, bytes);
        }
        self.queued = self.queued.saturating_sub(1);
        pool.free(packet.id);
    }

    fn give_up_local<P: FramePool>(&mut self, from: usize, packet: Packet, pool: &mut P) {
        if let Some(link) = self.links.get_mut(packet.id as usize) {
            link.to = NO_VIF;
        }
        self.give_up(from, Direction::Send, packet, Reason::Codel, pool);
    }

    /// A packet whose vif does not exist: cannot be, and is not worth a panic.
    fn lose<P: FramePool>(&mut self, packet: Packet, pool: &mut P) {
        debug_assert!(false, "a class without a vif");
        self.queued = self.queued.saturating_sub(1);
        self.removed += 1;
        pool.free(packet.id);
    }
}

/// Gives a frame that was queued before a change of policy the tag that its slice has now. `None`
/// if it has no room for one: better lost than seen by another slice.
#[cold]
fn retag<P: FramePool>(pool: &mut P, frame: Frame, has: u16, wanted: u16) -> Option<Frame> {
    let bare = if has == 0 { frame } else { vlan::pop(pool, frame).ok()? };
    if wanted == 0 { Some(bare) } else { vlan::push(pool, bare, wanted).ok() }
}

/// Frames of one pass of [`Switch::transmit_batch`]: their lines fit the first cache.
const TRANSMIT_BATCH: usize = 32;
/// Local frames that one call moves on a port: a burst between two vifs does not keep the worker
/// from its ports for more than some microseconds.
pub(crate) const LOCAL_BATCH: usize = 64;
