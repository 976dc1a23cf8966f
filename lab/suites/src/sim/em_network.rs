// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables 2 and 3 of the Execution Management text, as far as their system is built (row 6).
//!
//! Seven routers stand in a line, and each takes processor time for a packet. Each direction has
//! processors of its own: in the text, small packets have the same throughput both ways as one way.
//! Both directions pass one physical link, which is the text's own reason for half of the
//! throughput of large packets both ways. A tunnel has a token bucket at its entry, and the last
//! router takes time to open each packet.

use serde::Deserialize;
use weir_experiment::prelude::*;
use weir_sim::{
    BucketShaper, FifoLink, ForwardingFlow, ForwardingNetwork, ForwardingStation, ForwardingStop,
    PacketCost, Seed, ShapedLink, SizePattern,
};

use super::forwarding_trial::{ForwardingTrial, failed, steady_source};
use super::held::MACHINE;
use crate::reproduce::scenario::{length, unit};

const SCENARIO: &str = include_str!("../../../scenarios/sim/em-network.toml");

/// A virtual network and what the text measured in it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EmNetworkScenario {
    routers: usize,
    /// The most packets that wait at a router.
    queue: usize,
    /// The link that both directions pass.
    #[serde(deserialize_with = "unit")]
    link: BitRate,
    link_queue: usize,
    /// The loss up to which a rate counts as carried.
    loss: f64,
    /// The step that throughput is rounded down to.
    mbps_step: u64,
    /// The greatest distance from the text's throughput, as a part of it.
    within: f64,
    /// A router's time of a packet by length, interpolated linearly between two lengths.
    cost: Vec<RouterCost>,
    tunnel: TunnelSpec,
    full: EmLengths,
    quick: EmLengths,
    #[serde(rename = "case")]
    cases: Vec<CarriedCase>,
    limited: Vec<LimitedCase>,
    /// The seed of senders' phases.
    #[serde(skip)]
    seed: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RouterCost {
    bytes: u16,
    #[serde(deserialize_with = "unit")]
    packet: Nanos,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct TunnelSpec {
    /// Bytes of the outer header.
    overhead: u32,
    /// The time of the last router to open a packet.
    #[serde(deserialize_with = "unit")]
    open: Nanos,
    #[serde(deserialize_with = "unit")]
    burst: ByteCount,
    /// The longest wait at the entry.
    #[serde(deserialize_with = "unit")]
    latency: Nanos,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EmLengths {
    /// The time before a trial is measured.
    #[serde(deserialize_with = "length")]
    settle: Duration,
    /// The time for which it is measured.
    #[serde(deserialize_with = "length")]
    duration: Duration,
}

/// A row of a table whose throughput is searched for.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CarriedCase {
    name: String,
    bytes: u16,
    /// True if packets go both ways; rates are those of one way.
    #[serde(default)]
    both: bool,
    #[serde(default)]
    tunnel: bool,
    /// The text's throughput.
    mbps: u64,
    /// True if a parameter was fitted to it.
    #[serde(default)]
    fitted: bool,
}

/// A row of table 3: what comes out of a tunnel with a limit.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct LimitedCase {
    name: String,
    bytes: u16,
    #[serde(default)]
    both: bool,
    #[serde(deserialize_with = "unit")]
    sent: BitRate,
    #[serde(deserialize_with = "unit")]
    limit: BitRate,
    /// The text's throughput.
    mbps: f64,
    /// The time until the queue is full.
    #[serde(deserialize_with = "length")]
    settle: Duration,
    /// The text's mean delay.
    delay_ms: f64,
}

/// Packets of one length, one way or both.
#[derive(Clone, Copy, Debug)]
struct EmTraffic {
    bytes: u16,
    both: bool,
    rate: BitRate,
    tunnel: bool,
    limit: Option<BitRate>,
}

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let scenario = EmNetworkScenario::of(rec)?;
    carried(rec, &scenario, |_| true)?;
    limited(rec, &scenario)
}

/// Shows table 2 alone: the network without a tunnel.
pub(super) fn table2(rec: &mut Recording<'_>) -> Result {
    let scenario = EmNetworkScenario::of(rec)?;
    carried(rec, &scenario, |case| !case.tunnel)
}

/// Shows table 3 alone: the tunnel, without and with a limit.
pub(super) fn table3(rec: &mut Recording<'_>) -> Result {
    let scenario = EmNetworkScenario::of(rec)?;
    carried(rec, &scenario, |case| case.tunnel)?;
    limited(rec, &scenario)
}

/// Claims the throughput of each of these rows.
fn carried(
    rec: &mut Recording<'_>,
    scenario: &EmNetworkScenario,
    is_shown: fn(&CarriedCase) -> bool,
) -> Result {
    let mut carried = Vec::new();
    for case in scenario.cases.iter().filter(|case| is_shown(case)) {
        let mbps = scenario.throughput(case, rec.quick)?;
        let part = float(mbps) / float(case.mbps);
        let kind = if case.fitted { "fitted" } else { "predicted" };
        rec.say(&format!("{}: {mbps} Mb/s, the text {}, {kind}", case.name, case.mbps));
        rec.keep(&case.name, Series::unordered("Mb/s", vec![float(mbps)]))?;
        carried.push(part);
    }
    like_the_text(rec, "throughput", "throughput by the text's, each row", carried, scenario)
}

/// Claims the output of tunnels with a limit: the limit. If more is sent, the delay is the bucket's
/// longest wait; otherwise it is less than a hundredth of that.
fn limited(rec: &mut Recording<'_>, scenario: &EmNetworkScenario) -> Result {
    let (mut parts, mut waits, mut calm) = (Vec::new(), Vec::new(), Vec::new());
    let longest = if rec.quick { Duration::from_secs(3) } else { Duration::MAX };
    for case in scenario.limited.iter().filter(|case| case.settle < longest) {
        let LimitedCase { bytes, both, sent, limit, .. } = *case;
        let traffic = EmTraffic { bytes, both, rate: sent, tunnel: true, limit: Some(limit) };
        let trial = scenario.trial(traffic, case.settle, rec.quick)?;
        let Some(flow) = trial.flows.first() else { continue };
        let (mbps, ms) = (flow.mbps, flow.mean_ms());
        let (text_mbps, text_ms) = (case.mbps, case.delay_ms);
        let name = &case.name;
        rec.say(&format!(
            "{name}: {mbps:.1} Mb/s, {ms:.3} ms; the text {text_mbps} Mb/s, {text_ms} ms"
        ));
        rec.keep(&format!("{name}/rate"), Series::unordered("Mb/s", vec![mbps]))?;
        rec.keep(&format!("{name}/delay"), Series::unordered("ms", vec![ms]))?;
        parts.push(mbps / text_mbps);
        let is_over = sent > limit;
        if is_over { waits.push(ms / text_ms) } else { calm.push(ms / MANY_MS) }
    }
    like_the_text(rec, "limited", "rate behind a limit by the text's, each row", parts, scenario)?;
    like_the_text(
        rec,
        "full",
        "delay behind a limit that is exceeded, by the text's",
        waits,
        scenario,
    )?;
    let text = "delay behind a limit that is kept, by a hundredth of the one behind a full bucket";
    rec.claim_samples("calm", text, Series::unordered("1", calm), Rule::Max, Bound::at_most(1.0))
}

/// Claims that no ratio to the text's value is farther from 1 than the scenario allows.
fn like_the_text(
    rec: &mut Recording<'_>,
    id: &str,
    text: &str,
    parts: Vec<f64>,
    scenario: &EmNetworkScenario,
) -> Result {
    let most = Bound::at_most(1.0 + scenario.within);
    let least = Bound::at_least(1.0 - scenario.within);
    rec.claim_samples(format!("{id}-most"), text, Series::unordered("1", parts), Rule::Max, most)?;
    rec.claim(format!("{id}-least"), text, Rule::Min, least, &[format!("{id}-most")])
}

impl EmNetworkScenario {
    fn of(rec: &Recording<'_>) -> Result<Self> {
        Ok(Self { seed: rec.sim.seed_of(MACHINE), ..Self::parse(SCENARIO)? })
    }

    fn parse(text: &str) -> Result<Self> {
        let wrong = |error: toml::de::Error| {
            let (name, what) = ("em-network.toml".to_owned(), error.to_string());
            ExperimentError::Scenario { name, what }
        };
        toml::from_str(text).map_err(wrong)
    }

    /// Returns the greatest rate of one way that is carried, in Mb/s.
    fn throughput(&self, case: &CarriedCase, quick: bool) -> Result<u64> {
        let CarriedCase { bytes, both, tunnel, .. } = *case;
        let settle = if quick { self.quick.settle } else { self.full.settle };
        let is_carried = |mbps: u64| -> Result<bool> {
            let rate = BitRate::from_mbps(mbps);
            let traffic = EmTraffic { bytes, both, rate, tunnel, limit: None };
            Ok(self.trial(traffic, settle, quick)?.loss() <= self.loss)
        };
        // A bisection over steps: the first step is carried, and the one behind the last is not.
        let (mut carried, mut not) = (0, self.link.as_bps() / 1_000_000 / self.mbps_step + 1);
        while not > carried + 1 {
            let middle = u64::midpoint(carried, not);
            let bound = if is_carried(middle * self.mbps_step)? { &mut carried } else { &mut not };
            *bound = middle;
        }
        Ok(carried * self.mbps_step)
    }

    fn trial(&self, of: EmTraffic, settle: Duration, quick: bool) -> Result<ForwardingTrial> {
        let lasts = if quick { self.quick.duration } else { self.full.duration };
        let directions = if of.both { 2 } else { 1 };
        let link = FifoLink::new(self.link, self.link_queue, ByteCount::new(u64::MAX));
        let mut stations = vec![ForwardingStation::Bottleneck(Box::new(link))];
        let (mut flows, mut draws) = (Vec::new(), Seed::new(self.seed));
        for _ in 0..directions {
            let stops = self.stops(of, &mut stations);
            let source = steady_source(SizePattern::Fixed(of.bytes), of.rate, &mut draws);
            flows.push(ForwardingFlow { source, stops });
        }
        let counts = (stations.len(), flows.len());
        let network = ForwardingNetwork::new(stations, flows).map_err(failed)?;
        let nanos = |length| Nanos::new(weir_experiment::clock::nanos(length));
        ForwardingTrial::run(network, counts, (nanos(settle), nanos(lasts)))
    }

    /// Adds the stations of one direction. Returns the stops of a packet.
    fn stops(&self, of: EmTraffic, stations: &mut Vec<ForwardingStation>) -> Vec<ForwardingStop> {
        let mut stops = Vec::new();
        for router in 0..self.routers {
            let is_first = router == 0;
            let is_last = router + 1 == self.routers;
            let mut packet = self.cost(of.bytes);
            if of.tunnel && is_last {
                packet = packet.saturating_add(self.tunnel.open);
            }
            let cost = PacketCost { packet, kib: Nanos::ZERO };
            let overhead = if of.tunnel && !is_first { self.tunnel.overhead } else { 0 };
            stops.push(ForwardingStop { station: stations.len(), cost, overhead });
            stations.push(ForwardingStation::Processors { count: 1, queue: self.queue });
            if is_first {
                if let Some(rate) = of.limit {
                    let TunnelSpec { burst, latency, .. } = self.tunnel;
                    let bucket = ShapedLink::new(Box::new(BucketShaper::new(rate, burst, latency)));
                    let station = stations.len();
                    stops.push(ForwardingStop { station, ..ForwardingStop::default() });
                    stations.push(ForwardingStation::Bottleneck(Box::new(bucket)));
                }
                let overhead = if of.tunnel { self.tunnel.overhead } else { 0 };
                stops.push(ForwardingStop { station: LINK, overhead, ..ForwardingStop::default() });
            }
        }
        stops
    }

    /// Returns a router's time of a packet.
    fn cost(&self, bytes: u16) -> Nanos {
        let above = self.cost.iter().find(|cost| cost.bytes >= bytes).or_else(|| self.cost.last());
        let below =
            self.cost.iter().rev().find(|cost| cost.bytes <= bytes).or_else(|| self.cost.first());
        let (Some(above), Some(below)) = (above, below) else { return Nanos::ZERO };
        let [from, to] = [below, above].map(|cost| i128::from(cost.packet.as_nanos()));
        let span = i128::from(above.bytes) - i128::from(below.bytes);
        let along = i128::from(bytes) - i128::from(below.bytes);
        let nanos = if span == 0 { from } else { from + (to - from) * along / span };
        Nanos::new(u64::try_from(nanos).unwrap_or(0))
    }
}

/// The station of the link.
const LINK: usize = 0;

/// A hundredth of the longest wait at a tunnel's entry.
const MANY_MS: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_between_two_lengths_is_on_the_line() {
        let scenario = EmNetworkScenario::parse(SCENARIO).unwrap();
        let nanos = [64, 100, 800, 1500, 1600].map(|bytes| scenario.cost(bytes).as_nanos());
        assert_eq!(nanos, [18_800, 18_800, 15_400, 12_000, 12_000]);
    }

    /// Goal: the link is passed by both directions, so that each has half of it.
    #[test]
    fn both_ways_large_packets_have_half() {
        let scenario = EmNetworkScenario::parse(SCENARIO).unwrap();
        let case = |name| scenario.cases.iter().find(|case| case.name == name).unwrap();
        let one = scenario.throughput(case("network-1500"), true).unwrap();
        let both = scenario.throughput(case("network-1500-both"), true).unwrap();
        assert_eq!((one, both), (840, 420));
    }
}
