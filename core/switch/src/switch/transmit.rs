// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way out: the next frame of a port's tree, or of the frames that were scheduled for a vif.

use weir_policy::{Direction, PortId};
use weir_sched::{Packet, PhaseCounters, WaitReason};
use weir_units::Instant;

use super::Switch;
use crate::frame::mark_congestion;
use crate::ids::Ids;
use crate::ledger::Ledger;
use crate::pacer::Pacer;
use crate::pih::PortHeaders;
use crate::pool::{Frame, FramePool};
use crate::queues::Queues;
use crate::reason::Reason;
use crate::tree::{NO_VIF, Served, TreeKind};
use crate::types::{IfaceId, Transmit};

impl Switch {
    /// Returns the next frame for an interface, or exactly when and why to ask again. Called only
    /// while its device can take a frame: nothing is dropped after this. Early calls are harmless.
    pub fn transmit<P: FramePool>(&mut self, now: Instant, to: IfaceId, pool: &mut P) -> Transmit {
        if let Some(vif) = self.ids.vif_of(to) {
            return self.transmit_to_vif(now, vif, pool);
        }
        match self.ids.port_of(to) {
            Some(port) => self.transmit_to_port(now, port, pool),
            None => Transmit::Idle,
        }
    }

    /// Writes as many frames for an interface as are due now and fit into `out`; returns how many.
    /// Equals repeated calls of [`Switch::transmit`], but prefetches what all frames need at once.
    pub fn transmit_batch<P: FramePool>(
        &mut self,
        now: Instant,
        to: IfaceId,
        pool: &mut P,
        out: &mut [Frame],
    ) -> usize {
        let (mut count, port) = (0, self.ids.port_of(to));
        while count < out.len() {
            let before = count;
            if let Some(port) = port {
                count += self.transmit_some(now, port, pool, &mut out[count..]);
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
    /// The caller frees its chunk.
    pub fn account_refused(&mut self, to: IfaceId, frame: Frame) {
        let Some(slot) = self.ids.slot_of(to) else { return };
        let is_vif = self.ids.vif_of(to).is_some();
        let direction = if is_vif { Direction::Receive } else { Direction::Send };
        // As it was counted: a new tag came after that.
        let bytes = match (frame.id as usize) < self.queues.frames.chunks() {
            true => self.queues.frames.slot(frame.id).len,
            false => frame.len,
        };
        self.ledger.of(slot, direction).take_back(Reason::RefusedByPort, bytes);
    }

    /// Moves frames that are due from the trees of all ports to the vifs that they are for: see
    /// [`Switch::ready`]. Bounded, in local frames, to a batch a port.
    pub fn advance<P: FramePool>(&mut self, now: Instant, pool: &mut P) {
        self.release_smoothed(now, pool);
        for port in self.queues.port_numbers() {
            self.advance_port(now, port, pool);
        }
    }

    /// Returns the vifs with a frame that waits for nothing but their device, in order of their
    /// slots.
    pub fn ready(&self) -> impl Iterator<Item = IfaceId> + '_ {
        let mut from = 0;
        core::iter::from_fn(move || {
            let vif = self.queues.next_ready(from)?;
            from = vif + 1;
            Some(self.ids.iface(vif))
        })
    }

    /// Returns the next vif with a frame that waits for nothing but its device, from the slot of
    /// `from` on. For loops that transmit as they go.
    #[must_use]
    pub fn next_ready(&self, from: IfaceId) -> Option<IfaceId> {
        self.queues.next_ready(from.slot()).map(|vif| self.ids.iface(vif))
    }

    /// Returns when something is due: the lesser of [`Switch::next_scheduled`] and
    /// [`Switch::next_paced`].
    #[must_use]
    pub fn next_event(&self) -> Option<Instant> {
        self.next_beside(self.queues.next())
    }

    /// Does [`Switch::next_event`] for a caller that cannot send by some ports now: frames that
    /// wait to leave by these ports do not count. `full` has a bit for each such port, by its
    /// position.
    #[must_use]
    pub fn next_event_without(&self, full: u64) -> Option<Instant> {
        if full == 0 {
            return self.next_event();
        }
        let skips = |number| {
            let position = self.ids.ports.position(number);
            position.is_some_and(|at| full >> at & 1 == 1)
        };
        self.next_beside(self.queues.next_without(skips))
    }

    /// Returns the least of `trees`, the next release of a smooth window, and the next of a limit.
    fn next_beside(&self, trees: Instant) -> Option<Instant> {
        let next = trees.min(self.smoothing.next()).min(self.pacers.next());
        Some(next).filter(|next| *next < Instant::FAR_FUTURE)
    }

    /// Returns the least instant at which a tree may give a frame, or a shaper releases one to its
    /// tree. `None` if nothing waits in any. Frames that only wait for a vif's device are
    /// [`Switch::ready`], and have no instant. May change with every call of a method that takes
    /// `&mut self`.
    #[must_use]
    pub fn next_scheduled(&self) -> Option<Instant> {
        let next = self.queues.next().min(self.smoothing.next());
        Some(next).filter(|next| *next < Instant::FAR_FUTURE)
    }

    /// Returns when the next phase of a cycle begins that packets wait for; `None` if none wait for
    /// one. A caller that is late for it loses a part of the phase.
    #[must_use]
    pub fn next_phase(&self) -> Option<Instant> {
        Some(self.queues.next_phase()).filter(|next| *next < Instant::FAR_FUTURE)
    }

    /// Returns how punctually the phases of a port were served; `None` if it has no cycle.
    #[must_use]
    pub fn phase_counters(&self, port: PortId) -> Option<PhaseCounters> {
        self.policy.ports.get(port.0 as usize)?;
        self.queues.tree(self.ids.port(port), TreeKind::Send).phase_counters()
    }

    /// Returns the least instant at which a router's limit may let a frame pass, on its grid: a
    /// caller that looks a little later loses nothing. `None` if nothing waits for a limit.
    #[must_use]
    pub fn next_paced(&self) -> Option<Instant> {
        Some(self.pacers.next()).filter(|next| *next < Instant::FAR_FUTURE)
    }

    fn transmit_to_port<P: FramePool>(
        &mut self,
        now: Instant,
        port: u32,
        pool: &mut P,
    ) -> Transmit {
        self.release_smoothed(now, pool);
        if self.queues.port(port).local_first {
            let moved = self.advance_local(now, port, 1, pool);
            self.queues.set_local_first(port, moved == 0);
        }
        loop {
            match self.queues.dequeue(now, port, TreeKind::Send) {
                Served::Send { vif, packet, mark } => {
                    if let Some(frame) = self.leave_by_port(now, port, vif, packet, mark, pool) {
                        return Transmit::Frame(frame);
                    }
                }
                Served::Dropped { vif, packet } => {
                    self.give_up_at_port(port, vif, packet, Reason::Codel, pool);
                }
                waits @ (Served::Wait { .. } | Served::Idle) => {
                    // A frame that crossed to a vif in this loop may be due already.
                    self.release_smoothed(now, pool);
                    return self.wait_or_release(waits);
                }
            }
        }
    }

    /// Returns the earlier of a tree's wait and the next release of a smooth window.
    fn wait_or_release(&self, waits: Served) -> Transmit {
        let release = self.smoothing.next();
        match waits {
            Served::Wait { until, why } if until <= release => Transmit::Wait { until, why },
            _ if release < Instant::FAR_FUTURE => {
                Transmit::Wait { until: release, why: WaitReason::UpperLimit }
            }
            _ => Transmit::Idle,
        }
    }

    /// Writes frames for a port into `out`, up to [`TRANSMIT_BATCH`] and one; returns how many.
    fn transmit_some<P: FramePool>(
        &mut self,
        now: Instant,
        port: u32,
        pool: &mut P,
        out: &mut [Frame],
    ) -> usize {
        let Some(first) = out.first_mut() else { return 0 };
        // The first goes the common way, which minds local frames and drops by CoDel.
        let Transmit::Frame(frame) = self.transmit_to_port(now, port, pool) else { return 0 };
        *first = frame;
        let none = (NO_VIF, Packet::new(0, 0, now), false);
        let (mut due, mut found) = ([none; TRANSMIT_BATCH], 0);
        let room = (out.len() - 1).min(TRANSMIT_BATCH);
        while let Some(place) = due.get_mut(found).filter(|_| found < room) {
            match self.queues.dequeue(now, port, TreeKind::Send) {
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
            sum ^= u32::from(self.queues.frames.slot(packet.id).len);
            sum ^= self.queues.fetch_sent(*vif as usize);
            sum ^= self.ledger.fetch(*vif as usize, Direction::Send);
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

    /// Takes a frame of a vif out by its port; `None` if it has no room for the headers that it
    /// needs now.
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
        let at = vif as usize;
        debug_assert!(at < self.ids.interface_count(), "each class has a vif");
        let slot = self.queues.frames.slot(packet.id);
        let mut frame = slot.frame(packet.id);
        let state = self.queues.vif(at);
        let (limited, of_port) = (state.send_traits.limited(), state.port_slot());
        let wanted = self.queues.headers(state);
        if wanted != slot.headers {
            let Some(retagged) = retag(pool, frame, slot.headers, wanted) else {
                self.ledger.removed += 1;
                self.give_up_at_port(port, vif, packet, Reason::NoHeadroom, pool);
                return None;
            };
            frame = retagged;
        }
        self.queues.left_by_port(at);
        let counters = self.ledger.of(of_port, Direction::Send);
        counters.sent.add(slot.len);
        counters.marked += u64::from(mark);
        let counters = self.ledger.of(at, Direction::Send);
        counters.sent.add(slot.own_length());
        counters.marked += u64::from(mark);
        if limited {
            self.queues.charge_sender(now, at, packet.bytes(), TreeKind::Local);
            self.queues.set_local_first(port, true);
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
        let port = self.queues.port_of(vif);
        if !self.queues.is_ready(vif) {
            self.release_smoothed(now, pool);
            self.advance_port(now, port, pool);
            // A frame that crossed to this vif may be due already.
            self.release_smoothed(now, pool);
        }
        let Some((slot, frame)) = self.queues.deliver_ready(now, vif) else {
            return self.wait_of_vif(port);
        };
        if !self.taps.is_empty() {
            self.taps.note(now, self.ids.iface(vif), Direction::Receive, pool.data(frame));
        }
        self.ledger.of(vif, Direction::Receive).sent.add(slot.len);
        Transmit::Frame(frame)
    }

    /// Returns the earliest wait of the two trees that feed a vif and of the windows before them.
    fn wait_of_vif(&self, port: u32) -> Transmit {
        let receive = self.queues.tree(port, TreeKind::Receive);
        let local = self.queues.tree(port, TreeKind::Local);
        let first = if receive.next() <= local.next() { receive } else { local };
        self.wait_or_release(first.waiting())
    }

    fn advance_port<P: FramePool>(&mut self, now: Instant, port: u32, pool: &mut P) {
        while self.queues.tree(port, TreeKind::Receive).next() <= now {
            match self.queues.dequeue(now, port, TreeKind::Receive) {
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

    /// Moves up to `most` local frames to the vifs they are for; returns how many. It is called for
    /// each packet of any kind, and mostly no local frame is due.
    #[inline(always)]
    fn advance_local<P: FramePool>(
        &mut self,
        now: Instant,
        port: u32,
        most: usize,
        pool: &mut P,
    ) -> usize {
        match self.queues.tree(port, TreeKind::Local).next() > now {
            true => 0,
            false => self.advance_local_due(now, port, most, pool),
        }
    }

    #[inline(never)]
    fn advance_local_due<P: FramePool>(
        &mut self,
        now: Instant,
        port: u32,
        most: usize,
        pool: &mut P,
    ) -> usize {
        for moved in 0..most {
            if self.queues.tree(port, TreeKind::Local).next() > now {
                return moved;
            }
            match self.queues.dequeue(now, port, TreeKind::Local) {
                Served::Send { vif, packet, mark } => {
                    self.cross(now, vif as usize, packet, mark, pool);
                }
                Served::Dropped { vif, packet } => {
                    let _nowhere = self.queues.frames.take_destination(packet.id);
                    self.give_up(vif as usize, Direction::Send, packet, Reason::Codel, pool);
                }
                Served::Wait { .. } | Served::Idle => return moved,
            }
        }
        most
    }

    /// Passes a frame from a port to the vif for which it was scheduled.
    fn reach_vif<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        packet: Packet,
        mark: bool,
        pool: &mut P,
    ) {
        debug_assert!(vif < self.ids.interface_count(), "each class has a vif");
        let limited = self.queues.vif(vif).receive_traits.limited();
        let port = self.queues.port(self.queues.port_of(vif));
        let (nested, from) = (port.nested, self.ids.iface(port.slot as usize));
        if limited {
            if nested {
                self.police.charge_bytes(now, vif, Direction::Receive, packet.bytes());
            }
            self.queues.charge_receiver(now, vif, packet.bytes(), false);
        }
        self.mark(vif, Direction::Receive, packet, mark, pool);
        self.hand_on(now, from, vif, packet.id, pool);
    }

    /// Passes a frame of one vif to another vif, for which it was scheduled.
    fn cross<P: FramePool>(
        &mut self,
        now: Instant,
        from: usize,
        packet: Packet,
        mark: bool,
        pool: &mut P,
    ) {
        debug_assert!(from < self.ids.interface_count(), "each class has a vif");
        let bytes = self.queues.frames.slot(packet.id).len;
        let to = self.queues.frames.take_destination(packet.id);
        let Some(to) = self.ids.vif_of(to) else {
            // The receiver was taken away by a change of policy.
            self.ledger.removed += 1;
            return self.give_up(from, Direction::Send, packet, Reason::Removed, pool);
        };
        // Until a frame crosses, it takes room of its sender alone, so that a sender's backlog
        // takes no room from other senders to this vif. The frame has its place in the pool
        // already.
        let others = self.queues.queued().saturating_sub(1);
        let smoothed = self.smoothing.smooths(to, Direction::Receive);
        let admitted = self.queues.check_receive_room(to, others).and_then(|()| match smoothed {
            true => self.smooth_crossing(now, (from, to), packet),
            false => Ok(()),
        });
        if let Err(reason) = admitted {
            let counters = self.ledger.of(to, Direction::Receive);
            counters.received.add(bytes);
            counters.drop(reason, bytes);
            return self.give_up(from, Direction::Send, packet, Reason::RefusedByReceiver, pool);
        }
        self.queues.crossed(from, to);
        if self.queues.vif(from).send_traits.limited() {
            self.queues.charge_sender(now, from, packet.bytes(), TreeKind::Send);
        }
        if self.queues.vif(to).receive_traits.limited() {
            self.queues.charge_receiver(now, to, packet.bytes(), true);
        }
        self.ledger.of(from, Direction::Send).sent.add(bytes);
        self.mark(from, Direction::Send, packet, mark, pool);
        let counters = self.ledger.of(to, Direction::Receive);
        counters.received.add(bytes);
        counters.enqueued.add(bytes);
        if !smoothed {
            self.hand_on(now, self.ids.iface(from), to, packet.id, pool);
        }
    }

    /// Hands on a frame from an interface that was scheduled for a vif: it waits for the limit of
    /// the vif's router, or for the device alone.
    pub(super) fn hand_on<P: FramePool>(
        &mut self,
        now: Instant,
        from: IfaceId,
        vif: usize,
        id: u32,
        pool: &mut P,
    ) {
        if !self.pacers.paces(vif) {
            return self.queues.push_ready(vif, id);
        }
        self.queues.frames.set_destination(id, self.ids.iface(vif));
        let paced = self.pacers.push(now, (from, vif), id, self.queues.frames.links_mut());
        if let Some(id) = paced.given_up {
            // No vif is charged with a frame whose vif has left.
            let to = self.ids.vif_of(self.queues.frames.take_destination(id));
            let (to, packet) = (to.unwrap_or(usize::MAX), Packet::new(id, 0, now));
            self.give_up(to, Direction::Receive, packet, Reason::RouterPackets, pool);
        }
        if let Some(id) = paced.passes {
            let Self { ids, queues, ledger, .. } = self;
            let_pass(ids, queues, ledger, id, pool);
        }
    }

    /// Hands on the frames that the limits let pass by now.
    fn release_paced<P: FramePool>(&mut self, now: Instant, pool: &mut P) {
        if !self.pacers.is_due(now) {
            return;
        }
        let Self { ids, queues, ledger, pacers, .. } = self;
        pacers.release(now, queues, |queues, id| let_pass(ids, queues, ledger, id, pool));
    }

    /// Hands on all frames of a pacer whose limit is gone.
    pub(super) fn let_out<P: FramePool>(&mut self, mut pacer: Pacer, pool: &mut P) {
        let Self { ids, queues, ledger, .. } = self;
        while let Some(id) = pacer.take(queues.frames.links()) {
            let_pass(ids, queues, ledger, id, pool);
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
            self.ledger.of(vif, direction).marked += 1;
            mark_congestion(pool.data(self.queues.frames.slot(packet.id).frame(packet.id)));
        }
    }

    /// Gives up a frame that was queued for a vif's port.
    fn give_up_at_port<P: FramePool>(
        &mut self,
        port: u32,
        vif: u32,
        packet: Packet,
        reason: Reason,
        pool: &mut P,
    ) {
        let bytes = self.queues.frames.slot(packet.id).len;
        let of_port = self.queues.port(port).slot as usize;
        self.ledger.of(of_port, Direction::Send).drop_after(reason, bytes);
        self.give_up(vif as usize, Direction::Send, packet, reason, pool);
    }

    /// Gives up a frame that was queued on behalf of a vif, which may have left.
    pub(super) fn give_up<P: FramePool>(
        &mut self,
        vif: usize,
        direction: Direction,
        packet: Packet,
        reason: Reason,
        pool: &mut P,
    ) {
        if vif < self.ids.interface_count() {
            let bytes = self.queues.frames.slot(packet.id).own_length();
            self.ledger.of(vif, direction).drop_after(reason, bytes);
        }
        self.queues.given_up(vif, direction);
        pool.free(packet.id);
    }
}

/// Lets a frame pass that waited for a limit: it waits for its device alone from now on.
fn let_pass<P: FramePool>(
    ids: &Ids,
    queues: &mut Queues,
    ledger: &mut Ledger,
    id: u32,
    pool: &mut P,
) {
    let to = queues.frames.take_destination(id);
    if let Some(vif) = ids.vif_of(to) {
        return queues.push_ready(vif, id);
    }
    // Its vif was taken away by a change of policy.
    queues.forget();
    ledger.removed += 1;
    pool.free(id);
}

/// Gives a frame that was queued before a change of policy the headers that its slice has now.
/// `None` if it has no room for them: better lost than seen by another slice.
#[cold]
fn retag<P: FramePool>(
    pool: &mut P,
    frame: Frame,
    has: PortHeaders,
    wanted: PortHeaders,
) -> Option<Frame> {
    let bare = has.pop(pool, frame).ok()?;
    wanted.push(pool, bare).ok()
}

/// Frames of one pass of [`Switch::transmit_batch`]: their lines fit the first cache.
const TRANSMIT_BATCH: usize = 32;
/// Local frames that one call moves on a port: a burst between two vifs does not keep the worker
/// from its ports for more than some microseconds.
const LOCAL_BATCH: usize = 64;
