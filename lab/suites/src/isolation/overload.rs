// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A flood of at least twice the packets that the worker can serve: from a tenant, then towards
//! one.

use weir_experiment::prelude::*;

use super::SETTLE_SECONDS;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let capacity = worker_capacity(rec)?;
    from_a_tenant(rec, capacity)?;
    towards_a_tenant(rec, capacity)
}

/// Packets a second that the worker forwards when it gets as many small ones as there are, on a
/// link that is no limit.
fn worker_capacity(rec: &mut Recording<'_>) -> Result<u64, ExperimentError> {
    let seconds = 5;
    let star = StarTopology::new("capacity", 1, BitRate::from_mbps(20_000));
    let outcome = TrafficRun {
        middle: Forwarder::Weir(Box::new(star.policy())),
        senders: vec![star.generator(vec![star.stream(0, 0, FLOOD_BYTES, None)])],
        receivers: vec![star.sink()],
        changes: Vec::new(),
        length: Duration::from_secs(seconds as u64),
        star,
    }
    .run()?;
    let bits = outcome.bits_each_second(0, 0, seconds);
    let packets: Vec<f64> = bits.iter().map(|bits| bits / 8.0 / f64::from(FLOOD_BYTES)).collect();
    let most = packets.iter().copied().fold(0.0, f64::max);
    rec.keep("capacity", Series::sampled("packet/s", 1.0, packets))?;
    rec.say(&format!("the worker serves {most:.0} packets/s of {FLOOD_BYTES} bytes"));
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a packet rate")]
    Ok(most as u64)
}

fn from_a_tenant(rec: &mut Recording<'_>, capacity: u64) -> Result<(), ExperimentError> {
    let seconds = if rec.quick { 5 } else { 12 };
    let star = StarTopology::new("flood", 3, BitRate::from_mbps(1000));
    let policy = guaranteed(&star, |share| &mut share.send);
    let flood = Some(Rate::Pps(FLOOD_TIMES_CAPACITY * capacity));
    let streams = vec![
        star.stream(0, 0, 1500, Some(Rate::Bps(OFFERED_BPS))),
        star.stream(1, 1, 1500, Some(Rate::Bps(OFFERED_BPS))),
        star.stream(2, 2, FLOOD_BYTES, flood),
    ];
    let outcome = TrafficRun {
        middle: Forwarder::Weir(Box::new(policy)),
        senders: vec![star.generator(streams)],
        receivers: vec![star.sink()],
        changes: Vec::new(),
        length: Duration::from_secs(seconds as u64),
        star,
    }
    .run()?;
    let others = [(0, 0), (0, 1)];
    judge(rec, "from", &outcome, &others, capacity, seconds)
}

fn towards_a_tenant(rec: &mut Recording<'_>, capacity: u64) -> Result<(), ExperimentError> {
    let seconds = if rec.quick { 5 } else { 12 };
    let star = StarTopology::new("toward", 3, BitRate::from_mbps(1000));
    let policy = guaranteed(&star, |share| &mut share.receive);
    let flood = Some(Rate::Pps(FLOOD_TIMES_CAPACITY * capacity));
    let streams = vec![
        star.stream_towards(0, 0, 1500, Some(Rate::Bps(OFFERED_BPS))),
        star.stream_towards(1, 1, 1500, Some(Rate::Bps(OFFERED_BPS))),
        star.stream_towards(2, 2, FLOOD_BYTES, flood),
    ];
    let outcome = TrafficRun {
        middle: Forwarder::Weir(Box::new(policy)),
        senders: vec![star.generator(streams)],
        receivers: vec![star.sink_at("t0"), star.sink_at("t1"), star.sink_at("t2")],
        changes: Vec::new(),
        length: Duration::from_secs(seconds as u64),
        star,
    }
    .run()?;
    let others = [(0, 0), (1, 1)];
    judge(rec, "towards", &outcome, &others, capacity, seconds)
}

/// Tenants 0 and 1 have a guarantee in that direction, tenant 2 has none.
fn guaranteed(
    star: &StarTopology,
    direction: impl Fn(&mut weir_policy::Vif) -> &mut weir_policy::Share,
) -> weir_policy::Policy {
    let mut policy = star.policy();
    for vif in &mut policy.vifs[..2] {
        direction(vif).min_rate = BitRate::from_bps(GUARANTEED_BPS);
    }
    policy
}

/// The flood came, and each of `others` (receiver, stream) got its guarantee.
fn judge(
    rec: &mut Recording<'_>,
    part: &str,
    outcome: &TrafficRecord,
    others: &[(usize, u16)],
    capacity: u64,
    seconds: usize,
) -> Result<(), ExperimentError> {
    let sent = outcome.sent.iter().flat_map(|sender| &sender.streams);
    let flood = sent.filter(|stream| stream.stream == FLOOD_STREAM).map(|stream| stream.packets);
    let name = format!("{part}/flood");
    let rate = float(flood.sum()) / float(seconds as u64);
    rec.keep(&name, Series::unordered("packet/s", vec![rate]))?;
    let bound = Bound::at_least(2.0 * float(capacity));
    let id = format!("{part}/offered");
    rec.claim(id, "flood offered", Rule::Min, bound, &[name])?;
    for &(receiver, stream) in others {
        let got = outcome.bits_each_second(receiver, stream, seconds);
        let seen = [got, outcome.offered_each_second(stream, seconds)];
        let id = format!("{part}/t{stream}");
        let who = format!("tenant {stream}");
        rec.guaranteed(&id, &who, seen, float(GUARANTEED_BPS), SETTLE_SECONDS)?;
        // Whoever offers little is owed little.
        let bound = Bound::at_least(0.9 * float(GUARANTEED_BPS));
        let name = format!("{who}: owed, on average");
        let claim = Claim::new(format!("{id}/asked"), name, Rule::Mean, bound);
        rec.judge(claim.of(&[format!("{id}/owed")]).skip(SETTLE_SECONDS))?;
    }
    Ok(())
}

const FLOOD_BYTES: u16 = 64;
const FLOOD_STREAM: u16 = 2;

/// More than the requirement of 2, since the generator keeps its rate to 2 % only.
const FLOOD_TIMES_CAPACITY: u64 = 3;

const GUARANTEED_BPS: u64 = 300_000_000;
const OFFERED_BPS: u64 = 310_000_000;
