// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The manager under policing: its effect on routers, and the routers that it leaves alone.

use weir_control::police::Grade;

use super::*;

/// Routers `x` and `y` are held at ingress, `k`, which the kernel forwards for, by its cap.
const TEXT: &str = r#"
version = 1
node = { capacity = "100kpps" }
xtc = { police = true, log = 1000 }
port = [{ name = "up0", rate = "1Gbit" }]
slice = [{ name = "gold" }]
vif = [
    { name = "x.0", slice = "gold", router = "x" },
    { name = "y.0", slice = "gold", router = "y" },
]
[[router]]
name = "x"
slice = "gold"
receive = { min_pps = "20kpps" }
xtc = { period = "100ms", actuator = "cgroup", process = "17" }
[[router]]
name = "y"
slice = "gold"
receive = { min_pps = "20kpps", max_pps = "60kpps", priority = 2 }
xtc = { period = "100ms", actuator = "cgroup", process = "18" }
[[router]]
name = "k"
slice = "gold"
receive = { min_pps = "10kpps" }
[router.xtc]
controller = "feed-forward"
period = "100ms"
actuator = "cgroup"
process = "19"
interface = [{ device = "v0" }]
"#;

/// Three routers that are offered so many thousand packets a second.
fn node(kpps: [u64; 3]) -> Node {
    let mut node = Node(SimLoopsNode::new(TEXT).unwrap());
    offer(&mut node, kpps);
    node
}

fn offer(node: &mut Node, kpps: [u64; 3]) {
    for (name, kpps) in ["x", "y", "k"].into_iter().zip(kpps) {
        node.sim(name, |sim| sim.router.plant.offered = PacketRate::from_pps(kpps * 1000));
    }
}

fn limit(node: &Node, name: &str) -> Option<u64> {
    node.sim(name, |sim| sim.limit.map(PacketRate::as_pps))
}

fn is_touched(node: &Node, name: &str) -> bool {
    node.sim(name, |sim| sim.cap.is_some() || sim.limit.is_some())
}

fn grade(node: &Node, name: &str) -> Grade {
    node.status(name).police.unwrap().grade
}

/// Goal: without contention no router is held. During contention the shares are weighted max-min of
/// 95 kp/s, and a router lends the part of its share that it does not use. The hold ends with the
/// contention.
#[test]
fn routers_are_held_while_they_contend() {
    let mut node = node([30, 30, 30]);
    node.run(20);
    assert!(["x", "y", "k"].iter().all(|name| !is_touched(&node, name)));
    let status = node.status("x");
    assert_eq!((status.phase, status.set_point), (Some(LoopPhase::Inactive), None));
    assert_eq!(status.sample.unwrap().rate().as_pps(), 30_000, "seen all the same");
    offer(&mut node, [60, 60, 60]);
    node.run(1);
    assert!(["x", "y"].iter().all(|name| limit(&node, name).is_some()), "at once");
    node.run(20);
    let shares = ["x", "y", "k"].map(|name| node.status(name).set_point.unwrap().as_pps());
    assert_eq!(shares, [23_750, 47_500, 23_750]);
    assert!(node.holds("x", 23_750) && node.holds("y", 47_500) && node.holds("k", 23_750));
    let policing = node.manager.load().policing.unwrap();
    assert!(policing.contended && policing.changes == 1, "{policing:?}");
    // A router that wants less than its share leaves the rest.
    offer(&mut node, [60, 10, 60]);
    node.run(20);
    let shares = ["x", "y", "k"].map(|name| node.status(name).set_point.unwrap().as_pps());
    assert_eq!(shares, [41_250, 20_000, 41_250], "but a quarter, and keeps its minimum");
    offer(&mut node, [20, 10, 20]);
    node.run(10);
    assert!(["x", "y", "k"].iter().all(|name| !is_touched(&node, name)));
    let told = node.notes.iter().filter(|line| line.contains("asked for of 100kpps")).count();
    assert_eq!(told, 2, "{:?}", node.notes);
}

/// Goal: a set-point of the policy holds with and without contention, at once, and its removal
/// gives the router back to the police.
#[test]
fn a_set_point_of_the_policy_comes_first() {
    let mut node = node([30, 30, 30]);
    node.run(5);
    node.set("x", "set_point", "25kpps");
    node.run(5);
    assert!(node.holds("x", 25_000) && !is_touched(&node, "y"));
    offer(&mut node, [60, 60, 60]);
    node.run(20);
    let shares = ["x", "y", "k"].map(|name| node.status(name).set_point.unwrap().as_pps());
    assert_eq!(shares, [25_000, 46_667, 23_333]);
    node.edit(&[Edit::unset(KeyPath::of("router", "x", "xtc.set_point"))]).unwrap();
    node.run(5);
    assert_eq!(node.status("x").set_point.unwrap().as_pps(), 23_750);
    let why = node.0.set("x", "set_point", "70001pps").unwrap_err();
    assert!(why.contains("add up to 100001pps, at most 100kpps fit"), "{why}");
}

/// Goal: a router that an operator pauses or turns off stays so, and the capacity that it uses is
/// not shared.
#[test]
fn what_is_paused_or_off_is_left_alone() {
    let mut node = node([60, 60, 60]);
    node.run(20);
    let before = limit(&node, "x");
    node.set("x", "state", "paused");
    node.set("k", "state", "off");
    node.sim("k", |sim| sim.router.plant.offered = PacketRate::from_pps(30_000));
    node.run(20);
    assert_eq!((limit(&node, "x"), is_touched(&node, "k")), (before, false));
    assert_eq!(node.status("x").set_point.unwrap().as_pps(), 23_750);
    let share = node.status("y").set_point.unwrap().as_pps();
    assert!(share.abs_diff(95_000 - 23_750 - 30_000) < 1000, "{share}");
    node.set("x", "state", "active");
    node.set("k", "state", "active");
    node.run(20);
    assert!(node.holds("y", 47_500) && limit(&node, "x").is_some());
}

/// Goal: a router that was off from the start is sampled all the same, since a controller of
/// several nodes may turn it on.
#[test]
fn a_router_that_was_never_on_is_seen() {
    let text = TEXT.replace("process = \"17\"", "process = \"17\", state = \"off\"");
    let mut node = Node(SimLoopsNode::new(&text).unwrap());
    offer(&mut node, [30, 20, 10]);
    node.run(20);
    let status = node.status("x");
    assert_eq!((status.phase, is_touched(&node, "x")), (None, false));
    assert_eq!(status.sample.unwrap().rate().as_pps(), 30_000);
}

/// Goal: a paused router whose cap is handed out in slices takes its mean, so that nobody's share
/// moves with each of its samples. Method: it forwards its 23.75 kp/s in every other one.
#[test]
fn slices_of_a_paused_router_move_no_share() {
    let mut node = node([60, 60, 60]);
    node.run(20);
    node.set("x", "state", "paused");
    let mut shares = Vec::new();
    for sample in 0..60 {
        let pps = if sample % 2 == 0 { 0 } else { 60_000 };
        node.sim("x", |sim| sim.router.plant.offered = PacketRate::from_pps(pps));
        node.run(1);
        shares.push(node.status("y").set_point.unwrap().as_pps());
    }
    let settled = shares.get(20..).unwrap();
    let wanted = (95_000 - 23_750 / 2) * 2 / 3;
    assert!(settled.iter().all(|share| share.abs_diff(wanted) * 20 < wanted), "{settled:?}");
    let moves = settled.windows(2).filter(|pair| pair[0] != pair[1]).count();
    assert!(moves <= 2, "{settled:?}");
}

/// Goal: a router without a vif has no ingress: it goes through all grades by its cap alone.
#[test]
fn a_router_without_ingress_is_punished_by_its_cap() {
    let mut node = node([30, 30, 300]);
    node.run(70);
    assert_eq!((grade(&node, "k"), limit(&node, "k")), (Grade::EarlyDrop, None));
    node.run(50);
    assert_eq!(grade(&node, "k"), Grade::LowerSetPoint);
    let lowered = node.status("k").set_point.unwrap().as_pps();
    assert!(node.holds("k", lowered), "{lowered} {}", node.rate("k"));
    node.run(50);
    assert_eq!(grade(&node, "k"), Grade::Stopped);
    node.run(10);
    assert_eq!(node.sim("k", |sim| sim.cap), Some(CpuShare::from_percent(1)), "the least");
    assert!(!is_touched(&node, "x"), "nobody else contends");
    offer(&mut node, [30, 30, 10]);
    node.run(400);
    assert_eq!((grade(&node, "k"), is_touched(&node, "k")), (Grade::Free, false));
    assert!(node.says("k", "free -> early drop") && node.says("k", "early drop -> free"));
}

/// Goal: a router that is gone takes nothing from the others, and one that is turned off is
/// pardoned.
#[test]
fn a_router_that_is_gone_leaves_its_share() {
    let mut node = node([60, 60, 200]);
    node.run(60);
    assert!(grade(&node, "k") > Grade::Free);
    node.set("k", "state", "off");
    node.set("k", "state", "active");
    assert_eq!(grade(&node, "k"), Grade::Free);
    node.sim("k", |sim| sim.no_device = true);
    node.run(30);
    let shares = ["x", "y"].map(|name| node.status(name).set_point.unwrap().as_pps());
    assert_eq!(shares, [34_900, 60_000], "all but what anybody may begin with");
}

/// Goal: a dry run shares and judges, and touches nothing.
#[test]
fn a_dry_run_polices_nobody() {
    let mut node = node([45, 50, 300]);
    node.edit(&[Edit::set(KeyPath::of("xtc", "", "dry_run"), true)]).unwrap();
    node.run(200);
    assert!(["x", "y", "k"].iter().all(|name| !is_touched(&node, name)));
    let policing = node.manager.load().policing.unwrap();
    assert!(policing.contended, "{policing:?} {:?}", node.status("x"));
    assert_eq!(grade(&node, "k"), Grade::Stopped);
}
