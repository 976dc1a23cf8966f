// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Under traffic, the node restarts, starts as the same build at another path, and is killed and
//! starts again. The queued path pauses for 100 ms at most, the redirected path loses no packet,
//! and every value is back, live changes included.

use std::path::Path;
use std::time::Instant;

use serde_json::Value;
use weir_client::Method;
use weir_experiment::bpf_system;
use weir_experiment::prelude::*;
use weir_experiment::product;
use weir_platform::run::Command;
use weir_policy::Kind;
use weir_traffic::XdpStream;

use super::losses::TracedFlow;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("life", 2, BitRate::from_mbps(LINK_MBPS));
    let _outlives_the_rig = bpf_system::mount()?;
    let mut rig = Testbed::up(&star)?;
    for node in ["t0", "t1", "wire"] {
        // A veth takes redirected frames only with a program or GRO at its peer.
        rig.ask(node, Command::new("ethtool", ["-K", "eth0", "gro", "on"]))?;
    }
    let own = product::path()?;
    let other = rig.file("weir");
    std::fs::copy(own, &other).map_err(|error| ExperimentError::io(&other, error))?;
    let run = TrafficRun {
        senders: vec![star.generator(streams(&star))],
        receivers: ["wire", "t0", "t1"].map(|at| star.sink_at(at)).into(),
        length: BEFORE + DEAD + AFTER,
        ..TrafficRun::new(&star, policy(&star), 0)
    };
    rig.put(&run.middle)?;
    let change = serde_json::json!({ "send": { "rate_bps": LIVE_MBPS * 1_000_000 } });
    rig.running()?.client().ask::<Value>(Method::PATCH, "/v1/vifs/t0", Some(&change))?;
    for event in LifeEvent::ALL {
        let program = if event == LifeEvent::Upgrade { &other } else { own };
        let (outcome, made) = run.flow(&rig, |rig| event.make(rig, program))?;
        judge(rec, event, &outcome, &made)?;
    }
    rig.down()
}

/// An event in the life of the node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LifeEvent {
    Restart,
    Upgrade,
    Crash,
}

/// The result of the node's events.
struct LifeResult {
    /// Lines of the policy in force that differ from those before.
    lines_changed: u64,
    /// Keys of the live changes on top of the file.
    overlay: usize,
    /// Milliseconds from the end of one process to the answer of the next.
    away_ms: f64,
    pids: [u32; 2],
}

impl LifeEvent {
    const ALL: [Self; 3] = [Self::Restart, Self::Upgrade, Self::Crash];

    const fn name(self) -> &'static str {
        match self {
            Self::Restart => "restart",
            Self::Upgrade => "upgrade",
            Self::Crash => "crash",
        }
    }

    fn make(self, rig: &Testbed, program: &Path) -> Result<LifeResult> {
        let node = rig.running()?;
        std::thread::sleep(BEFORE);
        let (policy, pid) = (node.document()?, node.pid());
        let ended = Instant::now();
        if self == Self::Crash {
            node.crash()?;
            // The node stays dead for a while, as if nobody noticed at once.
            std::thread::sleep(DEAD);
        } else {
            node.leave()?;
        }
        node.start_again(program)?;
        let away_ms = ended.elapsed().as_secs_f64() * 1e3;
        let now = node.document()?;
        let changed = policy.lines().zip(now.lines()).filter(|(one, other)| one != other).count();
        let longer = policy.lines().count().abs_diff(now.lines().count());
        let lines_changed = u64::try_from(changed + longer).unwrap_or(u64::MAX);
        let overlay = node.client().get::<Vec<Value>>("/v1/overlay")?.len();
        Ok(LifeResult { lines_changed, overlay, away_ms, pids: [pid, node.pid()] })
    }
}

/// Returns a policy in which tenant 0 has limits, which need a queue, and tenant 1 has none and a
/// VLAN of its own.
fn policy(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    policy.node.redirect = true;
    policy.ports[0].kind = Kind::Xdp;
    policy.vifs.iter_mut().for_each(|vif| vif.kind = Kind::Xdp);
    let limit = Some(BitRate::from_mbps(FILE_MBPS));
    (policy.vifs[0].send.rate, policy.vifs[0].receive.rate) = (limit, limit);
    policy.slices[1].vlan = Some(VLAN);
    policy
}

fn streams(star: &StarTopology) -> Vec<XdpStream> {
    let rate = Some(Rate::Bps(FLOW_BPS));
    let towards = star.stream_towards(1, 3, SIZE, rate);
    vec![
        star.stream(0, 0, SIZE, rate),
        star.stream(1, 1, SIZE, rate),
        star.stream_towards(0, 2, SIZE, rate),
        XdpStream { vlan: Some(VLAN), ..towards },
    ]
}

fn judge(
    rec: &mut Recording<'_>,
    event: LifeEvent,
    outcome: &TrafficRecord,
    made: &LifeResult,
) -> Result {
    let id = |part: &str| format!("{}/{part}", event.name());
    rec.none(id("values"), "lines of the policy in force that changed", made.lines_changed)?;
    let same = u64::from(made.pids[0] == made.pids[1]);
    rec.none(id("same-process"), "processes that did not end", same)?;
    let what = "keys that hold above the file";
    rec.at_least(id("overlay"), what, made.overlay as u64, 1)?;
    rec.keep(&id("away"), Series::unordered("ms", vec![made.away_ms]))?;
    rec.say(&format!("{}: no process for {:.0} ms", event.name(), made.away_ms));
    for (flow, queued) in FLOWS {
        let id = id(flow.name);
        if queued {
            judge_queued(rec, &id, outcome, &flow)?;
        } else {
            flow.claim_whole(rec, &id, outcome)?;
        }
        let (some, sent) = (Bound::at_least(LEAST), format!("{id}/sent"));
        rec.claim(format!("{id}/flows"), "packets sent", Rule::Sum, some, &[sent])?;
    }
    let ifaces = outcome.status.iter().flat_map(|status| status.ports.iter().chain(&status.vifs));
    for iface in ifaces {
        for (direction, side) in [("send", &iface.send), ("receive", &iface.receive)] {
            for (reason, amount) in &side.dropped {
                let (name, packets) = (&iface.name, amount.packets);
                rec.say(&format!("{name} {direction}: {packets} dropped for {reason}"));
            }
        }
    }
    Ok(())
}

/// Judges a flow with a queue, which may pause for a moment.
fn judge_queued(
    rec: &mut Recording<'_>,
    id: &str,
    outcome: &TrafficRecord,
    flow: &TracedFlow,
) -> Result {
    let part = |name: &str| format!("{id}/{name}");
    let sent = outcome.packets_sent(flow.stream);
    let arrived = outcome.packets(flow.receiver, flow.stream);
    rec.keep(&part("sent"), Series::count("packet", sent))?;
    rec.keep(&part("arrived"), Series::count("packet", arrived))?;
    let bits = float(sent.saturating_sub(arrived)) * 8.0 * f64::from(SIZE);
    for (name, what, seconds) in [
        ("blocked", "blocked time: loss by rate", bits / float(FLOW_BPS)),
        ("silence", "longest time without a packet", longest_silence(outcome, flow)),
    ] {
        let (seconds, most) =
            (Series::unordered("s", vec![seconds]), Bound::at_most(INTERRUPTION_S));
        rec.claim_samples(part(name), what, seconds, Rule::Max, most)?;
    }
    Ok(())
}

/// Returns the longest time in which nothing arrived, in seconds. A window in which nothing was
/// sent does not count. The first and last half second are left out.
fn longest_silence(outcome: &TrafficRecord, flow: &TracedFlow) -> f64 {
    let windows = |time: Duration| {
        usize::try_from(weir_experiment::clock::nanos(time) / WINDOW_NS).unwrap_or(usize::MAX)
    };
    let count = windows(BEFORE + DEAD + AFTER - SETTLE);
    let sent = outcome.sent_of(flow.stream).next().map(|sent| &sent.series);
    let arrived = outcome.stream(flow.receiver, flow.stream).map(|seen| &seen.series);
    let [sent, arrived] = [sent, arrived].map(|series| outcome.bits(series, WINDOW_NS, count));
    let (mut longest, mut silent) = (0_u32, 0);
    for (sent, arrived) in sent.into_iter().zip(arrived).skip(windows(SETTLE)) {
        silent = match (sent > 0.0, arrived > 0.0) {
            (_, true) => 0,
            (true, false) => silent + 1,
            (false, false) => silent,
        };
        longest = longest.max(silent);
    }
    f64::from(longest) * float(WINDOW_NS) / 1e9
}

const fn flow(name: &'static str, receiver: usize, stream: u16) -> TracedFlow {
    TracedFlow { name, receiver, stream, from: None, to: None }
}

/// The flows, each with true if it has a queue.
const FLOWS: [(TracedFlow, bool); 4] = [
    (flow("queued-send", 0, 0), true),
    (flow("queued-receive", 1, 2), true),
    (flow("redirected-send", 0, 1), false),
    (flow("redirected-receive", 2, 3), false),
];

const INTERRUPTION_S: f64 = 0.1;

const LINK_MBPS: u64 = 100;
/// The limit in the file. A live change sets another on top.
const FILE_MBPS: u64 = 20;
const LIVE_MBPS: u64 = 30;
const VLAN: u16 = 7;

/// The load of a flow: 1250 packets a second, 12 in a window.
const FLOW_BPS: u64 = 5_000_000;
const SIZE: u16 = 500;
const WINDOW_NS: u64 = 10_000_000;
const LEAST: f64 = 4000.0;

const BEFORE: Duration = Duration::from_secs(2);
const DEAD: Duration = Duration::from_secs(2);
const AFTER: Duration = Duration::from_secs(3);
/// The time left out at the beginning and at the end.
const SETTLE: Duration = Duration::from_millis(500);
