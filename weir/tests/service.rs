// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node as a service manager runs it: with the rights that the unit names and no others, and
//! with somebody who waits for signs of life.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, Command, Stdio};

use common::{BpfSystem, NodeLab, ON_A_BRIDGE, PATIENCE, soon};
use weir_platform::cap::cgroup::CgroupTree;
use weir_platform::netns::Namespace;

/// It says when it forwards, by XDP, that it is alive, and when it ends.
#[test]
fn the_rights_that_the_unit_names_are_enough() {
    let Some(lab) = NodeLab::up("weir-t-unit", TOPOLOGY, &format!("{PORT}{VIF}")) else { return };
    let before = lab.devices();
    let manager = UnixDatagram::bind(lab.path("notify")).unwrap();
    manager.set_read_timeout(Some(PATIENCE)).unwrap();
    let hear = || {
        let mut text = [0; 64];
        let length = manager.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).into_owned()
    };
    // Without names of namespaces the node takes itself to be in the host's, as a service is.
    let script = "mount -t tmpfs none /run/netns && exec setpriv --no-new-privs \
                  --bounding-set \"$1\" --inh-caps \"$1\" \"$2\" node run --config \"$3\"";
    let mut command = lab.inside("sw", "sh");
    command.args(["-c", script, "sh", &rights(), env!("CARGO_BIN_EXE_weir")]);
    command.arg(lab.path("node.toml"));
    command.env("NOTIFY_SOCKET", lab.path("notify")).env("WATCHDOG_USEC", "400000");
    let node = lab.start(command);
    assert_eq!(hear(), "READY=1");
    assert_eq!([hear(), hear()], ["WATCHDOG=1", "WATCHDOG=1"]);
    assert!(lab.reaches("a", "10.9.0.9"));
    let status = lab.status();
    for iface in ["ports", "vifs"].map(|list| &status[list][0]) {
        assert!(iface["driver"].as_str().unwrap().starts_with("xdp"), "{iface:#}");
    }
    // Without a BPF file system nothing could go on: to leave is to stop.
    assert!(lab.weir(&["node", "leave"]).status.success());
    let said = String::from_utf8(node.end().stderr).unwrap();
    assert!(said.contains("undoing everything instead"), "{said}");
    while hear() != "STOPPING=1" {}
    lab.is_again(&before);
}

/// The drop-in that widens the unit lets a node hold a router by a control group, and one in a
/// namespace by the threads of its device.
#[test]
fn the_rights_that_the_drop_in_names_hold_routers() {
    let Some(lab) = NodeLab::up("weir-t-wide", TOPOLOGY, "") else { return };
    if let Err(error) = CgroupTree::find() {
        println!("SKIPPED the_rights_that_the_drop_in_names_hold_routers: {error}");
        return;
    }
    let process = Process(Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap());
    lab.write(&ROUTERS.replace("PROCESS", &process.0.id().to_string()));
    let before = lab.devices();
    let more = drop_in("CapabilityBoundingSet").to_lowercase().replace("cap_", ",+");
    let rights = format!("{}{more}", rights());
    // Not by `ip netns exec`, in whose mount namespace there are no control groups.
    let mut command = lab.command("setpriv");
    command.args(["--no-new-privs", "--bounding-set", &rights, "--inh-caps", &rights]);
    command.args([env!("CARGO_BIN_EXE_weir"), "node", "run", "--config", &lab.path("node.toml")]);
    let namespace = Namespace::open("weir-t-wide-sw").unwrap();
    let node = lab.start_by(command, |command| namespace.spawn(command).unwrap());
    lab.wait_for_node();
    for router in ["process", "namespace"] {
        let status = || -> serde_json::Value {
            let said = lab.weir(&["xtc", "status", router, "--json"]).stdout;
            serde_json::from_slice(&said).unwrap_or_default()
        };
        let is_held =
            |status: serde_json::Value| status["phase"] == "active" && status["trouble"].is_null();
        assert!(soon(|| is_held(status())), "{:#}", status());
    }
    lab.stop(node);
    lab.is_again(&before);
}

/// No system call, no family of addresses, no namespace and no code that was written by itself
/// beyond what the unit's sandbox lets through: what a node and its commands do is written down by
/// strace, what the sandbox means is said by systemd.
#[test]
fn the_system_calls_that_the_unit_lets_through_are_enough() {
    if !has_tools() {
        return;
    }
    let Some(lab) = NodeLab::up("weir-t-calls", TOPOLOGY, &format!("{PORT}{VIF}")) else { return };
    let script = "mount -t tmpfs none /run/netns && \
                  exec strace -f -qq -o \"$1\" \"$2\" node run --config \"$3\"";
    let mut command = lab.inside("sw", "sh");
    command.args(["-c", script, "sh", &lab.path("calls"), env!("CARGO_BIN_EXE_weir")]);
    command.arg(lab.path("node.toml"));
    let node = lab.start(command);
    lab.wait_for_node();
    assert!(lab.reaches("a", "10.9.0.9"));
    for words in [&["set", "vif", "a.0", "--rate", "5Mbit"][..], &["undo"], &["node", "reload"]] {
        assert!(lab.weir(words).status.success(), "{words:?}");
    }
    lab.stop(node);
    are_let_through(&lab);
}

/// Goal: the same rights and calls are enough for a node on the host's own bridge.
#[test]
fn the_unit_lets_the_kernels_data_plane_through() {
    let Some(lab) = NodeLab::up("weir-t-plane", TOPOLOGY, &format!("{ON_A_BRIDGE}{VIF}")) else {
        return;
    };
    if !has_tools() {
        return;
    }
    let _gone_before_the_lab = BpfSystem::mount(&lab);
    lab.bridge(&["up0", "a0"], &[]);
    let script = "mount -t tmpfs none /run/netns && exec setpriv --no-new-privs \
                  --bounding-set \"$1\" --inh-caps \"$1\" strace -f -qq -o \"$2\" \"$3\" \
                  node run --config \"$4\"";
    let mut command = lab.inside("sw", "sh");
    command.args(["-c", script, "sh", &rights(), &lab.path("calls"), env!("CARGO_BIN_EXE_weir")]);
    command.arg(lab.path("node.toml"));
    let node = lab.start(command);
    lab.wait_for_node();
    assert!(soon(|| lab.reaches("a", "10.9.0.9")));
    assert_eq!(lab.status()["vifs"][0]["driver"], "kernel");
    for words in [&["set", "vif", "a.0", "--rate", "5Mbit"][..], &["undo"], &["node", "reload"]] {
        let done = lab.weir(words);
        assert!(done.status.success(), "{words:?}: {done:?}");
    }
    lab.stop(node);
    are_let_through(&lab);
}

/// Tells whether the tools are here that write calls down and say what the sandbox means.
fn has_tools() -> bool {
    let is_here = |(tool, option): (&str, &str)| Command::new(tool).arg(option).output().is_ok();
    let missing = [("strace", "-V"), ("systemd-analyze", "--version")].map(|tool| !is_here(tool));
    if missing.contains(&true) {
        println!("SKIPPED the unit's filter: no strace or no systemd-analyze");
    }
    !missing.contains(&true)
}

/// Checks the calls that were written down in a lab.
fn are_let_through(lab: &NodeLab) {
    let calls = std::fs::read_to_string(lab.path("calls")).unwrap();
    let allowed: BTreeSet<String> = key("SystemCallFilter").split(' ').flat_map(calls_of).collect();
    assert!(allowed.len() > 200, "{allowed:?}");
    let mut seen = BTreeSet::new();
    for line in calls.lines() {
        let call = line.split_whitespace().nth(1).unwrap_or_default();
        let Some((name, _)) = call.split_once('(') else { continue };
        // A thread that was killed as it entered a call: strace could not read which.
        if name == "???" {
            continue;
        }
        seen.insert(name);
        assert!(allowed.contains(name), "{line}");
        assert!(!["setns", "unshare"].contains(&name), "{line}");
        assert!(!line.contains("PROT_WRITE|PROT_EXEC"), "{line}");
        assert!(name != "mprotect" || !line.contains("PROT_EXEC"), "{line}");
        if name == "socket" {
            let family = line.split(['(', ',']).nth(1).unwrap();
            assert!(key("RestrictAddressFamilies").split(' ').any(|one| one == family), "{line}");
        }
    }
    assert!(seen.contains("bpf") && seen.contains("socket"), "{seen:?}");
}

/// A node that nobody confirmed has undone itself, and says so by its status: to start it again
/// would take the host's interface once more.
#[test]
fn a_node_that_was_not_confirmed_is_not_started_again() {
    assert_eq!(key("RestartPreventExitStatus"), "4");
    let Some(lab) = NodeLab::up("weir-t-four", TOPOLOGY, &format!("{PORT}{VIF}")) else { return };
    let node = lab.run(&["--confirm", "200ms"]);
    assert_eq!(node.end().status.code(), Some(4));
}

/// The calls of a name in a filter: a group's, or its own.
fn calls_of(name: &str) -> Vec<String> {
    if !name.starts_with('@') {
        return vec![name.to_owned()];
    }
    let mut say = std::process::Command::new("systemd-analyze");
    let said = say.args(["syscall-filter", name]).output().unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    let lines = text.lines().skip(1).map(str::trim);
    lines.filter(|line| !line.is_empty() && !line.starts_with('#')).flat_map(calls_of).collect()
}

/// The unit's capabilities, as setpriv takes them.
fn rights() -> String {
    let line = key("CapabilityBoundingSet");
    let names = line.split(' ').map(|name| name.strip_prefix("CAP_").unwrap());
    names.fold("-all".to_owned(), |all, name| format!("{all},+{}", name.to_lowercase()))
}

/// Returns the value of a key in the drop-in for routers, all its lines together.
fn drop_in(name: &str) -> String {
    let text = include_str!("../../packaging/systemd/xtc.conf");
    text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('=')).collect()
}

/// A process that stands for a router; ended with the value.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns the value of a key in the unit.
fn key(name: &str) -> &'static str {
    let unit = include_str!("../../packaging/weir-node@.service");
    unit.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('=')).unwrap()
}

const TOPOLOGY: &str = r#"
name = "NAME"
node = [{ name = "a" }, { name = "sw" }, { name = "wire" }]

[[link]]
a = { at = "a:eth0", addresses = ["10.9.0.1/24"], offloads = false }
b = "sw:a0"

[[link]]
a = { at = "wire:eth0", addresses = ["10.9.0.9/24"], offloads = false }
b = "sw:up0"
"#;

const PORT: &str = r#"
version = 1

[[port]]
name = "up0"
rate = "1Gbit"
"#;

const VIF: &str = r#"
[[slice]]
name = "gold"

[[vif]]
name = "a.0"
slice = "gold"
device = "a0"
"#;

/// The router of the vif is in the namespace of node `a`.
const ROUTERS: &str = r#"
version = 1

[[port]]
name = "up0"
rate = "1Gbit"

[[slice]]
name = "gold"

[[router]]
name = "namespace"
slice = "gold"

[router.xtc]
set_point = "10kpps"
cap_max = "5%"
actuator = "napi"
namespace = "weir-t-wide-a"
interface = [{ device = "a0", inside = "eth0" }]

[[router]]
name = "process"
slice = "gold"

[router.xtc]
set_point = "10kpps"
controller = "feed-forward"
actuator = "cgroup"
process = "PROCESS"
interface = [{ device = "lo" }]

[[vif]]
name = "a.0"
slice = "gold"
router = "namespace"
device = "a0"
"#;
