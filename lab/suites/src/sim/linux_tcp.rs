// SPDX-License-Identifier: Apache-2.0 OR MIT
//! TCP of the simulator beside TCP of Linux (row 7).
//!
//! All that virtual time says of a tenant's TCP rests on smoltcp's CUBIC, which has no SACK. Both
//! TCPs send through the same queue of Weir's scheduler: on the wire in a running node, in virtual
//! time in a [`weir_sim::ScheduledLink`]. Goodput, which is what receivers read, and Jain's index
//! over connections are compared.
//!
//! In virtual time hosts delay their packets by a random time. Otherwise connections of one round
//! trip would lock in phase, and some would lose nearly all that they send.

use std::cell::Cell;
use std::rc::Rc;

use serde::Deserialize;
use weir_experiment::clock::nanos;
use weir_experiment::prelude::*;
use weir_experiment::{jain, mean};
use weir_policy::Queue;
use weir_sim::{
    BulkSender, CongestionControl, Seed, TcpApplication, TcpConnection, TcpNetwork, TcpPath,
    TcpSocket, discard_received,
};
use weir_units::Instant;

use crate::jitter::flow_runs::{TestedQueue, default_queue};
use crate::reproduce::scenario::{length, unit};

const SCENARIO: &str = include_str!("../../../scenarios/sim/linux-tcp.toml");

/// TCP connections through one bottleneck.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinuxTcpScenario {
    #[serde(deserialize_with = "unit")]
    rate: BitRate,
    /// The round trip without queues.
    #[serde(deserialize_with = "unit")]
    round_trip: Nanos,
    /// The longest time that a host in virtual time takes for a packet.
    #[serde(deserialize_with = "unit")]
    host_delay: Nanos,
    queues: Vec<LinuxTcpQueue>,
    full: LinuxTcpRuns,
    quick: LinuxTcpRuns,
    bounds: LinuxTcpBounds,
}

/// The queue of the vif.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum LinuxTcpQueue {
    /// One queue in order of arrival, with the defaults of a policy.
    Fifo,
    /// One queue for each flow, with the defaults of a policy.
    Flows,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinuxTcpRuns {
    /// The numbers of connections.
    connections: Vec<u16>,
    /// The time before connections are judged, on the wire.
    #[serde(deserialize_with = "length")]
    settle: Duration,
    /// The time before connections are judged, in virtual time.
    #[serde(deserialize_with = "length")]
    settle_virtual: Duration,
    /// The time for which connections are judged.
    #[serde(deserialize_with = "length")]
    duration: Duration,
    /// Runs on the wire and in virtual time.
    runs: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LinuxTcpBounds {
    /// The largest distance between goodputs, as a part of the one on the wire.
    goodput: f64,
    /// The largest distance between Jain's indices.
    jain: f64,
}

/// Goodput in Mb/s and Jain's index, of each run.
#[derive(Default)]
struct SharedGoodput {
    mbps: Vec<f64>,
    jain: Vec<f64>,
}

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let wrong = |error: toml::de::Error| {
        let (name, what) = ("linux-tcp.toml".to_owned(), error.to_string());
        ExperimentError::Scenario { name, what }
    };
    let scenario: LinuxTcpScenario = toml::from_str(SCENARIO).map_err(wrong)?;
    let runs = if rec.quick { &scenario.quick } else { &scenario.full };
    for queue in &scenario.queues {
        for connections in &runs.connections {
            let name = format!("{}/{connections}", queue.tested().name());
            let wire = on_the_wire(&scenario, runs, *queue, *connections)?;
            let mut virtual_time = SharedGoodput::default();
            for run in 0..runs.runs {
                let bits = in_virtual_time(&scenario, runs, *queue, *connections, run)?;
                virtual_time.add(&bits);
            }
            rec.within(&format!("{name}/"), |rec| {
                judge(rec, &wire, &virtual_time, scenario.bounds)
            })?;
        }
    }
    Ok(())
}

fn judge(
    rec: &mut Recording<'_>,
    wire: &SharedGoodput,
    virtual_time: &SharedGoodput,
    bounds: LinuxTcpBounds,
) -> Result {
    for (place, seen) in [("wire", wire), ("virtual", virtual_time)] {
        let SharedGoodput { mbps, jain } = seen;
        rec.say(&format!("{} {place}: {mbps:.2?} Mb/s, Jain's index {jain:.4?}", rec.id()));
        rec.keep(&format!("{place}/goodput"), Series::unordered("Mb/s", mbps.clone()))?;
        rec.keep(&format!("{place}/jain"), Series::unordered("1", jain.clone()))?;
    }
    let off = mean(&virtual_time.mbps) / mean(&wire.mbps) - 1.0;
    let text = "goodput in virtual time, off that on the wire";
    let series = Series::unordered("1", vec![off.abs()]);
    rec.claim_samples("goodput", text, series, Rule::Max, Bound::at_most(bounds.goodput))?;
    let off = mean(&virtual_time.jain) - mean(&wire.jain);
    let text = "Jain's index in virtual time, off that on the wire";
    let series = Series::unordered("1", vec![off.abs()]);
    rec.claim_samples("jain", text, series, Rule::Max, Bound::at_most(bounds.jain))
}

impl LinuxTcpQueue {
    const fn tested(self) -> TestedQueue {
        match self {
            Self::Fifo => TestedQueue::Fifo,
            Self::Flows => TestedQueue::Flows,
        }
    }

    /// Returns the queue as a policy has it.
    fn of_policy(self, rate: BitRate) -> Queue {
        match self {
            Self::Fifo => Queue::default(),
            Self::Flows => default_queue(rate),
        }
    }
}

impl SharedGoodput {
    /// Adds a run: bits a second of each connection.
    fn add(&mut self, bits: &[f64]) {
        self.mbps.push(bits.iter().sum::<f64>() / 1e6);
        self.jain.push(jain(bits));
    }
}

/// Runs connections of the kernel through a node.
fn on_the_wire(
    scenario: &LinuxTcpScenario,
    runs: &LinuxTcpRuns,
    queue: LinuxTcpQueue,
    connections: u16,
) -> Result<SharedGoodput> {
    let mut star = StarTopology::new("linux-tcp", 1, scenario.rate);
    star.round_trip = scenario.round_trip;
    let mut policy = star.policy();
    policy.vifs[0].send_queue = queue.of_policy(scenario.rate);
    let mut rig = Testbed::up(&star)?;
    rig.put(&policy.clone().into())?;
    rig.ask(&star.tenants[0], StarTopology::congestion_control("cubic"))?;
    let settle = usize::try_from(runs.settle.as_secs()).unwrap_or(0);
    let seconds = settle + usize::try_from(runs.duration.as_secs()).unwrap_or(0);
    let mut seen = SharedGoodput::default();
    for _ in 0..runs.runs {
        let run = TrafficRun {
            senders: (1..=connections).map(|stream| star.tcp(0, stream, 1)).collect(),
            receivers: vec![star.tcp_server()],
            ..TrafficRun::new(&star, policy.clone(), seconds)
        };
        let (record, ()) = run.flow(&rig, |_| Ok(()))?;
        let bits = |stream| {
            let seconds = record.got(0, stream);
            mean(seconds.get(settle..).unwrap_or_default())
        };
        seen.add(&(1..=connections).map(bits).collect::<Vec<f64>>());
    }
    rig.down()?;
    Ok(seen)
}

/// Runs connections of smoltcp through the same queue. Returns the bits a second of each.
fn in_virtual_time(
    scenario: &LinuxTcpScenario,
    runs: &LinuxTcpRuns,
    queue: LinuxTcpQueue,
    connections: u16,
    run: u64,
) -> Result<Vec<f64>> {
    let failed = |error: &dyn std::fmt::Display| ExperimentError::Node(error.to_string());
    let mut draws = Seed::new(run);
    let read: Vec<Rc<Cell<u64>>> = (0..connections).map(|_| Rc::default()).collect();
    let connection = |read: &Rc<Cell<u64>>| TcpConnection {
        control: CongestionControl::Cubic,
        window: TcpConnection::WINDOW,
        round_trip: scenario.round_trip,
        client: Box::new(BulkSender { start: Instant::from_nanos(draws.between(0, START_NS)) }),
        server: Box::new(CountingReader { read: Rc::clone(read) }),
    };
    let made = read.iter().map(connection).collect();
    let link = queue.tested().bottleneck(scenario.rate)?;
    let path = TcpPath { host_delay: scenario.host_delay, ..TcpPath::PLAIN };
    let network = TcpNetwork::over(path, link, made, Vec::new(), run);
    let mut network = network.map_err(|error| failed(&error))?;
    let settled = Instant::ZERO + Nanos::new(nanos(runs.settle_virtual));
    network.run(settled, &mut |_, _, _| {}).map_err(|error| failed(&error))?;
    let before: Vec<u64> = read.iter().map(|read| read.get()).collect();
    network
        .run(settled + Nanos::new(nanos(runs.duration)), &mut |_, _, _| {})
        .map_err(|error| failed(&error))?;
    let seconds = runs.duration.as_secs_f64();
    let bits = |(read, before): (&Rc<Cell<u64>>, u64)| float((read.get() - before) * 8) / seconds;
    Ok(read.iter().zip(before).map(bits).collect())
}

/// A reader that counts what it discards.
struct CountingReader {
    read: Rc<Cell<u64>>,
}

impl TcpApplication for CountingReader {
    fn act(&mut self, _: Instant, socket: &mut TcpSocket<'static>) -> Option<Instant> {
        self.read.set(self.read.get() + discard_received(socket));
        None
    }
}

/// All connections begin within this time, since threads do not start at one instant.
const START_NS: u64 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the test fails if TCP does not fill the link. Method: the scenario, in virtual time
    /// alone.
    #[test]
    fn connections_of_virtual_time_fill_the_link() {
        let scenario: LinuxTcpScenario = toml::from_str(SCENARIO).unwrap();
        let queue = LinuxTcpQueue::Flows;
        let bits = in_virtual_time(&scenario, &scenario.quick, queue, 4, 1).unwrap();
        let sum: f64 = bits.iter().sum();
        assert!((90e6..97e6).contains(&sum), "{bits:?}");
    }
}
