// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Set-points of a controller of several nodes: they hold for their time, and the policy comes
//! first.

use weir_control::police::Grade;
use weir_policy::XtcState;

use super::*;

/// Router `x`, which forwards for vifs of the node, and `k`, which the kernel forwards for, are
/// off; `y` is not.
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
receive = { min_pps = "1kpps", max_pps = "50kpps" }
xtc = { state = "off", period = "100ms", actuator = "none" }
[[router]]
name = "y"
slice = "gold"
xtc = { period = "100ms", actuator = "none" }
[[router]]
name = "k"
slice = "gold"
[router.xtc]
state = "off"
controller = "feed-forward"
period = "100ms"
actuator = "cgroup"
process = "19"
interface = [{ device = "v0" }]
"#;

const LENGTH: Nanos = Nanos::from_secs(3);

fn node() -> Node {
    let mut node = Node(SimLoopsNode::new(TEXT).unwrap());
    for name in ["x", "y", "k"] {
        node.sim(name, |sim| sim.router.plant.offered = PacketRate::from_pps(30_000));
    }
    node.run(20);
    node
}

/// Asks for set-points in packets a second, 0 to withdraw. Returns what was refused.
fn ask(node: &mut Node, rates: &[(&str, u64)]) -> RefusedLeases {
    ask_by("edge", node, rates)
}

/// Asks as another controller.
fn ask_by(by: &str, node: &mut Node, rates: &[(&str, u64)]) -> RefusedLeases {
    let rate = |pps: &u64| Some(PacketRate::from_pps(*pps)).filter(|rate| rate.as_pps() > 0);
    let set_points = rates.iter().map(|(name, pps)| ((*name).to_owned(), rate(pps))).collect();
    let request = LeaseRequest { by: by.to_owned(), length: LENGTH, set_points };
    let now = node.now;
    node.manager.lease(now, &request)
}

fn is_free(node: &Node, name: &str) -> bool {
    let touched = node.sim(name, |sim| sim.cap.is_some() || sim.limit.is_some());
    let status = node.status(name);
    !touched && (status.state, status.lease) == (XtcState::Off, None)
}

fn said(node: &Node, text: &str) -> usize {
    node.notes.iter().filter(|line| line.contains(text)).count()
}

/// Goal: a set-point holds as long as it is renewed in time and no longer; moving and renewing it
/// add no lines to the log. Method: renewals every second of a lease of three, then none.
#[test]
fn a_set_point_holds_until_it_is_not_renewed() {
    let mut node = node();
    assert!(ask(&mut node, &[("x", 20_000), ("k", 10_000)]).is_empty());
    for _ in 0..10 {
        node.run(10);
        assert!(node.holds("x", 20_000) && node.holds("k", 10_000));
        assert!(ask(&mut node, &[("x", 20_000), ("k", 10_000)]).is_empty());
    }
    let status = node.status("x");
    let lease = status.lease.unwrap();
    assert_eq!(
        (status.state, lease.by.as_str(), lease.until),
        (XtcState::Off, "edge", node.now + LENGTH)
    );
    assert!(ask(&mut node, &[("x", 5_000)]).is_empty());
    node.run(10);
    assert!(node.holds("x", 5_000), "moved");
    // A second ago `x` was renewed, and `k` with it a tick before.
    node.run(19);
    assert!(!is_free(&node, "x") && !is_free(&node, "k"));
    node.run(1);
    assert!(is_free(&node, "x") && is_free(&node, "k"));
    node.run(10);
    assert_eq!(node.rate("x"), 30_000, "it has its own again");
    assert_eq!(node.manager.load().leases_expired, 2);
    assert_eq!((said(&node, "held at"), said(&node, "not renewed for 3s: withdrawn")), (2, 2));
}

/// Goal: a withdrawn lease ends at once, and the end of the node ends all leases.
#[test]
fn a_set_point_is_withdrawn() {
    let mut node = node();
    ask(&mut node, &[("x", 20_000), ("k", 10_000)]);
    node.run(10);
    ask(&mut node, &[("x", 0)]);
    assert!(is_free(&node, "x") && !is_free(&node, "k"));
    assert_eq!(node.manager.load().leases_expired, 0);
    node.run(1);
    assert!(node.notes.iter().any(|line| line == "router x: let go by edge"), "{:?}", node.notes);
    let now = node.now;
    node.manager.end_all(now).unwrap();
    assert!(node.sim("k", |sim| sim.cap.is_none() && sim.free));
    let policy = node.policy().unwrap();
    node.manager.follow(now, &policy);
    node.run(10);
    assert!(is_free(&node, "k"), "a new start knows nothing of it");
}

/// Goal: a set-point that the policy does not admit is refused with value and bound, and the rest
/// of the request is taken; the operator's own change of the policy ends a lease.
#[test]
fn the_policy_comes_first() {
    let mut node = node();
    let refused = ask(&mut node, &[("x", 50_001), ("y", 9_000), ("z", 9_000), ("k", 9_000)]);
    let why: Vec<&str> = refused.values().map(String::as_str).collect();
    let [x, y, z] = why[..] else { panic!("{refused:?}") };
    assert_eq!(x, "set-point 50001pps is more than receive.max_pps, 50kpps");
    assert_eq!(y, "its state is \"active\" in the policy, not \"off\"");
    assert!(z.contains("no router of that name"), "{z}");
    node.run(10);
    assert!(node.holds("k", 9_000));
    let refused = ask(&mut node, &[("x", 999)]);
    assert_eq!(refused["x"], "set-point 999pps is less than receive.min_pps, 1kpps");
    ask(&mut node, &[("x", 20_000)]);
    node.run(5);
    node.set("x", "set_point", "25kpps");
    node.set("x", "state", "active");
    node.run(10);
    let status = node.status("x");
    assert!(
        (status.state, status.lease.is_none()) == (XtcState::Active, true)
            && node.holds("x", 25_000)
    );
    assert_eq!(said(&node, "router x: 20kpps of edge ends: its state is \"active\""), 1);
    assert_eq!(ask(&mut node, &[("x", 20_000)]).len(), 1);
}

/// Goal: a line names both controllers when one takes over or ends a lease of the other; renewals
/// by the holder add no line.
#[test]
fn a_lease_passes_to_another_controller() {
    let mut node = node();
    ask_by("edge", &mut node, &[("x", 20_000)]);
    ask_by("core", &mut node, &[("x", 20_000)]);
    ask_by("core", &mut node, &[("x", 10_000)]);
    assert_eq!(node.status("x").lease.unwrap().by, "core");
    ask_by("edge", &mut node, &[("x", 0)]);
    node.run(1);
    let told = |line: &str| node.notes.iter().filter(|told| *told == line).count();
    let begins = "router x: held at 20kpps by edge, who renews it within 3s";
    let passes = "router x: held at 20kpps by core, who renews it within 3s; it was held by edge";
    let ends = "router x: let go by edge; it was held by core";
    assert_eq!([begins, passes, ends].map(told), [1; 3], "{:?}", node.notes);
    assert_eq!((said(&node, " by core"), said(&node, "let go")), (2, 1), "{:?}", node.notes);
}

/// Goal: a lease of a router that leaves the policy ends with a line.
#[test]
fn a_lease_ends_with_its_router() {
    let mut node = node();
    ask(&mut node, &[("k", 10_000)]);
    node.run(5);
    let (others, _) = TEXT.split_once("[[router]]\nname = \"k\"").unwrap();
    let policy = weir_policy::parse(others).unwrap();
    let now = node.now;
    node.manager.follow(now, &policy);
    node.run(1);
    let line = "router k: 10kpps of edge ends: there is no router of that name";
    assert_eq!(said(&node, line), 1, "{:?}", node.notes);
    assert!(node.sim("k", |sim| sim.cap.is_none() && sim.free));
}

/// Goal: a lease bounds a router and guarantees it nothing. One that the policy would not admit as
/// a set-point takes only what its router uses from the others, whose minimums stay; and the node
/// does not judge what another controller holds. Method: `y` is guaranteed 60 of 100 kp/s, `x` is
/// leased at 95, and is offered a fifth of it, then three times as much.
#[test]
fn a_lease_is_a_ceiling_and_no_guarantee() {
    let y = "name = \"y\"\nslice = \"gold\"\n";
    let sold = format!("{y}receive = {{ min_pps = \"60kpps\" }}\n");
    let text = TEXT.replace(y, &sold).replace("50kpps", "100kpps");
    let mut node = Node(SimLoopsNode::new(&text).unwrap());
    let offer = |node: &Node, name: &str, pps: u64| {
        node.sim(name, |sim| sim.router.plant.offered = PacketRate::from_pps(pps));
    };
    for (name, pps) in [("x", 19_000), ("y", 80_000), ("k", 0)] {
        offer(&node, name, pps);
    }
    let edit = |key: &str, value: &str| {
        Edit::set(KeyPath::of("router", "x", &format!("xtc.{key}")), value)
    };
    let why = node.edit(&[edit("set_point", "95kpps"), edit("state", "active")]).unwrap_err();
    assert!(why.contains("add up to 155kpps, at most 100kpps fit"), "{why}");
    assert!(ask(&mut node, &[("x", 95_000)]).is_empty());
    node.run(20);
    assert!(node.holds("x", 19_000), "it is not slowed down");
    let share = |node: &Node| node.status("y").set_point.unwrap().as_pps();
    let most = 95_000 - 19_000;
    assert!(share(&node).abs_diff(most) * 50 < most, "less what x uses: {}", share(&node));
    offer(&node, "x", 285_000);
    for _ in 0..12 {
        node.run(10);
        ask(&mut node, &[("x", 95_000)]);
    }
    assert!(node.holds("x", 95_000) && node.holds("y", 60_000));
    assert!((60_000..61_200).contains(&share(&node)), "its guarantee: {}", share(&node));
    let police = node.status("x").police.unwrap();
    let allowed = police.allowed.as_pps();
    assert_eq!((police.grade, police.judged, police.held, allowed), (Grade::Free, 0, true, 95_000));
}

/// Goal: a clock that is set back makes no set-point eternal.
#[test]
fn a_clock_that_goes_back_ends_a_lease_all_the_same() {
    let mut node = node();
    ask(&mut node, &[("x", 20_000)]);
    node.now = weir_units::Instant::from_nanos(500_000_000);
    node.run(30);
    assert!(!is_free(&node, "x"));
    node.run(1);
    assert!(is_free(&node, "x"), "three seconds by the clock that holds");
}
