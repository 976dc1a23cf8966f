// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers held at a packet rate by a running node: one that the kernel forwards for, at ingress;
//! and a process, by the quota of its control group. Root and namespaces; figures have wide bands,
//! for what is judged here is function.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use common::{NodeLab, Running, soon};
use serde_json::Value;
use weir_client::Client;
use weir_platform::cap::cgroup::CgroupTree;
use weir_platform::netns;

/// A wire, and a router with one arm: what it forwards goes back by where it came.
const TOPOLOGY: &str = r#"
name = "NAME"

[[node]]
name = "sw"

[[node]]
name = "wire"
routes = ["10.8.0.0/16 via 10.9.0.2"]

[[node]]
name = "vr"
routes = ["10.8.0.0/16 via 10.9.0.9"]
[node.sysctls]
"net.ipv4.ip_forward" = 1
"net.ipv4.conf.all.send_redirects" = 0
"net.ipv4.conf.default.send_redirects" = 0

[[link]]
a = { at = "wire:eth0", addresses = ["10.9.0.9/24"] }
b = "sw:up0"

[[link]]
a = { at = "vr:eth0", addresses = ["10.9.0.2/24"] }
b = "sw:vr0"

[[link]]
a = "wire:eth1"
b = "sw:spare0"
"#;

/// `vr1` at ingress; `vr2`, a process, by a map; and one who may read, of another slice.
const POLICY: &str = r#"
version = 1
xtc = { release_after = "20s" }

[[api.token]]
name = "lead"
role = "tenant"
slice = "lead"
sha256 = "26f7ffb01a7c74c5babe1b42058b51e08ea03275169858475e790c3a42610c6b"

[[port]]
name = "up0"
rate = "1Gbit"

[[slice]]
name = "gold"

[[slice]]
name = "lead"

[[router]]
name = "vr1"
slice = "gold"
receive = { max_pps = "50kpps" }
xtc = { set_point = "400pps", period = "100ms", actuator = "none" }

[[vif]]
name = "vr1.0"
slice = "gold"
router = "vr1"
device = "vr0"

[[router]]
name = "vr2"
slice = "lead"

[router.xtc]
set_point = "1kpps"
controller = "fixed"
cap_max = "10%"
map = [{ rate = "1kpps", cap = "10%" }, { rate = "2kpps", cap = "20%" }]
period = "100ms"
actuator = "cgroup"
process = "PIDFILE"
interface = [{ device = "spare0" }]
"#;

/// Its digest is in the policy.
const TOKEN: &str = "tenant-of-lead";

/// Some ten thousand packets a second to behind the router, until it is dropped.
struct Flood(Arc<AtomicBool>, Option<JoinHandle<()>>);

impl Flood {
    fn start(lab: &NodeLab) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (seen, name) = (Arc::clone(&stop), format!("{}-wire", lab.name()));
        let send = move || {
            let socket = UdpSocket::bind("10.9.0.9:0").unwrap();
            while !seen.load(Ordering::Relaxed) {
                for _ in 0..20 {
                    // A device that is full is what a flood is.
                    let _ = socket.send_to(&[0; 18], "10.8.0.5:9");
                }
                std::thread::sleep(Duration::from_micros(900));
            }
        };
        let thread = std::thread::spawn(move || netns::in_namespace(&name, send).unwrap());
        Self(stop, Some(thread))
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        if let Some(thread) = self.1.take() {
            let _ = thread.join();
        }
    }
}

/// A process that stands for a router.
struct Process(Child);

impl Process {
    fn start(lab: &NodeLab) -> Self {
        let child = Command::new("sleep").arg("1000").stdin(Stdio::null()).spawn().unwrap();
        std::fs::write(lab.path("vr2.pid"), format!("{}\n", child.id())).unwrap();
        Self(child)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn said(lab: &NodeLab, words: &[&str]) -> String {
    let output = lab.weir(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn json(lab: &NodeLab, words: &[&str]) -> Value {
    serde_json::from_str(&said(lab, &[words, &["--json"]].concat())).unwrap()
}

/// The mean rate of the newest ten samples.
fn rate(lab: &NodeLab, router: &str) -> u64 {
    let log = json(lab, &["xtc", "log", router, "--newest", "10"]);
    let rates: Vec<u64> =
        log.as_array().unwrap().iter().filter_map(|one| one["rate_pps"].as_u64()).collect();
    rates.iter().sum::<u64>() / (rates.len() as u64).max(1)
}

/// Waits until something holds.
fn until(lab: &NodeLab, what: &str, holds: impl Fn() -> bool) {
    if !soon(holds) {
        let log = lab.weir(&["xtc", "log", "vr1", "--newest", "5"]);
        panic!("not {what}: {:?} {log:?}", lab.weir(&["xtc", "status"]));
    }
}

fn near(rate: u64, wanted: u64) -> bool {
    rate.abs_diff(wanted) * 4 <= wanted
}

/// Not in the lab's own mount namespace, as `ip netns exec` makes it: it has no control groups.
fn run(lab: &NodeLab) -> Running {
    let mut command = lab.command(env!("CARGO_BIN_EXE_weir"));
    command.args(["node", "run", "--config", &lab.path("node.toml")]);
    let namespace = netns::Namespace::open(&format!("{}-sw", lab.name())).unwrap();
    let node = lab.start_by(command, |command| namespace.spawn(command).unwrap());
    lab.wait_for_node();
    node
}

#[test]
fn a_node_holds_its_routers_and_every_verb_takes_effect() {
    let Some(lab) = NodeLab::up("weir-t-xtc", TOPOLOGY, "") else { return };
    lab.write(&POLICY.replace("PIDFILE", &lab.path("vr2.pid")));
    let Ok(tree) = CgroupTree::find() else {
        println!("SKIPPED a_node_holds_its_routers_and_every_verb_takes_effect: no control groups");
        return;
    };
    let group = tree.group("weir-node-vr2");
    let process = Process::start(&lab);
    let before = lab.devices();
    let node = run(&lab);
    let flood = Flood::start(&lab);
    let offered = || json(&lab, &["xtc", "status", "vr1"])["offered_pps"].as_u64();
    until(&lab, "flooded", || offered().is_some_and(|offered| offered > 1200));
    until(&lab, "held at 400 pps", || near(rate(&lab, "vr1"), 400));
    let status = || json(&lab, &["xtc", "status", "vr1"]);
    until(&lab, "active", || status()["phase"] == "active");
    assert_eq!(status()["controller"], "combined");
    // Each verb, on record.
    said(&lab, &["xtc", "set", "vr1", "--set-point", "800pps"]);
    until(&lab, "held at 800 pps", || near(rate(&lab, "vr1"), 800));
    said(&lab, &["undo"]);
    until(&lab, "back at 400 pps", || near(rate(&lab, "vr1"), 400));
    said(&lab, &["xtc", "pause", "vr1"]);
    assert_eq!(json(&lab, &["xtc", "status", "vr1"])["phase"], "paused");
    let again = lab.weir(&["xtc", "pause", "vr1"]);
    let text = String::from_utf8(again.stderr).unwrap();
    assert!(text.contains("router vr1 is paused, which cannot become paused"), "{text}");
    said(&lab, &["xtc", "resume", "vr1"]);
    said(&lab, &["xtc", "deactivate", "vr1"]);
    assert_eq!(json(&lab, &["xtc", "status", "vr1"])["limit_pps"], Value::Null);
    said(&lab, &["xtc", "activate", "vr1", "--set-point", "200pps"]);
    until(&lab, "held at 200 pps", || near(rate(&lab, "vr1"), 200));
    let refused = lab.weir(&["xtc", "set", "vr1", "--set-point", "60kpps"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("60kpps is more than receive.max_pps, 50kpps"), "{text}");
    drop(flood);
    whoever_asks_sees_its_own(&lab);
    process_router(&lab, process, &group);
    let node = leased(&lab, node);
    lab.stop(node);
    assert!(!group.exists(), "the group is gone");
    lab.is_again(&before);
}

/// The process is in a group of its own with a quota; it ends, and comes back as another.
fn process_router(lab: &NodeLab, process: Process, group: &std::path::Path) {
    let of = |file: &str| std::fs::read_to_string(group.join(file)).unwrap_or_default();
    let pids = || of("cgroup.procs").trim().to_owned();
    assert_eq!(pids(), process.0.id().to_string());
    let quota = of("cpu.cfs_quota_us") + &of("cpu.max");
    // 10 % in periods of 10 ms, or 33 ms, a third of the sampling period.
    assert!(quota.starts_with("1000"), "{quota}");
    // Twice the rate is twice the cap, where the policy comes to allow that much.
    let is = |quota| (of("cpu.cfs_quota_us") + &of("cpu.max")).starts_with(quota);
    said(lab, &["xtc", "set", "vr2", "--cap-max", "80%"]);
    said(lab, &["xtc", "set", "vr2", "--set-point", "2kpps"]);
    until(lab, "capped at 20 %", || is("2000"));
    said(lab, &["undo"]);
    until(lab, "capped at 10 %", || is("1000"));
    said(lab, &["undo"]);
    drop(process);
    let status = || json(lab, &["xtc", "status", "vr2"]);
    until(lab, "missed", || {
        status()["trouble"].as_str().is_some_and(|why| why.contains("not there"))
    });
    let process = Process::start(lab);
    until(lab, "held again", || pids() == process.0.id().to_string());
    until(lab, "well", || status()["phase"] == "active" && status()["trouble"].is_null());
    // Back before its cap would have been released: it has the same again.
    let quota = of("cpu.cfs_quota_us") + &of("cpu.max");
    assert!(quota.starts_with("1000"), "{quota}");
    assert!(status()["lost"].as_u64().unwrap() >= 1);
}

/// A controller holds a router that is off for two seconds, and is gone; what it set ends with
/// them, and with a node that is killed, and is never on record.
fn leased(lab: &NodeLab, node: Running) -> Running {
    let client = Client::new(lab.path("node-node.sock").as_ref());
    said(lab, &["xtc", "deactivate", "vr1"]);
    let record = || client.text("/v1/changes").unwrap();
    let before = record();
    let ask = |lease_ns: u64, pps: u64| {
        let body = serde_json::json!({ "lease_ns": lease_ns, "set_points_pps": { "vr1": pps } });
        client.ask::<Value>(weir_client::Method::POST, "/v1/set-points", Some(&body))
    };
    let status = || json(lab, &["xtc", "status", "vr1"]);
    assert_eq!(ask(2_000_000_000, 300).unwrap()["refused"], serde_json::json!({}));
    let leased = status();
    assert_eq!((&leased["state"], &leased["set_point_pps"]), (&"leased".into(), &300.into()));
    assert!((1..=2_000_000_000).contains(&leased["lease"]["left_ns"].as_u64().unwrap()));
    assert!(said(lab, &["xtc", "status"]).contains("leased by uid 0"));
    until(lab, "limited", || status()["limit_pps"].as_u64().is_some());
    until(lab, "let go", || status()["state"] == "off");
    assert_eq!((&status()["limit_pps"], &status()["lease"]), (&Value::Null, &Value::Null));
    let page = client.text("/metrics").unwrap();
    assert!(page.contains("\nweir_xtc_leases_expired_total 1\n"), "{page}");
    for (lease_ns, why) in [(999_999_999, "lease_ns is"), (3_600_000_000_001, "1s to 3600s")] {
        let refused = ask(lease_ns, 300).unwrap_err().to_string();
        assert!(refused.contains(why), "{refused}");
    }
    let above = ask(60_000_000_000, 60_000).unwrap()["refused"]["vr1"].clone();
    assert!(above.as_str().unwrap().contains("more than receive.max_pps, 50kpps"), "{above}");
    ask(60_000_000_000, 300).unwrap();
    let pause = serde_json::json!({ "state": "paused" });
    let refused = client.ask::<Value>(weir_client::Method::PATCH, "/v1/xtc/vr1", Some(&pause));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("held by a controller's lease (uid 0)"), "{refused}");
    let refused = String::from_utf8(lab.weir(&["xtc", "pause", "vr1"]).stderr).unwrap();
    let why = "router vr1 is leased, which cannot become paused: a controller's lease (uid 0)";
    assert!(refused.contains(why), "{refused}");
    assert_eq!(record(), before, "nothing of it is on record");
    let told = String::from_utf8(node.kill().stderr).unwrap();
    assert!(told.contains("300pps of uid 0 was not renewed for 2s: withdrawn"), "{told}");
    let node = run(lab);
    assert_eq!((&status()["state"], &status()["lease"]), (&"off".into(), &Value::Null));
    node
}

/// A tenant reads the state of its routers, and changes nothing; metrics have the same.
fn whoever_asks_sees_its_own(lab: &NodeLab) {
    let client = Client::new(lab.path("node-node.sock").as_ref());
    let page = client.text("/metrics").unwrap();
    for line in [
        "weir_xtc_active{router=\"vr1\",slice=\"gold\"} 1",
        "weir_xtc_set_point_packets_per_second{router=\"vr1\",slice=\"gold\"} 200",
    ] {
        assert!(page.lines().any(|one| one == line), "no {line} in\n{page}");
    }
    let tenant = client.with_token(TOKEN);
    let all: Value = tenant.get("/v1/xtc").unwrap();
    let names: Vec<&str> = all["routers"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one["router"].as_str())
        .collect();
    assert_eq!((names, &all["load"]), (vec!["vr2"], &Value::Null));
    assert!(tenant.get::<Value>("/v1/xtc/vr2/log?newest=3").is_ok());
    for path in ["/v1/xtc/vr1", "/v1/xtc/vr1/log", "/v1/xtc/none"] {
        let refused = tenant.get::<Value>(path).unwrap_err().to_string();
        assert!(refused.contains("is not held at a rate"), "{path}: {refused}");
    }
    let change = serde_json::json!({ "set_point_pps": 2000 });
    let refused = tenant.ask::<Value>(weir_client::Method::PATCH, "/v1/xtc/vr2", Some(&change));
    assert!(refused.unwrap_err().to_string().contains("administrators"));
    let lease = serde_json::json!({ "lease_ns": 2_000_000_000, "set_points_pps": { "vr2": 1000 } });
    let refused = tenant.ask::<Value>(weir_client::Method::POST, "/v1/set-points", Some(&lease));
    assert!(refused.unwrap_err().to_string().contains("administrators"));
    assert!(tenant.get::<Value>("/v1/xtc/vr2/log?newest=0").is_err());
}
