// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is lost and comes back, and what is asked for while nothing is held.

use super::*;

fn sim<T>(node: &Node, name: &str, what: impl FnOnce(&mut Sim) -> T) -> T {
    node.world.sim(name, what)
}

/// A node whose router `b` has a fixed cap, which decides the same again and again, and is not
/// released for five seconds.
fn fixed() -> Node {
    let mut node = Node::new();
    node.document.apply(&Edit::set(Place::of("xtc", "", "release_after"), "5s")).unwrap();
    let map =
        serde_json::json!([{ "rate": "1pps", "cap": "1%" }, { "rate": "20kpps", "cap": "20%" }]);
    let place = |key| Place::of("router", "b", key);
    node.document.apply(&Edit::set(place("xtc.map"), map)).unwrap();
    node.document.apply(&Edit::set(place("xtc.controller"), "fixed")).unwrap();
    node.manager.follow(node.now, &node.policy());
    node.run(20);
    assert_eq!(sim(&node, "b", |sim| sim.cap), Some(CpuShare::from_percent(20)));
    node
}

/// A process that is back before its cap would be released has the same cap, in each state.
#[test]
fn a_router_that_is_back_soon_has_its_cap_again() {
    for state in ["active", "paused"] {
        let mut node = fixed();
        node.set("b", "state", state);
        let cap = sim(&node, "b", |sim| sim.cap);
        sim(&node, "b", |sim| sim.dead = true);
        node.run(3);
        let status = node.status("b");
        assert_eq!((status.lost, status.cap), (1, None), "what is not there has no cap");
        assert_eq!(sim(&node, "b", |sim| sim.cap), None);
        sim(&node, "b", |sim| sim.dead = false);
        node.run(12);
        let status = node.status("b");
        assert_eq!((status.taken, sim(&node, "b", |sim| sim.cap)), (2, cap), "{state}");
        assert_eq!((status.cap, status.state), (cap, state));
        assert!(node.says("b", "recovered: last cap set again"));
        assert!(!node.says("b", "released"));
    }
}

/// The same under a ceiling: the limit held meanwhile, the ceiling comes back with the process.
#[test]
fn a_ceiling_comes_back_with_its_router() {
    let mut node = fixed();
    let (cap, limit) = sim(&node, "a", |sim| (sim.cap, sim.limit));
    assert!(cap.is_some() && limit.is_some());
    sim(&node, "a", |sim| sim.dead = true);
    node.run(3);
    assert_eq!(sim(&node, "a", |sim| (sim.cap, sim.limit)), (None, limit));
    sim(&node, "a", |sim| sim.dead = false);
    node.run(10);
    assert!(sim(&node, "a", |sim| sim.cap.is_some() && sim.limit == limit));
}

/// What is asked for while nothing is held is what holds the router when it is back: off, or gone.
#[test]
fn a_controller_that_is_changed_meanwhile_is_used() {
    let mut node = fixed();
    node.set("b", "state", "off");
    node.set("b", "map", serde_json::json!([{ "rate": "20kpps", "cap": "30%" }]));
    node.set("b", "state", "active");
    assert_eq!(sim(&node, "b", |sim| sim.cap), Some(CpuShare::from_percent(30)));
    // The same with another kind, while its process is away.
    sim(&node, "b", |sim| sim.dead = true);
    node.run(2);
    node.set("b", "controller", "feed-forward");
    assert_eq!(node.status("b").controller, "fixed", "as long as nothing is held");
    sim(&node, "b", |sim| sim.dead = false);
    node.run(20);
    assert_eq!(node.status("b").controller, "feed-forward");
    assert!(node.holds("b", 20_000) && node.says("b", "switch to feed-forward"));
}
