// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run over the wire: a star of namespaces with the data plane in its middle, an XDP generator,
//! and XDP sinks.

use weir_experiment::senders::{hardly_catching_up, in_cells, worker_cpu};
use weir_experiment::{
    ExperimentError, Forwarder, Result, StarTopology, Testbed, TrafficRecord, TrafficRun, clock,
};
use weir_platform::processor_time::CpuTime;
use weir_policy::Policy;
use weir_sim::DataPlane;
use weir_traffic::XdpStream;

use super::intent::switch_policy;
use super::measure::{LoadPath, LoadRecord, RunRecord, Setup, TenantLoad};

/// Puts a data plane with its first policy into the middle of a star, which is empty.
pub(super) type StartPlane = for<'r> fn(&'r mut Testbed, &Policy) -> Result<StartedPlane<'r>>;

/// A star and the data plane that runs in its middle.
pub(super) type StartedPlane<'r> = (&'r Testbed, Box<dyn DataPlane<Error = ExperimentError> + 'r>);

/// Something to do beside the traffic, once, after all changes; it returns before traffic ends.
pub type Beside<'a> = &'a mut dyn FnMut(&Testbed) -> Result;

/// Runs a setup in a lab of that name, which is gone afterwards.
pub(super) fn run(
    setup: &Setup,
    start: StartPlane,
    lab: &str,
    beside: Beside<'_>,
) -> Result<RunRecord> {
    let star = StarTopology::new(lab, setup.intent.tenants.len(), setup.intent.link);
    let (run, receivers) = traffic(setup, &star);
    let mut rig = Testbed::up(&star)?;
    let (rig_up, mut plane) = start(&mut rig, &switch_policy(&star, &setup.intent))?;
    let before = CpuTime::now()?;
    let outcome = run.flow(rig_up, |rig| {
        let started = std::time::Instant::now();
        for (at, intent) in &setup.changes {
            clock::sleep(at.saturating_sub(started.elapsed()))?;
            plane.apply(&switch_policy(&star, intent))?;
        }
        beside(rig)
    });
    let cpu = usize::try_from(worker_cpu()).unwrap_or(usize::MAX);
    let stolen_s = CpuTime::now()?.stolen_since(&before, cpu);
    drop(plane);
    // Ends the node as well, and says if that failed.
    rig.down()?;
    let (outcome, ()) = outcome?;
    Ok(RunRecord {
        loads: (0..).zip(receivers).map(|(load, at)| record(&outcome, load, at)).collect(),
        stolen_s,
        start_ns: outcome.start_ns,
        seconds: setup.seconds,
        note: None,
    })
}

/// Returns the traffic and the index of each load's receiver: the wire's is 0.
fn traffic(setup: &Setup, star: &StarTopology) -> (TrafficRun, Vec<usize>) {
    let mut nodes = vec!["wire"];
    let mut receivers = Vec::new();
    let mut streams = Vec::new();
    for (load, stream) in setup.loads.iter().zip(0..) {
        let node = match load.way.receiver() {
            None => "wire",
            Some(tenant) => star.tenants.get(tenant).map_or("", String::as_str),
        };
        let known = nodes.iter().position(|known| *known == node);
        receivers.push(known.unwrap_or(nodes.len()));
        if known.is_none() {
            nodes.push(node);
        }
        streams.push(xdp_stream(load, star, stream));
    }
    let generator = star.generator(streams);
    let mut sender = if setup.even { hardly_catching_up(generator) } else { generator };
    // A policer has a burst of 1 ms: a sender that pauses for longer loses part of its rate.
    sender.run.nice = Some(SENDERS_NICE);
    sender.run.cell_us = setup.cell_us;
    let sinks = nodes.iter().map(|node| in_cells(star.sink_at(node), setup.cell_us));
    let run = TrafficRun {
        senders: vec![sender],
        receivers: sinks.collect(),
        // The data plane comes in its place.
        ..TrafficRun::new(star, Forwarder::Bridge, setup.seconds)
    };
    (run, receivers)
}

fn xdp_stream(load: &TenantLoad, star: &StarTopology, stream: u16) -> XdpStream {
    let rate = Some(load.rate);
    let plain = match load.way {
        LoadPath::Send(tenant) => star.stream(tenant, stream, 0, rate),
        LoadPath::Receive(tenant) => star.stream_towards(tenant, stream, 0, rate),
        LoadPath::Between(tenant, to) => star.stream_between(tenant, to, stream, rate),
    };
    XdpStream { sizes: load.sizes.clone(), ..plain }
}

/// Returns the record of a load from senders and sinks.
fn record(outcome: &TrafficRecord, load: u16, receiver: usize) -> LoadRecord {
    let sent = outcome.sent_of(load).next();
    let arrived = outcome.stream(receiver, load);
    LoadRecord {
        offered: sent.map(|sent| sent.series.clone()).unwrap_or_default(),
        sent: sent.map_or(0, |sent| sent.packets),
        arrived: arrived.map(|arrived| arrived.series.clone()).unwrap_or_default(),
        received: outcome.packets(receiver, load),
        on_the_link: outcome.packets(0, load),
        order: outcome.order(receiver, load),
        delays: arrived.map(|arrived| arrived.delays.clone()).unwrap_or_default(),
    }
}

/// Ranks senders above all else that runs on their processor.
const SENDERS_NICE: i32 = -15;
