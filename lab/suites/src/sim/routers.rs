// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual routers behind domain 0, with real TCP and the text's controller (row 3).
//!
//! A case has routers, each with connections or a flood. Some are held at a set-point by a
//! dead-beat or a PI controller, once a second, by the cap alone. On one host the controller meters
//! the packets of data at the receiver, as the text did with iperf; in a line each meters all that
//! its router sends. With `early_drop` a router's set-point is its limit in front of domain 0
//! instead, as Weir's own controller holds it. The cases, their bounds and the orderings of the
//! text's figures are in the scenario file.

use weir_control::{
    CapRange, Controller, DeadZone, Gains, Model, Pi, PiConfig, Poles, Sample, Settings,
    relative_rmse,
};
use weir_experiment::mean;
use weir_experiment::prelude::*;
use weir_sim::{
    BulkSender, CongestionControl, Crossing, DiscardingReader, ProbeSource, RouterChain,
    RouterHost, RouterHostConfig, RouterHostCounts, TcpConnection, TcpNetwork, TcpPath,
};
use weir_units::{CpuShare, Instant};

use super::router_scenario::{
    OrderMeasure, RoutedLoad, RouterCase, RouterController, RouterHostSpec, RouterLikeness,
    RouterOrder, RouterScenario,
};

/// The text's scenarios, by name.
const SCENARIOS: [(&str, &str); 3] = [
    ("operating-range", include_str!("../../../scenarios/sim/operating-range.toml")),
    ("virtual-routers", include_str!("../../../scenarios/sim/virtual-routers.toml")),
    ("router-line", include_str!("../../../scenarios/sim/router-line.toml")),
];

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    for (name, text) in SCENARIOS {
        let scenario = RouterScenario::parse(name, text)?;
        rec.within(&format!("{name}/"), |rec| record(rec, &scenario))?;
    }
    Ok(())
}

/// Shows a figure or table of the text, such as `figure 9`.
pub(super) fn show_figure(rec: &mut Recording<'_>, label: &str) -> Result {
    for (name, text) in SCENARIOS {
        if let Some(scenario) = RouterScenario::parse(name, text)?.of_figure(label) {
            rec.within(&format!("{name}/"), |rec| record(rec, &scenario))?;
        }
    }
    Ok(())
}

/// Runs all cases of a scenario, the quick ones alone in a quick run, and judges them.
///
/// # Errors
/// A case is impossible, or captures are wanted: packets between endpoints have no frames.
pub(super) fn record(rec: &mut Recording<'_>, scenario: &RouterScenario) -> Result {
    if rec.sim.captures.is_some() {
        let what = "a capture of packets at virtual routers".to_owned();
        return Err(ExperimentError::Missing { what, needs: "frames around them".to_owned() });
    }
    let (mut runs, quick) = (Vec::new(), rec.quick);
    for case in scenario.cases.iter().filter(|case| case.quick || !quick) {
        let run = CaseRun::of(scenario, case, quick, rec.sim.seed)?;
        rec.say(&format!("{}: {run}", case.name));
        for (name, unit, samples) in [
            ("rate", "kp/s", &run.rates),
            ("delay", "ms", &run.delays),
            ("loss", "1", &run.losses),
            ("probe-loss", "1", &run.probe_losses),
            ("rmse", "1", &run.rmse),
        ] {
            let name = format!("{}/{name}", case.name);
            rec.keep(&name, Series::unordered(unit, samples.clone()))?;
        }
        if let Some([least, most]) = case.aggregate_kpps {
            let name = format!("{}/aggregate", case.name);
            let sum = Series::unordered("kp/s", vec![run.aggregate()]);
            rec.claim_samples(&name, "all routers together", sum, Rule::Min, {
                Bound::at_least(least)
            })?;
            let text = "all routers together, at most";
            rec.claim(format!("{name}-most"), text, Rule::Max, Bound::at_most(most), &[name])?;
        }
        runs.push((case.name.clone(), run));
    }
    for (number, order) in scenario.orders.iter().enumerate() {
        judge_order(rec, number, order, &runs)?;
    }
    for (number, likeness) in scenario.likenesses.iter().enumerate() {
        judge_likeness(rec, number, likeness, &runs)?;
    }
    Ok(())
}

/// Claims that the measure of an ordering falls from place to place.
fn judge_order(
    rec: &mut Recording<'_>,
    number: usize,
    order: &RouterOrder,
    runs: &[(String, CaseRun)],
) -> Result {
    let Some(values) = values(order.measure, &order.falls, runs) else { return Ok(()) };
    let falls: Vec<f64> = values.windows(2).map(|pair| pair[0] - pair[1]).collect();
    rec.say(&format!("{}: {values:.3?}", order.text));
    let series = Series::unordered(order.measure.unit(), falls);
    // Equal values are not in order.
    let bound = Bound::at_least(order.measure.least_difference());
    rec.claim_samples(format!("order-{number}"), &order.text, series, Rule::Min, bound)
}

/// Claims that a measure is alike at all places.
fn judge_likeness(
    rec: &mut Recording<'_>,
    number: usize,
    likeness: &RouterLikeness,
    runs: &[(String, CaseRun)],
) -> Result {
    let RouterLikeness { text, measure, places, within } = likeness;
    let Some(values) = values(*measure, places, runs) else { return Ok(()) };
    let least = values.iter().copied().fold(f64::INFINITY, f64::min).max(f64::MIN_POSITIVE);
    rec.say(&format!("{text}: {values:.3?}"));
    let above = values.iter().map(|value| value / least - 1.0).collect();
    let bound = Bound::at_most(*within);
    let name = format!("alike-{number}");
    rec.claim_samples(name, text, Series::unordered("1", above), Rule::Max, bound)
}

/// Returns a measure at places; `None` if one names a case that was not run.
fn values(
    measure: OrderMeasure,
    places: &[String],
    runs: &[(String, CaseRun)],
) -> Option<Vec<f64>> {
    let value = |place: &String| {
        let (case, at) = place.split_once('/').unwrap_or((place, "0"));
        let (_, run) = runs.iter().find(|(name, _)| name == case)?;
        run.value(measure, at.parse().ok()?)
    };
    places.iter().map(value).collect()
}

/// The measures of a case, by router. In a line of hosts, the measures of probes are by answerer.
#[derive(Clone, Debug, Default)]
struct CaseRun {
    /// Thousands of packets of data a second.
    rates: Vec<f64>,
    /// The relative RMSE of the rates of each second.
    rmse: Vec<f64>,
    /// The distance of a rate from its set-point, as a part of it; 0 without one.
    off: Vec<f64>,
    /// The part of all packets, acknowledgments and probes among them, that was not sent on; in a
    /// line, by the first host.
    losses: Vec<f64>,
    /// The mean delay of a probe through the host, in ms; 0 if none came through.
    delays: Vec<f64>,
    /// The part of the probes that did not come through.
    probe_losses: Vec<f64>,
}

/// A case while it runs.
struct RoutersRun {
    network: TcpNetwork<RouterChain>,
    /// The router of each flow.
    router_of: Vec<usize>,
    /// The first flow that is a probe.
    probes_from: usize,
    /// The controllers, by host and router.
    controllers: Vec<Vec<Option<HeldRouter>>>,
    /// The counts at the end of the last second, in the same order.
    counts: Vec<Vec<(RouterHostCounts, Nanos)>>,
}

/// A router's controller.
struct HeldRouter {
    controller: Pi,
    /// True if it begins at the least cap, continues from the whole per cent in force, and ignores
    /// processor time.
    published: bool,
}

/// A second's arrivals: packets of data of each router, delays of each probe.
struct SecondSeen {
    packets: Vec<u64>,
    delays: Vec<Vec<f64>>,
}

impl CaseRun {
    fn of(scenario: &RouterScenario, case: &RouterCase, quick: bool, seed: u64) -> Result<Self> {
        let (settle, duration) = scenario.lengths(quick);
        let mut run = RoutersRun::new(scenario, case, seed)?;
        for second in 1..=settle {
            run.second(second)?;
        }
        let before = run.counts.clone();
        let mut packets = vec![Vec::new(); case.routers.len()];
        let mut delays: Vec<Vec<f64>> = vec![Vec::new(); run.probes()];
        for second in settle + 1..=settle + duration {
            let seen = run.second(second)?;
            packets.iter_mut().zip(seen.packets).for_each(|(all, one)| all.push(one));
            delays.iter_mut().zip(seen.delays).for_each(|(all, some)| all.extend(some));
        }
        let rate =
            |packets: &Vec<u64>| float(packets.iter().sum::<u64>()) / float(duration) / 1000.0;
        let rates: Vec<f64> = packets.iter().map(rate).collect();
        let rmse = |packets: &Vec<u64>| {
            let rates: Vec<_> = packets.iter().copied().map(PacketRate::from_pps).collect();
            relative_rmse(&rates).unwrap_or(0.0)
        };
        let off = |(load, rate): (&RoutedLoad, &f64)| {
            let wanted = load.set_point.map_or(0.0, |rate| float(rate.as_pps()) / 1000.0);
            if wanted > 0.0 { (rate / wanted - 1.0).abs() } else { 0.0 }
        };
        let loss = |((after, _), (before, _)): (&(RouterHostCounts, _), &(RouterHostCounts, _))| {
            let offered = (after.offered - before.offered).max(1);
            let sent = (after.sent - before.sent).min(offered);
            1.0 - float(sent) / float(offered)
        };
        let first =
            |counts: &[Vec<(RouterHostCounts, Nanos)>]| counts.first().cloned().unwrap_or_default();
        let probes = float(duration * 1_000_000_000) / float(PROBE_PERIOD.as_nanos());
        let probe_loss = |delays: &Vec<f64>| {
            // The number of probes within the time may be one more or one less.
            (1.0 - float(delays.len() as u64) / probes).max(0.0)
        };
        Ok(Self {
            rmse: packets.iter().map(rmse).collect(),
            off: case.routers.iter().zip(&rates).map(off).collect(),
            losses: first(&run.counts).iter().zip(&first(&before)).map(loss).collect(),
            delays: delays.iter().map(|delays| mean(delays)).collect(),
            probe_losses: delays.iter().map(probe_loss).collect(),
            rates,
        })
    }

    fn aggregate(&self) -> f64 {
        self.rates.iter().sum()
    }

    fn value(&self, measure: OrderMeasure, place: usize) -> Option<f64> {
        let least = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.rates.iter().copied().fold(0.0, f64::max);
        let of = |values: &[f64]| values.get(place).copied();
        match measure {
            OrderMeasure::Rate => of(&self.rates),
            OrderMeasure::Delay => of(&self.delays),
            OrderMeasure::Loss => of(&self.losses),
            OrderMeasure::ProbeLoss => of(&self.probe_losses),
            OrderMeasure::Rmse => of(&self.rmse),
            OrderMeasure::Off => of(&self.off),
            OrderMeasure::Aggregate => Some(self.aggregate()),
            OrderMeasure::MinMax => Some(least / most.max(f64::MIN_POSITIVE)),
        }
    }
}

impl std::fmt::Display for CaseRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rates, delays, losses, rmse, probe_losses, .. } = self;
        let sum = self.aggregate();
        write!(f, "{rates:.1?} kp/s, {sum:.1} together, relative RMSE {rmse:.3?}; ")?;
        write!(f, "{delays:.1?} ms; lost {losses:.3?}, of probes {probe_losses:.3?}")
    }
}

impl RoutersRun {
    fn new(scenario: &RouterScenario, case: &RouterCase, seed: u64) -> Result<Self> {
        let host = &scenario.host;
        let (connections, mut router_of) = connections(host, case);
        let (mut probes, probes_from) = (Vec::new(), router_of.len());
        let bytes = u32::try_from(host.mtu).unwrap_or(u32::MAX);
        for (router, load) in case.routers.iter().enumerate() {
            let rate = load.udp.map_or(0, PacketRate::as_pps);
            if let Some(period) = 1_000_000_000_u64.checked_div(rate).filter(|gap| *gap > 0) {
                let (start, period) = (Instant::ZERO, Nanos::new(period + (period / DRIFT).max(1)));
                probes.push(ProbeSource { start, period, bytes, is_drawn: true });
                router_of.push(router);
            }
        }
        let probes_from = probes_from + probes.len();
        let mut answered_at = vec![None; probes_from];
        let places = scenario.places(case, OrderMeasure::Delay);
        for place in 0..places {
            let (start, period) = (Instant::ZERO, PROBE_PERIOD);
            probes.push(ProbeSource { start, period, bytes: PING, is_drawn: true });
            let is_line = host.hosts > 1;
            router_of.push(if is_line { 0 } else { place });
            answered_at.push(is_line.then_some(place));
        }
        let hosts = (0..host.hosts).map(|_| {
            let config = host_config(scenario, case);
            RouterHost::new(config, case.routers.len(), router_of.clone())
        });
        let mut chain =
            RouterChain::new(hosts.collect::<std::result::Result<_, _>>()?, answered_at);
        let controllers = controllers(scenario, case, &mut chain)?;
        let (both_ways, ack_delay) = (true, Some(host.ack_delay));
        let path = TcpPath { mtu: host.mtu, both_ways, ack_delay, host_delay: Nanos::ZERO };
        let network = TcpNetwork::over(path, chain, connections, probes, seed);
        let network = network.map_err(|error| scenario.wrong(&case.name, &error))?;
        let counts = vec![vec![Default::default(); case.routers.len()]; host.hosts];
        Ok(Self { network, router_of, probes_from, controllers, counts })
    }

    /// Returns the number of probes.
    const fn probes(&self) -> usize {
        self.router_of.len() - self.probes_from
    }

    /// Runs to the end of a second, when the controllers decide.
    fn second(&mut self, second: u64) -> Result<SecondSeen> {
        let now = Instant::ZERO + Nanos::from_secs(second);
        let routers = self.counts.first().map_or(0, Vec::len);
        let mut seen =
            SecondSeen { packets: vec![0; routers], delays: vec![Vec::new(); self.probes()] };
        let (router_of, probes_from) = (&self.router_of, self.probes_from);
        let mut crossed = |packet: Crossing, _: Instant, ends: Instant| {
            let probe = packet.flow.checked_sub(probes_from);
            if let Some(delays) = probe.and_then(|probe| seen.delays.get_mut(probe)) {
                delays.push(float(ends.saturating_since(packet.offered).as_nanos()) / 1e6);
            } else if let Some(packets) =
                router_of.get(packet.flow).and_then(|at| seen.packets.get_mut(*at))
            {
                *packets += u64::from(!packet.backwards);
            }
        };
        let ran = self.network.run(now, &mut crossed);
        ran.map_err(|error| ExperimentError::Node(error.to_string()))?;
        self.control(now, &seen)?;
        Ok(seen)
    }

    /// Lets the controllers decide. One host is metered at the receiver, as the text's was; in a
    /// line each host meters what its router sends (section 8.1).
    fn control(&mut self, now: Instant, seen: &SecondSeen) -> Result {
        let is_line = self.controllers.len() > 1;
        for (host, held) in self.controllers.iter_mut().enumerate() {
            for (at, held) in held.iter_mut().enumerate() {
                let Some(of) = self.network.bottleneck.host_mut(host) else { continue };
                let counts = of.counts(at)?;
                let before = std::mem::replace(&mut self.counts[host][at], counts);
                let sent = counts.0.sent - before.0.sent;
                let Some(held) = held else { continue };
                let packets = if is_line { sent } else { seen.packets[at] };
                let cap = held.step(now, packets, counts.1.saturating_sub(before.1));
                of.set_cap(at, cap);
            }
        }
        Ok(())
    }
}

impl HeldRouter {
    /// Returns the cap that follows from a second's packets and processor time.
    fn step(&mut self, now: Instant, packets: u64, cpu: Nanos) -> CpuShare {
        let cpu = (!self.published).then_some(cpu);
        let sample = Sample { span: Nanos::from_secs(1), packets, offered: None, cpu };
        let cap = self.controller.step(now, &sample).cap;
        if self.published {
            // It goes on from the whole per cent that is in force.
            self.controller.adopt(now, Settings::capped(cap), Some(&sample));
        }
        cap
    }
}

/// Returns the connections of a case, and the router of each.
fn connections(host: &RouterHostSpec, case: &RouterCase) -> (Vec<TcpConnection>, Vec<usize>) {
    let (mut connections, mut router_of) = (Vec::new(), Vec::new());
    for (router, load) in case.routers.iter().enumerate() {
        for _ in 0..load.tcp {
            // Connections begin one after another.
            let start = Instant::from_nanos(17_000_000 * connections.len() as u64);
            connections.push(TcpConnection {
                control: CongestionControl::Cubic,
                window: host.window,
                round_trip: host.round_trip,
                client: Box::new(BulkSender { start }),
                server: Box::new(DiscardingReader),
            });
            router_of.push(router);
        }
    }
    (connections, router_of)
}

fn host_config(scenario: &RouterScenario, case: &RouterCase) -> RouterHostConfig {
    let host = &scenario.host;
    RouterHostConfig {
        up: host.up,
        down: host.down,
        cost: case.cost.unwrap_or(host.cost),
        queue: host.queue,
        ring: host.ring,
        accounting: host.xen.accounting(),
    }
}

/// Makes the controllers of all hosts, and puts limits and the first caps in force.
fn controllers(
    scenario: &RouterScenario,
    case: &RouterCase,
    chain: &mut RouterChain,
) -> Result<Vec<Vec<Option<HeldRouter>>>> {
    let mut all = Vec::new();
    for host in 0..scenario.host.hosts {
        let mut held = Vec::new();
        for (at, load) in case.routers.iter().enumerate() {
            let by_cap = load.set_point.filter(|_| !load.early_drop && load.cap.is_none());
            let controller = by_cap.map(|set_point| controller(scenario, load, set_point));
            let controller = controller.transpose()?;
            let Some(of) = chain.host_mut(host) else { continue };
            if load.early_drop {
                of.set_limit(Instant::ZERO, at, load.set_point);
            }
            let start = controller.as_ref().map(|(_, start)| *start).or(load.cap);
            of.set_cap(at, start.unwrap_or(CpuShare::ONE));
            held.push(controller.map(|(held, _)| held));
        }
        all.push(held);
    }
    Ok(all)
}

/// Returns the controller of a router, and the cap that it begins with: the least one for a
/// controller as published, a whole processor for any other.
fn controller(
    scenario: &RouterScenario,
    load: &RoutedLoad,
    set_point: PacketRate,
) -> Result<(HeldRouter, CpuShare)> {
    let control = &scenario.control;
    let wrong = |error: &dyn std::fmt::Display| scenario.wrong("control", error);
    let model = Model::new(control.a, control.b).map_err(|error| wrong(&error))?;
    let percent = CpuShare::from_percent(1);
    let least = load.cap_min.unwrap_or(control.cap_min);
    let range = CapRange::new(least..=CpuShare::ONE, percent);
    let gains = match (load.controller, control.poles) {
        (RouterController::DeadBeat, _) => Gains::dead_beat(model),
        (RouterController::Pi, Some([re, im])) => {
            let poles = Poles::pair(re, im).map_err(|error| wrong(&error))?;
            Gains::place(model, poles)
        }
        (RouterController::Pi, None) => return Err(wrong(&"a PI controller needs poles")),
    };
    let config = PiConfig {
        gains,
        range: range.map_err(|error| wrong(&error))?,
        dead_zone: DeadZone::from_ppm(control.dead_zone_ppm),
    };
    let published = load.published;
    let start = if published { least } else { CpuShare::ONE };
    let controller = Pi::new(config, set_point, start);
    Ok((HeldRouter { controller, published }, start))
}

/// The clock of a flood's sender is slow by one part in so many. A packet is drawn within its slot,
/// but a tick is a multiple of slots, and domain 0 brings a packet later than it came: each tick
/// would meet the router in the same part of a slot, and sample too little.
const DRIFT: u64 = 10_000;

/// The text's probe of 0.1 kp/s, off any multiple of a tick.
const PROBE_PERIOD: Nanos = Nanos::from_micros(9_937);
/// The IP packet of a ping.
const PING: u32 = 84;
