// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Delay inside a tenant's own share: it saturates its rate with 16 TCP connections, and pings
//! beside them. Where the kernel has `fq_codel`, each connection has a queue of its own, kept short
//! by CoDel, and a ping overtakes them; else one queue holds all (`bfifo`). The delay and the leaf
//! in use are kept; the bound is what one queue can hold at that rate, with `fq_codel` half of it.

use weir_experiment::prelude::*;
use weir_experiment::{clock, round_trips};
use weir_platform::run::Command;
use weir_policy::{Queue, QueueKind};

use super::setting::policy;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let _outlives_the_rig = weir_experiment::bpf_system::mount()?;
    let seconds: u64 = if rec.quick { 12 } else { 30 };
    let star = StarTopology::new("kernel-delay", 1, BitRate::from_mbps(100));
    let mut policy = policy(&star);
    let vif = &mut policy.vifs[0];
    vif.send.min_rate = SHARE;
    vif.send.rate = Some(SHARE);
    vif.send_queue = Queue { kind: QueueKind::Flows, ..Queue::default() };
    let mut rig = Testbed::up(&star)?;
    rig.put(&policy.into())?;
    let leaf = leaf(&rig)?;
    let wire = StarTopology::wire_address();
    let idle = pings(&rig, 10, 0.1)?;
    let past = seconds + 20;
    let server = format!("{{ timeout {past} iperf3 -s -1; }} </dev/null >/dev/null 2>&1 &");
    rig.ask("wire", Command::new("sh", ["-c", server.as_str()]))?;
    clock::sleep(SETTLE)?;
    let client = format!(
        "{{ timeout {past} iperf3 -c {wire} -P 16 -t {seconds}; }} </dev/null >/dev/null 2>&1 &"
    );
    rig.ask("t0", Command::new("sh", ["-c", client.as_str()]))?;
    clock::sleep(2 * SETTLE)?;
    let (begun, before) = (clock::monotonic_ns(), received(&rig)?);
    let count = 5 * (seconds - 6);
    let busy = pings(&rig, count, 0.2)?;
    let bps = float(8 * (received(&rig)? - before)) / (float(clock::monotonic_ns() - begun) / 1e9);
    rig.down()?;
    let text = format!("the leaf in use is {leaf}");
    rec.say(&text);
    rec.result.add_note(text);
    rec.keep("idle", Series::unordered("s", idle))?;
    // A full queue drops pings, too.
    rec.at_least("answered", "pings answered", busy.len() as u64, count / 2)?;
    rec.keep("busy", Series::unordered("s", busy))?;
    let own = float(SHARE.as_bps());
    rec.keep("rate", Series::unordered("bit/s", vec![bps]))?;
    let text = "the tenant's rate, all that it may have";
    rec.claim("rate/least", text, Rule::Min, Bound::at_least(0.9 * own), &["rate"])?;
    rec.claim("rate/most", text, Rule::Max, Bound::at_most(1.02 * own), &["rate"])?;
    let rule = Rule::Percentile { percent: 99.0 };
    let whole_queue_s = float(8 * Queue::default().bytes.get()) / own + PAUSE_S;
    // Half of that tells them apart, although a ping alone takes milliseconds in a slow guest.
    let part = if leaf == "fq_codel" { 0.5 } else { 1.0 };
    let bound = Bound::at_most(part * whole_queue_s);
    let text = format!("round trip of a ping meanwhile, 99th percentile, {leaf}");
    rec.claim("busy/p99", text, rule, bound, &["busy"])
}

/// The kind of the queue of the tenant's class.
fn leaf(rig: &Testbed) -> Result<String> {
    let line = format!("tc qdisc show dev {}", weir_experiment::UPLINK);
    let said = rig.ask("sw", Command::line(&line))?;
    // The first leaf is that of frames that no vif sent.
    let mut kinds = said.lines().filter(|line| line.contains(" parent "));
    let kind = kinds.next_back().and_then(|line| line.split(' ').nth(1));
    let none = || ExperimentError::Node(format!("no leaf: {said}"));
    kind.map(str::to_owned).ok_or_else(none)
}

/// Round trips in seconds of the pings that were answered.
fn pings(rig: &Testbed, count: u64, every_s: f64) -> Result<Vec<f64>> {
    let wire = StarTopology::wire_address();
    let line = format!("ping -n -c {count} -i {every_s} -W 2 {wire}");
    let limit = Duration::from_secs_f64(float(count) * every_s) + PATIENCE;
    Ok(round_trips(&rig.ask("t0", Command::line(&line).limit(limit))?))
}

/// Bytes that came to the wire's end.
fn received(rig: &Testbed) -> Result<u64> {
    let links = rig.link_counters("wire")?;
    let found = links.into_iter().find(|link| link.name == "eth0");
    found.map(|link| link.received[1]).ok_or_else(|| ExperimentError::Node("no eth0".to_owned()))
}

/// The tenant's share of the link.
const SHARE: BitRate = BitRate::from_mbps(10);
/// Time that a slow or busy machine adds to a round trip.
const PAUSE_S: f64 = 0.04;
const SETTLE: Duration = Duration::from_secs(1);
/// Time that a command may take beyond that of its pings.
const PATIENCE: Duration = Duration::from_secs(20);
