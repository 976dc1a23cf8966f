// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Veths as they come, without a node for a while: offloads on, no GRO, no neighbour known.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use common::{BpfSystem, FOUR_ENDS, FOUR_ENDS_POLICY, NodeLab, soon};
use weir_platform::netns::Namespace;

/// Nobody runs, and the kernel transmits what the stand-in forwards: ARP finds the neighbours
/// again, pings cross both ways and between vifs, slices stay apart, checksums that a sender left
/// unfinished are right, and a limit holds.
#[test]
fn veths_as_they_come_are_stood_in_for() {
    let Some(lab) = NodeLab::up("weir-t-standin", &topology(), &policy()) else { return };
    let system = BpfSystem::mount(&lab);
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert!(lab.reaches("a", "10.9.0.9"));
    node.kill();
    if before_6_6() {
        println!("SKIPPED veths_as_they_come_are_stood_in_for: Linux before 6.6");
        return;
    }
    assert_eq!(system.stand_ins().len(), 4, "one a device");
    for place in ["a", "b", "c", "wire"] {
        let flush = lab.inside(place, "ip").args(["neigh", "flush", "all"]).status();
        assert!(flush.unwrap().success());
    }
    assert!(lab.reaches("a", "10.9.0.9") && lab.reaches("wire", "10.9.0.2"));
    assert!(lab.reaches("a", "10.9.0.2"), "two vifs of one slice");
    assert!(lab.reaches("c", "10.9.0.9"));
    assert!(!lab.ping("c", "10.9.0.1"), "slices of one bridge do not meet");
    host_address(&lab, "add");
    assert!(!lab.ping("wire", "10.9.0.77"), "the host's own stack sees nothing");
    host_address(&lab, "del");
    let free = transfer(&lab, ["b", "wire"], "10.9.0.9", 8 << 20);
    assert!(free > 20.0, "{free} Mb/s without a limit");
    // Nothing waits in a queue: TCP loses what is too much, and keeps about half of its limit.
    let limited = transfer(&lab, ["a", "wire"], "10.9.0.9", 2 << 20);
    assert!((1.0..=11.0).contains(&limited), "{limited} Mb/s of 10");
    // The next start goes on, and its stop takes all away.
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert!(lab.reaches("a", "10.9.0.9"));
    lab.stop(node);
    assert_eq!(system.left(), [""; 0], "nothing is left on the BPF file system");
    host_address(&lab, "add");
    assert!(lab.reaches("wire", "10.9.0.77"), "the host has its device again");
}

/// Goal: slices told by five-tuples stay apart while the kernel stands in, too.
#[test]
fn five_tuples_hold_without_a_node() {
    let tuples = format!("match = [{{ protocol = \"tcp\", dst_port = {PORT} }}]");
    let gold = "name = \"gold\"";
    let policy = FOUR_ENDS_POLICY.replace(gold, &format!("{gold}\n{tuples}"));
    let Some(lab) = NodeLab::up("weir-t-fivetup", &topology(), &policy) else { return };
    let _system = BpfSystem::mount(&lab);
    let node = lab.run(&[]);
    lab.wait_for_node();
    // Neighbours are found by ARP, which has no ports.
    let check = || {
        for place in ["a", "wire"] {
            let flush = lab.inside(place, "ip").args(["neigh", "flush", "all"]).status();
            assert!(flush.unwrap().success());
        }
        assert!(transfer(&lab, ["wire", "a"], "10.9.0.1", 1 << 20) > 1.0);
        assert!(!lab.ping("wire", "10.9.0.1"), "not of the slice's five-tuple");
        assert!(lab.reaches("wire", "10.9.0.3"), "a slice that has none");
    };
    check();
    node.kill();
    if before_6_6() {
        println!("SKIPPED five_tuples_hold_without_a_node: Linux before 6.6");
        return;
    }
    check();
    let node = lab.run(&[]);
    lab.wait_for_node();
    check();
    lab.stop(node);
}

/// Goal: a start with more devices than there is time for has the other stand-ins attached soon
/// after it; a node that leaves before that attaches them first; devices that go take their own
/// along, and those that go before they have one are no failure.
#[test]
fn a_node_with_many_devices_gets_its_stand_ins_after_it_answers() {
    let Some(lab) = NodeLab::up("weir-t-many", &many_ends(), &many_vifs()) else { return };
    let system = BpfSystem::mount(&lab);
    if before_6_6() {
        println!("SKIPPED a_node_with_many_devices_…: Linux before 6.6");
        return;
    }
    let devices = FURTHER + 4;
    let node = lab.run(&[]);
    lab.wait_for_node();
    assert!(soon(|| system.stand_ins().len() == devices), "{:?}", system.stand_ins());
    assert!(lab.reaches("a", "10.9.0.9"));
    node.kill();
    let flush = lab.inside("a", "ip").args(["neigh", "flush", "all"]).status();
    assert!(flush.unwrap().success());
    assert!(lab.reaches("a", "10.9.0.9"), "tenant a is the last in the policy");
    assert!(lab.weir(&["clean"]).status.success());
    let link = |arguments: &[&str]| {
        let done = lab.inside("sw", "ip").arg("link").args(arguments).status();
        assert!(done.unwrap().success());
    };
    let node = lab.run(&[]);
    lab.wait_for_node();
    link(&["del", &format!("x{}", FURTHER - 1)]);
    assert!(lab.weir(&["node", "leave"]).status.success());
    assert!(node.end().status.success());
    assert!(system.stand_ins().len() >= devices - 1, "none lacks when the node has left");
    let node = lab.run(&[]);
    lab.wait_for_node();
    lab.stop(node);
    for vif in FURTHER - GOING..FURTHER - 1 {
        link(&["set", &format!("x{vif}"), "group", "7"]);
    }
    let node = lab.run(&[]);
    lab.wait_for_node();
    // All in one step, while the first of them wait.
    link(&["del", "group", "7"]);
    assert!(soon(|| system.stand_ins().len() == devices - GOING), "{:?}", system.stand_ins());
    assert!(lab.weir(&["node", "stop"]).status.success());
    let ended = node.end();
    assert!(ended.status.success());
    let said = [ended.stdout, ended.stderr].map(|said| String::from_utf8(said).unwrap()).concat();
    assert!(said.contains("waits for its device") && !said.contains("no stand-in"), "{said}");
    assert_eq!(system.left(), [""; 0], "nothing is left on the BPF file system");
}

/// Vifs beside those of [`FOUR_ENDS`].
const FURTHER: usize = 60;
/// The test removes the devices of so many of these, the last ones. Most of them have no stand-in
/// yet when the node answers.
const GOING: usize = 40;

fn many_ends() -> String {
    let further = |vif| format!("[[link]]\na = \"sw:x{vif}\"\nb = \"c:x{vif}\"\n");
    topology() + &(0..FURTHER).map(further).collect::<String>()
}

fn many_vifs() -> String {
    let further = |vif| format!("[[vif]]\nname = \"x{vif}\"\nslice = \"lead\"\n\n");
    let vifs: String = (0..FURTHER).map(further).collect();
    FOUR_ENDS_POLICY.replacen("[[vif]]", &(vifs + "[[vif]]"), 1)
}

/// Returns whether the kernel has no links at ingress hooks.
fn before_6_6() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    (numbers.next(), numbers.next()) < (Some(6), Some(6))
}

/// Gives the port's device an address of the host's own stack, or takes it away.
fn host_address(lab: &NodeLab, action: &str) {
    let mut ip = lab.inside("sw", "ip");
    assert!(ip.args(["addr", action, "10.9.0.77/24", "dev", "up0"]).status().unwrap().success());
}

/// Sends bytes by TCP from one place to another, which has an address, and returns their rate in
/// Mb/s.
fn transfer(lab: &NodeLab, [from, to]: [&str; 2], address: &'static str, bytes: usize) -> f64 {
    let inside = |place: &str| Namespace::open(&format!("{}-{place}", lab.name())).unwrap();
    let listener = inside(to).run(|| TcpListener::bind((address, PORT)).unwrap()).unwrap();
    let sink = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(STALL)).unwrap();
        let (mut chunk, mut taken) = (vec![0; 1 << 16], 0);
        while let Ok(read @ 1..) = stream.read(&mut chunk) {
            taken += read;
        }
        taken
    });
    let mut stream = inside(from).run(|| TcpStream::connect((address, PORT)).unwrap()).unwrap();
    let started = Instant::now();
    stream.write_all(&vec![7; bytes]).unwrap();
    drop(stream);
    assert_eq!(sink.join().unwrap(), bytes, "all arrived");
    8.0 * bytes as f64 / started.elapsed().as_secs_f64() / 1e6
}

const PORT: u16 = 5999;
const STALL: Duration = Duration::from_secs(20);

/// The ends as they come: with offloads, and no neighbour known.
fn topology() -> String {
    let own = |line: &&str| {
        !line.starts_with("offloads") && !line.contains("neighbours") && !line.starts_with('"')
    };
    FOUR_ENDS.lines().filter(own).map(|line| format!("{line}\n")).collect()
}

/// Tenant a has a limit.
fn policy() -> String {
    let mac = r#"mac = ["02:00:00:00:09:01"]"#;
    FOUR_ENDS_POLICY.replace(mac, &format!("{mac}\nsend = {{ rate = \"10Mbit\" }}"))
}
