// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A well-behaved vif beside a flooding one at 1 Gb/s: its delay through Weir, beside the same
//! through a bridge and a FIFO.

use weir_experiment::prelude::*;
use weir_experiment::senders::hardly_catching_up;
use weir_experiment::sim_star::{sim_node, sim_source};
use weir_units::Instant;

use super::SETTLE_SECONDS;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    in_virtual_time(rec)?;
    on_the_wire(rec)
}

/// Every frame of the well-behaved vif, exactly: it offers 95 % of its guarantee.
fn in_virtual_time(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let policy = policy(&StarTopology::new("delay", 2, BitRate::from_mbps(LINK_MBPS)));
    let well_behaved = GUARANTEED_BPS * 95 / 100;
    let flood = FLOOD_LINKS * LINK_MBPS * 1_000_000;
    let mut node = sim_node(&policy)?;
    let mut sources = [sim_source(&node, 0, 1518, well_behaved), sim_source(&node, 1, 1518, flood)];
    let departures = node.record(&mut sources, Instant::from_nanos(1_000_000_000))?;
    let own = departures.iter().filter(|departure| departure.source == 0);
    let delays = own.map(|departure| float((departure.at - departure.offered).as_nanos()) / 1e9);
    let name = "virtual/delay";
    rec.keep(name, Series::unordered("s", delays.collect()))?;
    // The last two frames may be under way at the end. What is lost has no delay.
    let offered = float(well_behaved / (1518 * 8)) - 2.0;
    rec.claim("virtual/all", "frames that left", Rule::Count, Bound::at_least(offered), &[&name])?;
    let bound = Bound::at_most(TWO_FRAMES_S);
    rec.claim("virtual", "worst delay in virtual time", Rule::Max, bound, &[name])
}

/// The well-behaved vif is the first.
fn policy(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    policy.vifs[0].send.min_rate = BitRate::from_bps(GUARANTEED_BPS);
    policy.vifs[0].delay = Some(Nanos::from_micros(25));
    policy.node.idle = weir_policy::Idle::Spin;
    policy
}

fn on_the_wire(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let star = StarTopology::new("delay", 2, BitRate::from_mbps(LINK_MBPS));
    let weir_run = run(rec, &star, Forwarder::Weir(Box::new(policy(&star))))?;
    let bridge_run = run(rec, &star, Forwarder::Bridge)?;
    let names = [("weir", &weir_run), ("bridge", &bridge_run)].map(|(middle, outcome)| {
        let name = format!("delay/{middle}");
        rec.keep(&name, Series::unordered("s", quantiles(outcome))).map(|()| name)
    });
    let [weir, bridge] = names;
    let (weir, bridge) = (weir?, bridge?);
    for (middle, outcome) in [("weir", &weir_run), ("bridge", &bridge_run)] {
        let name = format!("flood/{middle}");
        let offered = outcome.offered_each_second(1, seconds(rec));
        rec.keep(&name, Series::sampled("bit/s", 1.0, offered))?;
        // With the well-behaved vif's part the link is full.
        let full = Bound::at_least(float(LINK_MBPS * 1_000_000 - GUARANTEED_BPS));
        let id = format!("flooded/{middle}");
        rec.claim(id, "flood offered, on average", Rule::Mean, full, &[name])?;
    }
    // What is lost has no delay.
    let seen = [
        weir_run.bits_each_second(0, 0, seconds(rec)),
        weir_run.offered_each_second(0, seconds(rec)),
    ];
    let guaranteed = float(GUARANTEED_BPS);
    rec.guaranteed("whole", "well-behaved vif", seen, guaranteed, SETTLE_SECONDS)?;
    let p99 = Rule::Percentile { percent: 99.0 };
    let bound = Bound::at_most(TWO_FRAMES_S + 200e-6);
    rec.claim("wire", "p99 through Weir", p99, bound, &[&weir])?;
    let ratio = Rule::RatioOfPercentiles { percent: 99.0 };
    let name = "p99 through Weir, of that through bridge and FIFO";
    rec.claim("beside", name, ratio, Bound::at_most(0.1), &[weir, bridge])
}

fn run(
    rec: &mut Recording<'_>,
    star: &StarTopology,
    middle: Forwarder,
) -> Result<TrafficRecord, ExperimentError> {
    let streams = vec![
        star.stream(0, 0, 1500, Some(Rate::Bps(GUARANTEED_BPS * 95 / 100))),
        star.stream(1, 1, 1500, Some(Rate::Bps(FLOOD_LINKS * LINK_MBPS * 1_000_000))),
    ];
    TrafficRun {
        star: star.clone(),
        middle,
        senders: vec![hardly_catching_up(star.generator(streams))],
        receivers: vec![star.sink()],
        changes: Vec::new(),
        length: Duration::from_secs(seconds(rec) as u64),
    }
    .run()
}

const fn seconds(rec: &Recording<'_>) -> usize {
    if rec.quick { 4 } else { 10 }
}

/// The delay that k in a thousand packets do not exceed, for k = 1 to 1000, in seconds.
fn quantiles(outcome: &TrafficRecord) -> Vec<f64> {
    let Some(seen) = outcome.stream(0, 0) else { return Vec::new() };
    (1..=1000).map(|k| float(seen.delays.quantile_ns(k, 1000)) / 1e9).collect()
}

const LINK_MBPS: u64 = 1000;

/// Load of the flood, in links: the generator reaches less beside a bridge.
const FLOOD_LINKS: u64 = 4;

/// The well-behaved vif is guaranteed a tenth of the link and offers 95 % of that.
const GUARANTEED_BPS: u64 = 100_000_000;

/// Two frames of 1518 bytes at 1 Gb/s.
const TWO_FRAMES_S: f64 = 2.0 * 1518.0 * 8.0 / 1e9;
