// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tenth of the link, guaranteed, against ten vifs that flood it.

use weir_experiment::prelude::*;
use weir_experiment::sim_star::{bits_each_second, sim_node, sim_source};
use weir_sim::{Departure, SimSource};
use weir_units::Instant;

use super::SETTLE_SECONDS;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    on_the_wire(rec, 100, 64)?;
    on_the_wire(rec, 1000, 1500)?;
    in_memory(rec)
}

/// 999 floods between ports in memory, in virtual time.
fn in_memory(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let seconds = if rec.quick { 3 } else { 5 };
    let link = BitRate::from_mbps(1000);
    let mut policy = StarTopology::new("memory", CLASSES, link).policy();
    let guaranteed = link.as_bps() / 10;
    policy.vifs[0].send.min_rate = BitRate::from_bps(guaranteed);
    let mut node = sim_node(&policy)?;
    let source = |tenant| {
        let floods = FLOOD_TIMES_LINK * link.as_bps() / CLASSES as u64;
        let offered = if tenant == 0 { guaranteed + guaranteed / 2 } else { floods };
        sim_source(&node, tenant, 1500, offered)
    };
    let mut sources: Vec<SimSource> = (0..CLASSES).map(source).collect();
    let end = weir_experiment::clock::nanos(Duration::from_secs(seconds as u64));
    let departures = node.record(&mut sources, Instant::from_nanos(end))?;
    let of = |departure: &Departure| Departure {
        source: usize::from(departure.source != 0),
        ..*departure
    };
    let departures: Vec<Departure> = departures.iter().map(of).collect();
    let streams = ["guaranteed", "floods"].into_iter().zip(0..);
    let bits = |(name, source): (&str, usize)| {
        (name.to_owned(), bits_each_second(&departures, source, seconds))
    };
    rec.saturated("memory", streams.map(bits).collect(), float(link.as_bps()), SETTLE_SECONDS)?;
    let name = "memory/guaranteed";
    let bound = Bound::at_least(0.99 * float(guaranteed));
    let id = "memory/worst";
    rec.claim(id, "guaranteed vif against 999 floods, worst second", Rule::Min, bound, &[name])
}

fn on_the_wire(
    rec: &mut Recording<'_>,
    mbps: u64,
    frame_bytes: u16,
) -> Result<(), ExperimentError> {
    let seconds = if rec.quick { 5 } else { 12 };
    let star = StarTopology::new("min", 1 + FLOODERS, BitRate::from_mbps(mbps));
    let mut policy = star.policy();
    let guaranteed = mbps * 1_000_000 / 10;
    policy.vifs[0].send.min_rate = BitRate::from_bps(guaranteed);
    // The guaranteed vif offers half as much again as it is owed, each flooder a whole link.
    let offered = guaranteed + guaranteed / 2;
    let mut streams = vec![star.stream(0, 0, frame_bytes, Some(Rate::Bps(offered)))];
    for (index, stream) in (1..=FLOODERS).zip(1..) {
        let flood = Some(Rate::Bps(FLOOD_TIMES_LINK * mbps * 1_000_000 / 10));
        streams.push(star.stream(index, stream, frame_bytes, flood));
    }
    let outcome = TrafficRun {
        middle: Forwarder::Weir(Box::new(policy)),
        senders: vec![star.generator(streams)],
        receivers: vec![star.sink()],
        changes: Vec::new(),
        length: Duration::from_secs(seconds as u64),
        star,
    }
    .run()?;
    let part = format!("{mbps}M-{frame_bytes}B");
    let seen = (0..=u16::try_from(FLOODERS).unwrap_or(0))
        .map(|stream| (format!("t{stream}"), outcome.bits_each_second(0, stream, seconds)))
        .collect();
    rec.saturated(&part, seen, float(mbps * 1_000_000), SETTLE_SECONDS)?;
    let seen = [outcome.bits_each_second(0, 0, seconds), outcome.offered_each_second(0, seconds)];
    let id = format!("{part}/guaranteed");
    rec.guaranteed(&id, "guaranteed vif", seen, float(guaranteed), SETTLE_SECONDS)
}

const FLOODERS: usize = 10;

/// With ports in memory.
const CLASSES: usize = 1000;

/// Load of all flooders together, in links.
const FLOOD_TIMES_LINK: u64 = 3;
