// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The meters on the real kernel: a veth whose packets are known, devices that go and come back,
//! the text that Xen's driver domain gave.
// A test may panic.
#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::net::UdpSocket;
use std::path::Path;

use common::is_root;
use weir_control::Reading;
use weir_platform::meter::{LinkMeter, ProcNetDev, Side, parse};
use weir_platform::netns;
use weir_platform::run::{Command, Host, Platform};
use weir_units::Instant;

fn run(line: &str) {
    Host::default().run(&Command::line(line)).unwrap();
}

/// Goal: every file of a driver domain is read, and a vif's RX is what its guest sent.
#[test]
fn the_counters_of_a_driver_domain_are_read() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xl");
    for (run, sent) in [("credit", [13, 12]), ("credit2-2pcpu", [13, 9]), ("rtds", [13, 10])] {
        let text = fs::read_to_string(folder.join(run).join("06-proc-net-dev.txt")).unwrap();
        let names = ["vif1.0", "fc2-eth0"];
        let found: Vec<u64> = names
            .iter()
            .map(|name| parse(&text).find(|line| line.name == *name).unwrap().counts.rx_packets)
            .collect();
        assert_eq!(found, sent, "{run}");
        assert_eq!(parse(&text).count(), 4);
        let later = fs::read_to_string(folder.join(run).join("19-netdev.txt")).unwrap();
        let dropped = parse(&later).find(|line| line.name == "vif1.0").unwrap().counts.tx_dropped;
        assert!(dropped <= 2, "{run}: {dropped}");
        assert!(parse(&later).all(|line| line.name != "fc2-eth0"), "destroyed");
    }
    for run in ["credit", "credit2-2pcpu", "rtds"] {
        for entry in fs::read_dir(folder.join(run)).unwrap() {
            let text = fs::read(entry.unwrap().path()).unwrap();
            let _ = parse(&String::from_utf8_lossy(&text)).count();
        }
    }
}

/// A pair r0/h0 in this thread's namespace: r0 is the router's end.
fn make_pair() {
    run("ip link add r0 type veth peer name h0");
    for device in ["r0", "h0"] {
        run(&format!("sysctl -qw net.ipv6.conf.{device}.disable_ipv6=1"));
        run(&format!("ip link set {device} up"));
    }
    run("ip addr add 10.7.9.1/24 dev r0");
    run("ip neigh add 10.7.9.2 lladdr 02:00:00:00:00:02 dev r0");
}

/// Sends `count` datagrams out of r0: what the router forwards.
fn send(count: usize) {
    let socket = UdpSocket::bind("10.7.9.1:0").unwrap();
    for _ in 0..count {
        socket.send_to(&[7; 20], "10.7.9.2:9").unwrap();
    }
}

fn pass(meter: &mut LinkMeter, millis: u64) -> Option<Reading> {
    meter.read(Instant::from_nanos(millis * 1_000_000)).unwrap();
    meter.reading(0)
}

/// Goal: exactly the packets that were sent are counted, at either end, by netlink and by text; a
/// device that vanishes is named, and counted again when it is back under its name.
#[test]
fn packets_are_counted_and_a_device_that_vanished_is_named() {
    if !is_root("packets_are_counted_and_a_device_that_vanished_is_named") {
        return;
    }
    netns::in_new(|| {
        make_pair();
        let link = |name: &str, side| [(name.to_owned(), side)];
        for side in [("h0", Side::Host), ("r0", Side::Router)] {
            let mut meters = [LinkMeter::open().unwrap(), LinkMeter::open_text().unwrap()];
            for meter in &mut meters {
                assert_eq!(meter.reading(0), None, "no router yet");
                meter.add(&link(side.0, side.1)).unwrap();
                assert_eq!(meter.reading(0), None, "nothing read yet");
            }
            let mut counted = || meters.each_mut().map(|meter| pass(meter, 1).unwrap().packets);
            let before = counted();
            send(1234);
            let after = counted();
            assert_eq!([after[0] - before[0], after[1] - before[1]], [1234; 2], "{side:?}");
        }
        let mut meter = LinkMeter::open().unwrap();
        meter.add(&[("h0".to_owned(), Side::Host), ("h1".to_owned(), Side::Host)]).unwrap();
        let error = meter.add(&link("h0", Side::Host)).unwrap_err().to_string();
        assert_eq!(error, "device h0: it is counted for a router already");
        assert!(meter.add(&[]).is_err());
        assert_eq!(pass(&mut meter, 1), None);
        assert_eq!(meter.missing(0).collect::<Vec<_>>(), ["h1"]);
        run("ip link add h1 type veth peer name r1");
        assert!(pass(&mut meter, 2).is_some());
        run("ip link del h0");
        assert_eq!(pass(&mut meter, 3), None);
        assert_eq!(meter.missing(0).collect::<Vec<_>>(), ["h0"]);
        make_pair();
        send(3);
        assert_eq!(pass(&mut meter, 4).unwrap().packets, 3, "from the beginning again");
    })
    .unwrap();
}

/// Both sources say the same of the same devices.
#[test]
fn netlink_and_text_agree() {
    if !is_root("netlink_and_text_agree") {
        return;
    }
    netns::in_new(|| {
        make_pair();
        send(50);
        let mut text = Vec::new();
        ProcNetDev::open().unwrap().dump(|line| text.push(line.counts)).unwrap();
        let mut dumped = Vec::new();
        let mut socket = weir_platform::meter::StatsSocket::open().unwrap();
        socket.dump(|_, counts| dumped.push(counts)).unwrap();
        text.sort_by_key(|counts| (counts.rx_packets, counts.tx_packets));
        dumped.sort_by_key(|counts| (counts.rx_packets, counts.tx_packets));
        assert_eq!(text, dumped);
        assert!(text.len() >= 3);
    })
    .unwrap();
}
