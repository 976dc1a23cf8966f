// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way in: frames are handed in by interface, alone or in batches.
//!
//! A packet touches some ten cache lines that no other packet of the batch does, and each that is
//! missing costs as much as a hundred instructions. A batch is therefore read twice: first for all
//! loads, which do not depend on each other, so that memory answers them at the same time; then for
//! the work. (So do VPP's graph nodes, which process frames of up to 256 packets node by node.)

use weir_policy::Direction;
use weir_units::Instant;

use super::Switch;
use crate::flow_hash::flow_hash;
use crate::forwarding::Arrival;
use crate::frame::Ethernet;
use crate::police::PacketMeasure;
use crate::pool::{Frame, FramePool};
use crate::queues::{FlowLabel, QueueTraits};
use crate::reason::Reason;
use crate::types::IfaceId;

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
        if frame.id as usize >= self.queues.frames.chunks() {
            self.refuse_foreign(from, frame, pool);
        } else if let Some(vif) = self.ids.vif_of(from) {
            self.receive_from_vif(now, vif, frame, pool);
        } else if let Some(port) = self.ids.port_of(from) {
            self.receive_from_port(now, port, frame, pool);
        } else {
            self.refuse_foreign(from, frame, pool);
        }
    }

    /// Does [`Switch::receive`] for many frames of one interface: headers are fetched ahead, so
    /// that waits for memory overlap. Best with 16 to 64 frames.
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

    /// Does [`Switch::receive_batch`] for frames of several interfaces, such as vifs with few
    /// frames each.
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
    /// leads to. Queues are only prefetched, since no other load here depends on them.
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
            sum ^= u32::from(self.queues.frames.slot(frame.id).len);
            let Ok(ethernet) = Ethernet::read(pool.data(frame)) else { continue };
            sum ^= match self.ids.vif_of(from) {
                Some(vif) => self.fetch_sender(now, vif, &ethernet),
                None => self.fetch_receiver(now, from, &ethernet),
            };
        }
        core::hint::black_box(sum);
    }

    /// Reads what a frame from a vif needs.
    #[inline]
    fn fetch_sender(&self, now: Instant, vif: usize, ethernet: &Ethernet) -> u32 {
        let known = self.forwarding.fetch_from_vif(now, vif, ethernet);
        let counted = self.ledger.fetch(vif, Direction::Send);
        known ^ counted ^ self.queues.fetch(vif, Direction::Send)
    }

    /// Reads what a frame from a port needs.
    #[inline]
    fn fetch_receiver(&self, now: Instant, from: IfaceId, ethernet: &Ethernet) -> u32 {
        let Some(port) = self.ids.port_of(from) else { return 0 };
        let Some(vif) = self.forwarding.fetch_from_port(now, &self.ids, port, ethernet) else {
            return 0;
        };
        let counted = self.ledger.fetch(vif, Direction::Receive);
        counted ^ self.queues.fetch(vif, Direction::Receive)
    }

    /// Labels a frame for its queue. The flow is computed only where the queue tells flows apart.
    #[inline(always)]
    pub(super) fn label<P: FramePool>(
        &self,
        traits: QueueTraits,
        arrival: Arrival,
        pool: &mut P,
    ) -> FlowLabel {
        let flow = match traits.flows() {
            true => flow_hash(self.flow_seed, pool.data(arrival.frame), &arrival.ethernet),
            false => 0,
        };
        FlowLabel { ecn: arrival.ecn, flow, accepted: false }
    }

    /// Checks that a vif may be given a frame: its filter, its bounds, its policers.
    ///
    /// # Errors
    /// The reason to drop it.
    pub(super) fn admit_receive<P: FramePool>(
        &mut self,
        now: Instant,
        to: usize,
        arrival: Arrival,
        measure: PacketMeasure,
        pool: &mut P,
    ) -> Result<(), Reason> {
        if !self.forwarding.passes_to_vif(to, arrival, pool) {
            return Err(Reason::Filtered);
        }
        self.queues.check_receive_room(to, self.queues.queued())?;
        self.police.admit(now, to, Direction::Receive, measure)
    }

    /// Makes a copy of a frame, if the pool has a chunk for it.
    pub(super) fn copy<P: FramePool>(&self, frame: Frame, pool: &mut P) -> Option<Frame> {
        let id = pool.alloc()?;
        let copy = Frame { id, offset: pool.headroom(), len: frame.len };
        if (id as usize) < self.queues.frames.chunks() && pool.copy(frame, copy) {
            return Some(copy);
        }
        pool.free(id);
        None
    }

    /// Refuses a chunk beyond the table of frames, or from an interface that does not exist.
    #[cold]
    fn refuse_foreign<P: FramePool>(&mut self, from: IfaceId, frame: Frame, pool: &mut P) {
        let is_vif = self.ids.vif_of(from).is_some();
        let direction = if is_vif { Direction::Send } else { Direction::Receive };
        match self.ids.slot_of(from) {
            Some(slot) => {
                let bytes = u64::from(frame.len);
                self.ledger.of(slot, direction).drop_many(Reason::Unknown, 1, bytes);
            }
            None => self.ledger.removed += 1,
        }
        pool.free(frame.id);
    }
}
