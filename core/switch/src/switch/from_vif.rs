// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames from a vif: to its port, to another vif of its slice, or to the port and all these vifs.

use weir_policy::Direction;
use weir_units::Instant;

use super::Switch;
use crate::forwarding::{Arrival, Destination};
use crate::frame::Ethernet;
use crate::police::PacketMeasure;
use crate::pool::{Frame, FramePool};
use crate::queues::FlowLabel;
use crate::reason::Reason;
use crate::smoothing::SmoothedRoute;
use crate::vlan;

impl Switch {
    pub(super) fn receive_from_vif<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        frame: Frame,
        pool: &mut P,
    ) {
        let data = pool.data(frame);
        if !self.taps.is_empty() {
            self.taps.note(now, self.ids.iface(vif), Direction::Send, data);
        }
        let ethernet = match Ethernet::read(data) {
            Ok(ethernet) => ethernet,
            Err(reason) => {
                self.ledger.of(vif, Direction::Send).received.add(frame.len);
                return self.refuse_sent(vif, (frame.id, frame.len), reason, pool);
            }
        };
        let tag = if ethernet.vlan.is_some() { vlan::TAG } else { 0 };
        let bytes = frame.len - tag;
        self.ledger.of(vif, Direction::Send).received.add(bytes);
        let mut arrival = Arrival { frame, ethernet, ecn: 0, wire: frame.len };
        let to = match self.admit_sent(now, vif, &mut arrival, bytes, pool) {
            Ok(to) => to,
            Err(reason) => return self.refuse_sent(vif, (frame.id, bytes), reason, pool),
        };
        match to {
            Destination::Port => self.send(now, vif, arrival, pool),
            Destination::Vif(to) => self.pass(now, vif, to, arrival, pool),
            Destination::Flood => {
                self.flood_from_vif(now, vif, arrival, pool);
                self.send(now, vif, arrival, pool);
            }
        }
    }

    /// Drops a frame that a vif sent and that was not queued. `bytes` is the length to count.
    pub(super) fn refuse_sent<P: FramePool>(
        &mut self,
        vif: usize,
        (frame, bytes): (u32, u16),
        reason: Reason,
        pool: &mut P,
    ) {
        self.ledger.of(vif, Direction::Send).drop(reason, bytes);
        pool.free(frame);
    }

    /// Admits a frame that a vif sent, of so many bytes without a tag, and returns its destination.
    ///
    /// # Errors
    /// The reason to drop it.
    #[inline(always)]
    fn admit_sent<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        arrival: &mut Arrival,
        bytes: u16,
        pool: &mut P,
    ) -> Result<Destination, Reason> {
        self.forwarding.admit_from_vif(now, vif, arrival, pool)?;
        let to = self.forwarding.route_from_vif(now, &self.ids, vif, &arrival.ethernet)?;
        self.police_send(now, vif, bytes)?;
        Ok(to)
    }

    fn police_send(&mut self, now: Instant, vif: usize, bytes: u16) -> Result<(), Reason> {
        let port = self.queues.port(self.queues.port_of(vif));
        let measure = match port.nested {
            true => PacketMeasure::Packets,
            false => PacketMeasure::PacketsAndBytes(port.accounting.bytes(bytes, 0)),
        };
        self.police.admit(now, vif, Direction::Send, measure)
    }

    /// Copies a frame for each other vif of the slice.
    fn flood_from_vif<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        arrival: Arrival,
        pool: &mut P,
    ) {
        let mut member = 0;
        while let Some((to, next)) = self.forwarding.next_from_vif(vif, member) {
            member = next;
            let copied = self.copy(arrival.frame, pool);
            let counters = self.ledger.of(vif, Direction::Send);
            counters.copies.add(arrival.frame.len);
            match copied {
                Some(frame) => self.pass(now, vif, to, Arrival { frame, ..arrival }, pool),
                None => counters.drop(Reason::PoolExhausted, arrival.frame.len),
            }
        }
    }

    /// Queues a frame of a vif for its port.
    fn send<P: FramePool>(&mut self, now: Instant, vif: usize, arrival: Arrival, pool: &mut P) {
        if self.smoothing.smooths(vif, Direction::Send) {
            return self.smooth_sent(now, vif, arrival, SmoothedRoute::Port, pool);
        }
        let bytes = arrival.frame.len;
        let label = self.label(self.queues.vif(vif).send_traits, arrival, pool);
        match self.queues.queue_for_port(now, vif, (arrival.frame, label), pool) {
            Ok((wire, port)) => {
                self.ledger.of(vif, Direction::Send).enqueued.add(bytes);
                let counters = self.ledger.of(port, Direction::Send);
                counters.received.add(wire);
                counters.enqueued.add(wire);
            }
            Err(reason) => self.refuse_sent(vif, (arrival.frame.id, bytes), reason, pool),
        }
    }

    /// Passes a frame from one vif of a bridge to another.
    fn pass<P: FramePool>(
        &mut self,
        now: Instant,
        from: usize,
        to: usize,
        arrival: Arrival,
        pool: &mut P,
    ) {
        if self.smoothing.smooths(from, Direction::Send) {
            let route = SmoothedRoute::Vif(self.ids.iface(to));
            return self.smooth_sent(now, from, arrival, route, pool);
        }
        let Frame { id, len, .. } = arrival.frame;
        match self.try_pass(now, (from, to), arrival, false, pool) {
            Ok(()) => self.ledger.of(from, Direction::Send).enqueued.add(len),
            Err(reason) => self.refuse_sent(from, (id, len), reason, pool),
        }
    }

    /// Queues a frame of one vif for another. `accepted` is set if a stage before the trees has
    /// taken the frame, so that only its receiver may refuse it.
    ///
    /// # Errors
    /// The bound that it would break.
    pub(super) fn try_pass<P: FramePool>(
        &mut self,
        now: Instant,
        (from, to): (usize, usize),
        arrival: Arrival,
        accepted: bool,
        pool: &mut P,
    ) -> Result<(), Reason> {
        let bytes = arrival.frame.len;
        let accounting = self.queues.port(self.queues.port_of(from)).accounting;
        let accounted = accounting.bytes(bytes, 0);
        // The sender's own bounds are checked first, so that a refusal by them costs the receiver
        // nothing.
        if !accepted {
            self.queues.check_local_room(from)?;
        }
        let measure = PacketMeasure::PacketsAndBytes(accounted);
        if let Err(reason) = self.admit_receive(now, to, arrival, measure, pool) {
            let counters = self.ledger.of(to, Direction::Receive);
            counters.received.add(bytes);
            counters.drop(reason, bytes);
            return Err(Reason::RefusedByReceiver);
        }
        let ways = (from, self.ids.iface(to));
        let label = self.label(self.queues.vif(from).send_traits, arrival, pool);
        let label = FlowLabel { accepted, ..label };
        self.queues.queue_local(now, ways, (arrival.frame, label), accounted)
    }
}
