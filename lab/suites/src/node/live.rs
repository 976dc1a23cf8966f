// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rates and priorities change a thousand times under a flood, and vifs come and go meanwhile.
//! Flows below their shares, the changed vif's own among them, lose nothing and stay in order. If
//! they do lose packets, the counters on their way say where.

use std::time::Instant;

use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::run::Command;
use weir_policy::{Slice, SliceId, Vif};

use super::losses::{DeviceDrops, TracedFlow};
use crate::change_load::{FLOW_BPS, GUESTS, LASTING, LINK_MBPS, STEP, TENANTS, alter, streams};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let changes = if rec.quick { 100 } else { 1000 };
    let star = StarTopology::new("live-change", TENANTS, BitRate::from_mbps(LINK_MBPS));
    let base = base(&star);
    let run = TrafficRun {
        senders: vec![star.generator(streams(&star, 3))],
        receivers: ["wire", "t2", "t4"].map(|node| star.sink_at(node)).into(),
        length: STEP * changes + SETTLE,
        ..TrafficRun::new(&star, base.clone(), 0)
    };
    let mut rig = Testbed::up(&star)?;
    for guest in &star.tenants[LASTING..] {
        // A veth takes frames of the generator only if its peer has a program or GRO, and this peer
        // has no program while its vif is away.
        rig.ask("sw", Command::new("ethtool", ["-K", guest, "gro", "on"]))?;
    }
    rig.put(&run.middle)?;
    let before = DeviceDrops::read(&rig)?;
    let (outcome, made) = run.flow(&rig, |rig| change(rig, &base, changes))?;
    let dropped = DeviceDrops::read(&rig)?.since(&before);
    rig.down()?;
    judge_changes(rec, &outcome, &made, changes)?;
    for flow in &FLOWS {
        judge_flow(rec, &outcome, flow)?;
        flow.claim_named(rec, &outcome, &dropped)?;
    }
    let worker = outcome.status.as_ref().and_then(|status| status.worker).unwrap_or_default();
    let turn = Series::unordered("ms", vec![float(worker.longest_turn_ns) / 1e6]);
    rec.keep("worker/longest-turn", turn)?;
    judge_arrivals(rec, &outcome, changes)
}

/// The result of the changes.
struct LiveResult {
    /// The milliseconds of each change, from the request to the answer.
    values_ms: Vec<f64>,
    /// The milliseconds of each change that added or removed vifs, measured likewise.
    vifs_ms: Vec<f64>,
    /// The end of the last change, on the monotonic clock.
    end_ns: u64,
}

/// Returns a policy in which tenants 0, 2, 3 and 4 have what their flows need. Tenant 1 floods; 5
/// and 6 come and go.
fn base(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    policy.ports[0].catch_up = CATCH_UP;
    for (vif, mbps) in [(0, 8), (3, 8)] {
        policy.vifs[vif].send.min_rate = BitRate::from_mbps(mbps);
    }
    policy.vifs[2].receive.min_rate = BitRate::from_mbps(8);
    policy.vifs.truncate(LASTING);
    policy.slices.truncate(LASTING);
    // Vifs of one slice may exchange frames.
    policy.vifs[4].slice = policy.vifs[3].slice;
    policy
}

/// Makes the changes, one each [`STEP`] or as fast as they go.
fn change(rig: &Testbed, base: &Policy, changes: u32) -> Result<LiveResult> {
    let node = rig.running()?;
    let mut policy = base.clone();
    let mut made = LiveResult { values_ms: Vec::new(), vifs_ms: Vec::new(), end_ns: 0 };
    let start = Instant::now();
    for number in 1..=changes {
        let of_vifs = number.is_multiple_of(VIFS_EVERY);
        if of_vifs {
            toggle(&mut policy, rig.star());
        } else {
            alter(&mut policy, number, |_| ByteCount::new(BURST_BYTES));
        }
        std::thread::sleep((STEP * number).saturating_sub(start.elapsed()));
        let asked = Instant::now();
        node.reload(&policy)?;
        let took = asked.elapsed().as_secs_f64() * 1e3;
        if of_vifs { made.vifs_ms.push(took) } else { made.values_ms.push(took) }
    }
    made.end_ns = clock::monotonic_ns();
    Ok(made)
}

/// Adds or removes the two guests. They are added in front of the others, so that these get other
/// numbers.
fn toggle(policy: &mut Policy, star: &StarTopology) {
    if policy.vifs.len() > LASTING {
        policy.vifs.drain(..GUESTS.len());
        policy.slices.truncate(LASTING);
        return;
    }
    for name in &star.tenants[LASTING..] {
        let whole = star.policy();
        let slice = policy.add_slice(Slice::new(name));
        let guest = whole.vifs.into_iter().find(|vif| vif.name == *name);
        let guest = guest.unwrap_or_else(|| Vif::new(name, SliceId(0), weir_policy::PortId(0)));
        policy.vifs.insert(0, Vif { slice, ..guest });
    }
}

/// Judges that all changes were made, and while traffic ran.
fn judge_changes(
    rec: &mut Recording<'_>,
    outcome: &TrafficRecord,
    made: &LiveResult,
    changes: u32,
) -> Result {
    let names = ["change/values", "change/vifs"];
    for (name, times) in names.iter().zip([&made.values_ms, &made.vifs_ms]) {
        rec.keep(name, Series::unordered("ms", times.clone()))?;
    }
    let all = Bound::at_least(f64::from(changes));
    rec.claim("changes", "changes made", Rule::Count, all, &names)?;
    let ended = outcome.sent.iter().map(|sender| sender.span.end_ns).min().unwrap_or(0);
    let left = float(ended.saturating_sub(made.end_ns)) / 1e9;
    let name = "change/traffic-after";
    rec.keep(name, Series::unordered("s", vec![left]))?;
    let bound = Bound::at_least(AFTER_SECONDS);
    rec.claim("beside", "traffic after the last change", Rule::Min, bound, &[name])
}

/// Judges that all packets arrived once and in order: the flow was never blocked.
fn judge_flow(rec: &mut Recording<'_>, outcome: &TrafficRecord, flow: &TracedFlow) -> Result {
    let id = |part: &str| format!("{}/{part}", flow.name);
    flow.claim_whole(rec, flow.name, outcome)?;
    let some = Bound::at_least(500.0);
    rec.claim(id("flows"), "packets sent", Rule::Sum, some, &[id("sent")])?;
    let offered = outcome.packets_sent(flow.stream);
    let bytes: u64 = outcome.sent_of(flow.stream).map(|sent| sent.bytes).sum();
    let lost = offered.saturating_sub(outcome.packets(flow.receiver, flow.stream));
    let seconds = float(lost * 8 * bytes / offered.max(1)) / float(FLOW_BPS);
    let (what, seconds) = ("blocked time: loss by rate", Series::unordered("s", vec![seconds]));
    rec.claim_samples(id("blocked"), what, seconds, Rule::Sum, Bound::equal(0.0))
}

/// Judges that the link was full all the time, and that guests that came are served: at the end
/// they are there.
fn judge_arrivals(rec: &mut Recording<'_>, outcome: &TrafficRecord, changes: u32) -> Result {
    let seconds = usize::try_from((STEP * changes).as_secs()).unwrap_or(1);
    let mut wire = outcome.got_together(0, 0..=GUESTS[1]);
    wire.truncate(seconds);
    rec.keep("load/wire", Series::sampled("bit/s", 1.0, wire))?;
    let bound = Bound::at_least(0.95 * float(LINK_MBPS * 1_000_000));
    let claim = Claim::new("load", "on the link meanwhile, mean", Rule::Mean, bound);
    rec.judge(claim.of(&["load/wire"]).skip(1))?;
    for stream in GUESTS {
        let (id, name) = (format!("guest{stream}"), format!("guest{stream}/arrived"));
        rec.keep(&name, Series::count("packet", outcome.packets(0, stream)))?;
        let some = Bound::at_least(100.0);
        rec.claim(id, "packets of a vif that came", Rule::Sum, some, &[name])?;
    }
    Ok(())
}

/// Flows below their shares.
const FLOWS: [TracedFlow; 3] = [
    TracedFlow { name: "changed", receiver: 0, stream: 0, from: Some("t0"), to: None },
    TracedFlow { name: "receive", receiver: 1, stream: 2, from: None, to: Some("t2") },
    TracedFlow { name: "inside", receiver: 2, stream: 3, from: Some("t3"), to: Some("t4") },
];

/// The number of changes after which the guests come or go. At the end of a whole run they are
/// there.
const VIFS_EVERY: u32 = 40;
/// The time for changes that are delayed because one took longer than a step, and for traffic after
/// the last one.
const SETTLE: Duration = Duration::from_secs(8);
const AFTER_SECONDS: f64 = 1.0;

/// For senders whose packets come in bursts.
const BURST_BYTES: u64 = 256 << 10;
/// A busy machine may keep the worker from its processor for some milliseconds.
const CATCH_UP: Nanos = Nanos::from_millis(20);
