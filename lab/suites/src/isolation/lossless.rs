// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Eight senders fill a link for a minute: what the scheduler let go is what the sink saw.

use weir_experiment::prelude::*;
use weir_experiment::sim_star::{sim_node, sim_source};
use weir_policy::Direction;
use weir_sim::SimSource;
use weir_units::Instant;

use super::SETTLE_SECONDS;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    on_the_wire(rec)?;
    in_memory(rec)
}

/// Senders in memory wait instead of losing frames.
fn in_memory(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let policy = StarTopology::new("held", SENDERS, BitRate::from_mbps(LINK_MBPS)).policy();
    let each = 2 * LINK_MBPS * 1_000_000 / SENDERS as u64;
    let mut node = sim_node(&policy)?;
    let source = |tenant| sim_source(&node, tenant, 1500, each).waiting();
    let mut sources: Vec<SimSource> = (0..SENDERS).map(source).collect();
    let departures = node.record(&mut sources, Instant::from_nanos(2_000_000_000))?;
    let counters = policy.vifs().map(|(id, _)| node.vif_counters(id, Direction::Send));
    let dropped: u64 = counters.map(|counters| counters.dropped_total().packets).sum();
    let names = ["memory/left", "memory/dropped"];
    rec.keep(names[0], Series::count("packet", departures.len() as u64))?;
    rec.keep(names[1], Series::count("packet", dropped))?;
    // 98 % of the link for 2 s, so that they were held back indeed.
    let full = Bound::at_least(0.98 * float(LINK_MBPS * 2_000_000) / (1500.0 * 8.0));
    rec.claim("memory/full", "in memory, left", Rule::Sum, full, &names[..1])?;
    rec.claim("memory/none", "dropped", Rule::Sum, Bound::equal(0.0), &names[1..])
}

fn on_the_wire(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let seconds = if rec.quick { 5 } else { 60 };
    let star = StarTopology::new("lossless", SENDERS, BitRate::from_mbps(LINK_MBPS));
    let each = Some(Rate::Bps(2 * LINK_MBPS * 1_000_000 / SENDERS as u64));
    let streams = (0..SENDERS).zip(0..).map(|(k, stream)| star.stream(k, stream, 1500, each));
    let outcome = TrafficRun {
        middle: Forwarder::Weir(Box::new(star.policy())),
        senders: vec![star.generator(streams.collect())],
        receivers: vec![star.sink()],
        changes: Vec::new(),
        length: Duration::from_secs(seconds as u64),
        star,
    }
    .run()?;
    let status =
        outcome.status.as_ref().ok_or_else(|| ExperimentError::Node("no status".into()))?;
    let seen = (0..8).map(|k| (format!("t{k}"), outcome.bits_each_second(0, k, seconds))).collect();
    rec.saturated("wire", seen, float(LINK_MBPS * 1_000_000), SETTLE_SECONDS)?;
    let scheduled: u64 = status.vifs.iter().map(|vif| vif.send.sent.packets).sum();
    let arrived: u64 = outcome.received.iter().map(|sink| sink.totals.packets).sum();
    let lost = status.ports.iter().map(|port| port.lost_after_transmit).sum();
    let reordered = outcome.received.iter().flat_map(|sink| &sink.streams);
    let reordered = reordered.map(|s| s.order.reordered + s.order.duplicated).sum();
    for (name, packets) in [
        ("scheduled", scheduled),
        ("arrived", arrived),
        ("tx-dropped", lost),
        ("reordered", reordered),
    ] {
        rec.keep(name, Series::count("packet", packets))?;
    }
    let none = Bound::equal(0.0);
    let id = "lost";
    rec.claim(
        id,
        "scheduled, not seen by the sink",
        Rule::Difference,
        none,
        &["scheduled", "arrived"],
    )?;
    rec.claim("device", "dropped by the device", Rule::Sum, none, &["tx-dropped"])?;
    rec.claim("order", "out of order at the sink", Rule::Sum, none, &["reordered"])
}

const SENDERS: usize = 8;
const LINK_MBPS: u64 = 500;
