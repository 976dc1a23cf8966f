// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The loop of a simulation.
//!
//! [`SimNode::run`] jumps from event to event and handles each instant in a fixed order: sources
//! offer the frames that are due, frames on a link arrive, the switch forwards. Then sources that
//! waited for room try again, and the switch forwards once more. The switch is not asked for frames
//! while it can have none, that is, until one of its own events has come or a link has room again.

use weir_switch::{Direction, Frame, FramePool, IfaceId, Transmit};
use weir_units::{Instant, Nanos};

use crate::event::EventQueue;
use crate::node::FrameTap;
use crate::observation::Flight;
use crate::probe::Probe;
use crate::source::WhenFull;
use crate::{
    Departure, MemoryPool, Observation, PROBE_BYTES, SimError, SimLink, SimNode, SimSource,
};

/// The state of one run.
struct Run<'a> {
    node: &'a mut SimNode,
    sources: &'a mut [SimSource],
    /// The next frame of each source that does not wait for room.
    due: EventQueue<usize>,
    /// Sources that wait for room.
    waiting: Vec<usize>,
    /// True if the switch took a frame, so that its next event may have changed.
    has_received: bool,
    /// The earliest instant at which a link that was full then has room again;
    /// [`Instant::FAR_FUTURE`] if none was full.
    room_at: Instant,
    /// The ports whose links are full, a bit for each.
    full: u64,
    /// The instant from which the switch may have a frame.
    event_at: Instant,
    report: &'a mut dyn FnMut(Observation),
}

impl SimNode {
    /// Lets the sources offer and the switch forward until `end`. Reports every frame that is
    /// offered and every frame that leaves, in order of time. A frame leaves at the first instant
    /// at which the switch lets it go and its link has room for the longest frame. Sources continue
    /// where an earlier run left them; those that wait for room try again at once, in their order.
    ///
    /// # Errors
    /// A source sends frames that the node cannot take, the pool or the queue of events is full,
    /// or the clock does not advance.
    pub fn run(
        &mut self,
        sources: &mut [SimSource],
        end: Instant,
        report: &mut dyn FnMut(Observation),
    ) -> Result<(), SimError> {
        self.check_sources(sources)?;
        let (mut due, mut waiting) = (EventQueue::new(sources.len()), Vec::new());
        for (index, source) in sources.iter().enumerate() {
            match source.burst_left {
                0 => due.push(source.due(), index)?,
                _ => waiting.push(index),
            }
        }
        let mut run = Run {
            due,
            waiting,
            has_received: false,
            room_at: Instant::FAR_FUTURE,
            full: 0,
            // Frames may be queued since before.
            event_at: self.now,
            node: self,
            sources,
            report,
        };
        let (mut last, mut steps) = (run.node.now, 0);
        while let Some(now) = run.next().filter(|now| *now < end) {
            steps = if now > last { 0 } else { steps + 1 };
            if steps >= STEPS_AT_ONCE_MAX {
                return Err(SimError::Livelock { at: now, steps });
            }
            (last, run.node.now) = (now, now);
            run.step()?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Runs like [`Self::run`], and returns the departures.
    ///
    /// # Errors
    /// See [`Self::run`].
    pub fn record(
        &mut self,
        sources: &mut [SimSource],
        end: Instant,
    ) -> Result<Vec<Departure>, SimError> {
        let mut departures = Vec::new();
        self.run(sources, end, &mut |observation| {
            if let Observation::Left(departure) = observation {
                departures.push(departure);
            }
        })?;
        Ok(departures)
    }

    /// Makes the next frame of a source, stamped with `now`, and reports it.
    pub(crate) fn make_frame(
        &mut self,
        source: &mut SimSource,
        index: usize,
        now: Instant,
        report: &mut dyn FnMut(Observation),
    ) -> Result<Frame, SimError> {
        let (to, mac, bytes) = (source.to, source.mac, source.next_bytes());
        if !(PROBE_BYTES..=MemoryPool::FRAME_MAX).contains(&bytes) {
            let (least, most) = (PROBE_BYTES, MemoryPool::FRAME_MAX);
            return Err(SimError::FrameSize { bytes, least, most });
        }
        let number = source.advance();
        let frame = self.pool.frame_of(bytes).ok_or_else(|| self.pool_empty())?;
        let source = u32::try_from(index).unwrap_or(u32::MAX);
        report(Observation::Offered { at: now, source: index, bytes: bytes.into() });
        Probe { source, number, offered: now }.write(to, mac, self.pool.data(frame));
        Ok(frame)
    }

    pub(crate) fn check_sources(&self, sources: &[SimSource]) -> Result<(), SimError> {
        let interfaces = self.interfaces().count();
        for (source_index, source) in sources.iter().enumerate() {
            let iface = source.from.0;
            if !self.interfaces().any(|known| known == source.from) {
                return Err(SimError::NoInterface { source_index, iface, interfaces });
            }
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Returns the next instant at which anything happens; `None` if nothing ever will.
    fn next(&self) -> Option<Instant> {
        let (now, never) = (self.node.now, Instant::FAR_FUTURE);
        let retry = if self.waiting.is_empty() { never } else { now + RETRY };
        let [due, flight] = [self.due.next(), self.node.in_flight.next()];
        let events = due.unwrap_or(never).min(flight.unwrap_or(never));
        let next = events.min(self.event_at).min(self.room_at).min(retry);
        (next < never).then(|| next.max(now))
    }

    /// Handles everything that is due now: offers, ends of flights, the switch, then sources that
    /// wait for room.
    fn step(&mut self) -> Result<(), SimError> {
        let now = self.node.now;
        while let Some((_, index)) = self.due.pop_due(now) {
            if let Some(source) = self.sources.get_mut(index) {
                source.begin_burst();
            }
            self.offer_due(index)?;
        }
        while let Some((at, flight)) = self.node.in_flight.pop_due(now) {
            match flight {
                Flight::In(iface, frame) => {
                    self.has_received = true;
                    self.node.switch.receive(now, iface, frame, &mut self.node.pool);
                }
                Flight::Out(iface, probe, len) => {
                    let departure = Departure::new(at, iface, probe, len);
                    (self.report)(Observation::Left(departure));
                }
            }
        }
        self.forward()?;
        if !self.waiting.is_empty() {
            for index in std::mem::take(&mut self.waiting) {
                self.offer_due(index)?;
            }
            self.forward()?;
        }
        Ok(())
    }

    /// Offers the rest of a source's burst, then its further bursts that are due, then schedules
    /// the source again.
    fn offer_due(&mut self, index: usize) -> Result<(), SimError> {
        let now = self.node.now;
        for _ in 0..STEPS_AT_ONCE_MAX {
            while self.sources.get(index).is_some_and(|source| source.burst_left > 0) {
                if !self.offer(index)? {
                    self.waiting.push(index);
                    return Ok(());
                }
            }
            let Some(source) = self.sources.get_mut(index) else { return Ok(()) };
            let due = source.due();
            if due > now {
                return self.due.push(due, index);
            }
            source.begin_burst();
        }
        Err(SimError::Livelock { at: now, steps: STEPS_AT_ONCE_MAX })
    }

    /// Offers the next frame of a source; returns false if the source waits for room instead.
    fn offer(&mut self, index: usize) -> Result<bool, SimError> {
        let Self { node, sources, report, has_received, .. } = self;
        let Some(source) = sources.get_mut(index) else { return Ok(true) };
        if source.when_full != WhenFull::Lose && !node.has_room(source.from) {
            if source.when_full == WhenFull::Wait {
                return Ok(false);
            }
            source.advance();
            return Ok(true);
        }
        let (from, bytes, now) = (source.from, source.next_bytes(), node.now);
        let frame = node.make_frame(source, index, now, *report)?;
        match node.links_in.get_mut(from) {
            None => {
                *has_received = true;
                node.switch.receive(now, from, frame, &mut node.pool);
            }
            Some(link) => match link.send(now, bytes.into()) {
                Some(at) => node.in_flight.push(at, Flight::In(from, frame))?,
                None => node.pool.free(frame.id),
            },
        }
        Ok(true)
    }

    /// Calls [`Self::transmit`], unless the switch can have no frame that may leave now.
    fn forward(&mut self) -> Result<(), SimError> {
        let now = self.node.now;
        if std::mem::take(&mut self.has_received) {
            let ready = self.node.switch.next_ready(IfaceId(0)).map(|_| now);
            self.event_at = ready.unwrap_or_else(|| self.next_event());
        }
        if self.event_at <= now || self.room_at <= now {
            self.transmit()?;
            self.event_at = self.next_event();
        }
        debug_assert!(self.next_event() >= self.event_at, "an event that nobody waits for");
        Ok(())
    }

    /// Returns the instant of the switch's next event. A frame that waits for a full link is due
    /// already: its tree's next event is never later than now, and would keep the clock from
    /// advancing.
    fn next_event(&self) -> Instant {
        self.node.switch.next_event_without(self.full).unwrap_or(Instant::FAR_FUTURE)
    }

    /// Takes every frame that may leave now.
    fn transmit(&mut self) -> Result<(), SimError> {
        (self.room_at, self.full) = (Instant::FAR_FUTURE, 0);
        let ports = u32::try_from(self.node.switch.policy().ports.len()).unwrap_or(u32::MAX);
        for port in (0..ports).map(weir_policy::PortId) {
            let iface = self.node.switch.port_iface(port);
            while self.transmit_one(iface)? {}
            let link = self.node.links_out.get(iface);
            if link.is_some_and(|link| link.room_for_longest() > self.node.now) {
                self.full |= 1 << port.0;
            }
        }
        loop {
            let node = &mut *self.node;
            node.switch.advance(node.now, &mut node.pool);
            let (mut from, mut any) = (IfaceId(0), false);
            while let Some(iface) = self.node.switch.next_ready(from) {
                while self.transmit_one(iface)? {
                    any = true;
                }
                from = IfaceId(iface.0 + 1);
            }
            if !any {
                return Ok(());
            }
        }
    }

    fn transmit_one(&mut self, iface: IfaceId) -> Result<bool, SimError> {
        let node = &mut *self.node;
        let now = node.now;
        let link = node.links_out.get(iface);
        if let Some(at) = link.map(SimLink::room_for_longest).filter(|at| *at > now) {
            self.room_at = self.room_at.min(at);
            return Ok(false);
        }
        let Transmit::Frame(frame) = node.switch.transmit(now, iface, &mut node.pool) else {
            return Ok(false);
        };
        let data = node.pool.data(frame);
        if let Some(FrameTap(see)) = &mut node.tap {
            see(iface, now, data);
        }
        let probe = Probe::read(data);
        node.pool.free(frame.id);
        let link = node.links_out.get_mut(iface);
        let arrives = link.map(|link| link.send(now, frame.len.into()).unwrap_or(now));
        // A frame without a probe came by `hand_in`, and belongs to no source.
        match (probe, arrives) {
            (None, _) => {}
            (Some(probe), None) => {
                let departure = Departure::new(now, iface, probe, frame.len);
                (self.report)(Observation::Left(departure));
            }
            (Some(probe), Some(at)) => {
                node.in_flight.push(at, Flight::Out(iface, probe, frame.len))?;
            }
        }
        Ok(true)
    }
}

impl SimNode {
    /// Returns true if the switch would take one more frame from this interface. It always does
    /// from a port.
    fn has_room(&self, from: IfaceId) -> bool {
        let Some(vif) = self.switch.vif_of(from) else { return true };
        self.switch.credit(self.now, vif, Direction::Send) > 0
    }
}

/// The most steps without the clock advancing; more are a livelock.
pub const STEPS_AT_ONCE_MAX: u32 = 1 << 20;

const _: () = assert!(weir_policy::PORTS_MAX <= u64::BITS as usize, "a bit for each port");

/// A source that waits for room tries again after this time at the latest, since a policer makes
/// room without an event.
const RETRY: Nanos = Nanos::from_micros(10);
