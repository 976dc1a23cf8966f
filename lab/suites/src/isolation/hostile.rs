// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tenant, a wire and a loop that send what they should not, beside a tenant in its profile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use weir_api_types::status::{DirectionStatus, IfaceStatus, NodeStatus};
use weir_experiment::node_process::NodeProcess;
use weir_experiment::prelude::*;
use weir_experiment::run_folder::RunFolder;
use weir_platform::StateDir;
use weir_platform::run::{Command, Host, Platform};
use weir_policy::{PortId, Slice, Vif};
use weir_switch::Reason;
use weir_testbed::{Lab, Topology};
use weir_traffic::ReceiveResult;

use super::hostile_frames::{self as frames, HostileFrame};
use super::refusals;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let star = StarTopology::new(LAB, 2, BitRate::from_mbps(100));
    let place = RunFolder::take(LAB, &StateDir::from_env())?;
    let text = star.topology() + LOOP_TOPOLOGY;
    let topology =
        Topology::parse(&text).map_err(|problems| ExperimentError::Node(problems.to_string()))?;
    let lab = Lab::up(topology, place.state())?;
    // The kernel takes a frame that is 4 bytes longer than the MTU: one more than Weir's bound.
    ip(&star.namespace("t1"), &["link set dev eth0 mtu 2000"])?;
    ip(&star.namespace("sw"), &["link set dev t1 mtu 1504"])?;
    let node = NodeProcess::start(lab.namespace("sw")?, &policy(&star), &place)?;
    let (told, seen) = beside_a_flow(&star, || tell(rec, &star, &node))?;
    told?;
    judge_flow(rec, &seen)?;
    let ended = f64::from(u8::from(node.stop().is_ok()));
    judge_one(rec, "frames/runs-to-its-end", ended, Bound::equal(1.0))?;
    refusals::show(rec, &star, &lab, &place)?;
    lab.down()?;
    Ok(())
}

/// Tenant 0 in its profile, tenant 1 with all its addresses given, and a slice whose two vifs
/// somebody has joined.
fn policy(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    policy.vifs[0].send.min_rate = BitRate::from_mbps(20);
    policy.vifs[1].addresses = vec![StarTopology::address(1).into()];
    let mut slice = Slice::new("loop");
    slice.vlan = Some(LOOP_VLAN);
    let slice = policy.add_slice(slice);
    for name in ["l0", "l1"] {
        let mut vif = Vif::new(name, slice, PortId(0));
        vif.storm = Some(PacketRate::from_pps(STORM_PPS));
        policy.add_vif(vif);
    }
    policy
}

/// Does something while tenant 0 sends 1000 packets a second, and gives what arrived of them.
fn beside_a_flow<T>(
    star: &StarTopology,
    something: impl FnOnce() -> T,
) -> Result<(T, ReceiveResult), ExperimentError> {
    let (stop_sending, stop_receiving) = (AtomicBool::new(false), AtomicBool::new(false));
    let sender = star.generator(vec![star.stream(0, 0, 500, Some(Rate::Pps(1_000)))]);
    let sink = star.sink();
    let no_thread = |_| ExperimentError::Node("a traffic thread panicked".into());
    thread::scope(|scope| {
        let receiver = scope.spawn(|| weir_traffic::receive(&sink, &stop_receiving, &mut |_| {}));
        thread::sleep(PAUSE);
        let sender = scope.spawn(|| weir_traffic::send(&sender, &stop_sending, &mut |_| {}));
        thread::sleep(PAUSE);
        let done = something();
        stop_sending.store(true, Ordering::Relaxed);
        let sent = sender.join().map_err(no_thread);
        thread::sleep(PAUSE);
        stop_receiving.store(true, Ordering::Relaxed);
        let received = receiver.join().map_err(no_thread);
        sent??;
        Ok((done, received??))
    })
}

/// All kinds of frames, one after the other; then noise; then the loop.
fn tell(
    rec: &mut Recording<'_>,
    star: &StarTopology,
    node: &NodeProcess,
) -> Result<(), ExperimentError> {
    let tenant = |status: &NodeStatus| status.vif("t1").map(|vif: &IfaceStatus| vif.send.clone());
    let wire =
        |status: &NodeStatus| status.port("up0").map(|port: &IfaceStatus| port.receive.clone());
    for kind in frames::from_tenant(1) {
        count_kind(rec, node, &star.namespace("t1"), &kind, tenant)?;
    }
    for kind in frames::from_wire(LOOP_VLAN) {
        count_kind(rec, node, &star.namespace("wire"), &kind, wire)?;
    }
    noise(rec, star, node)?;
    make_loop(rec, star, node)
}

/// Sends frames of a kind and claims that the node dropped each under its reason.
fn count_kind(
    rec: &mut Recording<'_>,
    node: &NodeProcess,
    namespace: &str,
    kind: &HostileFrame,
    of: impl Fn(&NodeStatus) -> Option<DirectionStatus>,
) -> Result<(), ExperimentError> {
    let read = || Ok::<_, ExperimentError>(of(&node.status()?).unwrap_or_default());
    let dropped = |status: &DirectionStatus| {
        status.dropped.get(kind.reason.name()).map_or(0, |amount| amount.packets)
    };
    let before = read()?;
    let taken = weir_traffic::send_raw(namespace, "eth0", &vec![&kind.frame; TIMES])? as u64;
    let until = Instant::now() + PATIENCE;
    let mut after = read()?;
    while dropped(&after) < dropped(&before) + taken && Instant::now() < until {
        thread::sleep(POLL);
        after = read()?;
    }
    let name = format!("frames/{}", kind.name);
    let (sent, counted) = (format!("{name}/sent"), format!("{name}/counted"));
    rec.keep(&sent, Series::count("packet", TIMES as u64))?;
    rec.keep(&counted, Series::count("packet", dropped(&after) - dropped(&before)))?;
    let text = format!("sent, not counted as {}", kind.reason);
    let claim = Claim::new(&name, text, Rule::Difference, Bound::equal(0.0));
    if !rec.verdict(claim.of(&[sent, counted]))? {
        let (before, after) = (&before.dropped, &after.dropped);
        rec.say(&format!("the kernel took {taken}; drops before {before:?}, after {after:?}"));
    }
    Ok(())
}

/// Random bytes: all of it is counted, whatever it is counted as.
fn noise(
    rec: &mut Recording<'_>,
    star: &StarTopology,
    node: &NodeProcess,
) -> Result<(), ExperimentError> {
    let read = || {
        let status = node.status()?;
        let send = status.vif("t1").map(|vif| vif.send.clone()).unwrap_or_default();
        let dropped: u64 = send.dropped.values().map(|amount| amount.packets).sum();
        Ok::<_, ExperimentError>(dropped + send.enqueued.packets - send.copies.packets)
    };
    let before = read()?;
    let frames = frames::noise(NOISE);
    let mut taken = 0;
    for some in frames.chunks(100) {
        taken += weir_traffic::send_raw(&star.namespace("t1"), "eth0", some)? as u64;
        // Not faster than any queue on the way is emptied.
        thread::sleep(POLL);
    }
    let until = Instant::now() + PATIENCE;
    let mut after = read()?;
    while after < before + taken && Instant::now() < until {
        thread::sleep(POLL);
        after = read()?;
    }
    let (sent, counted) = ("frames/noise/sent", "frames/noise/counted");
    rec.keep(sent, Series::count("packet", NOISE as u64))?;
    rec.keep(counted, Series::count("packet", after - before))?;
    let text = "random frames, sent but not counted";
    rec.claim("frames/noise", text, Rule::Difference, Bound::equal(0.0), &[sent, counted])
}

/// Joins the two vifs of a slice behind the node and sends broadcasts: they go around until the
/// storm limit takes them, or the table of addresses finds their sender elsewhere.
fn make_loop(
    rec: &mut Recording<'_>,
    star: &StarTopology,
    node: &NodeProcess,
) -> Result<(), ExperimentError> {
    let namespace = star.namespace("loop");
    ip(
        &namespace,
        &[
            "link add br0 type bridge",
            "link set dev eth0 master br0",
            "link set dev eth1 master br0",
            "link set dev br0 up",
        ],
    )?;
    thread::sleep(PAUSE);
    weir_traffic::send_raw(&namespace, "eth0", &vec![frames::broadcast(); TIMES])?;
    thread::sleep(LOOP_TIME);
    let status = node.status()?;
    ip(&namespace, &["link del dev br0"])?;
    let sends = ["l0", "l1"].iter().filter_map(|name| status.vif(name)).map(|vif| &vif.send);
    let (mut dropped, mut around) = (0, 0);
    for send in sends {
        let of = |reason: Reason| send.dropped.get(reason.name()).map_or(0, |a| a.packets);
        dropped += of(Reason::Storm) + of(Reason::Moved);
        around += send.sent.packets;
    }
    judge_one(rec, "frames/loop/dropped", float(dropped), Bound::at_least(1.0))?;
    // Each passing frame is a copy for the other vif and one for the port; the bucket may be full
    // at the beginning.
    let most = STORM_PPS * 2 * 2 * (LOOP_TIME.as_secs() + 1);
    let bound = Bound::at_most(float(most));
    judge_one(rec, "frames/loop/around", float(around), bound)
}

/// The tenant beside all that lost nothing, and nothing of it came twice or late.
fn judge_flow(rec: &mut Recording<'_>, seen: &ReceiveResult) -> Result<(), ExperimentError> {
    let flow = seen.streams.iter().find(|stream| stream.stream == 0);
    let order = flow.map(|stream| stream.order).unwrap_or_default();
    let arrived = float(order.next);
    judge_one(rec, "frames/beside/arrived", arrived, Bound::at_least(1_000.0))?;
    let lost = order.first + order.lost + order.reordered + order.duplicated + order.stale;
    let none = Bound::equal(0.0);
    judge_one(rec, "frames/beside/lost-or-disordered", float(lost), none)
}

/// Keeps a count and judges it.
fn judge_one(
    rec: &mut Recording<'_>,
    part: &str,
    value: f64,
    bound: Bound,
) -> Result<(), ExperimentError> {
    let (id, name) = (part, format!("{part}/count"));
    rec.keep(&name, Series::unordered("1", vec![value]))?;
    rec.claim(id, part.replace('/', " "), Rule::Sum, bound, &[name])
}

fn ip(namespace: &str, lines: &[&str]) -> Result<(), ExperimentError> {
    Host::default().run(&Command::batch("ip", lines).in_namespace(namespace))?;
    Ok(())
}

const LAB: &str = "hostile";

/// Two more links to the switch, from one node.
const LOOP_TOPOLOGY: &str = "
    [[node]]
    name = \"loop\"
    [[link]]
    a = { at = \"loop:eth0\" }
    b = { at = \"sw:l0\" }
    [[link]]
    a = { at = \"loop:eth1\" }
    b = { at = \"sw:l1\" }
";
const LOOP_VLAN: u16 = 30;
const STORM_PPS: u64 = 500;
const LOOP_TIME: Duration = Duration::from_secs(2);

/// Frames of each kind.
const TIMES: usize = 50;

/// Random frames.
const NOISE: usize = 2_000;

/// For threads and devices to get ready, and queues to drain.
const PAUSE: Duration = Duration::from_millis(300);

/// Time a busy machine may take to count a frame.
const PATIENCE: Duration = Duration::from_secs(3);

/// The interval at which the counters are read.
const POLL: Duration = Duration::from_millis(5);
