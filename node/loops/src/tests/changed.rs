// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers that are lost and come back, and policies that change while nothing is attached.

use weir_policy::XtcState;

use super::*;

/// A node whose router `b` has the controller `fixed`, which repeats the same decision; its cap is
/// released only after five seconds.
fn fixed() -> Node {
    let mut node = Node::new();
    let map =
        serde_json::json!([{ "rate": "1pps", "cap": "1%" }, { "rate": "20kpps", "cap": "20%" }]);
    let place = |key| KeyPath::of("router", "b", key);
    let edits = [
        Edit::set(KeyPath::of("xtc", "", "release_after"), "5s"),
        Edit::set(place("xtc.map"), map),
        Edit::set(place("xtc.controller"), "fixed"),
    ];
    node.edit(&edits).unwrap();
    node.run(20);
    assert_eq!(node.sim("b", |sim| sim.cap), Some(CpuShare::from_percent(20)));
    node
}

/// Goal: a process that is back before its cap would be released has the same cap, in each state.
#[test]
fn a_router_that_is_back_soon_has_its_cap_again() {
    for state in [XtcState::Active, XtcState::Paused] {
        let mut node = fixed();
        node.set("b", "state", state.name());
        let cap = node.sim("b", |sim| sim.cap);
        node.sim("b", |sim| sim.dead = true);
        node.run(3);
        let status = node.status("b");
        assert_eq!((status.lost, status.cap), (1, None), "what is not there has no cap");
        assert_eq!(node.sim("b", |sim| sim.cap), None);
        node.sim("b", |sim| sim.dead = false);
        node.run(12);
        let status = node.status("b");
        assert_eq!((status.taken, node.sim("b", |sim| sim.cap)), (2, cap), "{state:?}");
        assert_eq!((status.cap, status.state), (cap, state));
        assert!(node.says("b", "recovered: last cap set again"));
        assert!(!node.says("b", "released"));
    }
}

/// Goal: the ceiling is set again when the process is back; the limit holds meanwhile.
#[test]
fn a_ceiling_comes_back_with_its_router() {
    let mut node = fixed();
    let (cap, limit) = node.sim("a", |sim| (sim.cap, sim.limit));
    assert!(cap.is_some() && limit.is_some());
    node.sim("a", |sim| sim.dead = true);
    node.run(3);
    assert_eq!(node.sim("a", |sim| (sim.cap, sim.limit)), (None, limit));
    node.sim("a", |sim| sim.dead = false);
    node.run(10);
    assert!(node.sim("a", |sim| sim.cap.is_some() && sim.limit == limit));
}

/// Goal: a policy that changed while the router was off or gone is in force when the router is
/// back.
#[test]
fn a_controller_that_is_changed_meanwhile_is_used() {
    let mut node = fixed();
    node.set("b", "state", "off");
    node.set("b", "map", serde_json::json!([{ "rate": "20kpps", "cap": "30%" }]));
    node.set("b", "state", "active");
    assert_eq!(node.sim("b", |sim| sim.cap), Some(CpuShare::from_percent(30)));
    // The same with another kind, while its process is away.
    node.sim("b", |sim| sim.dead = true);
    node.run(2);
    node.set("b", "controller", "feed-forward");
    assert_eq!(node.status("b").controller, "fixed", "as long as nothing is held");
    node.sim("b", |sim| sim.dead = false);
    node.run(20);
    assert_eq!(node.status("b").controller, "feed-forward");
    assert!(node.holds("b", 20_000) && node.says("b", "switch to feed-forward"));
}

/// Goal: a policy that cannot be realized is refused beforehand, with the key, the value and the
/// bound.
#[test]
fn what_cannot_be_held_is_refused_and_what_is_there_already_is_named() {
    let mut node = fixed();
    let may = |node: &Node, router: &str, key: &str, value: &str| {
        let mut document = node.document.clone();
        let place = KeyPath::of("router", router, &format!("xtc.{key}"));
        document.apply(&Edit::set(place, value)).unwrap();
        let checked = node.manager.check(&document.policy().unwrap());
        checked.map_err(|unfit| unfit.to_string())
    };
    let refused = "router \"b\".xtc.cap_min and cap_max: the least cap is 1%, must be at most the \
                   largest, 0.5%; the actuator's are 1% to 100%";
    assert_eq!(may(&node, "b", "cap_max", "0.5%"), Err(refused.to_owned()));
    assert!(may(&node, "b", "cap_min", "101%").unwrap_err().contains("is 101%, must be at most"));
    assert_eq!(may(&node, "b", "cap_max", "50%"), Ok(()));
    // A policy file is not checked beforehand: the earlier policy stays in force, and good samples
    // do not hide the trouble.
    node.set("b", "cap_max", "0.5%");
    node.run(5);
    let status = node.status("b");
    assert_eq!((status.trouble_kind, status.cap.is_some()), (Some(RouterTrouble::Design), true));
    assert!(status.trouble.is_some_and(|why| why.contains("the actuator's are 1% to 100%")));
    assert_eq!(may(&node, "a", "set_point", "50kpps"), Ok(()), "it is in nobody's way");
    node.set("b", "cap_max", "50%");
    assert_eq!(node.status("b").trouble_kind, None);
}

/// Goal: a trouble stays in the status until the success that ends it.
#[test]
fn a_trouble_is_over_by_its_own_success_alone() {
    let mut node = Node::new();
    node.edit(&[Edit::set(KeyPath::of("xtc", "", "release_after"), "5s")]).unwrap();
    node.run(20);
    node.sim("b", |sim| sim.refuses = true);
    node.set("b", "set_point", "10kpps");
    node.run(3);
    let status = node.status("b");
    assert_eq!(status.trouble_kind, Some(RouterTrouble::Command), "though samples are good");
    assert!(status.trouble.is_some_and(|why| why.contains("EBUSY")));
    assert!(status.latest.is_some());
    let log = node.manager.log("b", 10).unwrap();
    let failed = log.iter().find(|line| line.text.contains("EBUSY")).unwrap();
    assert!(failed.redacted.contains("actuator failed: its cap or limit cannot be set; cap stays"));
    node.sim("b", |sim| sim.refuses = false);
    node.run(3);
    assert_eq!(node.status("b").trouble_kind, None);
    node.sim("b", |sim| sim.no_device = true);
    node.run(1);
    assert_eq!(node.status("b").trouble_kind, Some(RouterTrouble::Reading));
    node.sim("b", |sim| sim.no_device = false);
    node.run(1);
    assert_eq!(node.status("b").trouble_kind, None);
}

/// Goal: if a router is taken whose cap is above the policy's bound, or that has no cap, the loop
/// does not take this for the largest allowed cap.
#[test]
fn what_is_in_force_beyond_the_policys_bound_is_brought_down() {
    let twenty = Some(CpuShare::from_percent(20));
    for before in [None, Some(CpuShare::from_percent(70))] {
        let mut node = fixed();
        node.set("b", "state", "off");
        node.set("b", "cap_max", "20%");
        node.sim("b", |sim| sim.cap = before);
        node.set("b", "state", "active");
        assert_eq!(node.sim("b", |sim| sim.cap), twenty, "{before:?}");
        assert_eq!(node.status("b").cap, twenty);
    }
}

/// Goal: if the cap of a pause is refused, it is retried until it is in force, so that the
/// correction of one sample does not stay.
#[test]
fn a_cap_that_is_refused_at_a_pause_is_set_later() {
    let mut node = Node::new();
    node.run(20);
    // One sample with half of its packets raises the cap for that sample.
    node.sim("b", |sim| sim.router.plant.stolen_ppm = 500_000);
    node.run(1);
    node.sim("b", |sim| sim.router.plant.stolen_ppm = 0);
    let raised = node.sim("b", |sim| sim.cap);
    node.sim("b", |sim| sim.refuses = true);
    node.set("b", "state", "paused");
    node.run(2);
    assert_eq!(node.sim("b", |sim| sim.cap), raised);
    assert!(node.says("b", "paused: cap tried again"));
    node.sim("b", |sim| sim.refuses = false);
    node.run(2);
    let status = node.status("b");
    assert!(node.sim("b", |sim| sim.cap) < raised, "{raised:?} {status:?}");
    assert_eq!((status.phase, status.trouble_kind), (Some(LoopPhase::Paused), None));
    let sets = node.sim("b", |sim| sim.sets);
    node.run(10);
    assert_eq!(node.sim("b", |sim| sim.sets), sets, "once");
}

/// Goal: a cap that a fault took away, and that is refused when it is to come back, comes back,
/// though the controller never wants another.
#[test]
fn a_cap_that_was_released_and_refused_is_set_again() {
    let mut node = Node::new();
    node.set("b", "set_point", "100pps");
    node.run(30);
    let cap = node.sim("b", |sim| sim.cap);
    assert_eq!(cap, Some(CpuShare::from_percent(1)), "the least");
    node.sim("b", |sim| sim.frozen = true);
    node.run(15);
    assert_eq!(node.sim("b", |sim| sim.cap), None);
    node.sim("b", |sim| (sim.frozen, sim.refuses) = (false, true));
    node.run(3);
    node.sim("b", |sim| sim.refuses = false);
    node.run(10);
    assert_eq!(node.sim("b", |sim| sim.cap), cap);
    assert_eq!(node.status("b").trouble, None);
}

/// Goal: a limit that could not be lifted when its router left the policy does not outlive the
/// reason.
#[test]
fn a_limit_that_could_not_be_lifted_is_lifted_later() {
    let mut node = Node::new();
    node.run(5);
    node.world.refuse_limits(true);
    node.edit(&[Edit::unset(KeyPath::of("router", "a", "xtc"))]).unwrap();
    node.run(15);
    assert!(node.sim("a", |sim| sim.limit.is_some()) && !node.manager.is_idle());
    node.world.refuse_limits(false);
    node.run(15);
    assert_eq!(node.sim("a", |sim| sim.limit), None);
}
