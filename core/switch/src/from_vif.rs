// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames from a vif: to its port, to another vif of its slice, or to all of both.

use weir_policy::Direction;
use weir_units::Instant;

use crate::checksum;
use crate::fdb::Fdb;
use crate::filter;
use crate::frame::Ethernet;
use crate::ingress::{Arrival, UNTAGGED, check_ethernet, copy, packet};
use crate::police::Measure;
use crate::pool::{Frame, FramePool};
use crate::reason::Reason;
use crate::spoof;
use crate::state::tree_index;
use crate::switch::Switch;
use crate::tree::{NO_VIF, TreeKind};
use crate::types::IfaceId;
use crate::vlan;

/// Where a frame from a vif goes.
enum Way {
    Port,
    Vif(usize),
    /// To the slice's other vifs and to the port.
    Flood,
}

impl Switch {
    pub(crate) fn receive_from_vif<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        frame: Frame,
        pool: &mut P,
    ) {
        let data = pool.data(frame);
        if self.vifs[vif].tapped {
            self.capture(now, vif, Direction::Send, data);
        }
        let read = Ethernet::read(data);
        let tagged = matches!(read, Ok(Ethernet { vlan: Some(_), .. }));
        let bytes = if tagged { frame.len - vlan::TAG } else { frame.len };
        self.vif_counters(vif, Direction::Send).received.add(bytes);
        let arrival =
            read.and_then(|ethernet| self.admit_from_vif(now, vif, frame, ethernet, pool));
        let way = arrival.and_then(|arrival| {
            let way = self.route(now, vif, &arrival.ethernet)?;
            if matches!(way, Way::Flood) && !self.storms[self.ports.len() + vif].admit(now, 1) {
                return Err(Reason::Storm);
            }
            let accounting = self.ports[self.vifs[vif].port as usize].accounting;
            self.police_send(now, vif, accounting.bytes(bytes, false))?;
            Ok((arrival, way))
        });
        let (arrival, way) = match way {
            Ok(found) => found,
            Err(reason) => {
                self.vif_counters(vif, Direction::Send).drop(reason, bytes);
                return pool.free(frame.id);
            }
        };
        match way {
            Way::Port => self.send(now, vif, arrival, pool),
            Way::Vif(to) => self.pass(now, vif, to, arrival, pool),
            Way::Flood => {
                self.flood_from_vif(now, vif, arrival, pool);
                self.send(now, vif, arrival, pool);
            }
        }
    }

    /// The checks of a frame from a vif, up to what it claims to be.
    fn admit_from_vif<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        frame: Frame,
        mut ethernet: Ethernet,
        pool: &mut P,
    ) -> Result<Arrival, Reason> {
        let state = &self.vifs[vif];
        if state.has_filter {
            let rules = &self.policy.vifs[vif].filter;
            if !filter::passes(rules, Direction::Send, pool.data(frame), &ethernet) {
                return Err(Reason::Filtered);
            }
        }
        let mut frame = frame;
        match ethernet.vlan {
            None => {}
            // A priority tag is no VLAN (802.1Q §6.9.1).
            Some(0) => {
                frame = vlan::pop(pool, frame)?;
                (ethernet.vlan, ethernet.payload) = (None, UNTAGGED);
            }
            Some(_) => return Err(Reason::UnexpectedTag),
        }
        check_ethernet(&ethernet, frame.len, self.length_max)?;
        let data = pool.data(frame);
        if state.has_addresses {
            let addresses = &self.policy.vifs[vif].addresses;
            if !spoof::passes(addresses, data, &ethernet) {
                return Err(Reason::SpoofedAddress);
            }
        }
        if state.completes {
            checksum::complete(data, &ethernet);
        }
        let ecn = ethernet.ecn(data) != 0;
        let lately = now.saturating_since(state.last_lookup) < Fdb::TRUST;
        if state.last_source != ethernet.source || !lately {
            let (domain, source) = (state.domain, state.source);
            self.fdb.learn(now, domain, ethernet.source, source)?;
            let state = &mut self.vifs[vif];
            (state.last_source, state.last_lookup) = (ethernet.source, now);
        }
        Ok(Arrival { frame, ethernet, ecn, wire: frame.len })
    }

    /// Where a frame from a vif goes, by its destination.
    #[inline]
    fn route(&self, now: Instant, vif: usize, ethernet: &Ethernet) -> Result<Way, Reason> {
        if ethernet.is_group() {
            return Ok(Way::Flood);
        }
        let state = &self.vifs[vif];
        let Some(iface) = self.fdb.lookup(now, state.domain, ethernet.destination) else {
            return Ok(Way::Flood);
        };
        match self.vif_of(IfaceId(iface)) {
            Some(to) if to == vif => Err(Reason::NoDestination),
            Some(to) if self.vifs[to].slice == state.slice => Ok(Way::Vif(to)),
            // Another slice's address on the same wire: only the wire leads there.
            _ => Ok(Way::Port),
        }
    }

    fn police_send(&mut self, now: Instant, vif: usize, bytes: u32) -> Result<(), Reason> {
        let state = &self.vifs[vif];
        let nested = self.ports[state.port as usize].nested;
        let measure = if nested { Measure::Packets } else { Measure::PacketsAndBytes(bytes) };
        self.police.admit(now, state.send_chain, measure)
    }

    /// Copies a frame for each other vif of the slice.
    fn flood_from_vif<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        arrival: Arrival,
        pool: &mut P,
    ) {
        let (domain, slice) = (usize::from(self.vifs[vif].domain), self.vifs[vif].slice);
        for member in 0..self.domains.get(domain).map_or(0, |domain| domain.members.len()) {
            let to = self.domains[domain].members[member] as usize;
            if to == vif || self.vifs[to].slice != slice {
                continue;
            }
            let copied = copy(pool, arrival.frame, self.slots.len());
            let counters = self.vif_counters(vif, Direction::Send);
            counters.copies.add(arrival.frame.len);
            match copied {
                Some(frame) => self.pass(now, vif, to, Arrival { frame, ..arrival }, pool),
                None => counters.drop(Reason::PoolExhausted, arrival.frame.len),
            }
        }
    }

    /// Queues a frame of a vif for its port.
    fn send<P: FramePool>(&mut self, now: Instant, vif: usize, arrival: Arrival, pool: &mut P) {
        let bytes = arrival.frame.len;
        match self.try_send(now, vif, arrival, pool) {
            Ok(wire) => {
                self.vif_counters(vif, Direction::Send).enqueued.add(bytes);
                let port = self.vifs[vif].port as usize;
                let counters = &mut self.counters[port][Direction::Send as usize];
                counters.received.add(wire);
                counters.enqueued.add(wire);
            }
            Err(reason) => {
                self.vif_counters(vif, Direction::Send).drop(reason, bytes);
                pool.free(arrival.frame.id);
            }
        }
    }

    fn try_send<P: FramePool>(
        &mut self,
        now: Instant,
        vif: usize,
        arrival: Arrival,
        pool: &mut P,
    ) -> Result<u16, Reason> {
        let state = &self.vifs[vif];
        if self.room.left(self.queued, state.sending, state.send_floor) == 0 {
            return Err(Reason::PoolShare);
        }
        let (tag, class, port) = (state.vlan, state.send, state.port);
        let frame = match tag {
            0 => arrival.frame,
            tag => vlan::push(pool, arrival.frame, tag)?,
        };
        let accounted = self.ports[port as usize].accounting.bytes(frame.len, tag != 0);
        let packet = packet(frame.id, accounted, now, arrival.ecn);
        self.trees[tree_index(port, TreeKind::Send)].enqueue(now, class, packet)?;
        self.hold(frame, tag);
        self.vifs[vif].sending += 1;
        Ok(frame.len)
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
        let bytes = arrival.frame.len;
        let accounting = self.ports[self.vifs[from].port as usize].accounting;
        let accounted = accounting.bytes(bytes, false);
        let measure = Measure::PacketsAndBytes(accounted);
        let refused = match self.check_local_room(from) {
            Err(reason) => Some(reason),
            Ok(()) => self.admit_receive(now, to, arrival, measure, pool).err().map(|reason| {
                let counters = self.vif_counters(to, Direction::Receive);
                counters.received.add(bytes);
                counters.drop(reason, bytes);
                Reason::RefusedByReceiver
            }),
        };
        let refused = refused.or_else(|| self.queue_local(now, from, to, arrival, accounted).err());
        let counters = self.vif_counters(from, Direction::Send);
        match refused {
            None => counters.enqueued.add(bytes),
            Some(reason) => {
                counters.drop(reason, bytes);
                pool.free(arrival.frame.id);
            }
        }
    }

    /// Whether the sender's own bounds let a local frame pass: asked before the receiver is
    /// charged.
    fn check_local_room(&self, from: usize) -> Result<(), Reason> {
        let state = &self.vifs[from];
        if self.room.left(self.queued, state.sending, state.send_floor) == 0 {
            return Err(Reason::PoolShare);
        }
        if self.trees[tree_index(state.port, TreeKind::Local)].room(state.local) == 0 {
            return Err(Reason::QueuePackets);
        }
        Ok(())
    }

    fn queue_local(
        &mut self,
        now: Instant,
        from: usize,
        to: usize,
        arrival: Arrival,
        accounted: u32,
    ) -> Result<(), Reason> {
        let (class, port) = (self.vifs[from].local, self.vifs[from].port);
        let packet = packet(arrival.frame.id, accounted, now, arrival.ecn);
        self.trees[tree_index(port, TreeKind::Local)].enqueue(now, class, packet)?;
        self.hold(arrival.frame, 0);
        if let Some(link) = self.links.get_mut(arrival.frame.id as usize) {
            link.to = u32::try_from(to).unwrap_or(NO_VIF);
        }
        self.vifs[from].sending += 1;
        Ok(())
    }
}
