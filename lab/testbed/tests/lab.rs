// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lab on real namespaces: up, adopted, repaired, down, killed.
// A test may panic.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation)]

#[path = "../../../host/platform/tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::{PATIENCE, TestState, as_child, run_and_kill, soon};
use weir_platform::journal::{self, Scope};
use weir_platform::netns;
use weir_platform::run::{Command, Host, Platform};
use weir_platform::snapshot::{Snapshot, settle};
use weir_testbed::delay_line::{self, DelayedPair};
use weir_testbed::{self as lab, Lab, State, Topology};

/// Two tenants and a wire at a bridge, 10 Mbit/s on the wire.
fn topology(tag: &str) -> Topology {
    let text = r#"
        name = "set-by-the-test"
        [[node]]
        name = "a"
        [[node]]
        name = "b"
        [[node]]
        name = "sw"
        sysctls = { "net.ipv4.ip_forward" = 1 }
        [[link]]
        a = { at = "a:eth0", mac = "02:00:00:00:00:01", addresses = ["10.9.0.1/24"] }
        b = "sw:a0"
        queues = 2
        [[link]]
        a.at = "b:eth0"
        a.mac = "02:00:00:00:00:02"
        a.addresses = ["10.9.0.2/24"]
        a.neighbours = { "10.9.0.1" = "02:00:00:00:00:01" }
        b = { at = "sw:b0", rate = "10Mbit" }
        offloads = false
        [[bridge]]
        node = "sw"
        name = "br0"
        members = ["a0", "b0"]
    "#;
    Topology::parse(text).unwrap().named(&format!("{tag}-{}", std::process::id()))
}

fn run(line: &str) -> String {
    Host::default().run(&Command::line(line)).unwrap()
}

fn namespaces_of(topology: &Topology) -> Vec<String> {
    let prefix = format!("{}-", topology.name);
    netns::list().unwrap().into_iter().filter(|name| name.starts_with(&prefix)).collect()
}

#[test]
fn a_lab_comes_up_carries_packets_and_goes_without_a_trace() {
    let Some(test) = TestState::on_the_host("updown") else { return };
    let topology = topology("ud");
    assert_eq!(lab::status(&topology).unwrap().items[0].state, State::Missing);
    let lab = Lab::up(topology.clone(), &test.state).unwrap();
    let status = lab.status().unwrap();
    assert!(status.up, "{status}");

    let a = lab.namespace("a").unwrap();
    let ping = || {
        let mut ping = std::process::Command::new("ping");
        ping.args(["-c", "3", "-i", "0.01", "-W", "1", "10.9.0.2"]);
        ping.stdout(std::process::Stdio::null());
        a.spawn(ping).unwrap().wait().unwrap().success()
    };
    assert!(soon(ping), "no echo");
    let inside = a.run(|| std::fs::read_to_string("/proc/thread-self/net/dev").unwrap()).unwrap();
    assert!(inside.contains("eth0:"), "{inside}");

    // Namespace `sw` forwards IPv4, and the device of `b` does not segment TCP.
    let forward = netns::in_namespace(&format!("{}-sw", topology.name), || {
        std::fs::read_to_string("/proc/sys/net/ipv4/ip_forward").unwrap()
    });
    assert_eq!(forward.unwrap().trim(), "1");
    let features =
        run(&format!("nsenter --net=/run/netns/{}-b ethtool --json -k eth0", topology.name));
    let features: serde_json::Value = serde_json::from_str(&features).unwrap();
    assert_eq!(features[0]["tcp-segmentation-offload"]["active"], false);

    let report = lab.down().unwrap();
    assert_eq!((report.undone.len(), report.failed.len()), (3, 0), "{report:?}");
    assert!(namespaces_of(&topology).is_empty());
    assert!(!test.path.exists());
    assert!(lab::down(&topology.name, &test.state).unwrap().undone.is_empty(), "twice is once");
}

#[test]
fn a_kept_lab_is_adopted_and_its_damage_repaired() {
    let Some(test) = TestState::on_the_host("repair") else { return };
    let topology = topology("rp");
    Lab::up(topology.clone(), &test.state).unwrap().keep().unwrap();
    assert!(lab::status(&topology).unwrap().up, "a kept lab outlives its maker");

    let before = run(&format!("ip -n {}-a -j link show eth0", topology.name));
    Lab::up(topology.clone(), &test.state).unwrap().keep().unwrap();
    let after = run(&format!("ip -n {}-a -j link show eth0", topology.name));
    assert_eq!(before, after, "a second `up` leaves what is there alone");

    run(&format!("ip -n {}-sw link del b0", topology.name));
    run(&format!("ip -n {}-sw link set a0 nomaster mtu 1400 down", topology.name));
    run(&format!("tc -n {}-a qdisc del dev eth0 root", topology.name));
    let status = lab::status(&topology).unwrap();
    let missing = status.items.iter().filter(|item| item.state == State::Missing).count();
    let differs = status.items.iter().filter(|item| item.state == State::Differs).count();
    assert_eq!((missing, differs), (2, 3), "{status}");
    Lab::up(topology.clone(), &test.state).unwrap().keep().unwrap();
    let status = lab::status(&topology).unwrap();
    assert!(status.up, "{status}");

    assert_eq!(lab::down(&topology.name, &test.state).unwrap().undone.len(), 3);
    assert!(namespaces_of(&topology).is_empty() && !test.path.exists());
}

#[test]
fn a_stranger_s_namespace_is_refused_and_what_was_made_is_undone() {
    let Some(test) = TestState::on_the_host("stranger") else { return };
    let topology = topology("st");
    let stranger = format!("{}-b", topology.name);
    netns::create(&Host::default(), &stranger).unwrap();
    let error = Lab::up(topology.clone(), &test.state).unwrap_err().to_string();
    let left = namespaces_of(&topology);
    netns::delete(&Host::default(), &stranger).unwrap();
    assert!(error.contains(&format!("namespace {stranger} is there already")), "{error}");
    assert_eq!(left, [stranger]);
    assert!(!test.path.exists());
}

#[test]
fn going_down_ends_the_processes_inside() {
    let Some(test) = TestState::on_the_host("inside") else { return };
    let lab = Lab::up(topology("in"), &test.state).unwrap();
    let mut sleep = std::process::Command::new("sleep");
    sleep.arg("100");
    let mut child = lab.namespace("a").unwrap().spawn(sleep).unwrap();
    drop(lab);
    assert!(!child.wait().unwrap().success(), "ended by a signal");
}

#[test]
fn the_topologies_of_the_repository_are_valid() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios");
    let mut found = 0;
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            let text = std::fs::read_to_string(&path).unwrap();
            let topology = Topology::parse(&text).map_err(|e| format!("{}: {e}", path.display()));
            assert!(!topology.unwrap().links.is_empty());
            found += 1;
        }
    }
    assert!(found > 0);
}

/// The part of the process that is killed: makes the lab, over and over, until it is.
#[test]
fn child_that_is_killed() {
    let Some((state, name)) = as_child() else { return };
    loop {
        let lab = Lab::up(topology("x").named(&name), &state).unwrap();
        drop(lab);
    }
}

/// Goal: no moment of a `kill -9` leaves anything behind. Method: ten processes that bring the
/// same lab up and down without end are killed after 5, 18, 31, … ms, and more of them until one
/// had something to leave; every second time the next one takes over what is left, then it is
/// cleaned, and a snapshot compared.
#[test]
fn killed_at_any_moment_a_lab_is_cleaned_without_a_trace() {
    let Some(test) = TestState::on_the_host("killed") else { return };
    let topology = topology("kl");
    let host = Host::default();
    let ours = |line: &str| line.contains(&topology.name) || line.contains("weir-test-killed");
    let before = Snapshot::take(&host, &test.state).unwrap();
    let mut found_something = 0;
    for round in 0..40 {
        if round >= 10 && found_something > 0 {
            break;
        }
        let child = ("child_that_is_killed", topology.name.as_str());
        run_and_kill(child, &test.path, Duration::from_millis(5 + 13 * round));
        if round % 2 == 1 {
            Lab::up(topology.clone(), &test.state).unwrap().keep().unwrap();
            assert!(lab::status(&topology).unwrap().up, "adopted and repaired");
            assert!(!lab::down(&topology.name, &test.state).unwrap().undone.is_empty());
        } else {
            let report = journal::clean(&test.state, Scope::Stale).unwrap();
            assert!(report.failed.is_empty() && report.left.is_empty(), "{report:?}");
            found_something += usize::from(!report.undone.is_empty());
        }
        let left = settle(&host, &test.state, &before, PATIENCE, ours).unwrap();
        assert!(left.is_empty(), "round {round}:\n{left}");
    }
    assert!(found_something > 0, "the kills hit nothing, so nothing was shown");
}

/// Stands in for `weir-lab lab delay-line`: the pairs are the arguments that look like one.
#[test]
fn delay_line_process() {
    let pairs: Vec<DelayedPair> = std::env::args().filter_map(|text| text.parse().ok()).collect();
    if !pairs.is_empty() {
        delay_line::run(&pairs).unwrap();
    }
}

fn delay_line_program() -> [std::ffi::OsString; 4] {
    let own = std::env::current_exe().unwrap().into();
    [own, "--exact".into(), "delay_line_process".into(), "--nocapture".into()]
}

/// 5 ms there and 3 ms back, between two nodes.
fn delayed(tag: &str) -> Topology {
    let text = r#"
        name = "set-by-the-test"
        node = [{ name = "a" }, { name = "b" }]
        [[link]]
        a = { at = "a:eth0", addresses = ["10.9.0.1/24"], delay = "5ms" }
        b = { at = "b:eth0", addresses = ["10.9.0.2/24"], delay = "3ms" }
    "#;
    Topology::parse(text).unwrap().named(&format!("{tag}-{}", std::process::id()))
}

/// Goal: frames take as long as the topology says and arrive whole, super-frames of TCP too.
#[test]
fn a_delayed_link_delays_and_loses_nothing() {
    let Some(test) = TestState::on_the_host("delay") else { return };
    let lab = Lab::up_with(delayed("dl"), &test.state, &delay_line_program()).unwrap();
    assert!(lab.status().unwrap().up, "{}", lab.status().unwrap());
    let a = lab.namespace("a").unwrap();
    let b = lab.namespace("b").unwrap();

    let least = || {
        let mut ping = std::process::Command::new("ping");
        ping.args(["-q", "-c", "20", "-i", "0.01", "10.9.0.2"]);
        ping.stdout(std::process::Stdio::piped());
        let output = a.spawn(ping).unwrap().wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains("20 received"), "{text}");
        let least = text.split(" = ").nth(1).and_then(|t| t.split('/').next());
        let least: f64 = least.unwrap().parse().unwrap();
        assert!(least >= 8.0, "{text}");
        least
    };
    // 8 ms and never less; how much more depends on how busy the machine is.
    assert!((0..3).any(|_| least() < 30.0), "30 ms and more, three times the least of 20");

    let sent: Vec<u8> = (0..8_000_000_u32).map(|n| (n % 251) as u8).collect();
    let listener = b.run(|| std::net::TcpListener::bind("10.9.0.2:7000").unwrap()).unwrap();
    // Connected before anybody waits, and with limits: who fails must not leave the other waiting.
    let sender = a.run(|| std::net::TcpStream::connect("10.9.0.2:7000").unwrap()).unwrap();
    sender.set_write_timeout(Some(PATIENCE)).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let received = std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut received = Vec::new();
            std::io::Read::read_to_end(&mut receiver, &mut received).unwrap();
            received
        });
        // Closed by the end of this scope at the latest.
        let mut sender = sender;
        std::io::Write::write_all(&mut sender, &sent).unwrap();
        drop(sender);
        reader.join().unwrap()
    });
    assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
}

#[test]
fn a_delay_line_is_adopted_restarted_and_ends_with_its_lab() {
    let Some(test) = TestState::on_the_host("line") else { return };
    let topology = delayed("ln");
    let line = format!("{}-delay.line", topology.name);
    let inside = || netns::processes_inside(&line).unwrap();
    let up = || {
        Lab::up_with(topology.clone(), &test.state, &delay_line_program()).unwrap().keep().unwrap()
    };
    up();
    let first = inside();
    assert_eq!(first.len(), 1);
    up();
    assert_eq!(inside(), first, "what runs is adopted");
    weir_platform::process::end_all(&first, Duration::from_secs(2)).unwrap();
    assert!(!lab::status(&topology).unwrap().up);
    up();
    let second = inside();
    assert!(second.len() == 1 && second != first && lab::status(&topology).unwrap().up);
    lab::down(&topology.name, &test.state).unwrap();
    assert!(!second[0].is_alive() && namespaces_of(&topology).is_empty());

    let error = Lab::up_with(topology.clone(), &test.state, &["false".into()]).unwrap_err();
    assert!(error.to_string().contains("`false` did not get ready"), "{error}");
    assert!(namespaces_of(&topology).is_empty() && !test.path.exists(), "all of it is undone");
}

/// The page names every key that a topology may have, and its example is one.
#[test]
fn the_page_about_the_lab_is_complete() {
    let page = include_str!("../../../docs/lab.md");
    let example = page.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    Topology::parse(example).map_err(|problems| problems.to_string()).unwrap();
    let text = "zzz = 1\n[[node]]\nzzz = 1\n[[bridge]]\nzzz = 1\n[[link]]\nzzz = 1\na.zzz = 1";
    let problems = Topology::parse(text).unwrap_err().to_string();
    let lists: Vec<&str> =
        problems.lines().filter_map(|line| line.split("known here: ").nth(1)).collect();
    assert_eq!(lists.len(), 5, "{problems}");
    for key in lists.iter().flat_map(|list| list.split(", ")) {
        assert!(page.contains(&format!("`{key}`")), "docs/lab.md says nothing of `{key}`");
    }
}
