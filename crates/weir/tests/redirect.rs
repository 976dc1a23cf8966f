// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The redirected path of a running node: two tenants and a port, switched on and off by reloads
//! under traffic, and its limits.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use common::Site;
use serde_json::Value;

/// Reloads under traffic switch the path on, off and on: nothing is lost, nothing is reordered,
/// and the counters tell of every packet.
#[test]
fn switching_the_path_loses_and_reorders_nothing() {
    let Some(site) = site("weir-t-rdr") else { return };
    let node = site.run(&[]);
    site.wait_for_node();
    assert!(site.ping("b", "10.9.0.9") && site.ping("a", "10.9.0.9") && site.ping("a", "10.9.0.2"));
    let receivers = [site.receiver("wire", "10.9.0.9"), site.receiver("b", "10.9.0.2")];
    std::thread::sleep(Duration::from_millis(500));
    let before = site.status();
    let senders = [site.sender("10.9.0.9", 4000), site.sender("10.9.0.2", 4000)];
    for redirect in ["true", "false", "true"] {
        std::thread::sleep(Duration::from_millis(1300));
        site.apply(redirect, "");
    }
    for sender in senders {
        assert!(sender.wait_with_output().unwrap().status.success());
    }
    for receiver in receivers {
        let result = receiver.wait_with_output().unwrap().stdout;
        let result: Value = serde_json::from_slice(&result).unwrap();
        let stream = &result["streams"][0];
        let order = &stream["order"];
        let of = |key: &str| order[key].as_u64().unwrap();
        assert_eq!(stream["packets"], COUNT, "{order:#}");
        assert_eq!((of("first"), of("lost"), of("reordered")), (0, 0, 0), "{order:#}");
    }
    let after = site.status();
    let sent = packets(&after, "a.0", "send", "sent") - packets(&before, "a.0", "send", "sent");
    let by_kernel = packets(&after, "a.0", "send", "redirected");
    println!("{by_kernel} of {sent} redirected");
    assert!(sent >= 2 * COUNT);
    assert!(by_kernel > COUNT / 4 && by_kernel < 2 * COUNT, "both ways were used");
    let towards = packets(&after, "b.0", "receive", "sent");
    assert!(towards >= COUNT + packets(&before, "b.0", "receive", "sent"), "{towards}");
    let out = packets(&after, "up0", "send", "sent") - packets(&before, "up0", "send", "sent");
    assert!((COUNT..COUNT + 100).contains(&out), "{out} left by the port");
    site.balanced(&after);
    site.stop(node);
}

/// A capture sees a redirected vif's frames, which go through user space for as long as it runs.
#[test]
fn a_capture_takes_its_vif_off_the_path() {
    let Some(site) = site("weir-t-rdc") else { return };
    let node = site.run(&[]);
    site.wait_for_node();
    site.apply("true", "");
    assert!(site.ping("a", "10.9.0.9"));
    std::thread::sleep(Duration::from_millis(1200));
    let by_kernel = || packets(&site.status(), "a.0", "send", "redirected");
    assert!(site.ping("a", "10.9.0.9"));
    let before = by_kernel();
    assert!(before > 0, "a is redirected");
    let mut capture = site.command(env!("CARGO_BIN_EXE_weir"));
    capture.args(["capture", "a.0"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut capture = capture.spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    assert!(site.ping("a", "10.9.0.9"));
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(by_kernel(), before, "nothing is redirected while a is captured");
    capture.kill().unwrap();
    let captured = capture.wait_with_output().unwrap();
    let said = String::from_utf8(captured.stderr).unwrap();
    assert!(said.contains("a.0 is not redirected"), "{said}");
    let pings = captured.stdout.windows(4).filter(|at| *at == [10, 9, 0, 9]).count();
    assert!(pings >= 6, "three requests and three replies: {pings} addresses");
    std::thread::sleep(Duration::from_millis(1200));
    assert!(site.ping("a", "10.9.0.9"));
    assert!(by_kernel() > before, "the path comes back");
    site.balanced(&site.status());
    site.stop(node);
}

/// A packet rate holds on the redirected path, and what is above it is counted.
#[test]
fn a_packet_rate_holds_on_the_redirected_path() {
    let Some(site) = site("weir-t-rdl") else { return };
    let node = site.run(&[]);
    site.wait_for_node();
    site.apply("true", "send = { max_pps = \"2000pps\" }");
    assert!(site.ping("a", "10.9.0.9"));
    // What the bridge has learned is looked at twice a second.
    std::thread::sleep(Duration::from_millis(1200));
    let before = site.status();
    let receiver = site.receiver("wire", "10.9.0.9");
    std::thread::sleep(Duration::from_millis(500));
    let start = Instant::now();
    assert!(site.sender("10.9.0.9", 10_000).wait().unwrap().success());
    let seconds = start.elapsed().as_secs_f64();
    let result: Value =
        serde_json::from_slice(&receiver.wait_with_output().unwrap().stdout).unwrap();
    let received = result["streams"][0]["packets"].as_u64().unwrap();
    let most = 2000.0 * seconds + 64.0;
    println!("{received} of {COUNT} in {seconds:.2} s, at most {most:.0}");
    // The sender's time includes its start.
    assert!(f64::from(u32::try_from(received).unwrap()) <= most);
    assert!(received >= COUNT / 5 * 9 / 10, "{received}: a fifth of what was offered may pass");
    let after = site.status();
    let change = |key| packets(&after, "a.0", "send", key) - packets(&before, "a.0", "send", key);
    let by_kernel = change("redirected");
    assert!(by_kernel >= received * 9 / 10, "{by_kernel} in the kernel");
    let dropped = &after["vifs"][0]["send"]["dropped"]["vif_packets"]["packets"];
    let dropped = dropped.as_u64().unwrap();
    assert!(dropped + received >= COUNT, "{dropped} dropped and {received} received");
    site.balanced(&after);
    site.stop(node);
}

/// The lab, its guests ready for frames that a program redirects to them.
fn site(name: &str) -> Option<Site> {
    let site = Site::up(name, TOPOLOGY, POLICY)?;
    for guest in ["a", "b", "wire"] {
        let gro = site.inside(guest, "ethtool").args(["-K", "eth0", "gro", "on"]).output();
        let gro = gro.unwrap();
        assert!(gro.status.success(), "{gro:?}");
    }
    Some(site)
}

impl Site {
    /// Reloads with that `node.redirect`, and that for the first vif.
    fn apply(&self, redirect: &str, more: &str) {
        let policy = POLICY.replace("redirect = false", &format!("redirect = {redirect}"));
        self.write(&policy.replace("# MORE", more));
        let reloaded = self.weir(&["node", "reload"]);
        assert!(reloaded.status.success(), "{reloaded:?}");
    }

    /// The identities of the counters hold for every interface and direction.
    fn balanced(&self, status: &Value) {
        for list in ["ports", "vifs"] {
            for iface in status[list].as_array().unwrap() {
                for direction in ["send", "receive"] {
                    let side = &iface[direction];
                    let of = |key: &str| side[key]["packets"].as_u64().unwrap();
                    let dropped = side["dropped"].as_object().unwrap().values();
                    let dropped: u64 = dropped.map(|d| d["packets"].as_u64().unwrap()).sum();
                    assert_eq!(of("received") + of("copies"), dropped + of("enqueued"), "{side:#}");
                    let gone = of("sent") + of("dropped_after");
                    assert_eq!(of("enqueued"), gone + of("backlog"), "{side:#}");
                }
            }
        }
    }

    fn receiver(&self, node: &str, address: &str) -> Child {
        let mut command = self.inside(node, env!("CARGO_BIN_EXE_weir"));
        command.args(["traffic", "receive", "--udp", &format!("{address}:9000")]);
        command.args(["--duration", "8s"]).stdout(Stdio::piped()).spawn().unwrap()
    }

    fn sender(&self, to: &str, pps: u32) -> Child {
        let mut command = self.inside("a", env!("CARGO_BIN_EXE_weir"));
        command.args(["traffic", "send", "--udp", &format!("{to}:9000"), "--size", "200"]);
        command.args(["--pps", &format!("{pps}pps"), "--count", &COUNT.to_string()]);
        command.stdout(Stdio::null()).spawn().unwrap()
    }
}

fn packets(status: &Value, name: &str, direction: &str, key: &str) -> u64 {
    let lists = ["ports", "vifs"].map(|list| status[list].as_array().unwrap());
    let iface = lists.into_iter().flatten().find(|iface| iface["name"] == name).unwrap();
    iface[direction][key]["packets"].as_u64().unwrap()
}

/// Packets of each sender.
const COUNT: u64 = 20_000;

const TOPOLOGY: &str = r#"
name = "NAME"
node = [{ name = "a" }, { name = "b" }, { name = "sw" }, { name = "wire" }]

[[link]]
a = { at = "a:eth0", mac = "02:00:00:00:09:01", addresses = ["10.9.0.1/24"], offloads = false }
b = "sw:a0"

[[link]]
a = { at = "b:eth0", mac = "02:00:00:00:09:02", addresses = ["10.9.0.2/24"], offloads = false }
b = "sw:b0"

[[link]]
a = { at = "wire:eth0", addresses = ["10.9.0.9/24"], offloads = false }
b = "sw:up0"
"#;

const POLICY: &str = r#"
version = 1

[node]
redirect = false

[[port]]
name = "up0"
kind = "xdp"
rate = "1Gbit"

[[slice]]
name = "gold"

[[vif]]
name = "a.0"
slice = "gold"
device = "a0"
kind = "xdp"
mac = ["02:00:00:00:09:01"]
# MORE

[[vif]]
name = "b.0"
slice = "gold"
device = "b0"
kind = "xdp"
mac = ["02:00:00:00:09:02"]
"#;
