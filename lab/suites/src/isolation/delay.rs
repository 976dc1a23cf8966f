// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A well-behaved vif beside a flooding one at 1 Gb/s: its delay through Weir, beside the same
//! through a bridge and a FIFO. It is guaranteed a tenth of the link and offers 95 % of that.

use weir_experiment::prelude::*;
use weir_experiment::senders::hardly_catching_up;
use weir_experiment::sim_star::{sim_node, sim_source};
use weir_units::Instant;

use super::parts::SETTLE_SECONDS;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("delay", 2, BitRate::from_bps(LINK_BPS));
    let mut policy = star.policy();
    policy.vifs[0].send.min_rate = BitRate::from_bps(GUARANTEED_BPS);
    policy.vifs[0].delay = Some(Nanos::from_micros(25));
    policy.node.idle = weir_policy::Idle::Spin;
    in_virtual_time(rec, &policy)?;
    on_the_wire(rec, &star, policy)
}

/// Every frame of the well-behaved vif, exactly.
fn in_virtual_time(rec: &mut Recording<'_>, policy: &Policy) -> Result {
    let mut node = sim_node(policy)?;
    let source = |tenant, bps| sim_source(&node, tenant, 1518, bps);
    let mut sources = [source(0, OFFERED_BPS), source(1, FLOOD_BPS)];
    let departures = node.record(&mut sources, Instant::from_nanos(1_000_000_000))?;
    let own = departures.iter().filter(|departure| departure.source == 0);
    let delays = own.map(|departure| float((departure.at - departure.offered).as_nanos()) / 1e9);
    let name = ["virtual/delay"];
    rec.keep(name[0], Series::unordered("s", delays.collect()))?;
    // The last two frames may be under way at the end. What is lost has no delay.
    let offered = float(OFFERED_BPS / (1518 * 8)) - 2.0;
    rec.claim("virtual/all", "frames that left", Rule::Count, Bound::at_least(offered), &name)?;
    let bound = Bound::at_most(TWO_FRAMES_S);
    rec.claim("virtual", "worst delay in virtual time", Rule::Max, bound, &name)
}

fn on_the_wire(rec: &mut Recording<'_>, star: &StarTopology, policy: Policy) -> Result {
    let seconds = if rec.quick { 4 } else { 10 };
    let run = |middle: Forwarder| {
        let streams = vec![
            star.stream(0, 0, 1500, Some(Rate::Bps(OFFERED_BPS))),
            star.stream(1, 1, 1500, Some(Rate::Bps(FLOOD_BPS))),
        ];
        TrafficRun {
            senders: vec![hardly_catching_up(star.generator(streams))],
            receivers: vec![star.sink()],
            ..TrafficRun::new(star, middle, seconds)
        }
        .run()
    };
    let (weir, bridge) = (run(policy.into())?, run(Forwarder::Bridge)?);
    for (middle, outcome) in [("weir", &weir), ("bridge", &bridge)] {
        rec.keep(&format!("delay/{middle}"), Series::unordered("s", quantiles(outcome)))?;
        let name = format!("flood/{middle}");
        rec.keep(&name, Series::sampled("bit/s", 1.0, outcome.offered(1)))?;
        // With the well-behaved vif's part the link is full.
        let full = Bound::at_least(float(LINK_BPS - GUARANTEED_BPS));
        let id = format!("flooded/{middle}");
        rec.claim(id, "flood offered, on average", Rule::Mean, full, &[name])?;
    }
    // What is lost has no delay.
    let seen = [weir.got(0, 0), weir.offered(0)];
    rec.guaranteed("whole", "well-behaved vif", seen, float(GUARANTEED_BPS), SETTLE_SECONDS)?;
    let (names, percent) = (["delay/weir", "delay/bridge"], 99.0);
    let bound = Bound::at_most(TWO_FRAMES_S + 200e-6);
    rec.claim("wire", "p99 through Weir", Rule::Percentile { percent }, bound, &names[..1])?;
    let (rule, bound) = (Rule::RatioOfPercentiles { percent }, Bound::at_most(0.1));
    rec.claim("beside", "p99 through Weir, of that through bridge and FIFO", rule, bound, &names)
}

/// Returns the delay that k in a thousand packets do not exceed, for k = 1 to 1000, in seconds.
fn quantiles(outcome: &TrafficRecord) -> Vec<f64> {
    let Some(seen) = outcome.stream(0, 0) else { return Vec::new() };
    (1..=1000).map(|k| float(seen.delays.quantile_ns(k, 1000)) / 1e9).collect()
}

const LINK_BPS: u64 = 1_000_000_000;

/// The generator reaches less beside a bridge.
const FLOOD_BPS: u64 = 4 * LINK_BPS;

const GUARANTEED_BPS: u64 = LINK_BPS / 10;
const OFFERED_BPS: u64 = GUARANTEED_BPS * 95 / 100;

/// Two frames of 1518 bytes at 1 Gb/s.
const TWO_FRAMES_S: f64 = 2.0 * 1518.0 * 8.0 / 1e9;
