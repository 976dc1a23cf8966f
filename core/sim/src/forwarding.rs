// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network of stations that packets pass: processors with a cost per packet and per byte, and any
//! [`Bottleneck`].
//!
//! **Problem.** The load that a chain of software forwarders carries, and the time of a packet in
//! it, follow from the slowest of its parts, and the parts are shared: one processor may work for
//! several routers, one cable may be passed twice.
//!
//! **Idea.** A queueing network (Kleinrock, *Queueing Systems*, volume 2, chapter 4) in virtual
//! time, with deterministic service. A flow has a source and a list of stops. A stop is a visit to
//! a station: to a processor, which takes the stop's [`PacketCost`] for each packet and holds a
//! bounded number of waiting ones, in order of arrival; or to a [`Bottleneck`], such as a link
//! behind one of Weir's schedulers or a token bucket. A station may be visited by many flows, and
//! by one flow several times.
//!
//! **What it leaves out**: interrupts and batches, so that a processor's cost does not fall with
//! its load.

use std::collections::VecDeque;

use weir_sched::Slab;
use weir_switch::IfaceId;
use weir_units::{Instant, Nanos};

use crate::run::STEPS_AT_ONCE_MAX;
use crate::tcp::{Bottleneck, Crossing};
use crate::{Departure, EventQueue, SimError, SimSource};

/// The processor time of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PacketCost {
    /// Per packet.
    pub packet: Nanos,
    /// Per 1024 bytes.
    pub kib: Nanos,
}

/// A place that packets pass.
pub enum ForwardingStation {
    /// Equal processors with one bounded queue.
    Processors {
        /// Processors; at least 1 counts.
        count: usize,
        /// The most packets that wait, without those in work.
        queue: usize,
    },
    /// A link, a scheduler, a shaper.
    Bottleneck(Box<dyn Bottleneck>),
}

/// A visit of a packet to a station.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardingStop {
    /// The station, by position.
    pub station: usize,
    /// The processor time there; a bottleneck has a time of its own.
    pub cost: PacketCost,
    /// Bytes by which the packet is longer there than at its source: outer headers, framing.
    pub overhead: u32,
}

/// A source and the path of its packets.
#[derive(Clone, Debug)]
pub struct ForwardingFlow {
    /// The lengths and times of its packets. Its interface and addresses mean nothing here.
    pub source: SimSource,
    /// The stops, in order.
    pub stops: Vec<ForwardingStop>,
}

/// The packets of a flow by their fate; the others are on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardingCounts {
    /// Offered by its source.
    pub offered: u64,
    /// Lost at a station.
    pub lost: u64,
    /// Arrived behind the last stop.
    pub arrived: u64,
}

/// Stations, flows, and the packets among them.
pub struct ForwardingNetwork {
    stations: Vec<StationState>,
    flows: Vec<FlowState>,
    packets: Slab<PathPacket>,
    events: EventQueue<ForwardingEvent>,
    now: Instant,
    /// Packets that a bottleneck has just dropped; empty between two steps.
    lost: Vec<Crossing>,
}

struct StationState {
    station: ForwardingStation,
    waiting: VecDeque<u32>,
    in_work: usize,
    /// Processor time of all packets that were begun.
    busy: Nanos,
    /// The time at which its bottleneck releases its next packet, updated after each change of the
    /// bottleneck.
    due: Option<Instant>,
}

struct FlowState {
    flow: ForwardingFlow,
    counts: ForwardingCounts,
}

#[derive(Clone, Copy)]
struct PathPacket {
    flow: usize,
    /// The stop at which it is or to which it goes.
    stop: usize,
    number: u64,
    offered: Instant,
    bytes: u16,
}

enum ForwardingEvent {
    /// A source offers.
    Offer(usize),
    /// A packet comes to its next stop.
    Come(u32),
    /// A processor is done with a packet.
    Done(u32),
}

impl PacketCost {
    /// Returns the time of a packet of `bytes` bytes, at least a nanosecond.
    #[must_use]
    pub fn of(self, bytes: u64) -> Nanos {
        let by_byte = Nanos::new(bytes.saturating_mul(self.kib.as_nanos()) / 1024);
        self.packet.saturating_add(by_byte).max(Nanos::new(1))
    }
}

impl StationState {
    /// Updates the time at which the station lets its next packet go.
    fn refresh_due(&mut self) {
        self.due = match &self.station {
            ForwardingStation::Bottleneck(bottleneck) => bottleneck.next(),
            ForwardingStation::Processors { .. } => None,
        };
    }
}

impl ForwardingNetwork {
    /// Makes a network of these stations and flows, without packets.
    ///
    /// # Errors
    /// A stop is at a station that does not exist, or there are too many flows.
    pub fn new(
        stations: Vec<ForwardingStation>,
        flows: Vec<ForwardingFlow>,
    ) -> Result<Self, SimError> {
        let known = stations.len();
        let mut events = EventQueue::new(EVENTS_MAX);
        for (index, flow) in flows.iter().enumerate() {
            if let Some(stop) = flow.stops.iter().find(|stop| stop.station >= known) {
                return Err(SimError::NoStation { station: stop.station, stations: known });
            }
            events.push(flow.source.due(), ForwardingEvent::Offer(index))?;
        }
        let state = |station| {
            let (waiting, in_work, busy) = (VecDeque::new(), 0, Nanos::ZERO);
            let mut state = StationState { station, waiting, in_work, busy, due: None };
            state.refresh_due();
            state
        };
        let counts = ForwardingCounts::default();
        Ok(Self {
            stations: stations.into_iter().map(state).collect(),
            flows: flows.into_iter().map(|flow| FlowState { flow, counts }).collect(),
            packets: Slab::new(),
            events,
            now: Instant::ZERO,
            lost: Vec::new(),
        })
    }

    /// Runs until `until`, and reports each packet that comes out behind its last stop.
    ///
    /// # Errors
    /// Too many events are scheduled, or the clock does not advance.
    pub fn run_until(
        &mut self,
        until: Instant,
        report: &mut dyn FnMut(Departure),
    ) -> Result<(), SimError> {
        let mut steps = 0;
        while let Some(next) = self.next().filter(|next| *next < until) {
            steps = if next > self.now { 0 } else { steps + 1 };
            if steps >= STEPS_AT_ONCE_MAX {
                return Err(SimError::Livelock { at: self.now, steps });
            }
            self.now = self.now.max(next);
            self.step(report)?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// Returns the packets of a flow by their fate; zeros for a flow that does not exist.
    #[must_use]
    pub fn counts(&self, flow: usize) -> ForwardingCounts {
        self.flows.get(flow).map(|of| of.counts).unwrap_or_default()
    }

    /// Returns the processor time of all packets that a station has begun to serve; zero for a
    /// bottleneck.
    #[must_use]
    pub fn busy(&self, station: usize) -> Nanos {
        self.stations.get(station).map_or(Nanos::ZERO, |of| of.busy)
    }

    fn next(&self) -> Option<Instant> {
        self.stations.iter().filter_map(|of| of.due).chain(self.events.next()).min()
    }

    /// Does all that is due: events first, then what bottlenecks let go.
    fn step(&mut self, report: &mut dyn FnMut(Departure)) -> Result<(), SimError> {
        while let Some((_, event)) = self.events.pop_due(self.now) {
            match event {
                ForwardingEvent::Offer(flow) => self.offer(flow, report)?,
                ForwardingEvent::Come(id) => self.come(id, report)?,
                ForwardingEvent::Done(id) => self.done(id, report)?,
            }
        }
        for at in 0..self.stations.len() {
            while let Some((crossing, ends)) = self.release(at) {
                self.packets[crossing.id].stop += 1;
                self.events.push(ends, ForwardingEvent::Come(crossing.id))?;
            }
        }
        self.forget_lost();
        Ok(())
    }

    fn release(&mut self, station: usize) -> Option<(Crossing, Instant)> {
        let state = &mut self.stations[station];
        let ForwardingStation::Bottleneck(bottleneck) = &mut state.station else { return None };
        if state.due.is_none_or(|due| due > self.now) {
            return None;
        }
        let released = bottleneck.release(self.now, &mut self.lost);
        state.refresh_due();
        released
    }

    fn offer(&mut self, flow: usize, report: &mut dyn FnMut(Departure)) -> Result<(), SimError> {
        let FlowState { flow: of, counts } = &mut self.flows[flow];
        counts.offered += 1;
        let bytes = of.source.next_bytes();
        let number = of.source.advance();
        self.events.push(of.source.due().max(self.now), ForwardingEvent::Offer(flow))?;
        let packet = PathPacket { flow, stop: 0, number, offered: self.now, bytes };
        let id = self.packets.insert(packet);
        self.come(id, report)
    }

    /// Has a packet arrive at its stop, or behind its last.
    fn come(&mut self, id: u32, report: &mut dyn FnMut(Departure)) -> Result<(), SimError> {
        let PathPacket { flow, stop, number, offered, bytes } = self.packets[id];
        let Some(stop) = self.flows[flow].flow.stops.get(stop).copied() else {
            self.flows[flow].counts.arrived += 1;
            self.packets.remove(id);
            let (at, iface, bytes) = (self.now, IfaceId(0), bytes.into());
            report(Departure { at, iface, source: flow, number, offered, bytes });
            return Ok(());
        };
        let bytes = u32::from(bytes).saturating_add(stop.overhead);
        let state = &mut self.stations[stop.station];
        match &mut state.station {
            ForwardingStation::Bottleneck(bottleneck) => {
                let crossing = Crossing { id, flow, backwards: false, bytes, offered: self.now };
                bottleneck.offer(self.now, crossing, &mut self.lost);
                state.refresh_due();
                self.forget_lost();
            }
            ForwardingStation::Processors { count, .. } if state.in_work < (*count).max(1) => {
                state.in_work += 1;
                self.work(id)?;
            }
            ForwardingStation::Processors { queue, .. } if state.waiting.len() < *queue => {
                state.waiting.push_back(id);
            }
            ForwardingStation::Processors { .. } => self.lose(id),
        }
        Ok(())
    }

    /// Has a free processor begin with a packet.
    fn work(&mut self, id: u32) -> Result<(), SimError> {
        let PathPacket { flow, stop, bytes, .. } = self.packets[id];
        let Some(stop) = self.flows[flow].flow.stops.get(stop) else { return Ok(()) };
        let time = stop.cost.of(u64::from(bytes) + u64::from(stop.overhead));
        let state = &mut self.stations[stop.station];
        state.busy = state.busy.saturating_add(time);
        self.events.push(self.now + time, ForwardingEvent::Done(id))
    }

    /// Ends a processor's work on a packet, which goes to its next stop; the processor takes the
    /// next waiting packet.
    fn done(&mut self, id: u32, report: &mut dyn FnMut(Departure)) -> Result<(), SimError> {
        let packet = &mut self.packets[id];
        let stop = self.flows[packet.flow].flow.stops.get(packet.stop).copied();
        packet.stop += 1;
        if let Some(stop) = stop {
            let state = &mut self.stations[stop.station];
            match state.waiting.pop_front() {
                Some(next) => self.work(next)?,
                None => state.in_work -= 1,
            }
        }
        self.come(id, report)
    }

    fn lose(&mut self, id: u32) {
        let flow = self.packets[id].flow;
        self.flows[flow].counts.lost += 1;
        self.packets.remove(id);
    }

    fn forget_lost(&mut self) {
        while let Some(crossing) = self.lost.pop() {
            self.lose(crossing.id);
        }
    }
}

/// The most scheduled events: one for each source, each packet in work and each packet between a
/// bottleneck and its next stop.
const EVENTS_MAX: usize = 1 << 20;

#[cfg(test)]
mod tests {
    use weir_units::{BitRate, ByteCount, PacketRate};

    use super::*;
    use crate::{ArrivalProcess, FifoLink, OfferedRate, Seed, SizePattern};

    fn flow(bytes: u16, pps: u64, stops: &[ForwardingStop]) -> ForwardingFlow {
        let pace = ArrivalProcess::Constant(OfferedRate::Packets(PacketRate::from_pps(pps)));
        let sizes = SizePattern::Fixed(bytes);
        let source = SimSource::with(IfaceId(0), [0; 6], [0; 6], sizes, pace, Seed::new(1));
        ForwardingFlow { source, stops: stops.to_vec() }
    }

    fn stop(station: usize, micros: u64) -> ForwardingStop {
        let cost = PacketCost { packet: Nanos::from_micros(micros), kib: Nanos::ZERO };
        ForwardingStop { station, cost, overhead: 0 }
    }

    const fn processors(count: usize) -> ForwardingStation {
        ForwardingStation::Processors { count, queue: 100 }
    }

    fn run(
        stations: Vec<ForwardingStation>,
        flows: Vec<ForwardingFlow>,
    ) -> (ForwardingNetwork, Vec<Departure>) {
        let mut network = ForwardingNetwork::new(stations, flows).unwrap();
        let mut seen = Vec::new();
        let second = Instant::ZERO + Nanos::from_secs(1);
        network.run_until(second, &mut |departure| seen.push(departure)).unwrap();
        (network, seen)
    }

    /// Goal: an unloaded path takes the sum of its times. Method: 1024 bytes pass a processor of
    /// 3 µs and 2 µs a KiB, a link of 8 Mb/s (a byte a microsecond, 24 bytes more there), and the
    /// processor again.
    #[test]
    fn an_idle_path_takes_the_sum_of_its_times() {
        let cost = PacketCost { packet: Nanos::from_micros(3), kib: Nanos::from_micros(2) };
        let first = ForwardingStop { station: 0, cost, overhead: 0 };
        let link = ForwardingStop { station: 1, overhead: 24, ..ForwardingStop::default() };
        let wire = FifoLink::new(BitRate::from_mbps(8), 10, ByteCount::new(1 << 20));
        let stations = vec![processors(1), ForwardingStation::Bottleneck(Box::new(wire))];
        let (network, seen) = run(stations, vec![flow(1024, 10, &[first, link, first])]);
        let delay = |seen: &Departure| seen.at.saturating_since(seen.offered).as_nanos();
        assert!(seen.iter().all(|seen| delay(seen) == 1_058_000), "{seen:?}");
        assert_eq!(network.counts(0), ForwardingCounts { offered: 10, lost: 0, arrived: 10 });
        assert_eq!(network.busy(0), Nanos::from_micros(100));
    }

    /// Goal: a station that a flow visits three times carries a third of the packets, and two
    /// processors carry twice as many; every lost packet is counted.
    #[test]
    fn a_shared_processor_is_the_bound() {
        for (count, visits, expected) in [(1, 1, 100_000), (1, 3, 33_333), (2, 3, 66_666)] {
            let stops = vec![stop(0, 10); visits];
            // Nothing is lost at 99 % of the expected rate.
            let calm = flow(100, expected * 99 / 100, &stops);
            let (network, seen) = run(vec![processors(count)], vec![calm]);
            assert_eq!(
                (network.counts(0).lost, seen.len() as u64 > expected * 98 / 100),
                (0, true)
            );
            let (network, _) = run(vec![processors(count)], vec![flow(100, expected * 2, &stops)]);
            let ForwardingCounts { offered, lost, arrived } = network.counts(0);
            assert!(lost > 0 && offered - lost - arrived <= 100 + count as u64, "{offered}");
            assert!(network.busy(0) >= Nanos::from_millis(999 * count as u64));
        }
    }

    #[test]
    fn a_stop_nowhere_is_refused() {
        let error = ForwardingNetwork::new(vec![processors(1)], vec![flow(100, 1, &[stop(1, 1)])]);
        assert!(matches!(error, Err(SimError::NoStation { station: 1, stations: 1 })));
    }
}
