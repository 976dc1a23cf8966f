// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames from a port: to the vif that they are for, or to all of their bridge.

use weir_policy::Direction;
use weir_units::Instant;

use super::Switch;
use crate::forwarding::{Arrival, MemberPlace, PortBridges};
use crate::police::PacketMeasure;
use crate::pool::{Frame, FramePool};
use crate::reason::Reason;
use crate::smoothing::{SmoothedFrame, SmoothedRoute};

impl Switch {
    pub(super) fn receive_from_port<P: FramePool>(
        &mut self,
        now: Instant,
        port: u32,
        frame: Frame,
        pool: &mut P,
    ) {
        let slot = self.queues.port(port).slot as usize;
        self.ledger.of(slot, Direction::Receive).received.add(frame.len);
        let admitted = self.forwarding.admit_from_port(port, frame, pool);
        let found = admitted.and_then(|(arrival, bridges)| {
            let place = (port, bridges);
            if !self.forwarding.learn_from_port(now, place, &arrival.ethernet)? {
                self.ledger.of(slot, Direction::Receive).unlearned += 1;
            }
            let to = self.forwarding.route_from_port(now, &self.ids, bridges, &arrival.ethernet)?;
            Ok((arrival, bridges, to))
        });
        match found {
            Ok((arrival, _, Some(to))) => {
                self.count_forwarded(slot, arrival.wire);
                self.deliver(now, to, arrival, pool);
            }
            Ok((arrival, bridges, None)) => {
                let place = (port, bridges);
                let bridges = self.forwarding.narrowed(now, &self.ids, place, &arrival.ethernet);
                self.flood_from_port(now, (port, bridges), arrival, pool);
            }
            Err(reason) => self.drop_at_port(slot, reason, frame, pool),
        }
    }

    /// Copies a frame for each vif of its bridges that may want it.
    fn flood_from_port<P: FramePool>(
        &mut self,
        now: Instant,
        place: (u32, PortBridges),
        arrival: Arrival,
        pool: &mut P,
    ) {
        let slot = self.queues.port(place.0).slot as usize;
        let (mut count, mut member) = (0, MemberPlace::default());
        while let Some((_, next)) = self.next_from_port(now, place, &arrival, member) {
            (count, member) = (count + 1, next);
        }
        // The port counted the frame with its headers, which are gone by now.
        let arrived = Frame { len: arrival.wire, ..arrival.frame };
        if count == 0 {
            return self.drop_at_port(slot, Reason::NoDestination, arrived, pool);
        }
        if !self.forwarding.admit_flood(now, slot, count) {
            return self.drop_at_port(slot, Reason::Storm, arrived, pool);
        }
        self.count_forwarded(slot, arrival.wire);
        let (mut last, mut member) = (None, MemberPlace::default());
        while let Some((vif, next)) = self.next_from_port(now, place, &arrival, member) {
            member = next;
            let Some(to) = last.replace(vif) else { continue };
            let copied = self.copy(arrival.frame, pool);
            let counters = self.ledger.of(slot, Direction::Receive);
            counters.copies.add(arrival.wire);
            if let Some(frame) = copied {
                self.count_forwarded(slot, arrival.wire);
                self.deliver(now, to, Arrival { frame, ..arrival }, pool);
            } else {
                counters.drop(Reason::PoolExhausted, arrival.wire);
            }
        }
        if let Some(to) = last {
            self.deliver(now, to, arrival, pool);
        }
    }

    fn next_from_port(
        &self,
        now: Instant,
        place: (u32, PortBridges),
        arrival: &Arrival,
        member: MemberPlace,
    ) -> Option<(usize, MemberPlace)> {
        self.forwarding.next_from_port((now, &self.ids), place, &arrival.ethernet, member)
    }

    /// Queues a frame from a port for a vif.
    fn deliver<P: FramePool>(&mut self, now: Instant, to: usize, arrival: Arrival, pool: &mut P) {
        let bytes = arrival.frame.len;
        self.ledger.of(to, Direction::Receive).received.add(bytes);
        match self.try_deliver(now, to, arrival, pool) {
            Ok(()) => self.ledger.of(to, Direction::Receive).enqueued.add(bytes),
            Err(reason) => {
                self.ledger.of(to, Direction::Receive).drop(reason, bytes);
                pool.free(arrival.frame.id);
            }
        }
    }

    fn try_deliver<P: FramePool>(
        &mut self,
        now: Instant,
        to: usize,
        arrival: Arrival,
        pool: &mut P,
    ) -> Result<(), Reason> {
        let port = self.queues.port(self.queues.port_of(to));
        let headers = arrival.wire - arrival.frame.len;
        let accounted = port.accounting.bytes(arrival.wire, headers);
        let measure = match port.nested {
            true => PacketMeasure::Packets,
            false => PacketMeasure::PacketsAndBytes(accounted),
        };
        if self.smoothing.smooths(to, Direction::Receive) {
            self.admit_receive(now, to, arrival, measure, pool)?;
            let frame = (arrival.frame, arrival.ecn);
            let frame = SmoothedFrame::new(now, frame, SmoothedRoute::Port, accounted);
            return self.smooth(now, (to, Direction::Receive), frame);
        }
        self.queues.check_receive_queue(to)?;
        self.admit_receive(now, to, arrival, measure, pool)?;
        let label = self.label(self.queues.vif(to).receive_traits, arrival, pool);
        self.queues.queue_for_vif(now, to, (arrival.frame, label), (accounted, now))
    }

    fn count_forwarded(&mut self, slot: usize, wire: u16) {
        let counters = self.ledger.of(slot, Direction::Receive);
        counters.enqueued.add(wire);
        counters.sent.add(wire);
    }

    fn drop_at_port<P: FramePool>(
        &mut self,
        slot: usize,
        reason: Reason,
        frame: Frame,
        pool: &mut P,
    ) {
        self.ledger.of(slot, Direction::Receive).drop(reason, frame.len);
        pool.free(frame.id);
    }
}
