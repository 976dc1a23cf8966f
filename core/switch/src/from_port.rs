// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames from a port: to the vif that they are for, or to all of their VLAN.

use weir_policy::Direction;
use weir_units::Instant;

use crate::checksum;
use crate::fdb::Source;
use crate::frame::Ethernet;
use crate::ingress::{Arrival, UNTAGGED, check_ethernet, copy, packet};
use crate::police::Measure;
use crate::pool::{Frame, FramePool};
use crate::reason::Reason;
use crate::state::{NO_DOMAIN, tree_index};
use crate::switch::Switch;
use crate::tree::TreeKind;
use crate::types::IfaceId;
use crate::vlan;

impl Switch {
    pub(crate) fn receive_from_port<P: FramePool>(
        &mut self,
        now: Instant,
        port: u32,
        frame: Frame,
        pool: &mut P,
    ) {
        let counters = &mut self.counters[port as usize][Direction::Receive as usize];
        counters.received.add(frame.len);
        let found = self.admit_from_port(now, port, frame, pool).and_then(|(arrival, domain)| {
            let to = self.target(now, domain, &arrival.ethernet)?;
            Ok((arrival, domain, to))
        });
        match found {
            Ok((arrival, _, Some(to))) => {
                self.count_forwarded(port, arrival.wire);
                self.deliver(now, to, arrival, pool);
            }
            Ok((arrival, domain, None)) => self.flood_from_port(now, port, domain, arrival, pool),
            Err(reason) => self.drop_at_port(port, reason, frame, pool),
        }
    }

    fn admit_from_port<P: FramePool>(
        &mut self,
        now: Instant,
        port: u32,
        frame: Frame,
        pool: &mut P,
    ) -> Result<(Arrival, u16), Reason> {
        let data = pool.data(frame);
        let mut ethernet = Ethernet::read(data)?;
        let state = &self.ports[port as usize];
        let tag = ethernet.vlan.unwrap_or(0);
        let domain = state.domains.get(usize::from(tag)).copied().unwrap_or(NO_DOMAIN);
        if domain == NO_DOMAIN {
            return Err(Reason::UnknownVlan);
        }
        let tagged = ethernet.vlan.is_some();
        let untagged = if tagged { frame.len - vlan::TAG } else { frame.len };
        check_ethernet(&ethernet, untagged, self.length_max)?;
        if state.completes {
            checksum::complete(data, &ethernet);
        }
        let ecn = ethernet.ecn(data) != 0;
        let source = Source { iface: port, port: true, fixed: false };
        match self.fdb.learn(now, domain, ethernet.source, source) {
            // A full table only means that frames to this address are flooded.
            Ok(()) | Err(Reason::MacsFull) => {}
            Err(reason) => return Err(reason),
        }
        let wire = frame.len;
        let mut frame = frame;
        if tagged {
            frame = vlan::pop(pool, frame)?;
            (ethernet.vlan, ethernet.payload) = (None, UNTAGGED);
        }
        Ok((Arrival { frame, ethernet, ecn, wire }, domain))
    }

    /// The one vif that a frame from a port is for; `None`: flood it.
    #[inline]
    fn target(
        &self,
        now: Instant,
        domain: u16,
        ethernet: &Ethernet,
    ) -> Result<Option<usize>, Reason> {
        if ethernet.is_group() {
            return Ok(None);
        }
        match self.fdb.lookup(now, domain, ethernet.destination) {
            None => Ok(None),
            // Known behind the port that it came from: someone else's traffic.
            Some(iface) => self.vif_of(IfaceId(iface)).map(Some).ok_or(Reason::NoDestination),
        }
    }

    /// Copies a frame for each vif of its domain that may want it.
    fn flood_from_port<P: FramePool>(
        &mut self,
        now: Instant,
        port: u32,
        domain: u16,
        arrival: Arrival,
        pool: &mut P,
    ) {
        let group = arrival.ethernet.is_group();
        let domain = usize::from(domain);
        let members = self.domains.get(domain).map_or(0, |domain| domain.members.len());
        // All addresses of a vif whose addresses are given are known: unknown ones are not its.
        let wants = |switch: &Self, member: usize| {
            let vif = switch.domains[domain].members[member] as usize;
            (group || !switch.vifs[vif].source.fixed).then_some(vif)
        };
        let count = (0..members).filter(|member| wants(self, *member).is_some()).count();
        // The port counted it with its tag, which is gone by now.
        let arrived = Frame { len: arrival.wire, ..arrival.frame };
        if count == 0 {
            return self.drop_at_port(port, Reason::NoDestination, arrived, pool);
        }
        if !self.storms[port as usize].admit(now, count as u64) {
            return self.drop_at_port(port, Reason::Storm, arrived, pool);
        }
        self.count_forwarded(port, arrival.wire);
        let mut last = None;
        for member in 0..members {
            let Some(vif) = wants(self, member) else { continue };
            // The last one gets the frame itself.
            let Some(to) = last.replace(vif) else { continue };
            let counters = &mut self.counters[port as usize][Direction::Receive as usize];
            counters.copies.add(arrival.wire);
            if let Some(frame) = copy(pool, arrival.frame, self.slots.len()) {
                self.count_forwarded(port, arrival.wire);
                self.deliver(now, to, Arrival { frame, ..arrival }, pool);
            } else {
                counters.drop(Reason::PoolExhausted, arrival.wire);
            }
        }
        if let Some(to) = last {
            self.deliver(now, to, arrival, pool);
        }
    }

    /// Queues a frame from a port for a vif.
    fn deliver<P: FramePool>(&mut self, now: Instant, to: usize, arrival: Arrival, pool: &mut P) {
        let bytes = arrival.frame.len;
        self.vif_counters(to, Direction::Receive).received.add(bytes);
        match self.try_deliver(now, to, arrival, pool) {
            Ok(()) => self.vif_counters(to, Direction::Receive).enqueued.add(bytes),
            Err(reason) => {
                self.vif_counters(to, Direction::Receive).drop(reason, bytes);
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
        let (port, class) = (self.vifs[to].port, self.vifs[to].receive);
        let state = &self.ports[port as usize];
        let tagged = arrival.wire != arrival.frame.len;
        let accounted = state.accounting.bytes(arrival.wire, tagged);
        let tree = tree_index(port, TreeKind::Receive);
        let measure =
            if state.nested { Measure::Packets } else { Measure::PacketsAndBytes(accounted) };
        if self.trees[tree].room(class) == 0 {
            return Err(Reason::QueuePackets);
        }
        self.admit_receive(now, to, arrival, measure, pool)?;
        let packet = packet(arrival.frame.id, accounted, now, arrival.ecn);
        self.trees[tree].enqueue(now, class, packet)?;
        self.hold(arrival.frame, 0);
        self.vifs[to].receiving += 1;
        Ok(())
    }

    fn count_forwarded(&mut self, port: u32, wire: u16) {
        let counters = &mut self.counters[port as usize][Direction::Receive as usize];
        counters.enqueued.add(wire);
        counters.sent.add(wire);
    }

    fn drop_at_port<P: FramePool>(
        &mut self,
        port: u32,
        reason: Reason,
        frame: Frame,
        pool: &mut P,
    ) {
        let counters = &mut self.counters[port as usize][Direction::Receive as usize];
        counters.drop(reason, frame.len);
        pool.free(frame.id);
    }
}
