// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections through one bottleneck, and the loop that runs them.

use weir_sched::Slab;
use weir_units::{Instant, Nanos};

use super::application::TcpApplication;
use super::bottleneck::{Bottleneck, Crossing};
use super::endpoint::{CongestionControl, EndpointConfig, SimEndpoint};
use crate::{EventQueue, Seed, SimError};

/// A connection to be made.
pub struct TcpConnection {
    /// The congestion control of both ends.
    pub control: CongestionControl,
    /// The most bytes under way in each direction.
    pub window: usize,
    /// Time from a client to its server and back, without queues.
    pub round_trip: Nanos,
    /// The client's user; what the client sends crosses the bottleneck.
    pub client: Box<dyn TcpApplication>,
    /// The server's user.
    pub server: Box<dyn TcpApplication>,
}

/// Probes: packets that are offered to the bottleneck at set times, whatever becomes of earlier
/// ones.
#[derive(Clone, Copy, Debug)]
pub struct ProbeSource {
    /// The time at which the first is offered.
    pub start: Instant,
    /// Time from one to the next.
    pub period: Nanos,
    /// Length of each.
    pub bytes: u32,
    /// True if each is offered at a random moment of its own period. Exact periods lock with those
    /// of a scheduler's ticks. Even with random moments a period that divides a tick locks, if
    /// packets reach the scheduler's domains later than they came.
    pub is_drawn: bool,
}

/// A source of probes while a network runs.
struct ProbeState {
    source: ProbeSource,
    draws: Seed,
    /// The beginning of the period of the next probe.
    begins: Instant,
}

impl ProbeState {
    fn new(source: ProbeSource, draws: Seed) -> Self {
        Self { source, draws, begins: source.start }
    }

    /// Returns the instant of the next probe, and goes on to the period after it.
    fn next(&mut self) -> Instant {
        let ProbeSource { period, is_drawn, .. } = self.source;
        let last = period.as_nanos().saturating_sub(1);
        let within = if is_drawn { self.draws.between(0, last) } else { 0 };
        let at = self.begins + Nanos::new(within);
        self.begins += period;
        at
    }
}

/// The properties of the path of all connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpPath {
    /// The length of the longest IP packet, at least 68.
    pub mtu: usize,
    /// True if what servers send crosses the bottleneck as well.
    pub both_ways: bool,
    /// The time that a lone segment waits for its acknowledgment; every second one is acknowledged
    /// at once (RFC 1122, 4.2.3.2). `None`: every segment is.
    pub ack_delay: Option<Nanos>,
    /// The longest time that an endpoint's host takes before a packet leaves it; each time is drawn
    /// from a uniform distribution, and packets stay in order. Exact times lock: of flows of one
    /// round trip, some then always meet a full queue (Floyd and Jacobson, *On Traffic Phase
    /// Effects in Packet-Switched Gateways*, 1992, whose remedy this is: up to the time of a packet
    /// at the bottleneck).
    pub host_delay: Nanos,
}

/// A run that cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum TcpSimError {
    /// There are more connections than addresses.
    #[error("{0} connections are more than {CONNECTIONS_MAX}")]
    TooMany(usize),
    /// smoltcp refused to connect or to listen.
    #[error("connection {0} cannot be opened")]
    Refused(usize),
    /// The queue of events is full.
    #[error(transparent)]
    Events(#[from] SimError),
    /// The clock does not advance.
    #[error("{STEPS_AT_ONCE_MAX} steps at {0:?}")]
    Livelock(Instant),
}

/// Connections and probes through one bottleneck. Flows are numbered, connections before probes, in
/// the order in which they are given.
pub struct TcpNetwork<B> {
    /// The bottleneck.
    pub bottleneck: B,
    /// The endpoints: the client of connection k at place 2k, its server at 2k + 1.
    endpoints: Vec<SimEndpoint>,
    /// Half of the round trip of each connection.
    delays: Vec<Nanos>,
    probes: Vec<ProbeState>,
    /// The contents of the packets in the bottleneck, by id.
    packets: Slab<Vec<u8>>,
    events: EventQueue<Event>,
    now: Instant,
    /// Bytes of each packet on the link beyond IP.
    overhead: u32,
    both_ways: bool,
    host_delay: Nanos,
    /// The host of each endpoint.
    hosts: Vec<HostState>,
    /// Packets that the bottleneck has just dropped; empty between two steps.
    lost: Vec<Crossing>,
}

/// The host of an endpoint, which packets leave in order.
struct HostState {
    draws: Seed,
    /// The time at which its last packet leaves.
    last: Instant,
}

enum Event {
    /// A packet leaves the host of an endpoint.
    Leave(usize, Vec<u8>),
    /// A packet reaches an endpoint.
    Arrive(usize, Vec<u8>),
    /// A probe is due.
    Probe(usize),
}

impl TcpConnection {
    /// More than a connection has in flight: 16 of them fill 1 Gb/s at 80 ms with 0.6 MB each.
    pub const WINDOW: usize = 4 << 20;
}

impl TcpPath {
    /// Packets of 1500 bytes, of which those of servers do not cross the bottleneck. Each segment
    /// is acknowledged at once, as real receivers do while a connection starts. Hosts take no time.
    pub const PLAIN: Self =
        Self { mtu: 1500, both_ways: false, ack_delay: None, host_delay: Nanos::ZERO };
}

impl<B: Bottleneck> TcpNetwork<B> {
    /// Makes a network of connections over [`TcpPath::PLAIN`], which are opened at the start of the
    /// run. `seed` makes their sequence numbers. The link counts 14 bytes a packet beyond IP.
    ///
    /// # Errors
    /// Too many connections, or smoltcp refuses one.
    pub fn new(
        bottleneck: B,
        connections: Vec<TcpConnection>,
        probes: Vec<ProbeSource>,
        seed: u64,
    ) -> Result<Self, TcpSimError> {
        Self::over(TcpPath::PLAIN, bottleneck, connections, probes, seed)
    }

    /// Makes a network as [`Self::new`] does, over another path.
    ///
    /// # Errors
    /// The errors of [`Self::new`].
    pub fn over(
        path: TcpPath,
        bottleneck: B,
        connections: Vec<TcpConnection>,
        probes: Vec<ProbeSource>,
        seed: u64,
    ) -> Result<Self, TcpSimError> {
        if connections.len() > CONNECTIONS_MAX {
            return Err(TcpSimError::TooMany(connections.len()));
        }
        let (mut endpoints, mut delays) = (Vec::new(), Vec::new());
        for (index, connection) in connections.into_iter().enumerate() {
            let host = u8::try_from(2 * index + 1).unwrap_or(u8::MAX);
            let TcpConnection { control, window, round_trip, client, server } = connection;
            let (mtu, ack_delay) = (path.mtu.max(MTU_LEAST), path.ack_delay);
            let seed = seed.wrapping_add(index as u64);
            let config = EndpointConfig { control, window, mtu, ack_delay, seed };
            let server_config = EndpointConfig { seed: !seed, ..config };
            let ends = [
                SimEndpoint::new((host, host + 1), true, config, client),
                SimEndpoint::new((host + 1, host), false, server_config, server),
            ];
            for end in ends {
                endpoints.push(end.ok_or(TcpSimError::Refused(index))?);
            }
            delays.push(Nanos::new(round_trip.as_nanos() / 2));
        }
        let mut events = EventQueue::new(EVENTS_MAX);
        let mut parts = Seed::new(seed);
        let state = |probe| ProbeState::new(probe, Seed::new(parts.draw()));
        let mut probes: Vec<ProbeState> = probes.into_iter().map(state).collect();
        for (index, probe) in probes.iter_mut().enumerate() {
            events.push(probe.next(), Event::Probe(index))?;
        }
        let host = |_| HostState { draws: Seed::new(parts.draw()), last: Instant::ZERO };
        let hosts = (0..endpoints.len()).map(host).collect();
        Ok(Self {
            bottleneck,
            endpoints,
            host_delay: path.host_delay,
            hosts,
            delays,
            probes,
            packets: Slab::new(),
            events,
            now: Instant::ZERO,
            overhead: ETHERNET,
            both_ways: path.both_ways,
            lost: Vec::new(),
        })
    }

    /// Runs until `end`. Each packet that crosses is given to `crossed` with the instants at which
    /// its transmission began and ended.
    ///
    /// # Errors
    /// The queue of events is full, or the clock does not advance.
    pub fn run(
        &mut self,
        end: Instant,
        crossed: &mut dyn FnMut(Crossing, Instant, Instant),
    ) -> Result<(), TcpSimError> {
        let mut steps = 0;
        while let Some(next) = self.next().filter(|next| *next < end) {
            steps = if next > self.now { 0 } else { steps + 1 };
            if steps > STEPS_AT_ONCE_MAX {
                return Err(TcpSimError::Livelock(self.now));
            }
            self.now = self.now.max(next);
            self.step(crossed)?;
        }
        self.now = self.now.max(end);
        Ok(())
    }

    /// Returns the next instant at which anything happens.
    fn next(&self) -> Option<Instant> {
        let endpoints = self.endpoints.iter().map(|endpoint| endpoint.due).min();
        let others = [self.events.next(), self.bottleneck.next()];
        others.into_iter().flatten().chain(endpoints).min().filter(|at| *at < Instant::FAR_FUTURE)
    }

    /// Does everything that is due now: arrivals, probes, endpoints, then the bottleneck.
    fn step(
        &mut self,
        crossed: &mut dyn FnMut(Crossing, Instant, Instant),
    ) -> Result<(), TcpSimError> {
        while let Some((_, event)) = self.events.pop_due(self.now) {
            match event {
                Event::Leave(endpoint, packet) => self.leave(endpoint, packet)?,
                Event::Arrive(endpoint, packet) => {
                    self.endpoints[endpoint].receive(packet);
                    self.endpoints[endpoint].due = self.now;
                }
                Event::Probe(index) => {
                    let probe = &mut self.probes[index];
                    let (bytes, next) = (probe.source.bytes, probe.next());
                    self.offer(self.delays.len() + index, false, vec![0; bytes as usize]);
                    self.events.push(next, Event::Probe(index))?;
                }
            }
        }
        for at in 0..self.endpoints.len() {
            if self.endpoints[at].due <= self.now {
                self.endpoints[at].work(self.now);
                self.send(at)?;
            }
        }
        let mut lost = core::mem::take(&mut self.lost);
        while let Some((packet, ends)) = self.bottleneck.release(self.now, &mut lost) {
            crossed(packet, self.now, ends);
            let bytes = self.take(packet.id);
            if let Some(delay) = self.delays.get(packet.flow) {
                let to = 2 * packet.flow + usize::from(!packet.backwards);
                self.events.push(ends + *delay, Event::Arrive(to, bytes))?;
            }
        }
        self.lost = lost;
        self.forget_lost();
        Ok(())
    }

    /// Sends an endpoint's packets, each as soon as its host lets it go.
    fn send(&mut self, at: usize) -> Result<(), TcpSimError> {
        while let Some(packet) = self.endpoints[at].transmit() {
            let host = &mut self.hosts[at];
            let takes = host.draws.between(0, self.host_delay.as_nanos());
            host.last = host.last.max(self.now + Nanos::new(takes));
            if host.last > self.now {
                self.events.push(host.last, Event::Leave(at, packet))?;
            } else {
                self.leave(at, packet)?;
            }
        }
        Ok(())
    }

    /// Has a packet leave its host: a client's to the bottleneck, a server's to its client, or to
    /// the bottleneck as well.
    fn leave(&mut self, at: usize, packet: Vec<u8>) -> Result<(), TcpSimError> {
        let flow = at / 2;
        let backwards = !at.is_multiple_of(2);
        if self.both_ways || !backwards {
            self.offer(flow, backwards, packet);
            return Ok(());
        }
        Ok(self.events.push(self.now + self.delays[flow], Event::Arrive(at - 1, packet))?)
    }

    /// Offers a packet to the bottleneck.
    fn offer(&mut self, flow: usize, backwards: bool, packet: Vec<u8>) {
        let bytes = u32::try_from(packet.len()).unwrap_or(u32::MAX).saturating_add(self.overhead);
        let id = self.packets.insert(packet);
        let crossing = Crossing { id, flow, backwards, bytes, offered: self.now };
        self.bottleneck.offer(self.now, crossing, &mut self.lost);
        self.forget_lost();
    }

    /// Frees the packets that the bottleneck dropped, and lets senders use their buffers again.
    fn forget_lost(&mut self) {
        while let Some(packet) = self.lost.pop() {
            let buffer = self.take(packet.id);
            if let Some(endpoint) =
                self.endpoints.get_mut(2 * packet.flow + usize::from(packet.backwards))
            {
                endpoint.reuse(buffer);
            }
        }
    }

    /// Takes the contents of a packet that has left the bottleneck, and frees its id.
    fn take(&mut self, id: u32) -> Vec<u8> {
        self.packets.remove(id);
        core::mem::take(&mut self.packets[id])
    }
}

/// The most connections: each has two hosts, which are numbered in one byte.
const CONNECTIONS_MAX: usize = 120;
/// The most scheduled events: packets under way outside the bottleneck, and one for each source of
/// probes.
const EVENTS_MAX: usize = 1 << 20;
/// The most steps at one instant; more are a livelock.
const STEPS_AT_ONCE_MAX: u32 = 1 << 20;
/// The least that an IPv4 host must take (RFC 791).
const MTU_LEAST: usize = 68;
/// The bytes of an Ethernet header.
const ETHERNET: u32 = 14;
