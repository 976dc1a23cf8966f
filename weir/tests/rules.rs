// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Guests' devices on the host's bridge, taken by rule while a node runs.
#![allow(clippy::unwrap_used)]

mod common;

use common::{BpfSystem, NodeLab, ON_A_BRIDGE, Running, TOPOLOGY, soon};

/// Goal: the life of guests on a host with a bridge, as an operator sees it. A device that joins
/// the bridge is a vif in status and metrics; a change of it says where it comes from, and a vif
/// that is written out takes its place; a killed node's successor has it still; a device that
/// leaves the bridge is gone; a stop leaves the host as it was. The port itself comes last, as at a
/// host's start.
#[test]
fn a_guest_is_taken_by_rule_and_given_values_of_its_own() {
    let policy = format!("{ON_A_BRIDGE}{RULES}");
    let Some(lab) = NodeLab::up("weir-t-rules", TOPOLOGY, &policy) else { return };
    let _gone_before_the_lab = BpfSystem::mount(&lab);
    lab.bridge(&["up0"], &["gold0", "lead1"]);
    // A bridge has timers among its details, and is up a moment after its first device.
    let up = || {
        let link = lab.inside("sw", "ip").args(["-br", "link", "show", "br0"]).output().unwrap();
        String::from_utf8(link.stdout).unwrap().contains(" UP ")
    };
    assert!(soon(up), "br0 comes up");
    let host = || {
        let lines = [("tc", ["qdisc", "show"].as_slice()), ("ip", &["-br", "link", "show"])];
        lines.map(|(tool, words)| lab.inside("sw", tool).args(words).output().unwrap().stdout)
    };
    let before = host();
    let node = without_its_port_at_first(&lab);
    let names = || {
        let status = lab.status();
        let vifs = status["vifs"].as_array().unwrap();
        vifs.iter().map(|vif| vif["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let said = |words: &[&str]| {
        let output = lab.weir(words);
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    };
    assert!(names().is_empty(), "{:?}", names());
    lab.does("ip link set gold0 master br0");
    lab.does("ip link set lead1 master br0");
    assert!(soon(|| names() == ["gold0", "lead1"]), "{:?}", names());
    assert!(lab.reaches("gold", "10.9.0.9") && lab.reaches("lead", "10.9.0.9"));
    let explained = said(&["explain", "gold0"]);
    assert!(explained.0 && explained.1.contains("gold0"), "{explained:?}");
    // Each in the slice of its rule: they do not meet.
    assert!(!lab.ping("gold", "10.9.0.2"), "another slice");
    let refused = said(&["set", "vif", "gold0", "--rate", "1Mbit"]);
    assert!(!refused.0 && refused.1.contains("is made by a rule of its port"), "{refused:?}");
    let unknown = said(&["set", "vif", "gold9", "--rate", "1Mbit"]);
    assert!(!unknown.0 && unknown.1.contains("there is no vif"), "{unknown:?}");
    let add = ["add", "vif", "db", "--slice", "others", "--device", "gold0", "--rate", "5Mbit"];
    let added = said(&add);
    assert!(added.0, "{added:?}");
    assert!(soon(|| names() == ["db", "lead1"]), "{:?}", names());
    assert!(lab.ping("gold", "10.9.0.2"), "the same slice");
    assert!(said(&["undo"]).0);
    assert!(soon(|| names() == ["gold0", "lead1"]), "{:?}", names());
    drop(node.kill());
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert_eq!(names(), ["gold0", "lead1"]);
    lab.does("ip link set gold0 nomaster");
    lab.does("ip link set lead1 nomaster");
    assert!(soon(|| names().is_empty()), "{:?}", names());
    lab.stop(node);
    assert_eq!(host(), before);
}

/// Starts a node while its port is not on the bridge yet, and puts the port there.
fn without_its_port_at_first(lab: &NodeLab) -> Running {
    lab.does("ip link set up0 nomaster");
    let node = lab.run(&[]);
    lab.wait_for_node();
    let port_waits = || lab.status()["ports"][0]["waiting"] == true;
    assert!(port_waits());
    lab.does("ip link set up0 master br0");
    assert!(soon(|| !port_waits()));
    node
}

const RULES: &str = r#"
[[port.rule]]
match = "gold{n}"
slice = "vm-{n}"
devices_max = 4
send = { min_rate = "10Mbit", rate = "50Mbit" }
receive = { rate = "50Mbit" }

[[port.rule]]
slice = "others"
devices_max = 4

[[slice]]
name = "others"
"#;
