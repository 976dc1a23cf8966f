// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A flood of at least twice the packets that the worker can serve: from a tenant, then towards
//! one. Tenants 0 and 1 have a guarantee in that direction, tenant 2 floods and has none.

use weir_experiment::prelude::*;

use super::parts::{SETTLE_SECONDS, long};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let capacity = worker_capacity(rec)?;
    for (part, lab, towards) in [("from/", "flood", false), ("towards/", "toward", true)] {
        let star = StarTopology::new(lab, 3, BitRate::from_mbps(1000));
        rec.within(part, |rec| flood(rec, &star, towards, capacity))?;
    }
    Ok(())
}

/// Measures the packets a second that the worker forwards when it gets as many small ones as there
/// are, on a link that is no limit.
fn worker_capacity(rec: &mut Recording<'_>) -> Result<u64> {
    let star = StarTopology::new("capacity", 1, BitRate::from_mbps(20_000));
    let outcome = TrafficRun {
        senders: vec![star.generator(vec![star.stream(0, 0, FLOOD_BYTES, None)])],
        receivers: vec![star.sink()],
        ..TrafficRun::new(&star, star.policy(), 5)
    }
    .run()?;
    let packets = |bits: f64| bits / 8.0 / f64::from(FLOOD_BYTES);
    let packets: Vec<f64> = outcome.got(0, 0).into_iter().map(packets).collect();
    let most = packets.iter().copied().fold(0.0, f64::max);
    rec.keep("capacity", Series::sampled("packet/s", 1.0, packets))?;
    rec.say(&format!("the worker serves {most:.0} packets/s of {FLOOD_BYTES} bytes"));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a packet rate")]
    Ok(most as u64)
}

fn flood(rec: &mut Recording<'_>, star: &StarTopology, towards: bool, capacity: u64) -> Result {
    let mut policy = star.policy();
    for vif in &mut policy.vifs[..2] {
        let share = if towards { &mut vif.receive } else { &mut vif.send };
        share.min_rate = BitRate::from_bps(GUARANTEED_BPS);
    }
    let stream = if towards { StarTopology::stream_towards } else { StarTopology::stream };
    let streams = vec![
        stream(star, 0, 0, 1500, Some(Rate::Bps(OFFERED_BPS))),
        stream(star, 1, 1, 1500, Some(Rate::Bps(OFFERED_BPS))),
        stream(star, 2, 2, FLOOD_BYTES, Some(Rate::Pps(FLOOD_TIMES_CAPACITY * capacity))),
    ];
    let sinks = if towards { &["t0", "t1", "t2"][..] } else { &["wire"] };
    let outcome = TrafficRun {
        senders: vec![star.generator(streams)],
        receivers: sinks.iter().map(|node| star.sink_at(node)).collect(),
        ..TrafficRun::new(star, policy, long(rec))
    }
    .run()?;
    let rate = float(outcome.packets_sent(2)) / float(outcome.seconds as u64);
    rec.keep("flood", Series::unordered("packet/s", vec![rate]))?;
    let bound = Bound::at_least(2.0 * float(capacity));
    rec.claim("offered", "flood offered", Rule::Min, bound, &["flood"])?;
    for (tenant, stream) in [(0, 0), (1, 1)] {
        let got = outcome.got(if towards { tenant } else { 0 }, stream);
        let (id, who) = (format!("t{stream}"), format!("tenant {stream}"));
        let guaranteed = float(GUARANTEED_BPS);
        rec.guaranteed(&id, &who, [got, outcome.offered(stream)], guaranteed, SETTLE_SECONDS)?;
        // Whoever offers little is guaranteed little.
        let (name, bound) = (format!("{who}: owed, on average"), Bound::at_least(0.9 * guaranteed));
        let claim = Claim::new(format!("{id}/asked"), name, Rule::Mean, bound);
        rec.judge(claim.of(&[format!("{id}/owed")]).skip(SETTLE_SECONDS))?;
    }
    Ok(())
}

const FLOOD_BYTES: u16 = 64;

/// More than the requirement of 2, since the generator keeps its rate to 2 % only.
const FLOOD_TIMES_CAPACITY: u64 = 3;

const GUARANTEED_BPS: u64 = 300_000_000;
const OFFERED_BPS: u64 = 310_000_000;
