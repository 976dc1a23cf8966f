// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices that come and go while a node runs, and the hooks of those who make them.
#![allow(clippy::unwrap_used)]

mod common;

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use common::{BpfSystem, NodeLab, ON_A_BRIDGE, POLICY, TOPOLOGY, soon};

fn ip(lab: &NodeLab, line: &str) {
    lab.does(&format!("ip {line}"));
}

/// Waits until a vif waits for its device, or does not.
fn until(lab: &NodeLab, vif: &str, waits: bool) {
    let said = || {
        let status = lab.status();
        let vifs = status["vifs"].as_array().unwrap();
        let vif = vifs.iter().find(|one| one["name"] == vif).unwrap();
        vif["waiting"] == waits
    };
    assert!(soon(said), "{vif}: waiting is not {waits}");
}

fn hook(name: &str) -> String {
    format!("{}/../packaging/hooks/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// A node starts without a vif's device and takes it when it comes; it lets go of one that went,
/// another vif's traffic does not notice, and at the end everything is as it was.
#[test]
fn a_vif_waits_for_its_device_and_joins_when_it_comes() {
    let Some(lab) = NodeLab::up("weir-t-plug", TOPOLOGY, POLICY) else { return };
    ip(&lab, "link set gold0 name away0");
    let node = lab.run(&[]);
    lab.wait_for_node();
    until(&lab, "gold.0", true);
    assert!(lab.reaches("lead", "10.9.0.9"));
    for _ in 0..2 {
        ip(&lab, "link set away0 name gold0");
        until(&lab, "gold.0", false);
        assert!(lab.reaches("gold", "10.9.0.9") && lab.reaches("lead", "10.9.0.9"));
        ip(&lab, "link set gold0 name away0");
        until(&lab, "gold.0", true);
        assert!(!lab.ping("gold", "10.9.0.9"), "it is not the node's any more");
    }
    // A guest of another policy may come meanwhile; the device that is waited for is no obstacle.
    assert!(lab.weir(&["set", "vif", "lead.0", "--rate", "20Mbit"]).status.success());
    until(&lab, "gold.0", true);
    lab.stop(node);
}

/// A vif comes and goes by request, with its device there or not, and an undo takes it back.
#[test]
fn a_vif_is_added_and_removed_by_request() {
    let gold = "\n[[vif]]\nname = \"gold.0\"\nslice = \"gold\"\ndevice = \"gold0\"\n";
    let policy = POLICY.replace(gold, "");
    assert_ne!(policy, POLICY);
    let Some(lab) = NodeLab::up("weir-t-addvif", TOPOLOGY, &policy) else { return };
    let before = lab.devices();
    let node = lab.run(&[]);
    lab.wait_for_node();
    let said = |words: &[&str]| {
        let output = lab.weir(words);
        assert!(output.status.success(), "{words:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let document = said(&["show"]);
    assert!(!lab.ping("gold", "10.9.0.9"));
    let add = ["add", "vif", "gold.0", "--slice", "gold", "--device", "gold0", "--rate", "30Mbit"];
    let made = said(&add);
    assert!(made.contains("vif gold.0: nothing -> ") && made.contains("send.rate"), "{made}");
    assert!(lab.reaches("gold", "10.9.0.9") && lab.reaches("lead", "10.9.0.9"));
    let again = lab.weir(&add);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("is there already"), "{again:?}");
    let nobody = lab.weir(&["add", "vif", "x", "--slice", "nobody"]);
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("nobody"), "{nobody:?}");
    said(&["add", "vif", "later", "--slice", "gold"]);
    until(&lab, "later", true);
    said(&["remove", "vif", "later"]);
    let slice = ["add", "slice", "silver", "--vlan", "7", "--min-rate", "1Mbit"];
    assert!(said(&slice).contains("slice silver: nothing -> "));
    said(&["add", "vif", "silver.0", "--slice", "silver"]);
    let early = lab.weir(&["remove", "slice", "silver"]);
    assert!(String::from_utf8_lossy(&early.stderr).contains("silver.0"), "{early:?}");
    said(&["remove", "vif", "silver.0"]);
    said(&["remove", "slice", "silver"]);
    assert!(!said(&["show"]).contains("silver"));
    said(&["remove", "vif", "gold.0"]);
    assert!(!lab.ping("gold", "10.9.0.9") && lab.reaches("lead", "10.9.0.9"));
    said(&["undo"]);
    assert!(lab.reaches("gold", "10.9.0.9"));
    for _ in 0..7 {
        said(&["undo"]);
    }
    assert_eq!(said(&["show"]), document);
    lab.stop(node);
    lab.is_again(&before);
}

/// The script that xl calls renames what Xen made to what the policy knows; the node takes it.
#[test]
fn a_device_that_the_xen_hook_names_joins() {
    let Some(lab) = NodeLab::up("weir-t-xen", TOPOLOGY, POLICY) else { return };
    ip(&lab, "link set gold0 name vif5.0");
    let store = lab.path("bin");
    std::fs::create_dir_all(&store).unwrap();
    // A store that knows one name, and one that notes what it was told.
    for (name, text) in [("xenstore-read", "echo gold0"), ("xenstore-write", "echo \"$@\"")] {
        let path = format!("{store}/{name}");
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let node = lab.run(&[]);
    lab.wait_for_node();
    until(&lab, "gold.0", true);
    let path = path_with(&[&store]);
    let online = |what: &str| -> Output {
        let mut hook = lab.inside("sw", &hook("xen-vif"));
        hook.arg(what).env("PATH", &path).env("vif", "vif5.0").env("XENBUS_PATH", "backend/vif");
        hook.output().unwrap()
    };
    let done = online("online");
    assert!(done.status.success(), "{done:?}");
    assert_eq!(String::from_utf8_lossy(&done.stdout), "backend/vif/hotplug-status connected\n");
    until(&lab, "gold.0", false);
    assert!(lab.reaches("gold", "10.9.0.9"));
    // An emulated card beside it is brought up, and is nobody's.
    assert!(online("remove").status.success());
    assert!(!online("sideways").status.success());
    lab.stop(node);
}

/// The hook of libvirt takes a guest's device out of a bridge and brings it up, if the node knows
/// it: one that is nobody's in the policy stays where it is.
#[test]
fn a_device_that_the_libvirt_hook_frees_joins() {
    let Some(lab) = NodeLab::up("weir-t-libvirt", TOPOLOGY, POLICY) else { return };
    for line in [
        "link add br0 type bridge",
        "link add vnet0 type veth peer name vnet0-in",
        "link set vnet0 master br0",
        "link set gold0 name away0",
        "link set away0 master br0 down",
    ] {
        ip(&lab, line);
    }
    let call = || {
        start_by_libvirt(&lab, &["vnet0", "gold0"]);
        let all = lab.devices();
        ["gold0", "vnet0"].map(|name| lab.device(name, &all).contains("master br0"))
    };
    assert_eq!(call(), [false, true], "no node runs, nothing is Weir's");
    let node = lab.run(&[]);
    lab.wait_for_node();
    until(&lab, "gold.0", true);
    // In a bridge it is somebody else's, and the node goes on waiting.
    ip(&lab, "link set away0 name gold0");
    std::thread::sleep(Duration::from_millis(300));
    until(&lab, "gold.0", true);
    assert_eq!(call(), [false, true]);
    until(&lab, "gold.0", false);
    assert!(lab.reaches("gold", "10.9.0.9"));
    lab.stop(node);
}

/// Goal: where the host's bridge is the data plane, the hook of libvirt leaves a guest's device on
/// it, whether a vif or a rule names the device.
#[test]
fn a_device_on_an_adopted_bridge_stays_there() {
    let policy = format!("{ON_A_BRIDGE}{GUESTS}");
    let Some(lab) = NodeLab::up("weir-t-adopted", TOPOLOGY, &policy) else { return };
    let _gone_before_the_lab = BpfSystem::mount(&lab);
    lab.bridge(&["up0", "gold0", "lead1"], &[]);
    let node = lab.run(&[]);
    lab.wait_for_node();
    until(&lab, "gold.0", false);
    until(&lab, "lead1", false);
    ip(&lab, "link set gold0 down");
    start_by_libvirt(&lab, &["gold0", "lead1"]);
    let all = lab.devices();
    for device in ["gold0", "lead1"] {
        assert!(lab.device(device, &all).contains("master br0"), "{device}: {all}");
    }
    assert!(lab.reaches("gold", "10.9.0.9") && lab.reaches("lead", "10.9.0.9"));
    lab.stop(node);
}

/// Calls the hook as libvirt does when a guest with these devices has started.
fn start_by_libvirt(lab: &NodeLab, devices: &[&str]) {
    let mut hook = lab.inside("sw", &hook("libvirt-qemu"));
    hook.args(["guest", "started", "begin", "-"]).env("PATH", path_with(&[]));
    hook.stdin(Stdio::piped());
    let mut hook: std::process::Child = Command::spawn(&mut hook).unwrap();
    let interface = |device: &&str| {
        format!("<interface type='ethernet'>\n<target dev='{device}'/>\n</interface>\n")
    };
    let interfaces: String = devices.iter().map(interface).collect();
    let disk = "<disk><target dev='vda' bus='virtio'/></disk>";
    let description = format!("<domain>{disk}\n{interfaces}</domain>");
    hook.stdin.take().unwrap().write_all(description.as_bytes()).unwrap();
    assert!(hook.wait().unwrap().success());
}

/// The plugin of CNI makes a container's device, has the node add it, and takes both away again.
#[test]
fn a_container_s_device_comes_and_goes_by_the_cni_hook() {
    if Command::new("jq").arg("--version").output().is_err() {
        println!("SKIPPED a_container_s_device_comes_and_goes_by_the_cni_hook: no jq");
        return;
    }
    let Some(lab) = NodeLab::up("weir-t-cni", TOPOLOGY, POLICY) else { return };
    let before = lab.devices();
    let node = lab.run(&[]);
    lab.wait_for_node();
    let call = |command: &str, slice: &str| {
        let mut hook = lab.inside("sw", &hook("cni-weir"));
        hook.env("PATH", path_with(&[])).env("CNI_COMMAND", command);
        hook.env("CNI_CONTAINERID", "0a1b2c").env("CNI_IFNAME", "net1");
        hook.env("CNI_NETNS", format!("/run/netns/{}-gold", lab.name()));
        hook.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut hook = hook.spawn().unwrap();
        let network = format!("{{\"name\":\"n\",\"slice\":\"{slice}\",\"port\":\"up0\"}}");
        hook.stdin.take().unwrap().write_all(network.as_bytes()).unwrap();
        let done = hook.wait_with_output().unwrap();
        let said: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
        (done.status.success(), said, String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (made, said, why) = call("ADD", "nobody");
    assert!(!made && said["msg"].as_str().unwrap().contains("nobody"), "{said} {why}");
    let (made, said, why) = call("ADD", "gold");
    assert!(made, "{said} {why}");
    let vif = said["interfaces"][0]["name"].as_str().unwrap().to_owned();
    until(&lab, &vif, false);
    let address = ["addr", "add", "10.9.0.77/24", "dev", "net1"];
    assert!(lab.inside("gold", "ip").args(address).status().unwrap().success());
    let ping = ["-q", "-c", "3", "-i", "0.2", "-W", "1", "-I", "net1", "10.9.0.9"];
    assert!(soon(|| lab.inside("gold", "ping").args(ping).status().unwrap().success()));
    assert!(call("CHECK", "gold").0);
    for _ in 0..2 {
        let (gone, said, why) = call("DEL", "gold");
        assert!(gone, "{said} {why}");
    }
    assert!(!call("CHECK", "gold").0);
    lab.stop(node);
    assert!(!call("DEL", "gold").0, "nobody was there to be asked");
    lab.is_again(&before);
}

/// Returns the search path of the hooks: `weir`, and before it stand-ins for other programs.
fn path_with(folders: &[&str]) -> String {
    let weir = std::path::Path::new(env!("CARGO_BIN_EXE_weir")).parent().unwrap();
    let mut path: Vec<String> = folders.iter().map(|folder| (*folder).to_owned()).collect();
    path.push(weir.display().to_string());
    path.push(std::env::var("PATH").unwrap_or_default());
    path.join(":")
}

/// One tenant's device is known by name, the other's by rule.
const GUESTS: &str = r#"
[[port.rule]]
match = "lead{n}"
slice = "vm-{n}"
devices_max = 4

[[slice]]
name = "gold"

[[vif]]
name = "gold.0"
slice = "gold"
device = "gold0"
"#;
