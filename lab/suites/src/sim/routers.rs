// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Virtual routers behind domain 0, with real TCP and the text's controller (row 3).
//!
//! A case has routers, each with connections or a flood, of which some are held at a set-point by
//! the dead-beat controller that ships, once a second, by the cap alone. It sees what iperf at the
//! receiver saw: packets of data. With `early_drop` a router's set-point is its limit in front of
//! domain 0 instead, as Weir's own controller holds it. The cases, their bounds and the orderings
//! of the text's figures are in the scenario file.

use weir_control::{CapRange, Controller, DeadZone, Gains, Model, Pi, PiConfig, Sample};
use weir_experiment::SimArm;
use weir_experiment::prelude::*;
use weir_sim::{
    BulkSender, CongestionControl, CreditAccounting, Crossing, DiscardingReader, ProbeSource,
    RouterHost, RouterHostConfig, RouterHostCounts, TcpConnection, TcpNetwork, TcpPath,
};
use weir_units::{CpuShare, Instant};

use super::router_scenario::{OrderMeasure, RouterCase, RouterOrder, RouterScenario};

/// The text's scenario.
const SCENARIO: &str = include_str!("../../../scenarios/sim/virtual-routers.toml");

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let scenario = RouterScenario::parse("virtual-routers.toml", SCENARIO)?;
    record(rec, &scenario, &SimArm::default())
}

/// Runs all cases of a scenario, the quick ones alone in a quick run, and judges them.
///
/// # Errors
/// A case is impossible, or captures are wanted: packets between endpoints have no frames.
pub(super) fn record(rec: &mut Recording<'_>, scenario: &RouterScenario, arm: &SimArm) -> Result {
    if arm.captures.is_some() {
        let what = "a capture of packets at virtual routers".to_owned();
        return Err(ExperimentError::Missing { what, needs: "frames around them".to_owned() });
    }
    let (mut runs, quick) = (Vec::new(), rec.quick);
    for case in scenario.cases.iter().filter(|case| case.quick || !quick) {
        let run = CaseRun::of(scenario, case, quick, arm.seed)?;
        rec.say(&format!("{}: {run}", case.name));
        rec.keep(&format!("{}/rate", case.name), Series::unordered("kp/s", run.rates.clone()))?;
        rec.keep(&format!("{}/delay", case.name), Series::unordered("ms", run.delays.clone()))?;
        rec.keep(&format!("{}/loss", case.name), Series::unordered("1", run.losses.clone()))?;
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
        judge(rec, number, order, &runs)?;
    }
    Ok(())
}

/// Claims that what an ordering names falls from place to place. One that names a case that was not
/// run is left out.
fn judge(
    rec: &mut Recording<'_>,
    number: usize,
    order: &RouterOrder,
    runs: &[(String, CaseRun)],
) -> Result {
    let value = |place: &String| {
        let (case, router) = place.split_once('/').unwrap_or((place, "0"));
        let (_, run) = runs.iter().find(|(name, _)| name == case)?;
        run.value(order.measure, router.parse().ok()?)
    };
    let Some(values) = order.falls.iter().map(value).collect::<Option<Vec<f64>>>() else {
        return Ok(());
    };
    let falls: Vec<f64> = values.windows(2).map(|pair| pair[0] - pair[1]).collect();
    rec.say(&format!("{}: {values:.3?}", order.text));
    let series = Series::unordered(order.measure.unit(), falls);
    // Equal is no order.
    let bound = Bound::at_least(order.measure.least_difference());
    rec.claim_samples(format!("order-{number}"), &order.text, series, Rule::Min, bound)
}

/// The measures of a case, by router.
#[derive(Clone, Debug, Default)]
struct CaseRun {
    /// Thousands of packets of data a second.
    rates: Vec<f64>,
    /// The mean delay of a probe through the host, in ms.
    delays: Vec<f64>,
    /// The part of all packets, acknowledgments and probes among them, that was not sent on.
    losses: Vec<f64>,
}

/// A case while it runs.
struct RoutersRun {
    network: TcpNetwork<RouterHost>,
    /// The router of each flow.
    router_of: Vec<usize>,
    /// The first flow that is a probe.
    probes_from: usize,
    controllers: Vec<Option<Pi>>,
    /// The counts at the end of the last second.
    counts: Vec<(RouterHostCounts, Nanos)>,
}

impl CaseRun {
    fn of(scenario: &RouterScenario, case: &RouterCase, quick: bool, seed: u64) -> Result<Self> {
        let (settle, duration) = scenario.lengths(quick);
        let mut run = RoutersRun::new(scenario, case, seed)?;
        for second in 1..=settle {
            run.second(second)?;
        }
        let before = run.counts.clone();
        let routers = case.routers.len();
        let (mut packets, mut delays) = (vec![0; routers], vec![(0.0, 0_u32); routers]);
        for second in settle + 1..=settle + duration {
            let seen = run.second(second)?;
            for (at, (data, probes)) in seen.into_iter().enumerate() {
                packets[at] += data;
                for delay in probes {
                    delays[at] = (delays[at].0 + delay, delays[at].1 + 1);
                }
            }
        }
        let rate = |packets: &u64| float(*packets) / float(duration) / 1000.0;
        let loss = |((after, _), (before, _)): (&(RouterHostCounts, _), &(RouterHostCounts, _))| {
            let offered = (after.offered - before.offered).max(1);
            let sent = (after.sent - before.sent).min(offered);
            1.0 - float(sent) / float(offered)
        };
        Ok(Self {
            rates: packets.iter().map(rate).collect(),
            delays: delays.iter().map(|(sum, count)| sum / f64::from(*count).max(1.0)).collect(),
            losses: run.counts.iter().zip(&before).map(loss).collect(),
        })
    }

    fn aggregate(&self) -> f64 {
        self.rates.iter().sum()
    }

    fn value(&self, measure: OrderMeasure, router: usize) -> Option<f64> {
        let least = self.rates.iter().copied().fold(f64::INFINITY, f64::min);
        let most = self.rates.iter().copied().fold(0.0, f64::max);
        match measure {
            OrderMeasure::Rate => self.rates.get(router).copied(),
            OrderMeasure::Delay => self.delays.get(router).copied(),
            OrderMeasure::Loss => self.losses.get(router).copied(),
            OrderMeasure::Aggregate => Some(self.aggregate()),
            OrderMeasure::MinMax => Some(least / most.max(f64::MIN_POSITIVE)),
        }
    }
}

impl std::fmt::Display for CaseRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { rates, delays, losses } = self;
        let sum = self.aggregate();
        write!(f, "{rates:.1?} kp/s, {sum:.1} together; {delays:.1?} ms; lost {losses:.3?}")
    }
}

impl RoutersRun {
    fn new(scenario: &RouterScenario, case: &RouterCase, seed: u64) -> Result<Self> {
        let host = &scenario.host;
        let (mut connections, mut router_of, mut probes) = (Vec::new(), Vec::new(), Vec::new());
        for (router, load) in case.routers.iter().enumerate() {
            for _ in 0..load.tcp {
                // Not all at once.
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
        let bytes = u32::try_from(host.mtu).unwrap_or(u32::MAX);
        for (router, load) in case.routers.iter().enumerate() {
            let rate = load.udp.map_or(0, PacketRate::as_pps);
            if let Some(period) = 1_000_000_000_u64.checked_div(rate).filter(|gap| *gap > 0) {
                let (start, period) = (Instant::ZERO, Nanos::new(period));
                probes.push(ProbeSource { start, period, bytes });
                router_of.push(router);
            }
        }
        let probes_from = router_of.len();
        for router in 0..case.routers.len() {
            probes.push(ProbeSource { start: Instant::ZERO, period: PROBE_PERIOD, bytes: PING });
            router_of.push(router);
        }
        let config = RouterHostConfig {
            up: host.up,
            down: host.down,
            cost: host.cost,
            queue: host.queue,
            ring: host.ring,
            accounting: CreditAccounting::Sampled,
        };
        let routers = case.routers.len();
        let mut bottleneck = RouterHost::new(config, routers, router_of.clone(), seed)?;
        for (at, load) in case.routers.iter().enumerate().filter(|(_, load)| load.early_drop) {
            bottleneck.set_limit(Instant::ZERO, at, load.set_point);
        }
        let path = TcpPath { mtu: host.mtu, both_ways: true, ack_delay: Some(host.ack_delay) };
        let network = TcpNetwork::over(path, bottleneck, connections, probes, seed);
        let network = network.map_err(|error| scenario.wrong(&case.name, &error))?;
        let controllers = case.routers.iter().map(|load| {
            let held = load.set_point.filter(|_| !load.early_drop);
            held.map(|set_point| controller(scenario, set_point)).transpose()
        });
        let controllers = controllers.collect::<Result<_>>()?;
        let counts = vec![<(RouterHostCounts, Nanos)>::default(); routers];
        Ok(Self { network, router_of, probes_from, controllers, counts })
    }

    /// Runs to the end of a second, in which controllers decide. Returns the packets of data and
    /// the delays of the probes of each router.
    fn second(&mut self, second: u64) -> Result<Vec<(u64, Vec<f64>)>> {
        let now = Instant::ZERO + Nanos::from_secs(second);
        let mut seen = vec![(0_u64, Vec::new()); self.controllers.len()];
        let (router_of, probes_from) = (&self.router_of, self.probes_from);
        let mut crossed = |packet: Crossing, _: Instant, ends: Instant| {
            let Some(seen) = router_of.get(packet.flow).and_then(|at| seen.get_mut(*at)) else {
                return;
            };
            if packet.flow >= probes_from {
                seen.1.push(float(ends.saturating_since(packet.offered).as_nanos()) / 1e6);
            } else {
                seen.0 += u64::from(!packet.backwards);
            }
        };
        let ran = self.network.run(now, &mut crossed);
        ran.map_err(|error| ExperimentError::Node(error.to_string()))?;
        for (at, controller) in self.controllers.iter_mut().enumerate() {
            let counts = self.network.bottleneck.counts(at)?;
            let cpu = Some(counts.1.saturating_sub(self.counts[at].1));
            self.counts[at] = counts;
            if let Some(controller) = controller {
                let span = Nanos::from_secs(1);
                let sample = Sample { span, packets: seen[at].0, offered: None, cpu };
                let action = controller.step(now, &sample);
                self.network.bottleneck.set_cap(at, action.cap);
            }
        }
        Ok(seen)
    }
}

/// Returns the text's dead-beat controller for a set-point, from no cap.
fn controller(scenario: &RouterScenario, set_point: PacketRate) -> Result<Pi> {
    let control = &scenario.control;
    let wrong = |error: &dyn std::fmt::Display| scenario.wrong("control", error);
    let model = Model::new(control.a, control.b).map_err(|error| wrong(&error))?;
    let percent = CpuShare::from_percent(1);
    let range = CapRange::new(control.cap_min..=CpuShare::ONE, percent);
    let config = PiConfig {
        gains: Gains::dead_beat(model),
        range: range.map_err(|error| wrong(&error))?,
        dead_zone: DeadZone::from_ppm(control.dead_zone_ppm),
    };
    Ok(Pi::new(config, set_point, CpuShare::ONE))
}

/// The text's probe of 0.1 kp/s, off any multiple of a tick.
const PROBE_PERIOD: Nanos = Nanos::from_micros(9_937);
/// The IP packet of a ping.
const PING: u32 = 84;
