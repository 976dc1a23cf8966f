// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One run of tenants' traffic through a data plane, seen by sinks that share nothing with it.

use std::time::Duration;

use weir_experiment::cpu_time::CpuTime;
use weir_experiment::senders::{hardly_catching_up, in_cells, worker_cpu};
use weir_experiment::{
    ExperimentError, Forwarder, StarTopology, Testbed, TrafficRecord, TrafficRun, clock,
};
use weir_traffic::{Delays, FrameSizes, Order, Rate, Series, XdpStream};

use super::intent::Intent;
use super::plane::DataPlane;

/// What flows, through what.
#[derive(Clone, Debug)]
pub struct Setup {
    /// What the data plane is asked to hold at first.
    pub intent: Intent,
    /// Who sends what; load k is stream k.
    pub loads: Vec<Load>,
    /// Other intents while traffic flows, each with its time from the start of the traffic.
    pub changes: Vec<(Duration, Intent)>,
    /// Length of the traffic.
    pub seconds: usize,
    /// Width of the cells that packets are counted in.
    pub cell_us: u64,
    /// Whether the senders give up what they were kept from sending, instead of catching up.
    pub even: bool,
}

/// Frames of one tenant, as evenly spaced as the generator can.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// From where to where.
    pub way: Way,
    /// Their sizes, layer 2 without FCS.
    pub sizes: FrameSizes,
    /// How many.
    pub rate: Rate,
}

/// From where to where, by tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From a tenant to the link's other end.
    Send(usize),
    /// From there to a tenant.
    Receive(usize),
    /// From one tenant to another.
    Between(usize, usize),
}

/// What the sinks saw.
#[derive(Clone, Debug)]
pub struct Seen {
    outcome: TrafficRecord,
    /// The receiver of each load.
    receivers: Vec<usize>,
    seconds: usize,
    stolen_s: f64,
}

impl Setup {
    /// Loads for so long, without changes.
    #[must_use]
    pub const fn new(intent: Intent, loads: Vec<Load>, seconds: usize) -> Self {
        Self { intent, loads, changes: Vec::new(), seconds, cell_us: 10_000, even: false }
    }

    /// Runs it in a lab of that name, which is gone afterwards.
    ///
    /// # Errors
    /// The lab could not be made, the data plane did not start, change or stop, or traffic could
    /// not flow.
    pub fn run(&self, plane: &mut dyn DataPlane, lab: &str) -> Result<Seen, ExperimentError> {
        let star = StarTopology::new(lab, self.intent.tenants.len(), self.intent.link);
        let mut rig = Testbed::up(&star)?;
        plane.start(&mut rig, &self.intent)?;
        let (run, receivers) = self.traffic(star);
        let before = CpuTime::now()?;
        let outcome = run.flow(&rig, |rig| {
            let started = std::time::Instant::now();
            for (at, intent) in &self.changes {
                clock::sleep(at.saturating_sub(started.elapsed()))?;
                plane.change(rig, intent)?;
            }
            plane.beside(rig)
        });
        let cpu = usize::try_from(worker_cpu()).unwrap_or(usize::MAX);
        let stolen_s = CpuTime::now()?.stolen_since(&before, cpu);
        let stopped = plane.stop(&mut rig);
        rig.down()?;
        let (outcome, ()) = outcome?;
        stopped?;
        Ok(Seen { outcome, receivers, seconds: self.seconds, stolen_s })
    }

    /// The traffic, and the receiver of each load: the wire's is the first.
    fn traffic(&self, star: StarTopology) -> (TrafficRun, Vec<usize>) {
        let mut nodes = vec!["wire"];
        let mut receivers = Vec::new();
        let mut streams = Vec::new();
        for (load, stream) in self.loads.iter().zip(0..) {
            let node = load.way.end(&star);
            let known = nodes.iter().position(|known| *known == node);
            receivers.push(known.unwrap_or(nodes.len()));
            if known.is_none() {
                nodes.push(node);
            }
            streams.push(load.stream(&star, stream));
        }
        let generator = star.generator(streams);
        let mut sender = if self.even { hardly_catching_up(generator) } else { generator };
        // What is policed has a burst of 1 ms: a sender that pauses for longer is sending less.
        sender.run.nice = Some(SENDERS_NICE);
        sender.run.cell_us = self.cell_us;
        let sinks = nodes.iter().map(|node| in_cells(star.sink_at(node), self.cell_us));
        let run = TrafficRun {
            senders: vec![sender],
            receivers: sinks.collect(),
            changes: Vec::new(),
            length: Duration::from_secs(self.seconds as u64),
            // Of no account: the rig is up.
            middle: Forwarder::Bridge,
            star,
        };
        (run, receivers)
    }
}

impl Load {
    /// Frames of one length at so many bits a second, from a tenant to the link.
    #[must_use]
    pub const fn send(tenant: usize, sizes: FrameSizes, bps: u64) -> Self {
        Self { way: Way::Send(tenant), sizes, rate: Rate::Bps(bps) }
    }

    fn stream(&self, star: &StarTopology, stream: u16) -> XdpStream {
        let rate = Some(self.rate);
        let plain = match self.way {
            Way::Send(tenant) => star.stream(tenant, stream, 0, rate),
            Way::Receive(tenant) => star.stream_towards(tenant, stream, 0, rate),
            Way::Between(tenant, to) => star.stream_between(tenant, to, stream, rate),
        };
        XdpStream { sizes: self.sizes.clone(), ..plain }
    }
}

impl Way {
    /// The node where it ends.
    fn end(self, star: &StarTopology) -> &str {
        match self {
            Self::Send(_) => "wire",
            Self::Receive(tenant) | Self::Between(_, tenant) => {
                star.tenants.get(tenant).map_or("", String::as_str)
            }
        }
    }
}

impl Seen {
    /// Bits of a load that arrived in each second.
    #[must_use]
    pub fn got(&self, load: usize) -> Vec<f64> {
        let bits = |receiver| self.outcome.bits_each_second(receiver, stream(load), self.seconds);
        self.receivers.get(load).map_or_else(Vec::new, |receiver| bits(*receiver))
    }

    /// Bits of a load that its sender put on its device in each second.
    #[must_use]
    pub fn offered(&self, load: usize) -> Vec<f64> {
        self.outcome.offered_each_second(stream(load), self.seconds)
    }

    /// Bits of a load that arrived in each of `count` windows of `width`.
    #[must_use]
    pub fn bits(&self, load: usize, width: Duration, count: usize) -> Vec<f64> {
        let series = self.received(load).map(|seen| &seen.series);
        self.outcome.bits(series, weir_experiment::clock::nanos(width), count)
    }

    /// Packets of a load that arrived in each of `count` windows of `width`.
    #[must_use]
    pub fn packets(&self, load: usize, width: Duration, count: usize) -> Vec<f64> {
        self.count(self.received(load).map(|seen| &seen.series), width, count)
    }

    /// Packets of a load that its sender put on its device in each of `count` windows of `width`.
    #[must_use]
    pub fn packets_offered(&self, load: usize, width: Duration, count: usize) -> Vec<f64> {
        let mut streams = self.outcome.sent.iter().flat_map(|sender| &sender.streams);
        let sent = streams.find(|sent| sent.stream == stream(load));
        self.count(sent.map(|sent| &sent.series), width, count)
    }

    /// The delay that k in a thousand packets of a load do not exceed, for k = 1 to 1000, in
    /// seconds.
    #[must_use]
    pub fn delays(&self, load: usize) -> Vec<f64> {
        let delays = self.received(load).map(|seen| &seen.delays);
        let quantile = |k| delays.map_or(0, |delays| delays.quantile_ns(k, 1000));
        (1..=1000).map(|k| weir_experiment::float(quantile(k)) / 1e9).collect()
    }

    /// How long the packets of a load that arrived were on their way.
    #[must_use]
    pub fn on_the_way(&self, load: usize) -> Delays {
        self.received(load).map(|seen| seen.delays.clone()).unwrap_or_default()
    }

    /// The time that the machine's host took from the forwarder's processor meanwhile, in seconds.
    #[must_use]
    pub const fn stolen_s(&self) -> f64 {
        self.stolen_s
    }

    /// Packets of a load that were sent, and that arrived.
    #[must_use]
    pub fn counts(&self, load: usize) -> (u64, u64) {
        let streams = self.outcome.sent.iter().flat_map(|sender| &sender.streams);
        let sent = streams.filter(|sent| sent.stream == stream(load)).map(|sent| sent.packets);
        (sent.sum(), self.received(load).map_or(0, |seen| seen.packets))
    }

    /// What the sequence numbers of a load say.
    #[must_use]
    pub fn order(&self, load: usize) -> Order {
        self.received(load).map(|seen| seen.order).unwrap_or_default()
    }

    /// Packets of a load that the link's other end saw, wherever they were meant to go.
    #[must_use]
    pub fn on_the_link(&self, load: usize) -> u64 {
        self.outcome.stream(0, stream(load)).map_or(0, |seen| seen.packets)
    }

    fn count(&self, series: Option<&Series>, width: Duration, count: usize) -> Vec<f64> {
        let windows = series.map_or_else(Vec::new, |series| {
            let cells = weir_experiment::clock::nanos(width) / series.cell_ns.max(1);
            series.windows(self.outcome.start_ns, usize::try_from(cells).unwrap_or(1))
        });
        let mut packets: Vec<f64> =
            windows.iter().map(|(packets, _)| weir_experiment::float(*packets)).collect();
        packets.resize(count, 0.0);
        packets
    }

    fn received(&self, load: usize) -> Option<&weir_traffic::Received> {
        self.outcome.stream(*self.receivers.get(load)?, stream(load))
    }
}

/// Loads are streams in the same order.
fn stream(load: usize) -> u16 {
    u16::try_from(load).unwrap_or(u16::MAX)
}

/// Before whatever else runs on the senders' processor.
const SENDERS_NICE: i32 = -15;
