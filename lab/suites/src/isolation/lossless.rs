// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Eight senders fill a link for a minute: what the scheduler let go is what the sink saw.

use weir_experiment::prelude::*;
use weir_experiment::sim_star::{sim_node, sim_source};
use weir_policy::Direction;
use weir_units::Instant;

use super::parts::SETTLE_SECONDS;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    on_the_wire(rec)?;
    rec.within("memory/", in_memory)
}

/// Senders in memory wait instead of losing frames.
fn in_memory(rec: &mut Recording<'_>) -> Result {
    let policy = StarTopology::new("held", SENDERS, LINK).policy();
    let mut node = sim_node(&policy)?;
    let source = |tenant| sim_source(&node, tenant, 1500, OFFERED_BPS).waiting();
    let mut sources: Vec<_> = (0..SENDERS).map(source).collect();
    let departures = node.record(&mut sources, Instant::from_nanos(2_000_000_000))?;
    let counters = policy.vifs().map(|(id, _)| node.vif_counters(id, Direction::Send));
    let dropped = counters.map(|counters| counters.dropped_total().packets).sum();
    // 98 % of the link for 2 s, so that they were held back indeed.
    let full = Bound::at_least(0.98 * float(LINK.as_bps() * 2) / (1500.0 * 8.0));
    let left = Series::count("packet", departures.len() as u64);
    rec.claim_samples("full", "in memory, left", left, Rule::Sum, full)?;
    packets(rec, "none", "dropped", dropped)
}

fn on_the_wire(rec: &mut Recording<'_>) -> Result {
    let seconds = if rec.quick { 5 } else { 60 };
    let star = StarTopology::new("lossless", SENDERS, LINK);
    let rate = Some(Rate::Bps(OFFERED_BPS));
    let streams = (0..SENDERS).zip(0..).map(|(tenant, k)| star.stream(tenant, k, 1500, rate));
    let outcome = TrafficRun {
        senders: vec![star.generator(streams.collect())],
        receivers: vec![star.sink()],
        ..TrafficRun::new(&star, star.policy(), seconds)
    }
    .run()?;
    let seen = (0..8).map(|stream| (format!("t{stream}"), outcome.got(0, stream)));
    let bps = float(LINK.as_bps());
    rec.within("wire/", |rec| rec.saturated(seen, bps, SETTLE_SECONDS))?;
    let status = outcome.status.as_ref();
    let status = status.ok_or_else(|| ExperimentError::Node("no status".into()))?;
    let scheduled = status.vifs.iter().map(|vif| vif.send.sent.packets).sum();
    let arrived = outcome.received.iter().map(|sink| sink.totals.packets).sum();
    for (name, packets) in [("scheduled", scheduled), ("arrived", arrived)] {
        rec.keep(name, Series::count("packet", packets))?;
    }
    let (text, none) = ("scheduled, not seen by the sink", Bound::equal(0.0));
    rec.claim("lost", text, Rule::Difference, none, &["scheduled", "arrived"])?;
    let lost = status.ports.iter().map(|port| port.lost_after_transmit).sum();
    packets(rec, "device", "dropped by the device", lost)?;
    let disorder = (0..8).map(|stream| outcome.order(0, stream));
    let disorder = disorder.map(|order| order.reordered + order.duplicated).sum();
    packets(rec, "order", "out of order at the sink", disorder)
}

/// Claims that there were no such packets.
fn packets(rec: &mut Recording<'_>, id: &str, text: &str, count: u64) -> Result {
    rec.claim_samples(id, text, Series::count("packet", count), Rule::Sum, Bound::equal(0.0))
}

const SENDERS: usize = 8;
const LINK: BitRate = BitRate::from_mbps(500);

/// All together offer twice the link.
const OFFERED_BPS: u64 = 2 * LINK.as_bps() / SENDERS as u64;
