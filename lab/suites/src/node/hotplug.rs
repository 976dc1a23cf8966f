// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's device goes, comes anew, is renamed and back: the node lets go of it and takes it
//! again within a second each time, and a flow of another vif loses nothing.

use std::time::Instant;

use weir_experiment::clock;
use weir_experiment::prelude::*;
use weir_platform::run::{Command, Host, Platform};

use super::losses::{DeviceDrops, TracedFlow};

/// Shows it as a part of the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let rounds = if rec.quick { 3 } else { 10 };
    let star = StarTopology::new("hot-plug", 2, BitRate::from_mbps(100));
    let mut policy = star.policy();
    policy.ports[0].catch_up = CATCH_UP;
    let stream = star.stream(0, OTHER.stream, 1000, Some(Rate::Bps(FLOW_BPS)));
    let run = TrafficRun {
        senders: vec![star.generator(vec![stream])],
        receivers: vec![star.sink()],
        length: ROUND * rounds + SETTLE,
        ..TrafficRun::new(&star, policy, 0)
    };
    let mut rig = Testbed::up(&star)?;
    rig.put(&run.middle)?;
    let before = DeviceDrops::read(&rig)?;
    let (outcome, seen) = run.flow(&rig, |rig| plug(rig, rounds))?;
    let dropped = DeviceDrops::read(&rig)?.since(&before);
    let said = rig.running()?.said();
    rig.down()?;
    let tries = said.lines().filter(|line| line.contains("not followed"));
    tries.for_each(|line| rec.say(&format!("the node: {line}")));
    judge(rec, &seen, rounds)?;
    OTHER.claim_whole(rec, OTHER.name, &outcome)?;
    let due = float(FLOW_BPS) * run.length.as_secs_f64() / (8.0 * FRAME);
    let (what, most) = ("packets that came", Bound::at_least(0.9 * due));
    rec.claim(OTHER.name, what, Rule::Sum, most, &[format!("{}/arrived", OTHER.name)])?;
    OTHER.claim_named(rec, &outcome, &dropped)
}

/// Observations of a device that comes and goes.
#[derive(Default)]
struct HotplugRecord {
    /// Milliseconds until the node said that it waits.
    let_go_ms: Vec<f64>,
    /// Milliseconds until it waited no more.
    joined_ms: Vec<f64>,
    /// Times that a packet got from behind the device to the wire and back.
    answers: u64,
}

/// Takes the device of tenant 1 away and brings it, by deletion and by name.
fn plug(rig: &Testbed, rounds: u32) -> Result<HotplugRecord> {
    let mut seen = HotplugRecord::default();
    for _ in 0..rounds {
        in_switch(rig, &["link del t1"])?;
        seen.let_go_ms.push(until(rig, true)?);
        make(rig)?;
        seen.joined_ms.push(until(rig, false)?);
        seen.answers += u64::from(answers(rig));
        in_switch(rig, &["link set t1 name away1"])?;
        seen.let_go_ms.push(until(rig, true)?);
        in_switch(rig, &["link set away1 name t1"])?;
        seen.joined_ms.push(until(rig, false)?);
        seen.answers += u64::from(answers(rig));
    }
    Ok(seen)
}

/// Makes the device anew: a new guest at the same place has another device of the same name.
fn make(rig: &Testbed) -> Result {
    let star = rig.star();
    let guest = star.namespace("t1");
    let (wire, wire_mac) = StarTopology::wire();
    let (own, mac) = (StarTopology::address(1), StarTopology::mac(1));
    let add = format!("link add t1 up type veth peer name eth0 address {mac} netns {guest}");
    in_switch(rig, &[&add])?;
    let lines = [
        "link set eth0 up".to_owned(),
        format!("addr add {own}/16 dev eth0"),
        format!("neigh replace {wire} lladdr {wire_mac} dev eth0 nud permanent"),
    ];
    Host::default().run(&Command::batch("ip", lines).in_namespace(&guest))?;
    // Its checksums are finished by nobody between it and the wire.
    rig.ask("t1", Command::new("ethtool", ["-K", "eth0", "tx", "off"])).map(drop)
}

fn in_switch(rig: &Testbed, lines: &[&str]) -> Result {
    let command = Command::batch("ip", lines).in_namespace(&rig.star().namespace("sw"));
    Ok(Host::default().run(&command).map(drop)?)
}

/// Milliseconds until the node says that vif 1 waits for its device, or does not.
fn until(rig: &Testbed, waits: bool) -> Result<f64> {
    let (node, began) = (rig.running()?, Instant::now());
    let done = clock::wait_for(PATIENCE, POLL, || {
        let follows = node.status()?.vif("t1").is_some_and(|vif| vif.waiting == waits);
        Ok(follows.then(|| began.elapsed().as_secs_f64() * 1e3))
    })?;
    let late = || format!("vif t1: waiting is not {waits} after {} s", PATIENCE.as_secs());
    done.ok_or_else(|| ExperimentError::Node(late()))
}

/// Returns true if a host behind the device reaches the wire and is answered.
fn answers(rig: &Testbed) -> bool {
    let wire = StarTopology::wire_address().to_string();
    // A device that is new has a carrier within a second, as the kernel tells of it.
    let ping = Command::new("ping", ["-n", "-q", "-c", "1", "-i", "0.2", "-w", "3", wire.as_str()]);
    rig.ask("t1", ping).is_ok()
}

fn judge(rec: &mut Recording<'_>, seen: &HotplugRecord, rounds: u32) -> Result {
    let HotplugRecord { let_go_ms, joined_ms, answers } = seen;
    for (id, what, times) in [
        ("hotplug/let-go", "until a device that went is let go", let_go_ms),
        ("hotplug/joined", "until a device that came is taken", joined_ms),
    ] {
        let times = Series::unordered("ms", times.clone());
        rec.claim_samples(id, what, times, Rule::Max, Bound::at_most(JOIN_MS_MAX))?;
    }
    let all = Bound::equal(f64::from(2 * rounds));
    rec.count("hotplug/answers", "times that traffic passed again", *answers, all)
}

/// The flow of another vif.
const OTHER: TracedFlow =
    TracedFlow { name: "hotplug/other", receiver: 0, stream: 0, from: Some("t0"), to: None };
const FLOW_BPS: u64 = 5_000_000;
/// Bytes of its frames.
const FRAME: f64 = 1000.0;
/// Longer than two comings and goings take on a busy machine.
const ROUND: Duration = Duration::from_secs(3);
const SETTLE: Duration = Duration::from_secs(2);
const JOIN_MS_MAX: f64 = 1000.0;
const PATIENCE: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(10);
/// A busy machine keeps the worker from its processor for some milliseconds.
const CATCH_UP: Nanos = Nanos::from_millis(20);
