// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of policing over two nodes that are simulated: what the entry lets through comes to the
//! second node.

use serde_json::{Value, json};

use super::*;
use crate::test_config;

/// The state of a router in its node's policy, and the rate and the end of its lease.
type RouterHold = (&'static str, Option<(u64, u64)>);

/// Two networks on two nodes; both enter at n1, which carries ten times as much as n2.
struct TwoNodes {
    police: NetworkPolice,
    /// The routers b1 and r1 at n1, then b2 and r2 at n2.
    routers: [[RouterHold; 2]; 2],
    /// Nodes that do not answer.
    silent: [bool; 2],
    /// Greater rates of r1 and r2 are refused.
    most: u64,
    /// Milliseconds.
    time: u64,
    notes: Vec<PolicingNote>,
    /// Requests so far.
    requests: usize,
}

impl TwoNodes {
    fn new() -> Self {
        let config = test_config::parse(&test_config::policed()).unwrap();
        let police = NetworkPolice::new(&config).unwrap();
        let (routers, silent) = ([[("off", None); 2]; 2], [false; 2]);
        let (most, notes) = (u64::MAX, Vec::new());
        Self { police, routers, silent, most, time: 0, notes, requests: 0 }
    }

    /// Lets half a second pass in which the networks send these rates. Returns the requests, as
    /// `ROUTER RATE` for each router in them.
    fn pass(&mut self, sent: [u64; 2]) -> Vec<String> {
        self.time += 500;
        let mut rates = sent;
        let mut views = Vec::new();
        for (node, routers) in self.routers.iter_mut().enumerate() {
            let mut shown = Vec::new();
            for (network, (state, lease)) in routers.iter_mut().enumerate() {
                *lease = lease.filter(|(_, until)| *until > self.time);
                let offered = rates[network];
                rates[network] = offered.min(lease.map_or(u64::MAX, |(rate, _)| rate));
                let name = format!("{}{}", ["b", "r"][network], node + 1);
                let left = lease.map(|(rate, until)| (rate, until - self.time));
                shown.push(router(&name, state, left, offered, rates[network]));
            }
            let capacity = [20_000, 2_000][node];
            let view = json!({ "routers": shown, "policing": {
                "capacity_pps": capacity, "demand_pps": 0, "contended": false, "changes": 0,
                "judged": 0,
            } });
            let view: XtcView = serde_json::from_value(view).unwrap();
            let silent = self.silent[node];
            views.push(if silent { Err("no answer".to_owned()) } else { Ok(view) });
        }
        let now = Instant::from_nanos(self.time * 1_000_000);
        let (requests, judged) = self.police.take(now, &views);
        let (mut made, mut said) = (Vec::new(), Vec::new());
        for (node, request) in requests.into_iter().enumerate() {
            self.requests += usize::from(request.is_some());
            let mut answer = SetPointAnswer::default();
            for (name, rate) in request.iter().flat_map(|of| &of.set_points_pps) {
                let network = usize::from(name.starts_with('r'));
                let until = self.time + request.as_ref().unwrap().lease_ns / 1_000_000;
                if network == 1 && rate.is_some_and(|rate| rate > self.most) {
                    answer.refused.insert(name.clone(), "above its bound".to_owned());
                } else {
                    self.routers[node][network].1 = rate.map(|rate| (rate, until));
                }
                said.push(format!("{name} {}", rate.map_or("off".to_owned(), |of| of.to_string())));
            }
            made.push(request.map(|request| (request, Ok(answer))));
        }
        self.notes.extend(judged);
        self.notes.extend(self.police.take_outcomes(&made));
        said
    }

    /// Replaces the broker by another one, which knows nothing.
    fn succeed(&mut self) {
        let config = test_config::parse(&test_config::policed()).unwrap();
        self.police = NetworkPolice::new(&config).unwrap();
        self.notes.clear();
    }

    /// Returns the changes of a network in the history.
    fn history(&self, network: &str) -> Vec<HistoryChange> {
        let own = self.notes.iter().filter(|note| note.network == network);
        own.map(|note| note.change).collect()
    }
}

/// Returns a router as its node shows it; its lease as rate and milliseconds that are left. One
/// that is on has a set-point of its policy.
fn router(name: &str, state: &str, lease: Option<(u64, u64)>, offered: u64, passed: u64) -> Value {
    let set_point = lease.map(|(rate, _)| rate);
    let set_point = set_point.or_else(|| (state == "active").then_some(1000));
    let lease = lease.map(
        |(rate, left)| json!({ "set_point_pps": rate, "by": "edge", "left_ns": left * 1_000_000 }),
    );
    let state = if lease.is_some() { "leased" } else { state };
    json!({
        "router": name, "slice": "s", "state": state, "controller": "combined", "actuator": "none",
        "period_ns": 100_000_000, "set_point_pps": set_point, "lease": lease, "dry_run": false,
        "rate_pps": passed, "offered_pps": offered, "owes_release": false, "samples": 1,
        "faults": 0, "commands": 0, "failures": 0, "late": 0, "late_worst_ns": 0, "lost": 0,
    })
}

/// Goal: with contention each network is held where it enters and where it contends, by its weight
/// (3 and 1); set-points move with demand; without contention all are let go. A sample that changes
/// nothing makes no request, and the history has the two ends alone.
#[test]
fn set_points_are_set_moved_and_withdrawn() {
    let mut nodes = TwoNodes::new();
    assert!(nodes.pass([800, 800]).is_empty());
    // 1900 of 2000 are shared.
    assert_eq!(nodes.pass([1500, 1000]), ["b1 1425", "r1 475", "b2 1425", "r2 475"]);
    assert!(nodes.pass([1500, 1000]).is_empty());
    assert_eq!(nodes.pass([600, 1000]), ["b1 750", "r1 1150", "b2 750", "r2 1150"]);
    assert_eq!(nodes.pass([1500, 1000]).len(), 4);
    assert!(nodes.pass([400, 300]).len() <= 4);
    assert_eq!(nodes.pass([400, 300]), ["b1 off", "r1 off", "b2 off", "r2 off"]);
    for network in ["blue", "red"] {
        assert_eq!(nodes.history(network), [HistoryChange::Held, HistoryChange::LetGo]);
    }
    let held = &nodes.notes[0].detail;
    assert_eq!(held, "b1 at n1 1425pps, b2 at n2 1425pps");
}

/// Goal: who floods is punished at its entry, grade by grade, and pardoned; each step is in the
/// history with its rates, and shown.
#[test]
fn who_floods_is_punished_and_pardoned() {
    let mut nodes = TwoNodes::new();
    for _ in 0..36 {
        nodes.pass([1750, 9000]);
    }
    let shown = nodes.police.report(500, 0);
    let [blue, red] = &shown.networks[..] else { panic!("{shown:?}") };
    assert_eq!((blue.grade.as_str(), red.grade.as_str()), ("free", "stopped"));
    assert_eq!((red.routers[0].set_point_pps, red.judged), (Some(1), 3));
    assert!(shown.nodes[1].contended && !shown.nodes[0].contended);
    for _ in 0..140 {
        nodes.pass([400, 200]);
    }
    let (held, up, down) = (HistoryChange::Held, HistoryChange::Punished, HistoryChange::Reformed);
    let all = [held, up, up, up, down, down, down, HistoryChange::LetGo];
    assert_eq!(nodes.history("red"), all);
    assert_eq!(nodes.history("blue").len() % 2, 0);
    let first = nodes.notes.iter().find(|note| note.change == up).unwrap();
    assert!(first.detail.starts_with("free -> early drop: 9kpps offered"), "{}", first.detail);
    assert_eq!(nodes.police.report(500, 0).networks[1].routers[0].set_point_pps, None);
}

/// Goal: set-points that do not move are renewed by one request a node within a third of their
/// time, and none of it is in the history. Nobody renews them: they end, and contention is as
/// before.
#[test]
fn a_steady_set_point_costs_one_request_in_a_third_of_its_lease() {
    let mut nodes = TwoNodes::new();
    nodes.pass([1500, 900]);
    nodes.pass([1500, 900]);
    let before = nodes.requests;
    for _ in 0..120 {
        nodes.pass([1500, 900]);
        assert!(nodes.routers.iter().flatten().all(|(_, lease)| lease.is_some()));
    }
    // A minute has two leases of 30 s.
    assert_eq!(nodes.requests - before, 2 * 2 * 3);
    assert_eq!(nodes.history("blue"), [HistoryChange::Held]);
    nodes.time += 30_000;
    assert_eq!(nodes.pass([1500, 900]), ["b1 1425", "r1 475", "b2 1425", "r2 475"]);
}

/// Goal: a rate that a node refuses leaves the one before in force, renewed in time, and is tried
/// again with each renewal, not with each sample.
#[test]
fn a_refused_rate_leaves_the_one_before_in_force() {
    let mut nodes = TwoNodes::new();
    nodes.pass([1500, 1000]);
    nodes.pass([1500, 1000]);
    nodes.most = 500;
    let asked = nodes.pass([900, 1200]);
    assert!(asked.iter().any(|one| one.starts_with("r1 ") && one != "r1 475"), "{asked:?}");
    let before = nodes.requests;
    for _ in 0..120 {
        nodes.pass([900, 1200]);
        let red = nodes.routers.map(|[_, (_, lease)]| lease.map(|(rate, _)| rate));
        assert_eq!(red, [Some(475); 2]);
    }
    let (count, renewals) = (nodes.requests - before, 2 * 2 * 3);
    assert!((renewals..=2 * renewals + 2).contains(&count), "{count}");
    let fault = nodes.police.report(500, 0).networks[1].routers[0].fault.clone();
    assert_eq!(fault.as_deref(), Some("above its bound"));
}

/// Goal: a set-point that an operator gave in a node's policy is not taken for a lease of the
/// broker before.
#[test]
fn an_operators_own_set_point_is_left_alone() {
    let mut nodes = TwoNodes::new();
    nodes.routers[0][0].0 = "active";
    for _ in 0..3 {
        assert!(nodes.pass([100, 100]).is_empty());
    }
    let shown = nodes.police.report(500, 0);
    assert!(nodes.notes.is_empty() && !shown.networks[0].held && !shown.nodes[0].contended);
}

/// Goal: whoever follows a broker that is gone goes on with the set-points that it finds, whatever
/// they hold back; without contention it withdraws them within two samples, which is in the
/// history.
#[test]
fn a_successor_keeps_what_is_needed_and_withdraws_the_rest() {
    let mut nodes = TwoNodes::new();
    nodes.pass([1500, 1000]);
    nodes.pass([1150, 650]);
    let before = nodes.routers;
    nodes.succeed();
    for _ in 0..10 {
        assert!(nodes.pass([1150, 650]).is_empty(), "nothing differs");
    }
    assert!(nodes.routers == before && nodes.police.report(500, 0).nodes[1].contended);
    assert!(!nodes.police.report(500, 0).nodes[0].contended, "an entry alone contends for nothing");
    nodes.succeed();
    nodes.pass([100, 100]);
    assert_eq!(nodes.pass([100, 100]), ["b1 off", "r1 off", "b2 off", "r2 off"]);
    for network in ["blue", "red"] {
        assert_eq!(nodes.history(network), [HistoryChange::LetGo]);
    }
}

/// Goal: while a node has not said what it holds, a successor takes no other for the contended one
/// and withdraws nothing; a node that stays silent holds nobody once its leases have ended.
#[test]
fn a_successor_waits_for_all_nodes_of_a_network() {
    let mut nodes = TwoNodes::new();
    nodes.pass([1500, 1000]);
    nodes.pass([1150, 650]);
    let contended = |nodes: &TwoNodes| {
        let shown = nodes.police.report(500, 0);
        [0, 1].map(|place| shown.nodes[place].contended)
    };
    for late in [1, 50] {
        nodes.succeed();
        nodes.silent[1] = true;
        for _ in 0..late {
            let asked = nodes.pass([1150, 650]);
            assert!(asked.iter().all(|of| !of.ends_with("off")), "{asked:?}");
            assert_eq!(contended(&nodes), [false; 2]);
        }
        nodes.silent[1] = false;
        // Its leases have not been renewed, and may have ended: then contention shows again.
        nodes.pass([1150, 650]);
        assert_eq!(contended(&nodes), [false, true], "after {late} samples");
    }
    nodes.succeed();
    nodes.silent[1] = true;
    let all: Vec<_> = (0..65).map(|_| nodes.pass([400, 300])).collect();
    let let_go = all.iter().position(|asked| asked.iter().any(|of| of.ends_with("off")));
    assert!(let_go.is_some_and(|at| at >= 60), "{let_go:?}");
}

/// Goal: a node that does not answer is counted and named, and nothing is asked of it; a router
/// that its node's policy has turned on or paused is left alone; guarantees beyond what a node
/// carries are named.
#[test]
fn what_is_not_as_it_should_be_is_named() {
    let mut nodes = TwoNodes::new();
    nodes.routers[0][0].0 = "paused";
    nodes.pass([1500, 1000]);
    let asked = nodes.pass([1500, 1000]);
    assert!(asked.iter().all(|router| !router.starts_with("b1")), "{asked:?}");
    let shown = nodes.police.report(500, 0);
    let fault = |shown: &PolicingReport, network: usize, router: usize| {
        shown.networks[network].routers[router].fault.clone().unwrap_or_default()
    };
    assert_eq!(fault(&shown, 0, 0), "it is not off in its node's policy");
    nodes.silent[1] = true;
    for _ in 0..3 {
        let asked = nodes.pass([1500, 1000]);
        assert!(asked.iter().all(|router| router[1..].starts_with('1')), "{asked:?}");
    }
    let shown = nodes.police.report(500, 0);
    assert_eq!((shown.nodes[1].silent, shown.nodes[1].fault.as_deref()), (3, Some("no answer")));
    assert_eq!(fault(&shown, 1, 1), "its node does not answer");
    let held = |shown: &PolicingReport| shown.networks[1].routers[1].set_point_pps;
    assert_eq!(held(&shown), Some(475));
    nodes.time += 30_000;
    nodes.pass([1500, 1000]);
    let shown = nodes.police.report(500, 0);
    assert_eq!(held(&shown), None, "its node has ended the lease meanwhile");
    let text = test_config::policed().replace("min = \"100pps\"", "min = \"1500pps\"");
    nodes.police = NetworkPolice::new(&test_config::parse(&text).unwrap()).unwrap();
    nodes.silent[1] = false;
    nodes.pass([0, 0]);
    let fault = nodes.police.report(500, 0).nodes[1].fault.clone().unwrap();
    assert!(fault.contains("add up to 3kpps") && fault.contains("capacity of 2kpps"), "{fault}");
    let none = test_config::with(&[test_config::TRIANGLE]);
    assert!(NetworkPolice::new(&none).is_none());
}
