// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The redirected path of a running node: two tenants and a port, switched on and off by reloads
//! under traffic, and its limits.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::time::{Duration, Instant};

use common::{NodeLab, Running, soon, weir_lab};
use serde_json::Value;

/// Reloads under traffic switch the path on, off and on: nothing is lost, nothing is reordered,
/// and the counters tell of every packet.
#[test]
fn switching_the_path_loses_and_reorders_nothing() {
    let Some(lab) = lab("weir-t-rdr") else { return };
    let node = lab.run(&[]);
    lab.wait_for_node();
    for (from, to) in [("b", "10.9.0.9"), ("a", "10.9.0.9"), ("a", "10.9.0.2")] {
        assert!(lab.reaches(from, to), "{from} to {to}");
    }
    assert!((0..3).any(|_| switching_loses_nothing(&lab)), "each time something was lost");
    lab.stop(node);
}

/// Returns true if nothing was lost, and both paths were used. A worker that stands still for a
/// second has thousands of packets in front of rings of hundreds: that may happen, but not each
/// time. Nothing may be reordered, ever.
fn switching_loses_nothing(lab: &NodeLab) -> bool {
    lab.apply("false", "");
    let receivers = [lab.receiver("wire", "10.9.0.9"), lab.receiver("b", "10.9.0.2")];
    let before = lab.status();
    let senders = [lab.sender("10.9.0.9", 4000), lab.sender("10.9.0.2", 4000)];
    for redirect in ["true", "false", "true"] {
        std::thread::sleep(Duration::from_millis(1300));
        lab.apply(redirect, "");
    }
    for sender in senders {
        assert!(sender.end().status.success());
    }
    let mut all_arrived = true;
    for receiver in receivers {
        let result = received(receiver);
        let stream = &result["streams"][0];
        let order = &stream["order"];
        let of = |key: &str| order[key].as_u64().unwrap();
        assert_eq!((of("first"), of("reordered")), (0, 0), "{order:#}");
        all_arrived &= stream["packets"] == COUNT && of("lost") == 0;
        println!("{} of {COUNT} arrived, {} lost", stream["packets"], of("lost"));
    }
    let after = lab.status();
    lab.balanced(&after);
    let change = |name: &str, direction: &str, key: &str| {
        packets(&after, name, direction, key) - packets(&before, name, direction, key)
    };
    let (sent, by_kernel) = (change("a.0", "send", "sent"), change("a.0", "send", "redirected"));
    println!("{by_kernel} of {sent} redirected");
    if !all_arrived || by_kernel <= COUNT / 4 || by_kernel >= 2 * COUNT {
        return false;
    }
    assert!(sent >= 2 * COUNT);
    let towards = change("b.0", "receive", "sent");
    assert!(towards >= COUNT, "{towards}");
    let out = change("up0", "send", "sent");
    assert!((COUNT..COUNT + 100).contains(&out), "{out} left by the port");
    true
}

/// A capture sees a redirected vif's frames, which go through user space for as long as it runs.
#[test]
fn a_capture_takes_its_vif_off_the_path() {
    let Some(lab) = lab("weir-t-rdc") else { return };
    let node = lab.run(&[]);
    lab.wait_for_node();
    lab.apply("true", "");
    assert!(lab.redirects_more_than(0), "a is redirected");
    let capture = lab.capture("a.0");
    let before = lab.redirected();
    assert!(lab.reaches("a", "10.9.0.9"));
    assert_eq!(lab.redirected(), before, "nothing is redirected while a is captured");
    let addresses = || capture.said().windows(4).filter(|at| *at == [10, 9, 0, 9]).count();
    assert!(soon(|| addresses() >= 6), "three requests and three replies: {}", addresses());
    let said = String::from_utf8(capture.kill().stderr).unwrap();
    assert!(said.contains("a.0 is not redirected"), "{said}");
    assert!(lab.redirects_more_than(before), "the path comes back");
    lab.balanced(&lab.status());
    lab.stop(node);
}

/// A packet rate holds on the redirected path, and what is above it is counted.
#[test]
fn a_packet_rate_holds_on_the_redirected_path() {
    let Some(lab) = lab("weir-t-rdl") else { return };
    let node = lab.run(&[]);
    lab.wait_for_node();
    lab.apply("true", "send = { max_pps = \"2000pps\" }");
    assert!(lab.redirects_more_than(0), "a is redirected");
    assert!((0..3).any(|_| a_fifth_passes(&lab)), "a fifth of what was offered may pass");
    lab.stop(node);
}

/// Returns true if as much arrived as the limit admits. Less may arrive, since a bucket that stays
/// full while the sender stands still loses credit; more never may.
fn a_fifth_passes(lab: &NodeLab) -> bool {
    let before = lab.status();
    let receiver = lab.receiver("wire", "10.9.0.9");
    let start = Instant::now();
    assert!(lab.sender("10.9.0.9", 10_000).end().status.success());
    let seconds = start.elapsed().as_secs_f64();
    let received = received(receiver)["streams"][0]["packets"].as_u64().unwrap();
    let most = 2000.0 * seconds + 64.0;
    println!("{received} of {COUNT} in {seconds:.2} s, at most {most:.0}");
    // The sender's time includes its start.
    assert!(f64::from(u32::try_from(received).unwrap()) <= most);
    let after = lab.status();
    lab.balanced(&after);
    let change = |key| packets(&after, "a.0", "send", key) - packets(&before, "a.0", "send", key);
    let by_kernel = change("redirected");
    assert!(by_kernel >= received * 9 / 10, "{by_kernel} in the kernel");
    let refused = |status: &Value| {
        let dropped = &status["vifs"][0]["send"]["dropped"]["vif_packets"]["packets"];
        // What is zero is not in it.
        dropped.as_u64().unwrap_or(0)
    };
    let dropped = refused(&after) - refused(&before);
    println!("{dropped} dropped, {by_kernel} in the kernel");
    received >= COUNT / 5 * 9 / 10 && dropped + received >= COUNT
}

/// Returns the counts of a receiver, once it has read everything that came to it.
fn received(receiver: Running) -> Value {
    // What is not in its socket yet is in the node, or on a device.
    std::thread::sleep(Duration::from_millis(500));
    let is_read = || udp_queues(&receiver).iter().all(|queues| queues.ends_with(":00000000"));
    assert!(soon(is_read), "the receiver does not read");
    let ended = receiver.terminate();
    assert!(ended.status.success(), "{ended:?}");
    serde_json::from_slice(&ended.stdout).unwrap()
}

/// Returns the backlog of the sockets on port 9000 of a receiver's namespace, as in
/// `00000000:0000A200`: bytes to be sent, bytes to be read.
fn udp_queues(receiver: &Running) -> Vec<String> {
    let text = std::fs::read_to_string(format!("/proc/{}/net/udp", receiver.pid())).unwrap();
    let fields = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let ours = fields.filter(|fields| fields[1].ends_with(&format!(":{:04X}", 9000)));
    ours.map(|fields| fields[4].to_owned()).collect()
}

/// The lab, its guests ready for frames that a program redirects to them.
fn lab(name: &str) -> Option<NodeLab> {
    let lab = NodeLab::up(name, TOPOLOGY, POLICY)?;
    for guest in ["a", "b", "wire"] {
        let gro = lab.inside(guest, "ethtool").args(["-K", "eth0", "gro", "on"]).output();
        let gro = gro.unwrap();
        assert!(gro.status.success(), "{gro:?}");
    }
    Some(lab)
}

impl NodeLab {
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

    /// Packets of the first tenant that did not go through user space.
    fn redirected(&self) -> u64 {
        packets(&self.status(), "a.0", "send", "redirected")
    }

    /// Returns true as soon as there are more, which may take a while: the node reads twice a
    /// second what the bridge has learned.
    fn redirects_more_than(&self, before: u64) -> bool {
        soon(|| self.ping("a", "10.9.0.9") && self.redirected() > before)
    }

    /// A receiver whose socket is there.
    fn receiver(&self, node: &str, address: &str) -> Running {
        let mut command = self.inside(node, &weir_lab());
        command.args(["traffic", "receive", "--udp", &format!("{address}:9000")]);
        let receiver = self.start(command);
        assert!(soon(|| !udp_queues(&receiver).is_empty()), "no receiver");
        receiver
    }

    fn sender(&self, to: &str, pps: u32) -> Running {
        let mut command = self.inside("a", &weir_lab());
        command.args(["traffic", "send", "--udp", &format!("{to}:9000"), "--size", "200"]);
        command.args(["--pps", &format!("{pps}pps"), "--count", &COUNT.to_string()]);
        self.start(command)
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
