// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real-time classes of routers at a running node: set, changed and undone live, and the advice
//! from what a router's threads do.
//! Routers are processes of the test; root, and namespaces for the node.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::Write;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::{NodeLab, Running, soon};
use serde_json::{Value, json};
use weir_api_types::error::ErrorCode;
use weir_client::{Client, ClientError, Method};
use weir_platform::netns;

/// A router that is a process, until it is dropped.
struct ProcessRouter {
    child: Child,
    stop: Arc<AtomicBool>,
    feeder: Option<JoinHandle<()>>,
}

impl ProcessRouter {
    /// A process that never waits.
    fn busy() -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", "while :; do :; done"]).stdin(Stdio::null());
        let child = command.spawn().unwrap();
        Self { child, stop: Arc::default(), feeder: None }
    }

    /// A process that waits for lines, which come at these times, in microseconds.
    fn fed(gap_us: impl Fn(u64) -> u64 + Send + 'static) -> Self {
        let mut command = Command::new("cat");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let (stop, stdin) = (Arc::<AtomicBool>::default(), child.stdin.take().unwrap());
        let seen = Arc::clone(&stop);
        let feeder = std::thread::spawn(move || feed(stdin, &seen, gap_us));
        Self { child, stop, feeder: Some(feeder) }
    }
}

fn feed(mut to: ChildStdin, stop: &AtomicBool, gap_us: impl Fn(u64) -> u64) {
    let mut due = Instant::now();
    for turn in 0.. {
        due += Duration::from_micros(gap_us(turn));
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        if stop.load(Ordering::Relaxed) || to.write_all(b"a line\n").is_err() {
            return;
        }
    }
}

impl Drop for ProcessRouter {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let _ended = self.child.kill().and_then(|()| self.child.wait());
        if let Some(feeder) = self.feeder.take() {
            let _ended = feeder.join();
        }
    }
}

/// Goal: the advice is right for a clock, for events and for a router that never waits, and changes
/// nothing. A machine that stands still makes a clock unsteady: one of five looks must be right.
#[test]
fn the_advice_is_right_for_three_known_patterns() {
    const TEST: &str = "the_advice_is_right_for_three_known_patterns";
    let Some(lab) = NodeLab::up("weir-t-advice", common::TOPOLOGY, common::POLICY) else { return };
    let clock = ProcessRouter::fed(|_| 10_000);
    let events = ProcessRouter::fed(|turn| 2_000 + turn * 7_919 % 97 * 250);
    let busy = ProcessRouter::busy();
    let mut policy = common::POLICY.to_owned();
    for (name, router) in [("clock", &clock), ("events", &events), ("busy", &busy)] {
        let pid = router.child.id();
        policy += &format!(
            "[[router]]\nname = \"{name}\"\nslice = \"gold\"\n\
             realtime = {{ type = \"normal\", process = \"{pid}\" }}\n"
        );
    }
    lab.write(&policy);
    let node = lab.run(&[]);
    lab.wait_for_node();
    let document = || String::from_utf8(lab.weir(&["show"]).stdout).unwrap();
    let before = document();
    let advice = |name: &str| -> Result<Value, String> {
        let output = lab.weir(&["explain", name, "--json"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or(error)?;
        Ok(serde_json::from_slice(&output.stdout).unwrap())
    };
    match advice("clock") {
        Err(error) if error.contains("watch the switches") => {
            println!("SKIPPED {TEST}: {error}");
            return lab.stop(node);
        }
        other => drop(other.unwrap()),
    }
    let of = |one: &Value, class: &str, tenths_ms: std::ops::Range<u64>| {
        let deadline = one["deadline_ns"].as_u64().unwrap_or_default() / 100_000;
        one["class"] == class && tenths_ms.contains(&deadline)
    };
    let is_clock = |one: &Value| of(one, "periodic", 98..103);
    let is_events = |one: &Value| of(one, "aperiodic", 20..60);
    let is_busy = |one: &Value| one["class"] == "normal";
    type IsRight<'a> = &'a dyn Fn(&Value) -> bool;
    let checks: [(&str, IsRight<'_>); 3] =
        [("clock", &is_clock), ("events", &is_events), ("busy", &is_busy)];
    for (name, is_right) in checks {
        let mut seen = Vec::new();
        let right = (0..5).any(|_| {
            seen.push(advice(name).unwrap());
            seen.last().is_some_and(is_right)
        });
        assert!(right, "{name}: {seen:#?}");
    }
    let text = String::from_utf8(lab.weir(&["explain", "clock"]).stdout).unwrap();
    assert!(text.starts_with("router clock: 1 threads, "), "{text}");
    let nobody = String::from_utf8(lab.weir(&["explain", "nobody"]).stderr).unwrap();
    assert!(nobody.contains("no vif and no router"), "{nobody}");
    assert_eq!(document(), before, "advice applies nothing");
    lab.stop(node);
}

/// The scheduling class of a process's first thread, as the kernel numbers it: 6 is the deadline
/// class, 0 the normal one.
fn scheduling_class(pid: u32) -> u32 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, fields) = stat.rsplit_once(')').unwrap();
    fields.split_whitespace().nth(38).unwrap().parse().unwrap()
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

fn said(lab: &NodeLab, words: &[&str]) -> String {
    let output = lab.weir(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Goal: a class is set, changed, refused and taken back live, by command line and interface; a
/// crash leaves it in force, a restart goes on with it, an end undoes it, and so does `weir clean`.
/// No packet of the node is lost meanwhile.
#[test]
fn a_class_is_set_changed_and_undone_live() {
    const TEST: &str = "a_class_is_set_changed_and_undone_live";
    let Some(lab) = NodeLab::up("weir-t-class-live", common::TOPOLOGY, "") else { return };
    let [video, voice] = [(); 2].map(|()| ProcessRouter::fed(|_| 10_000));
    let [other, pid] = [&video, &voice].map(|router| router.child.id());
    let router = |name| format!("[[router]]\nname = \"{name}\"\nslice = \"gold\"\n");
    lab.write(&format!("{}{}{}", common::POLICY, router("video"), router("voice")));
    let node = run(&lab);
    let client = Client::new(lab.path("node-node.sock").as_ref());
    let document = client.text("/v1/document").unwrap();
    assert!(lab.reaches("gold", "10.9.0.9"));
    let mut ping = lab.inside("gold", "ping");
    ping.args(["-q", "-i", "0.01", "-c", "500", "-w", "60", "10.9.0.9"]);
    let mut ping = ping.stdout(Stdio::piped()).spawn().unwrap();
    let class = || class_of(&client, "voice");
    let set = [&["set", "router", "voice"][..], &SET.split(' ').collect::<Vec<_>>()].concat();
    let process = pid.to_string();
    said(&lab, &[&set[..], &["--process", &process]].concat());
    if !soon(|| class()["in_force"] == true) {
        println!("SKIPPED {TEST}: {}", class());
        ping.kill().unwrap();
        ping.wait().unwrap();
        return lab.stop(node);
    }
    assert_eq!((scheduling_class(pid), &class()["budget_ppm"]), (6, &json!(200_000)));
    assert!(said(&lab, &["realtime"]).starts_with("voice: periodic, 20% of each 10ms within 5ms"));
    let metrics = client.text("/metrics").unwrap();
    let series = "weir_realtime_budget_ratio{router=\"voice\",slice=\"gold\",class=\"periodic\"}";
    assert!(metrics.contains(&format!("{series} 0.200000")), "{metrics}");
    // Both together fit on two processors alone.
    let beside = ["--realtime", "periodic", "--deadline", "10ms", "--cpu", "60%", "--process"];
    said(&lab, &[&["set", "router", "video"][..], &beside, &[&other.to_string()]].concat());
    // Changed by the interface; then one that does not fit.
    let patch = |body: Value| {
        client.ask::<Value>(Method::PATCH, "/v1/routers/voice", Some(&json!({ "realtime": body })))
    };
    patch(json!({ "cpu_ppm": 300_000 })).unwrap();
    assert!(soon(|| class()["budget_ppm"] == 300_000), "{}", class());
    is_refused(patch(json!({ "cpu_ppm": 1_000_000, "deadline_ns": 10_000_000 })));
    assert_eq!(class()["budget_ppm"], 300_000, "a refusal changes nothing");
    said(&lab, &["undo"]);
    assert!(soon(|| class()["budget_ppm"] == 200_000), "{}", class());
    let text = String::from_utf8(ping.wait_with_output().unwrap().stdout).unwrap();
    assert!(text.contains(" 0% packet loss"), "{text}");
    node.kill();
    assert_eq!(scheduling_class(pid), 6, "nobody was there to undo it");
    let node = run(&lab);
    assert!(soon(|| class()["in_force"] == true), "{}", class());
    said(&lab, &["set", "router", "voice", "--realtime", "none"]);
    assert!(soon(|| scheduling_class(pid) == 0));
    said(&lab, &["undo"]);
    assert!(soon(|| scheduling_class(pid) == 6));
    lab.stop(node);
    assert_eq!(scheduling_class(pid), 0, "an end undoes it");
    let node = run(&lab);
    assert!(soon(|| scheduling_class(pid) == 6));
    node.kill();
    let cleaned = lab.weir(&["clean"]);
    assert!(cleaned.status.success(), "{cleaned:?}");
    assert_eq!(scheduling_class(pid), 0, "what a crash left is undone");
    let node = run(&lab);
    said(&lab, &["undo"]);
    said(&lab, &["undo"]);
    assert_eq!(client.text("/v1/document").unwrap(), document);
    lab.stop(node);
}

/// The state of a router's class; null if it has none.
fn class_of(client: &Client, router: &str) -> Value {
    let all = client.get::<Value>("/v1/realtime").unwrap();
    let all = all["routers"].as_array().unwrap().clone();
    all.into_iter().find(|of| of["router"] == router).unwrap_or_default()
}

/// Checks that a share of the voice router was refused by name and key.
fn is_refused(answer: Result<Value, ClientError>) {
    match answer.unwrap_err() {
        ClientError::Refused(refusal) => {
            assert_eq!(refusal.code, ErrorCode::Refused);
            assert!(refusal.message.contains("voice"), "{}", refusal.message);
            assert_eq!(refusal.keys[0].key, "realtime.cpu");
        }
        ClientError::Io { error, .. } => panic!("{error}"),
    }
}

/// Goal: weights that come together are given together, and each goes back alone.
#[test]
fn weights_come_together_and_go_one_by_one() {
    const TEST: &str = "weights_come_together_and_go_one_by_one";
    let Some(lab) = NodeLab::up("weir-t-weights", common::TOPOLOGY, "") else { return };
    let routers: Vec<ProcessRouter> = (0..3).map(|_| ProcessRouter::busy()).collect();
    let policy = |names: std::ops::Range<usize>| {
        let router = |name: usize| {
            format!(
                "[[router]]\nname = \"r{name}\"\nslice = \"gold\"\nrealtime = {{ type = \
                 \"normal\", weight = 300, process = \"{}\" }}\n",
                routers[name].child.id()
            )
        };
        format!("{}{}", common::POLICY, names.map(router).collect::<String>())
    };
    let weighed = || -> Vec<bool> {
        let group = |router: &ProcessRouter| {
            std::fs::read_to_string(format!("/proc/{}/cgroup", router.child.id())).unwrap()
        };
        routers.iter().map(|router| group(router).contains("/weir-node-r")).collect()
    };
    lab.write(&policy(0..3));
    let node = run(&lab);
    if !soon(|| weighed() == [true; 3]) {
        println!("SKIPPED {TEST}: {}", said(&lab, &["realtime"]));
        return lab.stop(node);
    }
    lab.write(&policy(0..2));
    said(&lab, &["node", "reload"]);
    assert!(soon(|| weighed() == [true, true, false]), "{:?}", weighed());
    said(&lab, &["set", "router", "r0", "--realtime", "none"]);
    assert!(soon(|| weighed() == [false, true, false]), "{:?}", weighed());
    lab.stop(node);
    assert_eq!(weighed(), [false; 3], "an end undoes it");
}

const SET: &str = "--realtime periodic --deadline 5ms --period 10ms --cpu 20%";
