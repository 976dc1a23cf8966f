// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A node's changes of its host, on real namespaces: made, seen to work, undone to the last line.
// A test may panic.
#![allow(clippy::unwrap_used)]

#[path = "../../../host/platform/tests/common/mod.rs"]
mod common;

use std::time::Duration;

use common::{PATIENCE, TestState, as_child, run_and_kill, soon};
use weir_platform::host::{HostVif, TakeRequest, apply, host_vif, take_device};
use weir_platform::inspect;
use weir_platform::journal::{self, Journal, Scope};
use weir_platform::run::{Command, Host, Platform, Recorder};
use weir_platform::snapshot::{Snapshot, settle};
use weir_testbed::{Lab, Topology};

/// A host whose only NIC leads to a gateway, and a tenant behind a veth.
fn topology(tag: &str) -> Topology {
    let text = r#"
        name = "set-by-the-test"
        [[node]]
        name = "host"
        routes = [
            "10.7.2.0/24 via 10.7.1.254 metric 50",
            "default via 10.7.1.254",
            "2001:db8::/32 via fd07::fe",
        ]
        [[node]]
        name = "gate"
        [[node]]
        name = "tenant"
        [[link]]
        queue = 100
        [link.a]
        at = "host:nic0"
        mac = "02:00:00:00:07:01"
        addresses = ["10.7.1.1/24", "10.7.1.2/24", "fd07::1/64"]
        neighbours = { "10.7.1.254" = "02:00:00:00:07:fe" }
        [link.b]
        at = "gate:eth0"
        mac = "02:00:00:00:07:fe"
        addresses = ["10.7.1.254/24", "fd07::fe/64"]
        [[link]]
        a = "host:t0"
        b = { at = "tenant:eth0", addresses = ["10.7.3.1/24"] }
    "#;
    Topology::parse(text).unwrap().named(&format!("{tag}-{}", std::process::id()))
}

fn take(device: &str, namespace: &str) -> TakeRequest {
    TakeRequest {
        device: device.to_owned(),
        namespace: Some(namespace.to_owned()),
        mtu_max: 1770,
        queue: 500,
        promiscuous: true,
        addresses_move: false,
    }
}

/// The host's own vif, in front of its only NIC.
fn vif_of_nic(namespace: &str) -> HostVif {
    HostVif {
        nic: "nic0".to_owned(),
        host_device: "host0".to_owned(),
        weir_device: "weir0".to_owned(),
        namespace: Some(namespace.to_owned()),
    }
}

/// Returns whether an echo comes back, if need be one of later ones.
fn reaches(lab: &Lab, node: &str, to: &str) -> bool {
    soon(|| {
        let mut ping = std::process::Command::new("ping");
        ping.args(["-c", "2", "-i", "0.01", "-W", "1", to]).stdout(std::process::Stdio::null());
        lab.namespace(node).unwrap().spawn(ping).unwrap().wait().unwrap().success()
    })
}

#[test]
fn a_taken_device_is_weir_s_and_comes_back_as_it_was() {
    let Some(test) = TestState::on_the_host("take") else { return };
    let lab = Lab::up(topology("tk"), &test.state).unwrap();
    let node = lab.namespace("host").unwrap().name().to_owned();
    let host = Host::default();
    // A device that nobody prepared has no queue and merges frames.
    host.run(&Command::line("tc qdisc del dev t0 root").in_namespace(&node)).unwrap();
    host.run(&Command::line("ethtool -K t0 gro on").in_namespace(&node)).unwrap();
    let ours = |line: &str| line.contains(&node);
    let before = Snapshot::take(&host, &test.state).unwrap();

    let changes = take_device(&host, &take("t0", &node)).unwrap();
    let now = Snapshot::take(&host, &test.state).unwrap().since(&before).only(ours);
    assert!(now.is_empty(), "a plan touches nothing:\n{now}");
    let mut journal = Journal::open(&test.state, "node-take", Duration::ZERO).unwrap();
    apply(&mut journal, &changes).unwrap();
    let link = inspect::link_in(&host, Some(&node), "t0").unwrap();
    assert_eq!((link.promiscuity, link.qdisc.as_deref()), (1, Some("pfifo")), "{link:?}");
    let now = Snapshot::take(&host, &test.state).unwrap().since(&before).only(ours).to_string();
    assert!(now.contains("+ offloads") && !now.contains("+ address"), "{now}");
    let again = take_device(&host, &take("t0", &node)).unwrap();
    assert!(again.iter().all(|change| change.what.contains("stations")), "{again:?}");

    // The state after a kill: the lock is free, and nothing was undone.
    drop(journal);
    let report = journal::clean(&test.state, Scope::Stale).unwrap();
    assert_eq!((report.undone.len(), report.failed.len()), (changes.len(), 0), "{report:?}");
    let left = settle(&host, &test.state, &before, PATIENCE, ours).unwrap();
    assert!(left.is_empty(), "{left}");
}

#[test]
fn the_host_stays_reachable_while_its_only_nic_is_a_port() {
    let Some(test) = TestState::on_the_host("vif") else { return };
    let lab = Lab::up(topology("vf"), &test.state).unwrap();
    let node = lab.namespace("host").unwrap().name().to_owned();
    let host = Host::default();
    assert!(reaches(&lab, "gate", "10.7.1.1"));
    let ours = |line: &str| line.contains(&node);
    let before = Snapshot::take(&host, &test.state).unwrap();

    let vif = vif_of_nic(&node);
    let mut changes = vec![host_vif(&host, &vif).unwrap()];
    let nic = TakeRequest { addresses_move: true, ..take("nic0", &node) };
    changes.extend(take_device(&host, &nic).unwrap());
    let mut journal = Journal::open(&test.state, "node-vif", Duration::ZERO).unwrap();
    apply(&mut journal, &changes).unwrap();
    // In Weir's place, the kernel's bridge forwards between the port and the vif.
    let bridge =
        ["link add br0 type bridge", "link set nic0 master br0", "link set weir0 master br0"];
    let bridge = Command::batch("ip", bridge.iter().chain(&["link set br0 up"]));
    host.run(&bridge.in_namespace(&node)).unwrap();
    assert!(reaches(&lab, "gate", "10.7.1.1") && reaches(&lab, "gate", "10.7.1.2"));
    assert!(reaches(&lab, "gate", "fd07::1"), "IPv6 moved as well");
    assert!(reaches(&lab, "host", "10.7.1.254"));
    let routes = Command::line("ip -4 route show").in_namespace(&node);
    let routes = host.run(&routes).unwrap();
    assert!(routes.contains("10.7.2.0/24 via 10.7.1.254 dev host0 metric 50"), "{routes}");
    assert!(!routes.contains("nic0"), "{routes}");
    host.run(&Command::line("ip link del br0").in_namespace(&node)).unwrap();

    let report = journal.undo_all(&host).unwrap();
    assert!(report.failed.is_empty(), "{report:?}");
    assert!(reaches(&lab, "gate", "10.7.1.1"), "and it is reachable as before");
    let left = settle(&host, &test.state, &before, PATIENCE, ours).unwrap();
    assert!(left.is_empty(), "{left}");
}

#[test]
fn a_move_that_fails_half_way_is_undone() {
    let Some(test) = TestState::on_the_host("half") else { return };
    let lab = Lab::up(topology("hf"), &test.state).unwrap();
    let node = lab.namespace("host").unwrap().name().to_owned();
    let host = Host::default();
    let ours = |line: &str| line.contains(&node);
    let before = Snapshot::take(&host, &test.state).unwrap();
    let vif = vif_of_nic(&node);
    let mut change = host_vif(&host, &vif).unwrap();
    let fails = Command::batch("ip", ["route add 203.0.113.0/24 via 198.51.100.1"]);
    change.run.push(fails.in_namespace(&node));
    let mut journal = Journal::open(&test.state, "node-half", Duration::ZERO).unwrap();
    let error = apply(&mut journal, &[change]).unwrap_err().to_string();
    assert!(error.contains("203.0.113.0/24"), "{error}");
    assert!(journal.is_empty());
    drop(journal.undo_all(&host).unwrap());
    let left = settle(&host, &test.state, &before, PATIENCE, ours).unwrap();
    assert!(left.is_empty(), "{left}");
}

#[test]
fn what_cannot_be_taken_is_refused_with_value_and_bound() {
    let view = |extra: &str| {
        let link = format!(r#"[{{"ifindex":2,"ifname":"eth0","mtu":9000,"flags":["UP"]{extra}}}]"#);
        Recorder::answering([Ok(link)])
    };
    let refused = |recorder: Recorder, mtu_max: u32| {
        let take = TakeRequest { mtu_max, namespace: None, ..take("eth0", "") };
        take_device(&recorder, &take).unwrap_err().to_string()
    };
    assert_eq!(
        refused(view(""), 1770),
        "device eth0: mtu 9000, and a frame of the pool carries at most 1770"
    );
    assert!(refused(view(r#","master":"br0""#), 9000).contains("it is a port of br0"));
    let address = r#","addr_info":[{"family":"inet","local":"10.0.0.1","prefixlen":24,
        "scope":"global"}]"#;
    assert!(refused(view(address), 9000).contains("would lose its address 10.0.0.1/24"));
    assert_eq!(refused(Recorder::default(), 9000), "device eth0: there is none");
}

/// The part of the process that is killed: takes a host over and hands it back, until it is.
#[test]
fn child_that_is_killed() {
    let Some((state, node)) = as_child() else { return };
    let host = Host::default();
    loop {
        let (mut journal, _) = journal::open_clean(&state, "node-killed", PATIENCE).unwrap();
        take_all(&host, &mut journal, &node);
        assert!(journal.undo_all(&host).unwrap().failed.is_empty());
    }
}

/// Takes the host as a node does that has a vif on its only NIC, and a tenant.
fn take_all(host: &Host, journal: &mut Journal, node: &str) {
    apply(journal, &[host_vif(host, &vif_of_nic(node)).unwrap()]).unwrap();
    for device in ["nic0", "weir0", "t0"] {
        let take = TakeRequest { addresses_move: device == "nic0", ..take(device, node) };
        apply(journal, &take_device(host, &take).unwrap()).unwrap();
    }
}

/// Goal: no moment of a `kill -9` costs the host its addresses or leaves a change behind. Method:
/// ten processes that take the same host over and hand it back without end are killed after 10,
/// 27, 44, … ms, and more of them until one had something to leave; every second time the next one
/// takes over what is left, then all is cleaned, the host must answer and a snapshot be as before.
#[test]
fn killed_at_any_moment_a_host_comes_back_as_it_was() {
    let Some(test) = TestState::on_the_host("taken") else { return };
    let lab_state = TestState::new("taken-lab");
    let lab = Lab::up(topology("tn"), &lab_state.state).unwrap();
    let node = lab.namespace("host").unwrap().name().to_owned();
    let host = Host::default();
    let ours = |line: &str| line.contains(&node) || line.contains("weir-test-taken-");
    let before = Snapshot::take(&host, &test.state).unwrap();
    let mut undone = 0;
    for round in 0..40 {
        if round >= 10 && undone > 0 {
            break;
        }
        let child = ("child_that_is_killed", node.as_str());
        run_and_kill(child, &test.path, Duration::from_millis(10 + 17 * round));
        // A last command of the dead may hold the lock for the moment that it takes.
        let (mut journal, report) =
            journal::open_clean(&test.state, "node-killed", PATIENCE).unwrap();
        undone += report.undone.len();
        if round % 2 == 1 {
            take_all(&host, &mut journal, &node);
        }
        assert!(journal.undo_all(&host).unwrap().failed.is_empty());
        let left = settle(&host, &test.state, &before, PATIENCE, ours).unwrap();
        assert!(left.is_empty(), "round {round}:\n{left}");
        assert!(
            reaches(&lab, "gate", "10.7.1.1") && reaches(&lab, "gate", "fd07::1"),
            "round {round}"
        );
    }
    assert!(undone > 0, "the kills hit nothing, so nothing was shown");
}
