// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of policing over two nodes that are simulated: what the entry lets through comes to the
//! second node.

use serde_json::{Value, json};

use super::*;
use crate::test_config;

/// Two networks on two nodes; both enter at n1, which carries ten times as much as n2.
struct TwoNodes {
    police: NetworkPolice,
    /// State and set-point of b1, r1 at n1 and of b2, r2 at n2.
    routers: [[(&'static str, Option<u64>); 2]; 2],
    /// Nodes that do not answer.
    silent: [bool; 2],
    time: u64,
    notes: Vec<PolicingNote>,
}

impl TwoNodes {
    fn new() -> Self {
        let config = test_config::parse(&test_config::policed()).unwrap();
        let police = NetworkPolice::new(&config).unwrap();
        let (routers, silent) = ([[(OFF, None); 2]; 2], [false; 2]);
        Self { police, routers, silent, time: 0, notes: Vec::new() }
    }

    /// Lets half a second pass in which the networks send these rates. Returns the calls, as
    /// `ROUTER STATE RATE`, in their order.
    fn pass(&mut self, sent: [u64; 2]) -> Vec<String> {
        self.time += 500;
        let mut rates = sent;
        let mut views = Vec::new();
        for (node, routers) in self.routers.iter().enumerate() {
            let mut shown = Vec::new();
            for (network, (state, set_point)) in routers.iter().enumerate() {
                let offered = rates[network];
                let held = set_point.filter(|_| *state == ACTIVE);
                rates[network] = offered.min(held.unwrap_or(u64::MAX));
                let name = format!("{}{}", ["b", "r"][network], node + 1);
                shown.push(router(&name, state, *set_point, offered, rates[network]));
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
        let (calls, judged) = self.police.take(now, &views);
        let (mut made, mut said) = (Vec::new(), Vec::new());
        for (node, calls) in calls.into_iter().enumerate() {
            for call in calls {
                let network = usize::from(call.router.starts_with('r'));
                let of = &mut self.routers[node][network];
                of.0 = [OFF, ACTIVE][usize::from(call.change.state.as_deref() == Some(ACTIVE))];
                of.1 = call.change.set_point_pps.or(of.1);
                let rate = call.change.set_point_pps.map(|rate| format!(" {rate}"));
                said.push(format!("{} {}{}", call.router, of.0, rate.unwrap_or_default()));
                made.push((call, Ok(())));
            }
        }
        self.notes.extend(judged);
        self.notes.extend(self.police.made(made));
        said
    }

    /// Returns the changes of a network in the history.
    fn history(&self, network: &str) -> Vec<HistoryChange> {
        let own = self.notes.iter().filter(|note| note.network == network);
        own.map(|note| note.change).collect()
    }
}

fn router(name: &str, state: &str, set_point: Option<u64>, offered: u64, passed: u64) -> Value {
    json!({
        "router": name, "slice": "s", "state": state, "controller": "combined", "actuator": "none",
        "period_ns": 100_000_000, "set_point_pps": set_point, "dry_run": false,
        "rate_pps": passed, "offered_pps": offered, "owes_release": false, "samples": 1,
        "faults": 0, "commands": 0, "failures": 0, "late": 0, "late_worst_ns": 0, "lost": 0,
    })
}

/// Goal: with contention each network is held where it enters and where it contends, by its weight
/// (3 and 1); set-points move with demand, what shrinks first; without contention all are let go.
/// A sample that changes nothing makes no call, and the history has the two ends alone.
#[test]
fn set_points_are_set_moved_and_withdrawn() {
    let mut nodes = TwoNodes::new();
    assert!(nodes.pass([800, 800]).is_empty());
    // 1900 of 2000 are shared.
    let set = ["b1 active 1425", "r1 active 475", "b2 active 1425", "r2 active 475"];
    assert_eq!(nodes.pass([1500, 1000]), set);
    assert!(nodes.pass([1500, 1000]).is_empty());
    let moved = ["b1 active 750", "r1 active 1150", "b2 active 750", "r2 active 1150"];
    assert_eq!(nodes.pass([600, 1000]), moved);
    let back = nodes.pass([1500, 1000]);
    assert!(back[0].starts_with("r1") && back[2].starts_with("r2"), "what shrinks: {back:?}");
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

/// Goal: what a broker has set that is gone is withdrawn by the next one, and is in the history.
#[test]
fn a_successor_withdraws_what_was_set() {
    let mut nodes = TwoNodes::new();
    nodes.routers = [[(ACTIVE, Some(900)), (OFF, Some(5))], [(ACTIVE, Some(900)), (OFF, None)]];
    assert_eq!(nodes.pass([100, 100]), ["b1 off", "b2 off"]);
    assert_eq!(nodes.history("blue"), [HistoryChange::LetGo]);
    assert!(nodes.history("red").is_empty());
}

/// Goal: a node that does not answer is counted and named, and nothing is asked of it; a router
/// that is paused is left alone; guarantees beyond what a node carries are named.
#[test]
fn what_is_not_as_it_should_be_is_named() {
    let mut nodes = TwoNodes::new();
    nodes.routers[0][0] = ("paused", Some(700));
    nodes.pass([1500, 1000]);
    let calls = nodes.pass([1500, 1000]);
    assert!(calls.iter().all(|call| !call.starts_with("b1")), "{calls:?}");
    let shown = nodes.police.report(500, 0);
    let fault = |shown: &PolicingReport, network: usize, router: usize| {
        shown.networks[network].routers[router].fault.clone().unwrap_or_default()
    };
    assert_eq!(fault(&shown, 0, 0), "it is paused at its node");
    nodes.silent[1] = true;
    for _ in 0..3 {
        let calls = nodes.pass([1500, 1000]);
        assert!(calls.iter().all(|call| call[1..].starts_with('1')), "{calls:?}");
    }
    let shown = nodes.police.report(500, 0);
    assert_eq!((shown.nodes[1].silent, shown.nodes[1].fault.as_deref()), (3, Some("no answer")));
    assert_eq!(fault(&shown, 1, 1), "its node does not answer");
    let text = test_config::policed().replace("min = \"100pps\"", "min = \"1500pps\"");
    nodes.police = NetworkPolice::new(&test_config::parse(&text).unwrap()).unwrap();
    nodes.silent[1] = false;
    nodes.pass([0, 0]);
    let fault = nodes.police.report(500, 0).nodes[1].fault.clone().unwrap();
    assert!(fault.contains("add up to 3kpps") && fault.contains("capacity of 2kpps"), "{fault}");
    let none = test_config::with(&[test_config::TRIANGLE]);
    assert!(NetworkPolice::new(&none).is_none());
}
