// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every value of a policy changes while traffic runs, one every 200 ms. Flows below their shares,
//! to the wire, from it and between two tenants, lose nothing and stay in order; what a changed
//! value lets through follows at once.

use weir_experiment::TimedPolicy;
use weir_experiment::prelude::*;
use weir_policy::Share;
use weir_traffic::XdpStream;

use super::change_steps::STEPS;
use super::parts::{self, Flow, LINK_MBPS, mbps};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("change", 6, BitRate::from_mbps(LINK_MBPS));
    let base = base(&star);
    let changes = changes(&base);
    let count = changes.len() as u64;
    let seen = TrafficRun {
        senders: vec![star.generator(streams(&star))],
        receivers: ["wire", "t2", "t4"].map(|node| star.sink_at(node)).into(),
        length: changes.last().map_or(Duration::ZERO, |last| last.at) + SETTLE,
        changes,
        ..TrafficRun::new(&star, base, 0)
    }
    .run()?;
    rec.within("values/", |rec| {
        let least = (PHASES.len() + STEPS.len()) as u64;
        rec.at_least("changes", "changes made", count, least)?;
        IN_PROFILE.into_iter().try_for_each(|flow| in_order(rec, &seen, flow))
    })?;
    rec.within("effect/", |rec| follows(rec, &seen))
}

/// Tenant 0 sends to the wire, 2 receives from it, 3 sends to 4; 5 floods, 1 sends little.
fn base(star: &StarTopology) -> Policy {
    let mut policy = parts::in_slices(
        star,
        &[("gold", None, 2), ("silver", None, 1), ("inside", None, 2), ("flood", None, 1)],
    );
    policy.vifs[0].send.min_rate = BitRate::from_mbps(8);
    policy.vifs[1].send.min_rate = BitRate::from_mbps(2);
    policy.vifs[2].receive.min_rate = BitRate::from_mbps(8);
    // Room for what the steps ask for.
    policy.node.frames *= 2;
    policy
}

fn streams(star: &StarTopology) -> Vec<XdpStream> {
    vec![
        star.stream(0, 0, 1500, mbps(5)),
        star.stream(1, 1, 200, mbps(1)),
        star.stream_towards(2, 2, 700, mbps(5)),
        star.stream_between(3, 4, 3, mbps(5)),
        star.stream(5, FLOOD, 1500, mbps(3 * LINK_MBPS)),
    ]
}

/// The phases that are measured, then the steps, each from the policy before it.
fn changes(base: &Policy) -> Vec<TimedPolicy> {
    let mut policy = base.clone();
    let mut changes = Vec::new();
    for (number, phase) in (1..).zip(PHASES) {
        (phase.change)(&mut policy);
        changes.push(TimedPolicy { at: PHASE * number, policy: policy.clone() });
    }
    let begin = PHASE * u32::try_from(PHASES.len() + 1).unwrap_or(u32::MAX);
    for (number, step) in (0..).zip(STEPS) {
        step(&mut policy);
        changes.push(TimedPolicy { at: begin + STEP * number, policy: policy.clone() });
    }
    changes
}

/// A change whose effect is measured for a while.
#[derive(Clone, Copy)]
struct Phase {
    name: &'static str,
    change: fn(&mut Policy),
    /// True if the value belongs to all traffic on the link, not to the flood alone.
    of_link: bool,
    /// The rate that passes in this phase.
    mbps: u64,
}

const PHASES: [Phase; 4] = [
    Phase::of_flood("limit", 10, |policy| limit(&mut policy.vifs[5].send, 10)),
    Phase::of_flood("raised", 20, |policy| limit(&mut policy.vifs[5].send, 20)),
    Phase {
        of_link: true,
        ..Phase::of_flood("port", 18, |policy| policy.ports[0].rate = BitRate::from_mbps(18))
    },
    Phase::of_flood("slice", 6, |policy| {
        policy.ports[0].rate = BitRate::from_mbps(LINK_MBPS);
        policy.vifs[5].send.rate = None;
        limit(&mut policy.slices[3].send, 6);
    }),
];

impl Phase {
    const fn of_flood(name: &'static str, mbps: u64, change: fn(&mut Policy)) -> Self {
        Self { name, change, of_link: false, mbps }
    }
}

/// A limit that makes up for a worker that is late by up to 26 ms.
fn limit(share: &mut Share, mbps: u64) {
    parts::limit(share, mbps, mbps * 3_200);
}

/// Claims that all packets arrived, each once and in order.
pub(crate) fn in_order(
    rec: &mut Recording<'_>,
    seen: &TrafficRecord,
    (name, receiver, stream): Flow,
) -> Result {
    let both = ["sent", "arrived"].map(|what| format!("{name}/{what}"));
    let counts = [seen.packets_sent(stream), seen.packets(receiver, stream)];
    for (name, count) in both.iter().zip(counts) {
        rec.keep(name, Series::count("packet", count))?;
    }
    let (id, none) = (format!("{name}/lost"), Bound::equal(0.0));
    rec.claim(id, "packets sent that did not arrive", Rule::Difference, none, &both)?;
    let (id, bound) = (format!("{name}/flows"), Bound::at_least(1_000.0));
    rec.claim(id, "packets sent", Rule::Sum, bound, &both[..1])?;
    let order = seen.order(receiver, stream);
    let wrong = order.lost + order.reordered + order.duplicated + order.stale;
    let what = "packets missing, late or doubled by their numbers";
    rec.none(format!("{name}/order"), what, wrong)
}

/// Claims that in each phase the flood, or the whole link, has what the phase's value lets through.
fn follows(rec: &mut Recording<'_>, seen: &TrafficRecord) -> Result {
    let cells = (PHASES.len() + 1) * CELLS_OF_PHASE;
    let of = |stream| seen.bits(seen.stream(0, stream).map(|seen| &seen.series), CELL_NS, cells);
    let mut wire = vec![0.0; cells];
    for stream in [0, 1, FLOOD] {
        wire.iter_mut().zip(of(stream)).for_each(|(sum, bits)| *sum += bits);
    }
    for (name, bits) in [("flood", of(FLOOD)), ("wire", wire)] {
        rec.keep(name, Series::sampled("bit", 0.1, bits))?;
    }
    for (number, Phase { name, of_link, mbps, .. }) in (1..).zip(PHASES) {
        let bits = float(mbps * 100_000);
        let series = if of_link { "wire" } else { "flood" };
        for (side, bound) in
            [("least", Bound::at_least(0.95 * bits)), ("most", Bound::at_most(1.05 * bits))]
        {
            let id = format!("{name}/{side}");
            let claim = Claim::new(id, "bits in 100 ms, mean", Rule::Mean, bound).of(&[series]);
            let skip = number * CELLS_OF_PHASE + CELLS_LEFT_OUT;
            rec.judge(claim.skip(skip).take(CELLS_OF_PHASE - CELLS_LEFT_OUT))?;
        }
    }
    Ok(())
}

/// Flows below their shares: name, receiver, stream.
const IN_PROFILE: [Flow; 4] =
    [("send", 0, 0), ("small", 0, 1), ("receive", 1, 2), ("inside", 2, 3)];

const FLOOD: u16 = 4;

const PHASE: Duration = Duration::from_secs(1);
const STEP: Duration = Duration::from_millis(200);
const SETTLE: Duration = Duration::from_millis(500);

const CELL_NS: u64 = 100_000_000;
const CELLS_OF_PHASE: usize = 10;

/// At the beginning of a phase: reading and applying a policy takes some milliseconds, more on a
/// busy machine, and what left before is still on its way.
const CELLS_LEFT_OUT: usize = 3;
