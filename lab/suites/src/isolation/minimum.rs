// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Row 4: a vif that is guaranteed a tenth of the link gets it in every second, while ten other
//! vifs flood the link on the wire, and 999 do in virtual time.

use weir_experiment::prelude::*;
use weir_experiment::sim_star::{bits_each_second, sim_node, sim_source};
use weir_experiment::virtual_time::SimCapture;
use weir_sim::SimSource;
use weir_units::Instant;

use super::parts::{SETTLE_SECONDS, long};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    for (mbps, frame_bytes) in [(100, 64), (1000, 1500)] {
        let part = format!("{mbps}M-{frame_bytes}B/");
        rec.within(&part, |rec| on_the_wire(rec, BitRate::from_mbps(mbps), frame_bytes))?;
    }
    in_memory_alone(rec)
}

/// Shows the part in virtual time.
pub(super) fn in_memory_alone(rec: &mut Recording<'_>) -> Result {
    rec.within("memory/", in_memory)
}

/// Floods from 999 vifs, in virtual time.
fn in_memory(rec: &mut Recording<'_>) -> Result {
    let (link, seconds): (_, usize) = (BitRate::from_mbps(1000), if rec.quick { 3 } else { 5 });
    let star = StarTopology::new("memory", 1000, link);
    let mut node = sim_node(&policy(&star))?;
    let source = |tenant| sim_source(&node, tenant, 1500, offer_bps(&star, tenant));
    let mut sources: Vec<SimSource> = (0..star.tenants.len()).map(source).collect();
    let capture = rec.sim.capture(&mut node, rec.id())?;
    let mut departures =
        node.record(&mut sources, Instant::from_nanos(seconds as u64 * SECOND_NS))?;
    let note = capture.map(SimCapture::write).transpose()?.flatten();
    note.into_iter().for_each(|note| rec.result.add_note(note));
    // All floods count as one stream.
    departures.iter_mut().for_each(|departure| departure.source = departure.source.min(1));
    let bits = |(name, source)| (name, bits_each_second(&departures, source, seconds));
    let streams = [("guaranteed", 0), ("floods", 1)].map(bits);
    rec.saturated(streams, float(link.as_bps()), SETTLE_SECONDS)?;
    let bound = Bound::at_least(0.99 * float(guaranteed_bps(link)));
    let text = "guaranteed vif against 999 floods, worst second";
    rec.claim("worst", text, Rule::Min, bound, &["guaranteed"])
}

fn on_the_wire(rec: &mut Recording<'_>, link: BitRate, frame_bytes: u16) -> Result {
    let star = StarTopology::new("min", 11, link);
    let tenants = || (0..star.tenants.len()).zip(0..);
    let stream = |(tenant, stream)| {
        star.stream(tenant, stream, frame_bytes, Some(Rate::Bps(offer_bps(&star, tenant))))
    };
    let outcome = TrafficRun {
        senders: vec![star.generator(tenants().map(stream).collect())],
        receivers: vec![star.sink()],
        ..TrafficRun::new(&star, policy(&star), long(rec))
    }
    .run()?;
    let got = tenants().map(|(tenant, stream)| (format!("t{tenant}"), outcome.got(0, stream)));
    rec.saturated(got, float(link.as_bps()), SETTLE_SECONDS)?;
    let (seen, bps) = ([outcome.got(0, 0), outcome.offered(0)], float(guaranteed_bps(link)));
    rec.guaranteed("guaranteed", "guaranteed vif", seen, bps, SETTLE_SECONDS)
}

fn policy(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    policy.vifs[0].send.min_rate = BitRate::from_bps(guaranteed_bps(star.rate));
    policy
}

const fn guaranteed_bps(link: BitRate) -> u64 {
    link.as_bps() / 10
}

/// Returns the rate that a tenant offers: the guaranteed vif half as much again as its guarantee,
/// all others together three times the link.
fn offer_bps(star: &StarTopology, tenant: usize) -> u64 {
    match tenant {
        0 => guaranteed_bps(star.rate) * 3 / 2,
        _ => 3 * star.rate.as_bps() / (star.tenants.len() as u64 - 1),
    }
}

const SECOND_NS: u64 = 1_000_000_000;
