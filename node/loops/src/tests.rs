// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The manager on simulated routers, meters and actuators, in virtual time: each failure has a
//! name, leaves the router safe, and is overcome without a person.

use std::ops::{Deref, DerefMut};

use weir_control::control_loop::LoopPhase;
use weir_policy::{Edit, KeyPath};
use weir_units::{CpuShare, Nanos, PacketRate};

use super::sim::{SimLoopsNode, SimRouter};
use super::*;

mod changed;
mod leases;
mod police;

const PERIOD: Nanos = Nanos::from_millis(100);

/// A simulated node that accepts every change.
struct Node(SimLoopsNode);

/// Router `a` is held at ingress under a ceiling, `b` by its cap alone, and `c` is not held yet.
const TEXT: &str = r#"
version = 1
xtc = { release_after = "1s", log = 1000 }
port = [{ name = "up0", rate = "1Gbit" }]
slice = [{ name = "gold" }]
vif = [{ name = "a.0", slice = "gold", router = "a" }]
[[router]]
name = "a"
slice = "gold"
receive = { max_pps = "90kpps" }
xtc = { set_point = "40kpps", period = "100ms", actuator = "cgroup", process = "17" }
[[router]]
name = "b"
slice = "gold"
[router.xtc]
set_point = "20kpps"
controller = "feed-forward"
period = "100ms"
actuator = "cgroup"
process = "18"
interface = [{ device = "v0" }, { device = "v1" }]
[[router]]
name = "c"
slice = "gold"
[router.xtc]
set_point = "20kpps"
state = "off"
controller = "feed-forward"
actuator = "cgroup"
process = "19"
interface = [{ device = "v2" }]
"#;

impl Node {
    fn new() -> Self {
        Self(SimLoopsNode::new(TEXT).unwrap())
    }

    fn sim<T>(&self, name: &str, what: impl FnOnce(&mut SimRouter) -> T) -> T {
        self.world.router(name, what).unwrap()
    }

    fn set(&mut self, router: &str, key: &str, value: impl Into<serde_json::Value>) {
        self.0.set(router, key, value).unwrap();
    }

    fn run(&mut self, periods: u32) {
        (0..periods).for_each(|_| self.0.run(PERIOD));
    }

    fn status(&self, router: &str) -> RouterStatus {
        self.0.status(router).unwrap()
    }

    fn rate(&self, router: &str) -> u64 {
        self.status(router).sample.unwrap().rate().as_pps()
    }

    fn holds(&self, router: &str, rate: u64) -> bool {
        let off = self.rate(router).abs_diff(rate);
        off * 20 <= rate
    }

    /// Returns true if a decision has this text.
    fn says(&self, router: &str, text: &str) -> bool {
        self.0.says(router, text) > 0
    }
}

impl Deref for Node {
    type Target = SimLoopsNode;

    fn deref(&self) -> &SimLoopsNode {
        &self.0
    }
}

impl DerefMut for Node {
    fn deref_mut(&mut self) -> &mut SimLoopsNode {
        &mut self.0
    }
}

#[test]
fn routers_are_held_and_one_pass_serves_all() {
    let mut node = Node::new();
    node.run(20);
    assert!(node.holds("a", 40_000) && node.holds("b", 20_000), "{:?}", node.manager.status(None));
    let (a, b, c) = (node.status("a"), node.status("b"), node.status("c"));
    assert_eq!(
        (a.phase, b.phase, c.phase),
        (Some(LoopPhase::Active), Some(LoopPhase::Active), None)
    );
    assert!(a.limit.is_some() && b.limit.is_none(), "{a:?} {b:?}");
    assert_eq!((a.actuator, c.actuator), ("simulated", "cgroup"));
    assert!(node.sim("c", |sim| sim.free), "what is off is left alone");
    let passes = node.world.passes();
    assert!((19..=21).contains(&passes), "one for both: {passes}");
    assert_eq!(node.manager.load().late, 0);
    assert!(node.notes.iter().all(|line| line.ends_with("held by simulated")), "{:?}", node.notes);
    let newest = node.manager.log("b", 3).unwrap();
    assert_eq!(newest.len(), 3);
    assert!(newest[2].error_pps.is_some() && newest[2].action.is_some(), "{newest:?}");
    assert_eq!(node.manager.log("none", 3), None);
    let now = node.now;
    node.manager.end_all(now).unwrap();
    for name in ["a", "b"] {
        node.sim(name, |sim| assert!(sim.free && sim.cap.is_none() && sim.limit.is_none()));
    }
}

/// Goal: each verb is a change of the policy, and takes effect with the next sample.
#[test]
fn every_verb_takes_effect_within_one_sample() {
    let mut node = Node::new();
    node.run(20);
    node.set("a", "set_point", "60kpps");
    node.run(1);
    assert!(node.holds("a", 60_000), "{}", node.rate("a"));
    node.set("b", "set_point", "30kpps");
    node.run(2);
    assert!(node.holds("b", 30_000), "{}", node.rate("b"));
    // Paused: the cap stays, whatever the load.
    node.set("b", "state", "paused");
    let sets = node.sim("b", |sim| sim.sets);
    node.run(10);
    assert_eq!(node.status("b").phase, Some(LoopPhase::Paused));
    assert_eq!(node.sim("b", |sim| sim.sets), sets);
    node.set("b", "state", "active");
    assert_eq!(node.status("b").phase, Some(LoopPhase::Active));
    // Off: there is no cap and no limit, and the router is the host's again.
    node.set("a", "state", "off");
    node.sim("a", |sim| assert!(sim.free && sim.limit.is_none() && sim.cap.is_none()));
    node.run(1);
    assert_eq!(node.status("a").phase, Some(LoopPhase::Inactive));
    node.set("a", "state", "active");
    node.run(2);
    assert!(node.holds("a", 60_000), "{}", node.rate("a"));
    assert_eq!(node.status("a").taken, 2);
    // Another controller continues from the settings of the last one.
    node.run(10);
    let before = node.rate("b");
    node.set("b", "dead_zone", 0.001);
    node.run(1);
    assert!(node.rate("b").abs_diff(before) * 20 < before, "{} {before}", node.rate("b"));
    // With another period the actuator is shaped anew, and the cap stays.
    node.set("b", "period", "200ms");
    let samples = node.status("b").samples;
    node.run(20);
    let more = node.status("b").samples - samples;
    assert!((8..=10).contains(&more), "{more}");
    assert!(node.holds("b", 30_000) && node.says("b", "sample every 200ms"));
    // A router that the policy does not have any more.
    let gone = Edit::unset(KeyPath::of("router", "b", "xtc"));
    node.edit(&[gone]).unwrap();
    node.sim("b", |sim| assert!(sim.free && sim.cap.is_none()));
    assert_eq!(node.manager.log("b", 1), None);
    assert!(node.notes.iter().all(|line| line.ends_with("held by simulated")), "{:?}", node.notes);
}

#[test]
fn a_meter_that_stands_still_is_named_released_and_trusted_again() {
    let mut node = Node::new();
    node.run(20);
    let cap = node.sim("b", |sim| sim.cap);
    node.sim("b", |sim| sim.frozen = true);
    node.run(5);
    assert_eq!(node.sim("b", |sim| sim.cap), cap, "for a while the last cap stays");
    assert!(node.says("b", "stale reading"));
    node.run(10);
    assert_eq!(node.status("b").phase, Some(LoopPhase::Released));
    assert_eq!(node.sim("b", |sim| sim.cap), None);
    assert!(node.holds("a", 40_000), "the others do not notice");
    node.sim("b", |sim| sim.frozen = false);
    node.run(10);
    assert!(node.holds("b", 20_000) && node.status("b").faults > 5, "{}", node.rate("b"));
}

#[test]
fn counters_that_wrap_or_begin_anew_are_told_apart() {
    let mut node = Node::new();
    node.run(10);
    node.sim("b", |sim| sim.reading.packets = u64::MAX - 2500);
    node.run(1);
    assert!(node.says("b", "impossible reading"));
    let faults = node.status("b").faults;
    node.run(3);
    assert_eq!(node.status("b").faults, faults, "a wrap is none");
    node.sim("b", |sim| sim.reading.packets = 0);
    node.run(1);
    assert!(node.says("b", "counters went back"), "{:?}", node.manager.log("b", 5));
    node.run(5);
    assert!(node.holds("b", 20_000));
}

#[test]
fn an_actuator_that_refuses_is_tried_again() {
    let mut node = Node::new();
    node.run(20);
    let cap = node.sim("b", |sim| sim.cap);
    node.sim("b", |sim| {
        sim.refuses = true;
        sim.router.plant.stolen_ppm = 300_000;
    });
    node.run(5);
    assert_eq!(node.sim("b", |sim| sim.cap), cap, "the last cap stays");
    assert!(node.says("b", "actuator failed: cannot write 1000: EBUSY"));
    node.run(20);
    assert!(node.says("b", "released: no cap") && node.status("b").failures > 3);
    node.sim("b", |sim| sim.refuses = false);
    node.run(30);
    assert!(node.holds("b", 20_000), "{}", node.rate("b"));
    let told = node.notes.iter().filter(|line| line.contains("EBUSY")).count();
    assert!((1..=3).contains(&told), "once each time: {:?}", node.notes);
}

#[test]
fn a_limit_that_cannot_be_said_is_a_failure_of_its_router() {
    let mut node = Node::new();
    node.run(10);
    node.world.refuse_limits(true);
    node.set("a", "set_point", "60kpps");
    assert!(node.says("a", "the worker did not answer"));
    node.run(3);
    assert!(node.holds("a", 40_000), "what was in force still is: {}", node.rate("a"));
    node.world.refuse_limits(false);
    node.run(25);
    assert!(node.holds("a", 60_000), "{}", node.rate("a"));
}

/// Goal: a limit does not wait for its cap; it goes up and down while caps are refused.
#[test]
fn a_limit_holds_though_its_cap_is_refused() {
    let mut node = Node::new();
    node.run(20);
    let cap = node.sim("a", |sim| sim.cap);
    node.sim("a", |sim| sim.refuses = true);
    for kpps in [80, 40] {
        node.set("a", "set_point", format!("{kpps}kpps"));
        let limit = Some(PacketRate::from_pps(kpps * 1000));
        assert_eq!(node.sim("a", |sim| (sim.cap, sim.limit)), (cap, limit));
        assert_eq!(node.status("a").limit, limit);
    }
    assert!(node.says("a", "EBUSY"));
    node.sim("a", |sim| sim.refuses = false);
    node.set("a", "set_point", "80kpps");
    node.run(5);
    assert!(node.holds("a", 80_000), "{}", node.rate("a"));
}

/// Goal: a router whose process ends, and starts again with another id half a minute later, is held
/// again.
#[test]
fn a_router_that_dies_comes_back_without_a_person() {
    let mut node = Node::new();
    node.run(20);
    node.sim("b", |sim| sim.dead = true);
    node.run(1);
    let status = node.status("b");
    assert_eq!(
        (status.lost, status.trouble.as_deref()),
        (1, Some("process 17: not there any more"))
    );
    node.run(30);
    assert_eq!(node.status("b").phase, Some(LoopPhase::Released));
    assert_eq!(node.status("b").trouble.as_deref(), Some("process 17: not there"));
    node.run(300);
    let told = node.notes.iter().filter(|line| line.contains("process 17")).count();
    assert!(told <= 2, "{:?}", node.notes);
    node.sim("b", |sim| sim.dead = false);
    node.run(130);
    assert!(node.holds("b", 20_000), "{} {:?}", node.rate("b"), node.status("b"));
    assert_eq!(node.status("b").taken, 2);
    // The same for its interfaces.
    node.sim("b", |sim| sim.no_device = true);
    node.run(3);
    assert_eq!(node.status("b").trouble.as_deref(), Some("device v0: not there"));
    assert!(node.says("b", "the router or its meter is not there"));
    node.sim("b", |sim| sim.no_device = false);
    node.run(10);
    assert!(node.holds("b", 20_000) && node.status("b").trouble.is_none());
}

/// Goal: a router that is missing at the start is held once it exists.
#[test]
fn a_router_that_comes_late_is_held() {
    let mut node = Node::new();
    node.sim("c", |sim| sim.dead = true);
    node.set("c", "state", "active");
    node.run(20);
    let status = node.status("c");
    assert_eq!((status.phase, status.trouble.as_deref()), (None, Some("process 17: not there")));
    node.sim("c", |sim| sim.dead = false);
    node.run(200);
    assert!(node.holds("c", 20_000), "{:?}", node.status("c"));
}

#[test]
fn a_clock_that_jumps_either_way_is_named_and_passes() {
    let mut node = Node::new();
    node.run(20);
    node.now += Nanos::from_secs(3600);
    node.run(1);
    assert!(node.says("b", "after the one before"));
    assert!(node.manager.load().late >= 2, "{:?}", node.manager.load());
    assert!(node.status("b").late_worst >= Nanos::from_secs(3500));
    node.run(5);
    assert!(node.holds("b", 20_000));
    node.now = node.now.saturating_sub(Nanos::from_secs(1800));
    node.run(5);
    assert_eq!(node.manager.load().clock_jumps, 1);
    assert!(node.notes.iter().any(|line| line.starts_with("a clock was set")), "{:?}", node.notes);
    node.run(10);
    assert!(node.holds("a", 40_000) && node.holds("b", 20_000));
}

/// Goal: a clock that went back is noticed where a changed policy is followed before the next tick,
/// too: routers are sampled on, and a missing one is looked for, at once and not when the old time
/// comes again.
#[test]
fn a_clock_that_jumps_before_a_change_passes_too() {
    let mut node = Node::new();
    node.sim("a", |sim| sim.dead = true);
    node.run(20);
    node.sim("a", |sim| sim.dead = false);
    node.now = node.now.saturating_sub(Nanos::from_secs(90));
    node.set("b", "set_point", "30kpps");
    assert_eq!(node.manager.load().clock_jumps, 1);
    node.run(15);
    assert!(node.holds("b", 30_000), "{:?}", node.status("b"));
    // The longest time between two attempts to take one is ten seconds.
    node.run(120);
    assert!(node.holds("a", 40_000), "{:?}", node.status("a"));
    assert_eq!(node.manager.load().clock_jumps, 1);
}

/// Goal: a set-point that is out of a router's reach leads to the largest cap.
#[test]
fn an_impossible_set_point_harms_nobody() {
    let mut node = Node::new();
    node.run(10);
    node.set("b", "set_point", "150Mpps");
    node.run(20);
    assert_eq!(node.sim("b", |sim| sim.cap), Some(CpuShare::ONE));
    assert!(node.holds("a", 40_000));
    node.set("b", "set_point", "20kpps");
    node.run(10);
    assert!(node.holds("b", 20_000));
    let refused = Edit::set(KeyPath::of("router", "a", "xtc.set_point"), "95kpps");
    let problem = node.edit(&[refused]).unwrap_err();
    assert!(problem.contains("95kpps is more than receive.max_pps, 90kpps"), "{problem}");
}

/// Goal: a dry run decides as usual and changes nothing.
#[test]
fn a_dry_run_decides_and_touches_nothing() {
    let mut node = Node::new();
    node.edit(&[Edit::set(KeyPath::of("xtc", "", "dry_run"), true)]).unwrap();
    let sets = node.sim("b", |sim| sim.sets);
    node.run(20);
    node.sim("b", |sim| assert_eq!((sim.sets, sim.cap), (sets, None)));
    node.sim("a", |sim| assert_eq!(sim.limit, None));
    let status = node.status("a");
    assert!(status.dry_run && status.samples > 15 && status.commands == 0, "{status:?}");
    assert!(node.says("a", "limit 40kpps"), "{:?}", node.manager.log("a", 3));
}

/// Goal: a late tick steps each router once, and counts the routers that waited too long.
#[test]
fn late_samples_are_counted_by_router() {
    let mut node = Node::new();
    node.set("b", "period", "1s");
    node.run(20);
    let before = node.manager.load();
    node.now += Nanos::from_millis(250);
    node.run(1);
    let after = node.manager.load();
    assert_eq!(after.late - before.late, 1, "{after:?}");
    assert_eq!((node.status("a").late, node.status("b").late), (1, 0));
    assert!(after.late_worst_thousandths >= 2000, "{after:?}");
    node.run(10);
    assert!(node.holds("a", 40_000));
}
