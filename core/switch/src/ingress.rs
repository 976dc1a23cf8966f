// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way in: what frames from ports and from vifs have in common.

use weir_policy::Direction;
use weir_sched::Packet;
use weir_units::Instant;

use crate::filter;
use crate::frame::{Ethernet, is_group};
use crate::police::Measure;
use crate::pool::{Frame, FramePool};
use crate::reason::Reason;
use crate::state::{Slot, tree_index};
use crate::switch::Switch;
use crate::tree::TreeKind;
use crate::types::IfaceId;

/// A frame that passed the checks of its interface, untagged.
#[derive(Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) frame: Frame,
    pub(crate) ethernet: Ethernet,
    pub(crate) ecn: bool,
    /// Length on the wire that it came from, tag included.
    pub(crate) wire: u16,
}

impl Switch {
    /// Takes ownership of a frame that arrived from an interface: it ends in a queue, or back in
    /// the pool and counted with a reason.
    pub fn receive<P: FramePool>(
        &mut self,
        now: Instant,
        from: IfaceId,
        frame: Frame,
        pool: &mut P,
    ) {
        if frame.id as usize >= self.slots.len() {
            self.refuse_foreign(from, frame, pool);
        } else if let Some(vif) = self.vif_of(from) {
            self.receive_from_vif(now, vif, frame, pool);
        } else if (from.0 as usize) < self.ports.len() {
            self.receive_from_port(now, from.0, frame, pool);
        } else {
            self.refuse_foreign(from, frame, pool);
        }
    }

    /// [`Switch::receive`] for many frames of one interface: headers are fetched ahead, so that
    /// waits for memory overlap. Best with 16 to 64 frames.
    pub fn receive_batch<P: FramePool>(
        &mut self,
        now: Instant,
        from: IfaceId,
        frames: &[Frame],
        pool: &mut P,
    ) {
        self.fetch(now, frames.iter().map(|frame| (from, *frame)), pool);
        for frame in frames {
            self.receive(now, from, *frame, pool);
        }
    }

    /// [`Switch::receive_batch`] for frames of several interfaces, such as vifs with few frames
    /// each.
    pub fn receive_burst<P: FramePool>(
        &mut self,
        now: Instant,
        frames: &[(IfaceId, Frame)],
        pool: &mut P,
    ) {
        self.fetch(now, frames.iter().copied(), pool);
        for (from, frame) in frames {
            self.receive(now, *from, *frame, pool);
        }
    }

    /// Reads, for all frames at once, what each will need: its header first, then what the header
    /// leads to. Within a pass the loads do not depend on each other, so the core waits for them
    /// together. Queues are only asked for: nothing that is found here depends on them.
    fn fetch<P: FramePool>(
        &self,
        now: Instant,
        frames: impl Iterator<Item = (IfaceId, Frame)> + Clone,
        pool: &mut P,
    ) {
        let mut sum = 0u32;
        for (_, frame) in frames.clone() {
            sum ^= u32::from(pool.data(frame).first().copied().unwrap_or(0));
        }
        core::hint::black_box(sum);
        for (from, frame) in frames {
            sum ^= self.slots.get(frame.id as usize).map_or(0, |slot| u32::from(slot.len));
            sum ^= match self.vif_of(from) {
                Some(vif) => self.fetch_sender(now, vif, frame, pool),
                None => self.fetch_receiver(now, from.0, frame, pool),
            };
        }
        core::hint::black_box(sum);
    }

    /// What a frame from a vif needs.
    #[inline]
    fn fetch_sender<P: FramePool>(
        &self,
        now: Instant,
        vif: usize,
        frame: Frame,
        pool: &mut P,
    ) -> u32 {
        let Ok(ethernet) = Ethernet::read(pool.data(frame)) else { return 0 };
        let state = &self.vifs[vif];
        let known = match state.last_source == ethernet.source {
            true => None,
            false => self.fdb.lookup(now, state.domain, ethernet.source),
        };
        let counted = self.counters[self.ports.len() + vif][0].received.packets;
        self.trees[tree_index(state.port, TreeKind::Send)].touch(state.send);
        u32::from(counted == 1) ^ known.unwrap_or(0)
    }

    /// What a frame from a port needs.
    #[inline]
    fn fetch_receiver<P: FramePool>(
        &self,
        now: Instant,
        port: u32,
        frame: Frame,
        pool: &mut P,
    ) -> u32 {
        let Some(state) = self.ports.get(port as usize) else { return 0 };
        let Ok(ethernet) = Ethernet::read(pool.data(frame)) else { return 0 };
        let domain = state.domains.get(usize::from(ethernet.vlan.unwrap_or(0)));
        let iface = domain.and_then(|domain| self.fdb.lookup(now, *domain, ethernet.destination));
        let Some(vif) = iface.and_then(|iface| self.vif_of(IfaceId(iface))) else { return 0 };
        let state = &self.vifs[vif];
        let counted = self.counters[self.ports.len() + vif][1].received.packets;
        self.trees[tree_index(state.port, TreeKind::Receive)].touch(state.receive);
        state.receiving ^ u32::from(counted == 1)
    }

    /// Whether a vif may be given a frame: its filter, its bounds, its policers.
    pub(crate) fn admit_receive<P: FramePool>(
        &mut self,
        now: Instant,
        to: usize,
        arrival: Arrival,
        measure: Measure,
        pool: &mut P,
    ) -> Result<(), Reason> {
        if self.vifs[to].has_filter {
            let rules = &self.policy.vifs[to].filter;
            let data = pool.data(arrival.frame);
            if !filter::passes(rules, Direction::Receive, data, &arrival.ethernet) {
                return Err(Reason::Filtered);
            }
        }
        self.check_receive_room(to, self.queued)?;
        self.police.admit(now, self.vifs[to].receive_chain, measure)
    }

    /// Whether one more frame may be held towards a vif, where `queued` others are held in all.
    pub(crate) fn check_receive_room(&self, to: usize, queued: u32) -> Result<(), Reason> {
        let state = &self.vifs[to];
        if state.receiving >= state.receive_bound {
            return Err(Reason::QueuePackets);
        }
        if self.room.left(queued, state.receiving, state.receive_floor) == 0 {
            return Err(Reason::PoolShare);
        }
        Ok(())
    }

    /// A chunk beyond the table of slots, or an interface that does not exist.
    #[cold]
    fn refuse_foreign<P: FramePool>(&mut self, from: IfaceId, frame: Frame, pool: &mut P) {
        let direction =
            if self.vif_of(from).is_some() { Direction::Send } else { Direction::Receive };
        match self.counters.get_mut(from.0 as usize) {
            Some(counters) => {
                let bytes = u64::from(frame.len);
                counters[direction as usize].drop_many(Reason::Unknown, 1, bytes);
            }
            None => self.removed += 1,
        }
        pool.free(frame.id);
    }

    /// Notes where a queued frame lies.
    #[inline]
    pub(crate) fn hold(&mut self, frame: Frame, vlan: u16) {
        self.queued += 1;
        if let Some(slot) = self.slots.get_mut(frame.id as usize) {
            *slot = Slot { offset: frame.offset, len: frame.len, vlan };
        }
    }
}

/// What holds for every frame, wherever it came from.
#[inline]
pub(crate) fn check_ethernet(
    ethernet: &Ethernet,
    length: u16,
    length_max: u16,
) -> Result<(), Reason> {
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

#[inline]
pub(crate) fn packet(id: u32, bytes: u32, now: Instant, ecn: bool) -> Packet {
    let packet = Packet::new(id, bytes, now);
    if ecn { packet.ecn_capable() } else { packet }
}

/// A copy of a frame in a chunk of its own, if the pool has one.
pub(crate) fn copy<P: FramePool>(pool: &mut P, frame: Frame, chunks: usize) -> Option<Frame> {
    let id = pool.alloc()?;
    let copy = Frame { id, offset: pool.headroom(), len: frame.len };
    if (id as usize) < chunks && pool.copy(frame, copy) {
        return Some(copy);
    }
    pool.free(id);
    None
}

/// Where the payload of an untagged frame begins.
pub(crate) const UNTAGGED: usize = 14;
