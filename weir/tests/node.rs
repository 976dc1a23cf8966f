// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program as an operator uses it: a lab, a node in it, neighbours that find each other.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::{NodeLab, POLICY, TOPOLOGY, soon};

/// A broadcast request for an address is answered in both directions; a tenant does not reach
/// another's slice inside the node; the end leaves the devices as they were.
#[test]
fn neighbours_find_each_other_through_a_node() {
    let Some(lab) = NodeLab::up("weir-t-arp", TOPOLOGY, POLICY) else { return };
    let before = lab.devices();
    let node = lab.run(&[]);
    lab.wait_for_node();
    let capture = lab.capture("gold.0");
    assert!(lab.reaches("gold", "10.9.0.9"), "from the tenant");
    // What was seen is there, whole, whatever becomes of the capture.
    let addresses = || capture.said().windows(4).filter(|at| *at == [10, 9, 0, 9]).count();
    assert!(soon(|| addresses() >= 3), "{} addresses", addresses());
    let captured = capture.kill().stdout;
    assert!(captured.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]), "a section header of pcapng");
    assert!(lab.reaches("wire", "10.9.0.2"), "towards a tenant that nobody has heard of");
    assert!(!lab.ping("gold", "10.9.0.2"), "slices do not meet inside the node");
    let status = lab.status();
    assert_eq!(status["vifs"][0]["name"], "gold.0");
    assert_ne!(status["vifs"][0]["send"]["sent"]["packets"], 0);
    lab.stop(node);
    lab.is_again(&before);
}

/// A node that nobody confirms undoes what it did; one that is confirmed stays.
#[test]
fn a_node_that_is_not_confirmed_undoes_itself() {
    let Some(lab) = NodeLab::up("weir-t-confirm", TOPOLOGY, POLICY) else { return };
    let before = lab.devices();
    let start = Instant::now();
    let ended = lab.run(&["--confirm", "1s"]).end();
    // A status of its own: a script must know that the node is not there.
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    assert!(start.elapsed() >= Duration::from_secs(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("not confirmed within 1 s"));
    lab.is_again(&before);
    // Long enough for two programs to start before, whatever else the machine does.
    let mut node = lab.run(&["--confirm", "8s"]);
    lab.wait_for_node();
    assert!(lab.weir(&["node", "confirm"]).status.success());
    std::thread::sleep(Duration::from_secs(9));
    assert!(node.is_alive(), "confirmed, and it ended");
    lab.stop(node);
}

/// The plan names what is missing and what would be done, and does none of it. What a run would
/// wait for stands in nobody's way.
#[test]
fn a_dry_run_touches_nothing() {
    let Some(lab) = NodeLab::up("weir-t-dry", TOPOLOGY, POLICY) else { return };
    let before = lab.devices();
    let plan = lab.run(&["--dry-run"]).end();
    assert!(plan.status.success(), "{plan:?}");
    assert!(String::from_utf8_lossy(&plan.stdout).contains("up0"));
    lab.write(&POLICY.replace("gold0", "away0"));
    let plan = lab.run(&["--dry-run"]).end();
    assert!(plan.status.success(), "{plan:?}");
    let text = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert!(text.contains("\n# vif gold.0 waits for its device\n"), "{text}");
    assert!(text.contains("lead1") && !text.contains("NOT POSSIBLE"), "{text}");
    let plan = lab.run(&["--dry-run", "--json"]).end();
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert_eq!((&plan["waits"], &plan["possible"]), (&["vif gold.0"][..].into(), &true.into()));
    lab.write(&POLICY.replace("up0", "away1"));
    let plan = lab.run(&["--dry-run"]).end();
    assert_eq!(plan.status.code(), Some(1));
    let text = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert!(text.contains("NOT POSSIBLE") && text.contains("away1"), "{text}");
    // A set of classes that does not fit.
    let class = "{ type = \"periodic\", deadline = \"2ms\", period = \"10ms\", cpu = \"20%\", \
                 process = \"1\" }";
    let router =
        |name| format!("[[router]]\nname = \"{name}\"\nslice = \"gold\"\nrealtime = {class}\n");
    lab.write(&format!("{POLICY}\n{}{}", router("first"), router("dense")));
    let plan = lab.run(&["--dry-run"]).end();
    assert_eq!(plan.status.code(), Some(1), "densities of 200 %, at most 100: {plan:?}");
    let text = String::from_utf8_lossy(&plan.stdout).into_owned();
    assert!(text.contains("# NOT POSSIBLE: router dense: realtime: densities"), "{text}");
    let plan = lab.run(&["--dry-run", "--json"]).end();
    let plan: serde_json::Value = serde_json::from_slice(&plan.stdout).unwrap();
    assert_eq!(plan["possible"], false);
    lab.is_again(&before);
}

/// A guarantee that the port's scheduler does not hold is named by the plan, at the start, by the
/// status and by `weir doctor`, until the scheduler is one that holds it.
#[test]
fn a_guarantee_that_the_scheduler_does_not_hold_is_named() {
    let asks = POLICY.replacen("rate = \"100Mbit\"", "rate = \"100Mbit\"\nscheduler = \"drr\"", 1);
    let asks = asks.replace("\"gold0\"", "\"gold0\"\nsend = { min_rate = \"10Mbit\" }");
    let Some(lab) = NodeLab::up("weir-t-drr", TOPOLOGY, &asks) else { return };
    let key = "port \"up0\": \"drr\" does not hold send.min_rate, asked for by vif \"gold.0\"";
    let planned = lab.run(&["--dry-run"]).end();
    let planned = String::from_utf8(planned.stdout).unwrap();
    assert!(planned.contains(&format!("# not held: {key}\n")), "{planned}");
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert_eq!(lab.status()["unheld"], serde_json::json!([key]));
    let doctor = String::from_utf8(lab.weir(&["doctor"]).stdout).unwrap();
    let (before, _) = doctor.split_once(&format!(": not held: {key}\n")).expect(&doctor);
    let node_name = before.lines().last().unwrap();
    assert!(!doctor.contains(&format!("{node_name} runs: nothing is wrong")), "{doctor}");
    // A slice that asks too, then another scheduler: both are told.
    let change = lab.weir(&["set", "slice", "gold", "--min-rate", "20Mbit"]);
    assert!(change.status.success(), "{change:?}");
    for scheduler in ["wfq", "hfsc"] {
        lab.write(&asks.replace("\"drr\"", &format!("\"{scheduler}\"")));
        let changed = lab.weir(&["node", "reload"]);
        assert!(changed.status.success(), "{changed:?}");
    }
    assert!(lab.status().get("unheld").is_none(), "{:#}", lab.status());
    assert!(lab.weir(&["node", "stop"]).status.success());
    let said = String::from_utf8(node.end().stderr).unwrap();
    for (key, times) in
        [(key.to_owned(), 2), (format!("{key} and 1 more"), 1), (key.replace("drr", "wfq"), 1)]
    {
        assert_eq!(said.matches(&format!("not held: {key}")).count(), times, "{said}");
    }
}

/// The next start undoes the leftovers of a killed node, and names them.
#[test]
fn a_node_says_what_it_undid_of_an_earlier_run() {
    let Some(lab) = NodeLab::up("weir-t-left", TOPOLOGY, POLICY) else { return };
    let before = lab.devices();
    let killed = lab.run(&[]);
    lab.wait_for_node();
    killed.kill();
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert!(lab.weir(&["node", "stop"]).status.success());
    let said = String::from_utf8(node.end().stderr).unwrap();
    let undone = said.matches("undone, left by an earlier run: ").count();
    assert!(undone >= 3 && said.contains("up0"), "three devices were taken: {said}");
    lab.is_again(&before);
}

/// A policy whose addresses do not fit the tables of the ports, which are made at the start, is
/// refused whole: the filter that it also brings does not hold either.
#[test]
fn a_policy_that_the_ports_cannot_follow_changes_nothing() {
    let Some(lab) = NodeLab::up("weir-t-whole", TOPOLOGY, POLICY) else { return };
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert!(lab.reaches("gold", "10.9.0.9"));
    let addresses = |vif: u32| {
        let each = (0..1024_u32)
            .map(|i| format!("\"02:00:00:{vif:02x}:{:02x}:{:02x}\"", i / 256, i % 256));
        format!("mac = [{}]", each.collect::<Vec<_>>().join(", "))
    };
    let (gold, lead) = (addresses(1), addresses(2));
    let filter = "filter = [{ action = \"drop\" }]";
    let policy = POLICY
        .replace("device = \"gold0\"", &format!("device = \"gold0\"\n{filter}\n{gold}"))
        .replace("device = \"lead1\"", &format!("device = \"lead1\"\n{lead}"));
    lab.write(&policy);
    let refused = lab.weir(&["node", "reload"]);
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    assert!(lab.reaches("gold", "10.9.0.9"), "the filter of a refused policy holds");
    lab.write(POLICY);
    let reloaded = lab.weir(&["node", "reload"]);
    assert!(reloaded.status.success(), "{reloaded:?}");
    assert!(lab.reaches("gold", "10.9.0.9"));
    lab.stop(node);
}

/// A tenant's vif leaves a running node and comes back; what the node changed on its device is
/// undone meanwhile, and the other tenant notices nothing.
#[test]
fn a_vif_goes_and_comes_while_the_node_runs() {
    let Some(lab) = NodeLab::up("weir-t-go", TOPOLOGY, POLICY) else { return };
    let before = lab.devices();
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert!(lab.reaches("gold", "10.9.0.9") && lab.reaches("lead", "10.9.0.9"));
    let without = POLICY.replace(LEAD, "");
    for _ in 0..3 {
        lab.write(&without);
        let reloaded = lab.weir(&["node", "reload"]);
        assert!(reloaded.status.success(), "{reloaded:?}");
        let vifs = lab.status()["vifs"].as_array().unwrap().len();
        assert_eq!(vifs, 1, "{}", lab.status());
        assert!(!lab.ping("lead", "10.9.0.9"), "nobody forwards for it");
        assert_eq!(lab.device("lead1", &lab.devices()), lab.device("lead1", &before));
        // In front of the other, which is numbered anew.
        lab.write(&without.replace(GOLD, &format!("{LEAD}{GOLD}")));
        let reloaded = lab.weir(&["node", "reload"]);
        assert!(reloaded.status.success(), "{reloaded:?}");
        assert!(lab.reaches("lead", "10.9.0.9") && lab.reaches("gold", "10.9.0.9"));
        assert!(!lab.ping("gold", "10.9.0.2"), "slices do not meet inside the node");
    }
    lab.stop(node);
    lab.is_again(&before);
}

/// A second port comes with a vif behind it, and both go again; a port whose device is missing is
/// refused, and nothing has changed.
#[test]
fn a_port_comes_and_goes_while_the_node_runs() {
    let nodes = "{ name = \"wire\" }, { name = \"wire2\" }";
    let topology = TOPOLOGY.replace("{ name = \"wire\" }", nodes) + SECOND_WIRE;
    let Some(lab) = NodeLab::up("weir-t-port", &topology, POLICY) else { return };
    let before = lab.devices();
    let node = lab.run(&[]);
    lab.wait_for_node();
    let port = "[[port]]\nname = \"up1\"\nrate = \"50Mbit\"\n";
    let second = format!("{POLICY}\n{port}")
        .replace("device = \"lead1\"", "device = \"lead1\"\nport = \"up1\"")
        .replace("device = \"gold0\"", "device = \"gold0\"\nport = \"up0\"");
    lab.write(&second.replace("\"up1\"", "\"up7\""));
    let refused = lab.weir(&["node", "reload"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("up7"), "{refused:?}");
    assert!(lab.reaches("gold", "10.9.0.9") && lab.reaches("lead", "10.9.0.9"));
    for _ in 0..2 {
        lab.write(&second);
        let reloaded = lab.weir(&["node", "reload"]);
        assert!(reloaded.status.success(), "{reloaded:?}");
        assert_eq!(lab.status()["ports"].as_array().unwrap().len(), 2);
        assert!(lab.reaches("lead", "10.9.0.10") && lab.reaches("gold", "10.9.0.9"));
        assert!(!lab.ping("lead", "10.9.0.9"), "its port is another");
        lab.write(POLICY);
        let reloaded = lab.weir(&["node", "reload"]);
        assert!(reloaded.status.success(), "{reloaded:?}");
        assert_eq!(lab.device("up1", &lab.devices()), lab.device("up1", &before));
        assert!(lab.reaches("lead", "10.9.0.9"));
    }
    lab.stop(node);
    lab.is_again(&before);
}

/// A second node on the network, by a link of its own.
const SECOND_WIRE: &str = r#"
[[link]]
a = { at = "wire2:eth0", addresses = ["10.9.0.10/24"] }
b = "sw:up1"
"#;

const GOLD: &str = r#"[[vif]]
name = "gold.0"
"#;

const LEAD: &str = r#"[[vif]]
name = "lead.0"
slice = "lead"
device = "lead1"
"#;
