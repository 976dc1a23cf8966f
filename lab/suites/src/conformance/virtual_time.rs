// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A run in virtual time: the shipped switch between simulated senders and sinks.

use weir_experiment::senders::{CATCH_UP_US, HARDLY_US};
use weir_experiment::sim_star::{SIM_UPLINK, sim_node};
use weir_experiment::virtual_time::{SimArm, SimCapture, constant_pace, size_pattern};
use weir_experiment::{Result, StarTopology};
use weir_policy::VifId;
use weir_result::Cells;
use weir_sim::{DataPlane, HostTimes, Observation, Seed, SimNode, SimSource, StreamSink};
use weir_switch::IfaceId;
use weir_units::{Instant, Nanos};

use super::intent::switch_policy;
use super::measure::{LoadPath, LoadRecord, RunRecord, Setup, TenantLoad};

/// Runs it; `part` names it. The same setup and seed give the same record.
pub(super) fn run(setup: &Setup, arm: &SimArm, part: &str) -> Result<RunRecord> {
    let star = StarTopology::new("sim", setup.intent.tenants.len(), setup.intent.link);
    let mut node = sim_node(&switch_policy(&star, &setup.intent))?;
    let start = node.now;
    let cell_ns = setup.cell_us.saturating_mul(1_000);
    let mut sources = Vec::new();
    let mut counts = Vec::new();
    for (load, number) in setup.loads.iter().zip(1..) {
        sources.push(source(&node, load, Seed::new(arm.seed_of(number)), start));
        counts.push(Count::new(&node, load, start, cell_ns));
    }
    let capture = arm.capture(&mut node, part)?;
    let mut count = |observation: Observation| Count::add(&mut counts, &observation);
    let catch_up = Nanos::from_micros(if setup.even { HARDLY_US } else { CATCH_UP_US });
    let host = arm.host.map(|host| HostTimes { catch_up, ..host });
    let mut run = |node: &mut SimNode, until| match host {
        None => node.run(&mut sources, until, &mut count),
        Some(host) => node.run_on(host, &mut sources, until, &mut count),
    };
    for (at, intent) in &setup.changes {
        run(&mut node, start + Nanos::new(weir_experiment::clock::nanos(*at)))?;
        node.apply(&switch_policy(&star, intent))?;
    }
    let end = start + Nanos::from_secs(setup.seconds as u64);
    run(&mut node, end)?;
    // Queued frames still arrive.
    node.run(&mut [], end + DRAIN, &mut count)?;
    let note = capture.map(SimCapture::write).transpose()?.flatten();
    Ok(RunRecord {
        loads: counts.into_iter().map(Count::into_record).collect(),
        stolen_s: 0.0,
        start_ns: start.as_nanos(),
        seconds: setup.seconds,
        note,
    })
}

/// The counts of a load.
struct Count {
    offered: Cells,
    sent: u64,
    /// The interface that it is to leave by.
    to: IfaceId,
    sink: StreamSink,
    on_the_link: u64,
}

impl Count {
    fn new(node: &SimNode, load: &TenantLoad, start: Instant, cell_ns: u64) -> Self {
        let to = load.way.receiver().map_or(SIM_UPLINK, |tenant| vif_iface(node, tenant));
        let offered = Cells::new(start.as_nanos(), cell_ns);
        Self { offered, sent: 0, to, sink: StreamSink::new(cell_ns), on_the_link: 0 }
    }

    fn add(counts: &mut [Self], observation: &Observation) {
        match observation {
            Observation::Offered { at, source, bytes } => {
                if let Some(count) = counts.get_mut(*source) {
                    count.offered.add(at.as_nanos(), 1, *bytes);
                    count.sent += 1;
                }
            }
            Observation::Left(departure) => {
                if let Some(count) = counts.get_mut(departure.source) {
                    count.on_the_link += u64::from(departure.iface == SIM_UPLINK);
                    if departure.iface == count.to {
                        count.sink.add(departure);
                    }
                }
            }
        }
    }

    fn into_record(self) -> LoadRecord {
        let Self { offered, sent, sink, on_the_link, .. } = self;
        LoadRecord {
            offered,
            sent,
            arrived: sink.cells().clone(),
            received: sink.packets(),
            on_the_link,
            order: sink.order(),
            delays: sink.delays(),
        }
    }
}

fn source(node: &SimNode, load: &TenantLoad, seed: Seed, start: Instant) -> SimSource {
    let wire = (SIM_UPLINK, StarTopology::wire_mac().0);
    let tenant = |tenant| (vif_iface(node, tenant), StarTopology::mac(tenant).0);
    let (from, to) = match load.way {
        LoadPath::Send(one) => (tenant(one), wire),
        LoadPath::Receive(one) => (wire, tenant(one)),
        LoadPath::Between(one, other) => (tenant(one), tenant(other)),
    };
    let (sizes, pace) = (size_pattern(&load.sizes), constant_pace(load.rate));
    let mut source = SimSource::with(from.0, from.1, to.1, sizes, pace, seed);
    source.start = start;
    source
}

fn vif_iface(node: &SimNode, tenant: usize) -> IfaceId {
    node.switch.vif_iface(VifId(u32::try_from(tenant).unwrap_or(u32::MAX)))
}

/// Longer than any queue of the suite lasts.
const DRAIN: Nanos = Nanos::from_secs(5);
