// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tenant, a wire and a loop that send what they should not, beside a tenant in its profile.

use std::thread;

use weir_api_types::status::DirectionStatus;
use weir_experiment::node_process::NodeProcess;
use weir_experiment::prelude::*;
use weir_experiment::{UNTIL_DONE, clock};
use weir_platform::run::{Command, Host, Platform};
use weir_policy::{PortId, Slice, Vif};
use weir_switch::Reason;

use super::hostile_frames as frames;
use super::refusals;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let mut star = StarTopology::new("hostile", 2, BitRate::from_mbps(100));
    star.more = LOOP_TOPOLOGY;
    let mut rig = Testbed::up(&star)?;
    // The kernel takes a frame that is 4 bytes longer than the MTU: one more than Weir's bound.
    ip(&star.namespace("t1"), &["link set dev eth0 mtu 2000"])?;
    ip(&star.namespace("sw"), &["link set dev t1 mtu 1504"])?;
    let run = TrafficRun {
        senders: vec![star.generator(vec![star.stream(0, 0, 500, Some(Rate::Pps(1_000)))])],
        receivers: vec![star.sink()],
        length: UNTIL_DONE,
        ..TrafficRun::new(&star, policy(&star), 0)
    };
    rig.put(&run.middle)?;
    let (seen, ()) = run.flow(&rig, |rig| {
        let node = rig.running()?;
        rec.within("frames/", |rec| send_hostile(rec, &star, node))
    })?;
    rec.within("frames/", |rec| judge_flow(rec, &seen))?;
    let ended = u64::from(rig.stop_node().is_ok());
    rec.count("frames/runs-to-its-end", "frames runs-to-its-end", ended, Bound::equal(1.0))?;
    rec.within("refused/", |rec| refusals::show(rec, &rig))?;
    rig.down()
}

/// Tenant 0 in its profile, tenant 1 with all its addresses given, and a slice whose two vifs
/// somebody has joined.
fn policy(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    policy.vifs[0].send.min_rate = BitRate::from_mbps(20);
    policy.vifs[1].addresses = vec![StarTopology::address(1).into()];
    let slice = policy.add_slice(Slice { vlan: Some(LOOP_VLAN), ..Slice::new("loop") });
    for name in ["l0", "l1"] {
        let storm = Some(PacketRate::from_pps(STORM_PPS));
        policy.add_vif(Vif { storm, ..Vif::new(name, slice, PortId(0)) });
    }
    policy
}

/// Sends all kinds of frames, one after the other; then noise; then makes the loop.
fn send_hostile(rec: &mut Recording<'_>, star: &StarTopology, node: &NodeProcess) -> Result {
    let tenant = || -> Result<DirectionStatus> {
        Ok(node.status()?.vif("t1").map(|vif| vif.send.clone()).unwrap_or_default())
    };
    let wire = || -> Result<DirectionStatus> {
        Ok(node.status()?.port("up0").map(|port| port.receive.clone()).unwrap_or_default())
    };
    for (name, reason, frame) in frames::from_tenant(1) {
        let text = format!("sent, not counted as {reason}");
        let read = || Ok(dropped(&tenant()?, reason));
        all_counted(rec, &star.namespace("t1"), [name, &text], &vec![frame; TIMES], read)?;
    }
    for (name, reason, frame) in frames::from_wire(LOOP_VLAN) {
        let text = format!("sent, not counted as {reason}");
        let read = || Ok(dropped(&wire()?, reason));
        all_counted(rec, &star.namespace("wire"), [name, &text], &vec![frame; TIMES], read)?;
    }
    let noise = ["noise", "random frames, sent but not counted"];
    all_counted(rec, &star.namespace("t1"), noise, &frames::noise(2_000), || {
        let send = tenant()?;
        let dropped: u64 = send.dropped.values().map(|amount| amount.packets).sum();
        Ok(dropped + send.enqueued.packets - send.copies.packets)
    })?;
    make_loop(rec, star, node)
}

/// Sends frames, and claims that the node counted each.
pub(crate) fn all_counted(
    rec: &mut Recording<'_>,
    namespace: &str,
    [name, text]: [&str; 2],
    frames: &[Vec<u8>],
    read: impl Fn() -> Result<u64>,
) -> Result {
    let before = read()?;
    let mut taken = 0;
    for some in frames.chunks(100) {
        taken += weir_traffic::send_raw(namespace, "eth0", some)? as u64;
        // Not faster than any queue on the way is emptied.
        thread::sleep(POLL);
    }
    let all = before + taken;
    let after = clock::wait_for(PATIENCE, POLL, || Ok(Some(read()?).filter(|now| *now >= all)))?;
    let counted = after.map_or_else(&read, Ok)? - before;
    let series = ["sent", "counted"].map(|what| format!("{name}/{what}"));
    for (name, count) in series.iter().zip([frames.len() as u64, counted]) {
        rec.keep(name, Series::count("packet", count))?;
    }
    let claim = Claim::new(name, text, Rule::Difference, Bound::equal(0.0));
    if !rec.verdict(claim.of(&series))? {
        rec.say(&format!("the kernel took {taken}; counted {counted} more than {before}"));
    }
    Ok(())
}

fn dropped(status: &DirectionStatus, reason: Reason) -> u64 {
    status.dropped.get(reason.name()).map_or(0, |amount| amount.packets)
}

/// Joins the two vifs of a slice behind the node and sends broadcasts: they go around until the
/// storm limit takes them, or the table of addresses finds their sender elsewhere.
fn make_loop(rec: &mut Recording<'_>, star: &StarTopology, node: &NodeProcess) -> Result {
    let namespace = star.namespace("loop");
    let joined =
        ["eth0 master br0", "eth1 master br0", "br0 up"].map(|to| format!("link set dev {to}"));
    ip(&namespace, &["link add br0 type bridge", &joined[0], &joined[1], &joined[2]])?;
    thread::sleep(PAUSE);
    weir_traffic::send_raw(&namespace, "eth0", &vec![frames::broadcast(); TIMES])?;
    thread::sleep(LOOP_TIME);
    let status = node.status()?;
    ip(&namespace, &["link del dev br0"])?;
    let sends = || ["l0", "l1"].iter().filter_map(|name| status.vif(name)).map(|vif| &vif.send);
    let lost = |send| dropped(send, Reason::Storm) + dropped(send, Reason::Moved);
    rec.at_least("loop/dropped", "frames loop dropped", sends().map(lost).sum(), 1)?;
    // Each passing frame is a copy for the other vif and one for the port; the bucket may be full
    // at the beginning.
    let most = Bound::at_most(float(STORM_PPS * 2 * 2 * (LOOP_TIME.as_secs() + 1)));
    let around = sends().map(|send| send.sent.packets).sum();
    rec.count("loop/around", "frames loop around", around, most)
}

/// Claims that the tenant beside all lost nothing, and nothing of it came twice or late.
fn judge_flow(rec: &mut Recording<'_>, seen: &TrafficRecord) -> Result {
    let order = seen.order(0, 0);
    rec.at_least("beside/arrived", "frames beside arrived", order.next, 1_000)?;
    let lost = order.first + order.lost + order.reordered + order.duplicated + order.stale;
    rec.none("beside/lost-or-disordered", "frames beside lost-or-disordered", lost)
}

fn ip(namespace: &str, lines: &[&str]) -> Result {
    Host::default().run(&Command::batch("ip", lines).in_namespace(namespace))?;
    Ok(())
}

/// Two more links to the switch, from one node.
const LOOP_TOPOLOGY: &str = "
    [[node]]
    name = \"loop\"
    [[link]]
    a = \"loop:eth0\"
    b = \"sw:l0\"
    [[link]]
    a = \"loop:eth1\"
    b = \"sw:l1\"
";
const LOOP_VLAN: u16 = 30;
const STORM_PPS: u64 = 500;
const LOOP_TIME: Duration = Duration::from_secs(2);

/// Frames of each kind.
const TIMES: usize = 50;

/// For a bridge to get ready.
const PAUSE: Duration = Duration::from_millis(300);

/// Time a busy machine may take to count a frame.
const PATIENCE: Duration = Duration::from_secs(3);

/// The interval at which the counters are read.
const POLL: Duration = Duration::from_millis(5);
