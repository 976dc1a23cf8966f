// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device of the host's bridge that goes wrong while a node runs.
#![allow(clippy::unwrap_used)]

mod common;

use common::{BpfSystem, NodeLab, ON_A_BRIDGE, TOPOLOGY, soon};

/// Goal: somebody gives the port another discipline. The port is named and shown as waiting, a
/// guest that comes then is still taken, a live change takes effect, and a killed node's successor
/// starts. The tree is back when the discipline is gone.
#[test]
fn a_port_that_goes_wrong_stops_no_guest() {
    let policy = format!("{ON_A_BRIDGE}{VIF}");
    let Some(lab) = NodeLab::up("weir-t-faults", TOPOLOGY, &policy) else { return };
    let _gone_before_the_lab = BpfSystem::mount(&lab);
    lab.bridge(&["up0"], &["gold0"]);
    let node = lab.run(&[]);
    lab.wait_for_node();
    let port_waits = || lab.status()["ports"][0]["waiting"] == true;
    let has_guest = || lab.status()["vifs"][0]["waiting"] == false;
    assert!(!port_waits() && !has_guest());
    lab.does("tc qdisc replace dev up0 root handle 5: pfifo");
    assert!(soon(port_waits));
    let fault = || lab.status()["device_faults"][0].as_str().map(str::to_owned);
    let reason = "port \"up0\".device: device up0 has a queueing";
    let is_named = || fault().is_some_and(|fault| fault.starts_with(reason));
    assert!(soon(is_named), "{:#}", lab.status());
    lab.does("ip link set gold0 master br0");
    assert!(soon(has_guest), "{:#}", lab.status());
    let done = lab.weir(&["set", "vif", "gold.0", "--rate", "5Mbit"]);
    assert!(done.status.success(), "{done:?}");
    let said = String::from_utf8(node.kill().stderr).unwrap();
    assert!(said.contains("fault: port \"up0\".device: device up0 has a queueing"), "{said}");
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert!(port_waits() && has_guest());
    lab.does("tc qdisc del dev up0 root");
    assert!(soon(|| !port_waits() && fault().is_none()));
    lab.stop(node);
}

/// Goal: keys of the policy that the host does not hold are named by the status, `/v1/health` and
/// `weir doctor`, until the policy asks for them no more.
#[test]
fn keys_that_are_not_held_are_named() {
    let policy = format!("{ON_A_BRIDGE}host_receive = {{ priority = 5 }}\n{VIF}");
    let Some(lab) = NodeLab::up("weir-t-unheld", TOPOLOGY, &policy) else { return };
    let _gone_before_the_lab = BpfSystem::mount(&lab);
    lab.bridge(&["up0", "gold0"], &[]);
    let node = lab.run(&[]);
    lab.wait_for_node();
    let place = "port \"up0\".host_receive.priority: received traffic is not scheduled";
    let doctor = || String::from_utf8(lab.weir(&["doctor"]).stdout).unwrap();
    let said = doctor();
    assert!(said.contains(&format!(": not held: {place}")), "{said}");
    assert!(!said.contains("nothing is wrong"), "{said}");
    let json = lab.weir(&["doctor", "--json"]).stdout;
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let names = |unheld: &serde_json::Value| {
        let keys = unheld.as_array().into_iter().flatten();
        keys.filter_map(|key| key.as_str()).any(|key| key.starts_with(place))
    };
    assert!(names(&json["nodes"][0]["unheld"]), "{json:#}");
    assert!(names(&lab.status()["unheld"]), "{:#}", lab.status());
    lab.write(&format!("{ON_A_BRIDGE}{VIF}"));
    let done = lab.weir(&["node", "reload"]);
    assert!(done.status.success(), "{done:?}");
    assert!(!names(&lab.status()["unheld"]), "{:#}", lab.status());
    assert!(!doctor().contains(place), "{}", doctor());
    lab.stop(node);
}

const VIF: &str = r#"
[[slice]]
name = "gold"

[[vif]]
name = "gold.0"
device = "gold0"
slice = "gold"
"#;
