// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node that ends without undoing anything, and the next one that goes on with what it left.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{
    BpfSystem, FOUR_ENDS as TOPOLOGY, FOUR_ENDS_POLICY as POLICY, NodeLab, Running, soon,
};

/// Killed, the node's data plane goes on between neighbours that know each other; the next start
/// adopts it; asked to leave, it ends and the same holds; the stop at last undoes what all of them
/// changed.
#[test]
fn the_next_start_goes_on_with_what_a_node_left() {
    let Some(lab) = NodeLab::up("weir-t-life", TOPOLOGY, POLICY) else { return };
    let system = BpfSystem::mount(&lab);
    for guest in ["a", "b", "wire"] {
        let gro = lab.inside(guest, "ethtool").args(["-K", "eth0", "gro", "on"]).output();
        assert!(gro.unwrap().status.success());
    }
    let before = lab.devices();
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert!(all_talk(&lab));
    node.kill();
    assert!(all_talk(&lab), "nobody runs, and the program stands in");
    assert!(!lab.ping("a", "10.9.0.3"), "slices do not meet");
    // A guest was started anew meanwhile: its device is another, of the same name.
    renew(&lab);
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert!(all_talk(&lab));
    assert!(lab.device("c0", &lab.devices()).contains("7e1f"), "its queue is there again");
    assert!(lab.weir(&["node", "leave"]).status.success());
    assert!(said(node).contains("going on with what an earlier run left"));
    assert!(all_talk(&lab), "the node left, and the program stands in");
    // What was left on purpose is cleaned on purpose only.
    assert!(lab.weir(&["clean"]).status.success());
    assert!(all_talk(&lab));
    // A start that fails, since a device cannot be opened, leaves what it had adopted.
    lab.write(&format!("{POLICY}{NO_DEVICE}"));
    let failed = lab.run(&[]).end();
    assert_eq!(failed.status.code(), Some(1), "{failed:?}");
    assert!(all_talk(&lab), "and the program stands in");
    // A vif that the next start has not any more.
    lab.write(&POLICY.replace(B, ""));
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert!(lab.reaches("a", "10.9.0.9"));
    assert!(!lab.ping("b", "10.9.0.9"), "nobody forwards for it any more");
    lab.stop(node);
    for device in ["a0", "b0", "up0"] {
        let is_again = || lab.device(device, &lab.devices()) == lab.device(device, &before);
        assert!(soon(is_again), "{device}: {}", lab.devices());
    }
    assert!(!lab.device("c0", &lab.devices()).contains("7e1f"), "its queue is gone");
    assert_eq!(system.left(), [""; 0], "nothing is left on the BPF file system");
}

/// The host's own vif comes and goes with a node: a start that has another one than the node which
/// left does not go on with what is there, but begins anew, with it or without.
#[test]
fn a_start_with_another_host_vif_begins_anew() {
    let Some(lab) = NodeLab::up("weir-t-hostvif", TOPOLOGY, POLICY) else { return };
    let _system = BpfSystem::mount(&lab);
    let before = lab.devices();
    let leave = |policy: &str| {
        lab.write(policy);
        let node = lab.run(&[]);
        lab.wait_for_node();
        let has = lab.devices().contains(" host0@");
        assert!(lab.weir(&["node", "leave"]).status.success());
        (has, said(node).contains("going on with what an earlier run left"))
    };
    let with_host = format!("{POLICY}{HOST}");
    assert_eq!(leave(POLICY), (false, false));
    assert_eq!(leave(&with_host), (true, false), "it is there, so all began anew");
    assert_eq!(leave(&with_host), (true, true));
    assert_eq!(leave(POLICY), (false, false), "handed back");
    let node = lab.run(&[]);
    lab.wait_for_node();
    lab.stop(node);
    lab.is_again(&before);
}

const HOST: &str = r#"
[[slice]]
name = "own"

[[vif]]
name = "host.0"
slice = "own"
kind = "host"
device = "host0"
port = "up0"
mac = ["02:00:00:00:09:77"]
"#;

fn all_talk(lab: &NodeLab) -> bool {
    lab.reaches("a", "10.9.0.9") && lab.reaches("wire", "10.9.0.2")
}

/// Deletes the device of vif c and makes it again.
fn renew(lab: &NodeLab) {
    let script = format!(
        "ip link del c0 && ip link add c0 type veth peer name eth0 netns {}-c && ip link set c0 up",
        lab.name()
    );
    let mut shell = lab.inside("sw", "sh");
    assert!(shell.args(["-c", &script]).status().unwrap().success());
    let up = lab.inside("c", "ip").args(["link", "set", "eth0", "up"]).status();
    assert!(up.unwrap().success());
}

fn said(node: Running) -> String {
    let output = node.end();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

const NO_DEVICE: &str = r#"
[[vif]]
name = "m.0"
slice = "gold"
kind = "memory"
"#;

const B: &str = r#"
[[vif]]
name = "b.0"
slice = "gold"
device = "b0"
kind = "xdp"
mac = ["02:00:00:00:09:02"]
"#;
