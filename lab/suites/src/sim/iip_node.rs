// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures 5 to 11 of the IIP text, as far as its prose describes them (row 6).
//!
//! Three streams pass domain 0, a guest each, domain 0 again and a link with a phase for each. A
//! guest's costs of a packet and of a byte are fitted to some sizes of table 1. The other sizes,
//! the prose about both kinds of load, and every knee are predicted. The tester's own line bounds
//! the offered load.

use serde::Deserialize;
use weir_experiment::mean;
use weir_experiment::prelude::*;
use weir_sched::{
    ClassConfig, ClassId, ConfigError, CycleConfig, Cyclic, Drr, LinkConfig, Phase, QueueConfig,
    Scheduler,
};
use weir_sim::{
    Bottleneck, FifoLink, ForwardingFlow, ForwardingNetwork, ForwardingStation, ForwardingStop,
    PacketCost, ScheduledLink, Seed, SizePattern,
};
use weir_tester::{CpuPoint, CpuSurface};
use weir_units::Instant;

use super::forwarding_trial::{FlowTrial, ForwardingTrial, failed, steady_source};
use super::held::MACHINE;
use crate::iip::table1::{TENANTS, cpu_of, surface_of};
use crate::reproduce::scenario::unit;

const SCENARIO: &str = include_str!("../../../scenarios/sim/iip-node.toml");

/// The node and what goes through it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IipNodeScenario {
    #[serde(deserialize_with = "unit")]
    link: BitRate,
    /// The link time that a frame takes beyond its own length, in bytes.
    framing: u32,
    /// The phase of each internet.
    #[serde(deserialize_with = "unit")]
    phase: Nanos,
    /// The greatest load of each stream.
    mbps_max: u64,
    /// The lengths of frames.
    sizes: Vec<u16>,
    /// The lengths that the guests' costs are fitted to.
    fitted: Vec<u16>,
    /// Frames of an internet in front of the link.
    queue: u32,
    domain0: DomainZeroSpec,
    guest: GuestSpec,
    full: IipLoads,
    quick: IipLoads,
    #[serde(rename = "load")]
    loads: Vec<ProseLoad>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct DomainZeroSpec {
    processors: usize,
    #[serde(deserialize_with = "unit")]
    up: Nanos,
    #[serde(deserialize_with = "unit")]
    down: Nanos,
    /// Packets that wait for it.
    queue: usize,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GuestSpec {
    /// Packets that wait in its ring.
    ring: usize,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct IipLoads {
    /// The step of the loads.
    mbps_step: u64,
    /// Packets of each stream at the greatest load until a trial has settled.
    packets: u64,
}

/// A load whose processor time the text's prose has.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProseLoad {
    bytes: u16,
    mbps: u64,
    percent: f64,
}

/// The frames of all three streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Frames {
    Fixed(u16),
    /// 79 to 1518 bytes, drawn evenly.
    Random,
}

/// The three internets at one load.
struct LoadPoint {
    /// The load of each stream, Mb/s.
    mbps: f64,
    /// The load at which the text plots the point. The tester's line may carry less.
    asked: u64,
    loss: f64,
    /// The trial of each internet.
    flows: Vec<FlowTrial>,
    /// The part of each guest's processor, percent.
    cpu: Vec<f64>,
}

/// The loads of a kind of frames, ascending.
struct LoadSweep {
    points: Vec<LoadPoint>,
}

/// The model: the scenario and the guests' costs.
struct IipNodeModel {
    scenario: IipNodeScenario,
    guests: Vec<CpuSurface>,
    loads: IipLoads,
    /// The seed of senders' phases and lengths.
    seed: u64,
}

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let model = IipNodeModel::new(rec)?;
    held_out(rec, &model)?;
    prose(rec, &model)?;
    let mut fixed = Vec::new();
    for size in &model.scenario.sizes {
        // A quick run has the smallest, one that the text shows, and the largest.
        if !rec.quick || [79, 1024, 1518].contains(size) {
            let sweep = model.sweep(Frames::Fixed(*size), true)?;
            let id = format!("{size}");
            rec.within(&format!("{id}/"), |rec| keep(rec, &sweep))?;
            fixed.push((*size, sweep));
        }
    }
    fixed_sizes(rec, &model, &fixed)?;
    let sweep = model.sweep(Frames::Random, true)?;
    rec.within("random/", |rec| {
        keep(rec, &sweep)?;
        random_sizes(rec, &sweep)
    })
}

/// Claims that guests spend on sizes that nothing was fitted to what table 1 says (Figs 7, 8 and
/// 12).
fn held_out(rec: &mut Recording<'_>, model: &IipNodeModel) -> Result {
    let mut off = Vec::new();
    for (at, tenant) in TENANTS.iter().enumerate() {
        for size in &model.scenario.sizes {
            if model.scenario.fitted.contains(size) {
                continue;
            }
            let mbps = float(model.scenario.mbps_max / 2);
            let table = cpu_of(tenant, *size, mbps)?;
            let here = model.cpu(at, f64::from(*size), mbps);
            rec.say(&format!("{tenant}, {size} bytes, {mbps} Mb/s: {here:.1}, table {table:.1} %"));
            off.push((here - table).abs());
        }
    }
    let text = "a guest's processor time for sizes that nothing was fitted to, off table 1, points";
    rec.claim_samples("held-out", text, Series::unordered("%", off), Rule::Max, Bound::at_most(5.0))
}

/// Claims the prose of section 7.1 about processor time at 150 Mbit/s.
fn prose(rec: &mut Recording<'_>, model: &IipNodeModel) -> Result {
    for load in &model.scenario.loads {
        let ProseLoad { bytes, mbps, percent } = *load;
        let point = model.point(Frames::Fixed(bytes), mbps, true)?;
        rec.say(&format!("{bytes} bytes, {mbps} Mb/s: {:.1?} %, the text {percent}", point.cpu));
        let id = format!("prose/{bytes}");
        rec.keep(&format!("{id}/cpu"), Series::unordered("%", point.cpu.clone()))?;
        let part = Series::unordered("1", vec![mean(&point.cpu) / percent]);
        let text = "mean processor time of the guests, by the text's prose";
        rec.claim_samples(format!("{id}/most"), text, part, Rule::Max, Bound::at_most(1.2))?;
        let of = format!("{id}/most");
        rec.claim(format!("{id}/least"), text, Rule::Min, Bound::at_least(0.8), &[of])?;
        let [qos, can, dss] = point.cpu[..] else { continue };
        let text = "the content-aware guest is busiest: its processor time by the next";
        let ratio = Series::unordered("1", vec![can / qos.max(dss)]);
        rec.claim_samples(format!("{id}/can"), text, ratio, Rule::Min, Bound::at_least(1.01))?;
    }
    Ok(())
}

/// Keeps and prints the series of a sweep.
fn keep(rec: &mut Recording<'_>, sweep: &LoadSweep) -> Result {
    let of = |value: fn(&LoadPoint) -> f64| sweep.points.iter().map(value).collect::<Vec<f64>>();
    let columns: [(&str, &str, Vec<f64>); 5] = [
        ("load", "Mb/s", of(|point| point.mbps)),
        ("loss", "1", of(|point| point.loss)),
        ("carried", "Mb/s", of(LoadPoint::carried)),
        ("delay", "ms", of(LoadPoint::mean_ms)),
        ("cpu", "%", of(|point| mean(&point.cpu))),
    ];
    for (name, unit, values) in columns {
        rec.keep(name, Series::unordered(unit, values))?;
    }
    let (knee, top) = (sweep.knee(), sweep.top());
    rec.say(&format!(
        "{}: throughput {:.1} Mb/s, {:.3} ms there, {:.2} ms at {:.1}; processors {:.1?}, {:.1?} %",
        rec.id(),
        knee.mbps,
        knee.mean_ms(),
        top.mean_ms(),
        top.mbps,
        knee.cpu,
        top.cpu
    ));
    Ok(())
}

/// Claims Figures 5 to 8.
fn fixed_sizes(
    rec: &mut Recording<'_>,
    model: &IipNodeModel,
    sweeps: &[(u16, LoadSweep)],
) -> Result {
    let of = |size: u16| sweeps.iter().find(|(own, _)| *own == size).map(|(_, sweep)| sweep);
    let knees: Vec<f64> = sweeps.iter().map(|(_, sweep)| sweep.knee().mbps).collect();
    let kpps: Vec<f64> = sweeps
        .iter()
        .map(|(size, sweep)| sweep.knee().mbps * 1e3 / 8.0 / f64::from(*size))
        .collect();
    let falls = |values: &[f64]| values.windows(2).map(|two| two[0] / two[1]).collect::<Vec<f64>>();
    rec.keep("fig5/throughput", Series::unordered("Mb/s", knees))?;
    rec.claim_samples(
        "fig5/kpps",
        "Fig 5b: packets a second at the throughput, of a size by those of the next",
        Series::unordered("1", falls(&kpps)),
        Rule::Min,
        Bound::at_least(1.0),
    )?;
    if let (Some(small), Some(large)) = (of(79), of(1518)) {
        let part = Series::unordered("1", vec![small.knee().mbps / large.knee().mbps]);
        let text = "Fig 5a: throughput of the smallest frames, by that of the largest";
        rec.claim_samples("fig5/small", text, part, Rule::Max, Bound::at_most(0.75))?;
        let flat = small.top().cpu[CAN] / small.knee().cpu[CAN];
        let text = "Fig 7: processor time of a guest at the greatest load, by that at the knee";
        let part = Series::unordered("1", vec![flat]);
        rec.claim_samples("fig7/flat", text, part, Rule::Max, Bound::at_most(1.15))?;
    }
    if let Some(sweep) = of(1024) {
        let [half, top] = [&sweep.points[sweep.points.len() / 2], sweep.top()];
        let line = model.cpu(CAN, 1024.0, top.mbps) - model.cpu(CAN, 1024.0, half.mbps);
        let part = Series::unordered("1", vec![(top.cpu[CAN] - half.cpu[CAN]) / line]);
        let text = "Fig 8: processor time from half of the load to all, by the line's";
        rec.claim_samples("fig8/linear", text, part, Rule::Min, Bound::at_least(0.97))?;
        let without = model.point(Frames::Fixed(1024), top.asked, false)?;
        let part = Series::unordered("1", vec![without.carried() / top.carried()]);
        let text = "section 8: carried without the cycle, by that with it, 1024 bytes";
        rec.claim_samples("cycle", text, part, Rule::Min, Bound::at_least(1.05))?;
    }
    let calm = sweeps.iter().map(|(_, sweep)| sweep.calm().mean_ms()).collect();
    let series = Series::unordered("ms", calm);
    let text = "Fig 6: mean delay at half of the throughput, each size";
    rec.claim_samples("fig6/calm", text, series, Rule::Max, Bound::at_most(0.3))?;
    let rises = sweeps.iter().map(|(_, sweep)| sweep.top().mean_ms() / sweep.calm().mean_ms());
    let series = Series::unordered("1", rises.collect());
    let text = "Fig 6: mean delay at the greatest load, by that at half of the throughput, each";
    rec.claim_samples("fig6/rise", text, series, Rule::Min, Bound::at_least(10.0))?;
    let late: Vec<f64> = sweeps.iter().map(|(_, sweep)| sweep.top().mean_ms()).collect();
    if let (Some(first), Some(last)) = (late.first(), late.last()) {
        let series = Series::unordered("1", vec![last / first]);
        let text = "Fig 6: mean delay beyond the throughput, of the largest frames by the smallest";
        rec.claim_samples("fig6/large", text, series, Rule::Min, Bound::at_least(1.0))?;
    }
    Ok(())
}

/// Claims Figures 9 to 11.
fn random_sizes(rec: &mut Recording<'_>, sweep: &LoadSweep) -> Result {
    let (calm, knee, top) = (sweep.calm(), sweep.knee(), sweep.top());
    let most = sweep.points.iter().flat_map(|point| point.cpu.iter().copied());
    let series = Series::unordered("%", most.collect());
    let text = "section 8: processor time of a guest at random sizes";
    rec.claim_samples("fig9/most", text, series, Rule::Max, Bound::at_most(35.0))?;
    let [qos, can, dss] = knee.cpu[..] else { return Ok(()) };
    let text = "Fig 9: processor time of the content-aware guest, by the next";
    let series = Series::unordered("1", vec![can / qos.max(dss)]);
    rec.claim_samples("fig9/can", text, series, Rule::Min, Bound::at_least(1.01))?;
    let text = "Fig 9: no significant difference between the other two";
    let series = Series::unordered("1", vec![(qos / dss - 1.0).abs()]);
    rec.claim_samples("fig9/alike", text, series, Rule::Max, Bound::at_most(0.1))?;
    let text = "Fig 10: throughput at random sizes, by the greatest load";
    let series = Series::unordered("1", vec![knee.mbps / top.mbps]);
    rec.claim_samples("fig10/knee", text, series, Rule::Min, Bound::at_least(0.85))?;
    let text = "Fig 10: loss at the greatest load";
    let series = Series::unordered("1", vec![top.loss]);
    rec.claim_samples("fig10/loss", text, series, Rule::Min, Bound::at_least(LOSS))?;
    let text = "Fig 11: mean delay at half of the throughput";
    let series = Series::unordered("ms", vec![calm.mean_ms()]);
    rec.claim_samples("fig11/calm", text, series, Rule::Max, Bound::at_most(0.3))?;
    let text = "Fig 11: tens of ms where frames are lost";
    let series = Series::unordered("ms", vec![top.mean_ms()]);
    rec.claim_samples("fig11/late", text, series, Rule::Min, Bound::at_least(10.0))
}

impl LoadPoint {
    /// Returns the mean rate at which a stream arrives, in Mb/s.
    fn carried(&self) -> f64 {
        mean(&self.flows.iter().map(|flow| flow.mbps).collect::<Vec<f64>>())
    }

    /// Returns the mean of the three streams' mean delays, in ms.
    fn mean_ms(&self) -> f64 {
        mean(&self.flows.iter().map(FlowTrial::mean_ms).collect::<Vec<f64>>())
    }
}

impl LoadSweep {
    /// Returns the throughput: the last load before the first one that loses more than [`LOSS`].
    fn knee(&self) -> &LoadPoint {
        let lossy = self.points.iter().position(|point| point.loss > LOSS);
        &self.points[lossy.unwrap_or(self.points.len()).saturating_sub(1)]
    }

    /// Returns the least load of at least half of the throughput.
    fn calm(&self) -> &LoadPoint {
        let half = self.knee().mbps / 2.0;
        let above = self.points.iter().position(|point| point.mbps >= half);
        &self.points[above.unwrap_or(0)]
    }

    fn top(&self) -> &LoadPoint {
        &self.points[self.points.len() - 1]
    }
}

impl IipNodeModel {
    fn new(rec: &Recording<'_>) -> Result<Self> {
        let wrong = |error: toml::de::Error| {
            let (name, what) = ("iip-node.toml".to_owned(), error.to_string());
            ExperimentError::Scenario { name, what }
        };
        let scenario: IipNodeScenario = toml::from_str(SCENARIO).map_err(wrong)?;
        let surface = |tenant| surface_of(tenant, &scenario.fitted);
        let guests = TENANTS.into_iter().map(surface).collect::<Result<Vec<_>>>()?;
        let loads = if rec.quick { scenario.quick } else { scenario.full };
        Ok(Self { scenario, guests, loads, seed: rec.sim.seed_of(MACHINE) })
    }

    /// Returns the processor time of a guest by the fitted surface, in per cent.
    fn cpu(&self, guest: usize, frame_bytes: f64, mbps: f64) -> f64 {
        let kpps = mbps * 1e3 / 8.0 / frame_bytes;
        let point = CpuPoint { kpps, frame_bytes, ..CpuPoint::default() };
        self.guests.get(guest).map_or(0.0, |surface| surface.predict(&point))
    }

    /// Returns the processor time of a guest without packets, in per cent.
    fn base(&self, guest: usize) -> f64 {
        self.cpu(guest, 1.0, 0.0)
    }

    /// Returns a guest's time of a packet and of 1024 bytes, on the part of its processor that is
    /// left to packets.
    fn cost(&self, guest: usize) -> PacketCost {
        // One per cent for a thousand packets a second is 10 µs a packet.
        let price = |bytes: f64| {
            let point = CpuPoint { kpps: 1.0, frame_bytes: bytes, ..CpuPoint::default() };
            let percent = self.guests.get(guest).map_or(0.0, |surface| surface.predict(&point));
            (percent - self.base(guest)) * 10_000.0 / (1.0 - self.base(guest) / 100.0)
        };
        let nanos = |nanos: f64| {
            let time = Duration::try_from_secs_f64(nanos / 1e9).unwrap_or_default();
            Nanos::new(weir_experiment::clock::nanos(time))
        };
        PacketCost { packet: nanos(price(0.0)), kib: nanos(price(1024.0) - price(0.0)) }
    }

    /// Runs all loads of a kind of frames.
    fn sweep(&self, frames: Frames, cyclic: bool) -> Result<LoadSweep> {
        let most = self.scenario.mbps_max;
        let step = self.loads.mbps_step.max(1);
        let points =
            (0..most.div_ceil(step)).rev().map(|k| self.point(frames, most - k * step, cyclic));
        Ok(LoadSweep { points: points.collect::<Result<Vec<_>>>()? })
    }

    /// Runs one load of each stream.
    fn point(&self, frames: Frames, asked: u64, cyclic: bool) -> Result<LoadPoint> {
        let scenario = &self.scenario;
        let (least, most) = match frames {
            Frames::Fixed(bytes) => (bytes, bytes),
            Frames::Random => RANDOM,
        };
        let twice = u64::from(least) + u64::from(most);
        let share = scenario.link.as_bps() / TENANTS.len() as u64;
        let line = share.saturating_mul(twice) / (twice + 2 * u64::from(scenario.framing));
        // The tester's own line carries no more.
        let rate = BitRate::from_mbps(asked).min(BitRate::from_bps(line));
        let mbps = float(rate.as_bps()) / 1e6;
        let mut draws = Seed::new(self.seed);
        let mut stations = vec![ForwardingStation::Processors {
            count: scenario.domain0.processors,
            queue: scenario.domain0.queue,
        }];
        let ring = scenario.guest.ring;
        stations.extend(TENANTS.map(|_| ForwardingStation::Processors { count: 1, queue: ring }));
        stations.push(ForwardingStation::Bottleneck(self.link(cyclic)?));
        let flow = |guest: usize| {
            let sizes = SizePattern::Uniform { least, most };
            let source = steady_source(sizes, rate, &mut draws);
            ForwardingFlow { source, stops: self.stops(guest) }
        };
        let flows: Vec<_> = (0..TENANTS.len()).map(flow).collect();
        let counts = (stations.len(), flows.len());
        let network = ForwardingNetwork::new(stations, flows).map_err(failed)?;
        let most = BitRate::from_mbps(scenario.mbps_max).min(BitRate::from_bps(line));
        let settle = most.time_for_ceil(ByteCount::new(self.loads.packets * twice / 2));
        let lengths = (settle, Nanos::new(settle.as_nanos() / 4));
        let trial = ForwardingTrial::run(network, counts, lengths)?;
        let cpu = |guest: usize| {
            let base = self.base(guest);
            base + trial.busy[1 + guest].min(1.0) * (100.0 - base)
        };
        let cpu = (0..TENANTS.len()).map(cpu).collect();
        Ok(LoadPoint { mbps, asked, loss: trial.loss(), flows: trial.flows, cpu })
    }

    fn stops(&self, guest: usize) -> Vec<ForwardingStop> {
        let DomainZeroSpec { up, down, .. } = self.scenario.domain0;
        let at = |station, packet| {
            let cost = PacketCost { packet, kib: Nanos::ZERO };
            ForwardingStop { station, cost, overhead: 0 }
        };
        let own = ForwardingStop { station: 1 + guest, cost: self.cost(guest), overhead: 0 };
        let (station, overhead) = (1 + TENANTS.len(), self.scenario.framing);
        let link = ForwardingStop { station, overhead, ..ForwardingStop::default() };
        vec![at(0, up), own, at(0, down), link]
    }

    /// Makes the link: with a phase for each internet, or with one queue.
    fn link(&self, cyclic: bool) -> Result<Box<dyn Bottleneck>> {
        let IipNodeScenario { link: rate, queue, .. } = self.scenario;
        if !cyclic {
            let queue = usize::try_from(queue).unwrap_or(usize::MAX).saturating_mul(TENANTS.len());
            return Ok(Box::new(FifoLink::new(rate, queue, ByteCount::new(u64::MAX))));
        }
        let refused = |error: ConfigError| ExperimentError::Node(error.to_string());
        self.phases().map_err(refused)
    }

    fn phases(&self) -> std::result::Result<Box<dyn Bottleneck>, ConfigError> {
        let IipNodeScenario { link: rate, queue, phase, .. } = self.scenario;
        let (catch_up, classes_max, packets_max) = (Nanos::ZERO, 16, 1 << 16);
        let link = LinkConfig { rate: Some(rate), catch_up, classes_max, packets_max };
        let mut scheduler = Cyclic::new(&link, false, Drr::new);
        let bytes = ByteCount::new(u32::MAX.into());
        let queue = QueueConfig { packets: queue, bytes, ..ClassConfig::default().queue };
        let class = ClassConfig { queue, ..ClassConfig::default() };
        let (mut phases, mut classes) = (Vec::new(), Vec::<ClassId>::new());
        for _ in TENANTS {
            let owner = scheduler.add_class(Instant::ZERO, None, &ClassConfig::default())?;
            phases.push(Phase { owner, length: phase });
            classes.push(scheduler.add_class(Instant::ZERO, Some(owner), &class)?);
        }
        let length = Nanos::new(phase.as_nanos().saturating_mul(TENANTS.len() as u64));
        let cycle = CycleConfig { length, phases, ..CycleConfig::default() };
        scheduler.set_cycle(Instant::ZERO, &cycle)?;
        let class_of = move |flow: usize| classes.get(flow).copied().unwrap_or(ClassId(0));
        Ok(Box::new(ScheduledLink::of(scheduler, rate, Box::new(class_of))))
    }
}

/// The place of the content-aware guest among the internets.
const CAN: usize = 1;

/// Lengths of random frames.
const RANDOM: (u16, u16) = (79, 1518);

/// Loss that counts: one packet in a thousand.
const LOSS: f64 = 0.001;
