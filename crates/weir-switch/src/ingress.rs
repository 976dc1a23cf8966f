// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The way in: classify, check, police, and queue for a port or a vif.

use weir_policy::Direction;
use weir_sched::Packet;
use weir_units::Instant;

use crate::checksum;
use crate::fdb::Source;
use crate::filter;
use crate::frame::{Ethernet, is_group};
use crate::police::Measure;
use crate::pool::{Frame, FramePool};
use crate::reason::Reason;
use crate::spoof;
use crate::state::{NO_DOMAIN, NO_FRAME, Slot, tree_index};
use crate::switch::Switch;
use crate::tree::{NO_VIF, TreeKind};
use crate::types::IfaceId;
use crate::vlan;

/// A frame that passed the checks of its interface, untagged.
#[derive(Clone, Copy)]
struct Arrival {
    frame: Frame,
    ethernet: Ethernet,
    ecn: bool,
    /// Length on the wire that it came from, tag included.
    wire: u16,
}

/// Where a frame from a vif goes.
enum Way {
    Port,
    Vif(usize),
    /// To the slice's other vifs and to the port.
    Flood,
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
            pool.free(frame.id);
        } else if let Some(vif) = self.vif_of(from) {
            self.receive_from_vif(now, vif, frame, pool);
        } else if (from.0 as usize) < self.ports.len() {
            self.receive_from_port(now, from.0, frame, pool);
        } else {
            pool.free(frame.id);
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
        touch(frames.iter().copied(), pool);
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
        touch(frames.iter().map(|(_, frame)| *frame), pool);
        for (from, frame) in frames {
            self.receive(now, *from, *frame, pool);
        }
    }

    fn receive_from_vif<P: FramePool>(
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
        let (domain, source) = (state.domain, state.source);
        self.fdb.learn(now, domain, ethernet.source, source)?;
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
        self.hold(frame, tag, NO_VIF);
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
        self.hold(arrival.frame, 0, u32::try_from(to).unwrap_or(NO_VIF));
        self.vifs[from].sending += 1;
        self.vifs[to].receiving += 1;
        Ok(())
    }

    fn receive_from_port<P: FramePool>(
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
        self.hold(arrival.frame, 0, NO_VIF);
        self.vifs[to].receiving += 1;
        Ok(())
    }

    /// Whether a vif may be given a frame: its filter, its bounds, its policers.
    fn admit_receive<P: FramePool>(
        &mut self,
        now: Instant,
        to: usize,
        arrival: Arrival,
        measure: Measure,
        pool: &mut P,
    ) -> Result<(), Reason> {
        let state = &self.vifs[to];
        if state.has_filter {
            let rules = &self.policy.vifs[to].filter;
            let data = pool.data(arrival.frame);
            if !filter::passes(rules, Direction::Receive, data, &arrival.ethernet) {
                return Err(Reason::Filtered);
            }
        }
        if state.receiving >= state.receive_bound {
            return Err(Reason::QueuePackets);
        }
        if self.room.left(self.queued, state.receiving, state.receive_floor) == 0 {
            return Err(Reason::PoolShare);
        }
        self.police.admit(now, state.receive_chain, measure)
    }

    /// Notes where a queued frame lies.
    #[inline]
    fn hold(&mut self, frame: Frame, vlan: u16, to: u32) {
        self.queued += 1;
        if let Some(slot) = self.slots.get_mut(frame.id as usize) {
            *slot = Slot { offset: frame.offset, len: frame.len, vlan, next: NO_FRAME, to };
        }
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

/// What holds for every frame, wherever it came from.
#[inline]
fn check_ethernet(ethernet: &Ethernet, length: u16, length_max: u16) -> Result<(), Reason> {
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
fn packet(id: u32, bytes: u32, now: Instant, ecn: bool) -> Packet {
    let packet = Packet::new(id, bytes, now);
    if ecn { packet.ecn_capable() } else { packet }
}

/// Reads a byte of each frame, all at once: the loads do not depend on each other, so the core waits
/// for them together. A prefetch instruction is out of reach of safe code.
fn touch<P: FramePool>(frames: impl Iterator<Item = Frame>, pool: &mut P) {
    let mut sum = 0u8;
    for frame in frames {
        sum ^= pool.data(frame).first().copied().unwrap_or(0);
    }
    core::hint::black_box(sum);
}

/// A copy of a frame in a chunk of its own, if the pool has one.
fn copy<P: FramePool>(pool: &mut P, frame: Frame, chunks: usize) -> Option<Frame> {
    let id = pool.alloc()?;
    let copy = Frame { id, offset: pool.headroom(), len: frame.len };
    if (id as usize) < chunks && pool.copy(frame, copy) {
        return Some(copy);
    }
    pool.free(id);
    None
}

const UNTAGGED: usize = 14;
