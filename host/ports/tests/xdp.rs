// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AF_XDP ports on real veth pairs, in a network namespace of each test.
#![allow(unsafe_code)]
// Numbers of test frames are small.
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)]

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{
    LARGE_POOL, Namespace, UNICAST, eventually, large_pool, number, numbered, plane, pool,
    private_network, send_raw,
};
use common::{run, udp, veth};
use weir_ports::offload::{Offload, OffloadPlace, describe};
use weir_ports::{
    AnyPort, AttachMode, DeviceRole, FramePort, GateId, PacketConfig, PacketPort, Pool, TapConfig,
    TapPort, WaitMode, Waiter, WakeReason, XdpConfig, XdpPlane, XdpPort, now,
};
use weir_switch::{Frame, FramePool};
use weir_units::Nanos;

/// Every frame crosses, unchanged and in order, in both directions.
#[test]
fn frames_cross_both_ways() {
    if private_network("frames_cross_both_ways") {
        cross_both_ways(pool());
    }
}

/// It also holds through bounce buffers, which vifs have where the pool is large.
#[test]
fn frames_cross_both_ways_through_bounce_buffers() {
    if private_network("frames_cross_both_ways_through_bounce_buffers") {
        cross_both_ways(large_pool());
    }
}

fn cross_both_ways(mut pool: Pool) {
    let mut plane = plane();
    let mut ends = chain(&mut plane, &mut pool);
    for (from, to) in [(0, 3), (3, 0)] {
        for first in (0..1000).step_by(50) {
            for number in first..first + 50 {
                send(&mut ends[from], &mut pool, &numbered(UNICAST, number, 60 + number as usize));
            }
            let mut expected = first;
            eventually("50 frames", || {
                forward(&mut ends, &mut pool);
                for frame in take(&mut ends[to], &mut pool) {
                    assert_eq!(frame, numbered(UNICAST, expected, 60 + expected as usize));
                    expected += 1;
                }
                expected == first + 50
            });
        }
        assert_eq!(ends[to].statistics().received.packets, 1000);
        assert_eq!(ends[to].attached(), AttachMode::Native);
    }
    ends.into_iter().for_each(|end| end.close(&mut plane, &mut pool));
    assert_eq!(pool.free_frames(), pool.chunks() as usize, "every chunk came back");
}

/// A gate lets in exactly what was granted and counts the rest, in packets and bytes.
#[test]
fn the_gate_drops_exactly_what_was_not_granted() {
    if private_network("the_gate_drops_exactly_what_was_not_granted") {
        drop_what_was_not_granted(pool());
    }
}

/// It also holds through bounce buffers, which vifs have where the pool is large.
#[test]
fn the_gate_drops_exactly_what_was_not_granted_through_bounce_buffers() {
    if private_network("the_gate_drops_exactly_what_was_not_granted_through_bounce_buffers") {
        drop_what_was_not_granted(large_pool());
    }
}

fn drop_what_was_not_granted(mut pool: Pool) {
    let mut plane = plane();
    veth("a0", "a1", 1);
    let mut sender = open("a0", DeviceRole::Vif(GateId(0)), &mut plane, &mut pool);
    let mut receiver = open("a1", DeviceRole::Vif(GateId(1)), &mut plane, &mut pool);
    let gates = plane.gates().clone();
    for (granted, offered) in [(10, 100), (0, 50), (64, 64), (100, 20)] {
        let before = gates.counters(GateId(1));
        assert_eq!(gates.in_flight(GateId(1)), 0);
        gates.grant(GateId(1), granted);
        for number in 0..offered {
            send(&mut sender, &mut pool, &numbered(UNICAST, number, 100));
        }
        let mut frames = Vec::new();
        eventually("all are decided", || {
            frames.extend(take(&mut receiver, &mut pool));
            let now = gates.counters(GateId(1));
            let decided = now.accepted.packets + now.dropped.packets
                - before.accepted.packets
                - before.dropped.packets;
            decided == u64::from(offered) && gates.in_flight(GateId(1)) == 0
        });
        let passed = granted.min(offered);
        assert_eq!(frames.len(), passed as usize);
        assert!(frames.iter().zip(0..).all(|(frame, expected)| number(frame) == expected));
        let now = gates.counters(GateId(1));
        assert_eq!(now.dropped.packets - before.dropped.packets, u64::from(offered - passed));
        assert_eq!(now.dropped.bytes - before.dropped.bytes, 100 * u64::from(offered - passed));
        assert_eq!(now.accepted.bytes - before.accepted.bytes, 100 * u64::from(passed));
    }
}

/// A hundred thousand frames through a peer that is slower: the port waits, nothing is lost.
#[test]
fn a_full_peer_loses_nothing() {
    if private_network("a_full_peer_loses_nothing") {
        fill_a_peer(pool());
    }
}

/// It also holds through bounce buffers, which vifs have where the pool is large.
#[test]
fn a_full_peer_loses_nothing_through_bounce_buffers() {
    if private_network("a_full_peer_loses_nothing_through_bounce_buffers") {
        fill_a_peer(large_pool());
    }
}

fn fill_a_peer(mut pool: Pool) {
    let mut plane = plane();
    veth("a0", "a1", 1);
    let mut sender = open("a0", DeviceRole::Vif(GateId(0)), &mut plane, &mut pool);
    // The sink is the gate itself: it counts every frame and lets none in.
    let _sink = open("a1", DeviceRole::Vif(GateId(1)), &mut plane, &mut pool);
    plane.gates().grant(GateId(1), 0);
    let mut sent = 0;
    let mut waits = 0;
    while sent < 100_000 {
        let room = sender.transmit_room(&mut pool).min(100_000 - sent);
        for _ in 0..room {
            let frame = pool.copy_in(&numbered(UNICAST, 0, 60)).unwrap();
            sender.transmit(&mut pool, frame).unwrap();
        }
        sent += room;
        waits += usize::from(sender.flush(&mut pool).unwrap() > 0);
    }
    let dropped = || plane.gates().counters(GateId(1)).dropped.packets;
    eventually("all frames arrive", || {
        sender.flush(&mut pool).unwrap();
        sender.transmit_room(&mut pool);
        dropped() == 100_000
    });
    sender.properties().refresh();
    let statistics = sender.statistics();
    println!("waited {waits} times; {statistics:?}");
    assert_eq!(statistics.transmitted.packets, 100_000);
    assert_eq!((statistics.device_dropped, statistics.transmit_refused), (0, 0));
    assert_eq!(statistics.transmit_invalid, 0);
}

/// Frames for a station enter by its gate, all others by the port's own; tags tell slices apart.
#[test]
fn a_port_classifies_by_vlan_and_station() {
    if !private_network("a_port_classifies_by_vlan_and_station") {
        return;
    }
    let (mut plane, mut pool) = (plane(), pool());
    veth("a0", "a1", 1);
    let mut sender = open("a0", DeviceRole::Vif(GateId(0)), &mut plane, &mut pool);
    let mut port = open("a1", DeviceRole::Port(GateId(1)), &mut plane, &mut pool);
    let device = port.device_index();
    plane.set_station(device, 0, UNICAST, GateId(2), None).unwrap();
    plane.set_station(device, 100, UNICAST, GateId(3), None).unwrap();
    let tagged = |vlan: u16| {
        let mut frame = numbered(UNICAST, 0, 60);
        frame.splice(12..12, [0x81, 0, (vlan >> 8) as u8 | 0x20, vlan as u8]);
        frame
    };
    let mut truncated = tagged(100);
    truncated.truncate(16);
    let cases = [
        (numbered(UNICAST, 0, 60), 2),
        (tagged(100), 3),
        (tagged(101), 1),
        (numbered([2, 0, 0, 0, 7, 7], 0, 60), 1),
        (numbered([0xff; 6], 0, 60), 1),
    ];
    let gates = plane.gates().clone();
    (0..4).for_each(|gate| gates.grant(GateId(gate), 1000));
    for (frame, gate) in cases {
        let before = gates.counters(GateId(gate)).accepted.packets;
        send(&mut sender, &mut pool, &frame);
        let mut got = Vec::new();
        eventually("the frame arrives", || {
            got.extend(take(&mut port, &mut pool));
            !got.is_empty()
        });
        assert_eq!(got, [frame]);
        assert_eq!(gates.counters(GateId(gate)).accepted.packets, before + 1, "gate {gate}");
        assert_eq!(gates.in_flight(GateId(gate)), 0, "the mark names gate {gate}");
    }
    send(&mut sender, &mut pool, &truncated);
    eventually("the truncated frame is counted", || plane.faults(device).malformed == 1);
    plane.remove_station(device, 100, UNICAST);
    let before = gates.counters(GateId(1)).accepted.packets;
    send(&mut sender, &mut pool, &tagged(100));
    eventually("unknown now", || gates.counters(GateId(1)).accepted.packets == before + 1);
}

/// A device with four queues: what arrives on any of them is received.
#[test]
fn every_receive_queue_is_served() {
    if !private_network("every_receive_queue_is_served") {
        return;
    }
    let (mut plane, mut pool) = (plane(), pool());
    veth("a0", "a1", 4);
    let mut receiver = open("a1", DeviceRole::Vif(GateId(1)), &mut plane, &mut pool);
    plane.gates().open(GateId(1));
    let frames: Vec<_> = (0..400).map(|number| udp(number, 1024 + number as u16)).collect();
    send_raw("a0", &frames);
    let mut got = Vec::new();
    eventually("all frames", || {
        got.extend(take(&mut receiver, &mut pool));
        got.len() == frames.len()
    });
    let by_queue = receiver.received_by_queue().collect::<Vec<_>>();
    assert_eq!(by_queue.len(), 4);
    assert!(by_queue.iter().all(|count| *count > 0), "{by_queue:?}");
    assert_eq!(by_queue.iter().sum::<u64>(), 400);
    got.sort();
    assert_eq!(got, frames);
}

fn open(device: &str, role: DeviceRole, plane: &mut XdpPlane, pool: &mut Pool) -> XdpPort {
    let bounce = pool.chunks() >= LARGE_POOL;
    let config = XdpConfig { fill: 512, bounce, ..XdpConfig::new(device, role) };
    XdpPort::open(&config, plane, pool).unwrap()
}

/// `a0 — a1 = b1 — b0`: the middle two are forwarded by [`forward`]; all gates are open.
fn chain(plane: &mut XdpPlane, pool: &mut Pool) -> Vec<XdpPort> {
    veth("a0", "a1", 1);
    veth("b0", "b1", 1);
    let devices = ["a0", "a1", "b1", "b0"];
    let ends = devices.iter().zip(0..).map(|(device, gate)| {
        plane.gates().open(GateId(gate));
        open(device, DeviceRole::Vif(GateId(gate)), plane, pool)
    });
    ends.collect()
}

fn forward(ends: &mut [XdpPort], pool: &mut Pool) {
    for (from, to) in [(1, 2), (2, 1)] {
        let room = ends[to].transmit_room(pool).min(64);
        let mut frames: Vec<Frame> = Vec::with_capacity(64);
        ends[from].receive(pool, room, &mut frames);
        for frame in frames {
            ends[to].transmit(pool, frame).unwrap();
        }
        ends[to].flush(pool).unwrap();
    }
}

fn send(port: &mut impl FramePort, pool: &mut Pool, bytes: &[u8]) {
    eventually("room to send", || port.transmit_room(pool) > 0);
    let frame = pool.copy_in(bytes).unwrap();
    port.transmit(pool, frame).unwrap();
    eventually("the device takes it", || port.flush(pool).unwrap() == 0);
}

fn take(port: &mut impl FramePort, pool: &mut Pool) -> Vec<Vec<u8>> {
    let mut frames = Vec::with_capacity(64);
    port.receive(pool, 64, &mut frames);
    let copies = frames.iter().map(|frame| pool.data(*frame).to_vec()).collect();
    frames.iter().for_each(|frame| pool.free(frame.id));
    copies
}

/// A killed process leaves no program attached, and its device can be opened again at once.
#[test]
fn a_killed_holder_leaves_nothing_behind() {
    if let Ok(device) = std::env::var(HOLDER) {
        let (mut plane, mut pool) = (plane(), pool());
        let _port = open(&device, DeviceRole::Vif(GateId(0)), &mut plane, &mut pool);
        println!("held");
        std::thread::sleep(Duration::from_secs(60));
        return;
    }
    if !private_network("a_killed_holder_leaves_nothing_behind") {
        return;
    }
    veth("a0", "a1", 1);
    let (mut plane, mut pool) = (plane(), pool());
    for _ in 0..3 {
        // This test once more, as a process of its own in the same network namespace.
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_killed_holder_leaves_nothing_behind", "--nocapture"])
            .env(HOLDER, "a1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line.ends_with("held")));
        assert!(attached("a1"), "the scenario happened");
        child.kill().unwrap();
        child.wait().unwrap();
        let port = open("a1", DeviceRole::Vif(GateId(0)), &mut plane, &mut pool);
        port.close(&mut plane, &mut pool);
        // The kernel may free the killed holder's link a moment after its end.
        let freed = (0..100).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            !attached("a1")
        });
        assert!(freed);
        assert_eq!(pool.free_frames(), pool.chunks() as usize);
    }
}

fn attached(device: &str) -> bool {
    let output = Command::new("ip").args(["-d", "link", "show", device]).output().unwrap();
    String::from_utf8_lossy(&output.stdout).contains("xdp")
}

const HOLDER: &str = "WEIR_TEST_HOLDER";

/// The offloads read as set, and a peer's segmentation goes off while the program is attached.
#[test]
fn offloads_are_read_and_suspended() {
    if !private_network("offloads_are_read_and_suspended") {
        return;
    }
    veth("a0", "a1", 1);
    for (offload, name) in Offload::ALL.map(|offload| (offload, offload.name())) {
        for on in [false, true] {
            // `lro` is fixed on veth; what can be set must read as it was set.
            let word = if on { "on" } else { "off" };
            if offload != Offload::Lro {
                run(&format!("ethtool -K a0 {name} {word}"));
                assert_eq!(offload.read("a0").unwrap(), on, "{name} {word}");
            }
        }
    }
    let (mut plane, mut pool) = (plane(), pool());
    let port = open("a1", DeviceRole::Vif(GateId(0)), &mut plane, &mut pool);
    for note in describe("a0", OffloadPlace::PeerOfXdp).unwrap() {
        println!("{note}");
        assert_eq!(note.must_change(), note.offload == Offload::TxVlan);
        if note.offload == Offload::Tso {
            assert!(!note.on, "veth does not pass super-frames to a program");
        }
    }
    port.close(&mut plane, &mut pool);
    assert!(Offload::Tso.read("a0").unwrap(), "back again");
    assert!(Offload::Tso.read("nothing").is_err());
}

/// A kernel's own sender on the peer, with all its offloads: frames of the wire arrive, though
/// with unfinished checksums, and none is too long.
#[test]
fn a_tenants_super_frames_arrive_in_pieces() {
    if !private_network("a_tenants_super_frames_arrive_in_pieces") {
        return;
    }
    let tenant = Namespace::new();
    veth("a0", "a1", 1);
    tenant.take("a0", "10.9.0.1/24");
    let (mut plane, mut pool) = (plane(), pool());
    let mut port = open("a1", DeviceRole::Vif(GateId(0)), &mut plane, &mut pool);
    plane.gates().open(GateId(0));
    tenant.run(|| {
        run("ip neigh add 10.9.0.2 lladdr 02:00:00:00:01:01 dev a0");
        let socket = std::net::UdpSocket::bind("10.9.0.1:0").unwrap();
        let size = 1000;
        // SAFETY: an int that lives until the call returns.
        let result = unsafe {
            let value = (&raw const size).cast();
            let socket = std::os::fd::AsRawFd::as_raw_fd(&socket);
            libc::setsockopt(socket, libc::SOL_UDP, libc::UDP_SEGMENT, value, 4)
        };
        assert_eq!(result, 0);
        assert_eq!(socket.send_to(&vec![2; 40_000], "10.9.0.2:9").unwrap(), 40_000);
    });
    let mut frames = Vec::new();
    eventually("forty datagrams", || {
        frames.extend(take(&mut port, &mut pool).into_iter().filter(|frame| frame.len() == 1042));
        frames.len() == 40
    });
    assert_eq!(plane.faults(port.device_index()).oversize, 0);
}

/// A device whose driver has no XDP: the program runs in the kernel's receive path.
#[test]
fn a_driver_without_xdp_gets_the_generic_program() {
    if !private_network("a_driver_without_xdp_gets_the_generic_program") {
        return;
    }
    veth("a0", "a1", 1);
    run("ip link add mv0 link a1 address 02:00:00:00:01:01 type macvlan mode private");
    run("ip link set mv0 up");
    let (mut plane, mut pool) = (plane(), pool());
    let mut sender = open("a0", DeviceRole::Vif(GateId(0)), &mut plane, &mut pool);
    let mut port = open("mv0", DeviceRole::Port(GateId(1)), &mut plane, &mut pool);
    assert_eq!((sender.attached(), port.attached()), (AttachMode::Native, AttachMode::Generic));
    plane.set_station(port.device_index(), 0, UNICAST, GateId(2), None).unwrap();
    plane.gates().open(GateId(2));
    cross(&mut sender, &mut port, &plane, &mut pool);
    assert_eq!(plane.gates().counters(GateId(2)).accepted.packets, 100);
    assert_eq!(plane.gates().in_flight(GateId(2)), 0, "the mark gets through");
}

/// The kernel's side of a TAP, as a guest's: AF_XDP on it, the guest's side read and written here.
#[test]
fn a_guests_tap_is_an_xdp_port() {
    if !private_network("a_guests_tap_is_an_xdp_port") {
        return;
    }
    let (mut plane, mut pool) = (plane(), pool());
    let mut guest = TapPort::open(&TapConfig::new("tap0")).unwrap();
    std::fs::write("/proc/sys/net/ipv6/conf/tap0/disable_ipv6", "1").unwrap();
    run("ip link set tap0 up");
    run("tc qdisc replace dev tap0 root pfifo");
    let mut port = open("tap0", DeviceRole::Vif(GateId(1)), &mut plane, &mut pool);
    assert_eq!(port.attached(), AttachMode::Native);
    cross(&mut guest, &mut port, &plane, &mut pool);
    cross(&mut port, &mut guest, &plane, &mut pool);
    guest.close(&mut pool);
    port.close(&mut plane, &mut pool);
    assert_eq!(pool.free_frames(), pool.chunks() as usize);
}

/// A hundred frames from one port to the other, unchanged and in order.
fn cross(from: &mut impl FramePort, to: &mut impl FramePort, plane: &XdpPlane, pool: &mut Pool) {
    plane.gates().open(GateId(1));
    for number in 0..100 {
        send(from, pool, &numbered(UNICAST, number, 60 + number as usize));
    }
    let mut expected = 0;
    eventually("a hundred frames", || {
        from.transmit_room(pool);
        for frame in take(to, pool) {
            assert_eq!(frame, numbered(UNICAST, expected, 60 + expected as usize));
            expected += 1;
        }
        expected == 100
    });
}

/// Frames that a gate let in and an empty pool lost: counted, and their credit comes back.
#[test]
fn credit_of_lost_frames_returns() {
    if !private_network("credit_of_lost_frames_returns") {
        return;
    }
    veth("a0", "a1", 1);
    let (mut plane, mut pool) = (plane(), pool());
    let mut sender = open("a0", DeviceRole::Vif(GateId(0)), &mut plane, &mut pool);
    let config = XdpConfig { fill: 64, ..XdpConfig::new("a1", DeviceRole::Vif(GateId(1))) };
    let mut receiver = XdpPort::open(&config, &mut plane, &mut pool).unwrap();
    let gates = plane.gates().clone();
    gates.grant(GateId(1), 100);
    for number in 0..100 {
        send(&mut sender, &mut pool, &numbered(UNICAST, number, 60));
    }
    eventually("all are let in", || gates.counters(GateId(1)).accepted.packets == 100);
    // They are counted before they are in the ring.
    let mut got = 0;
    eventually("as many as there were chunks", || {
        got += take(&mut receiver, &mut pool).len();
        got >= 64
    });
    got += take(&mut receiver, &mut pool).len();
    assert_eq!(got, 64, "no more than there were chunks");
    assert_eq!(gates.in_flight(GateId(1)), 36);
    gates.settle(GateId(1));
    assert_eq!(gates.in_flight(GateId(1)), 36, "they may still be on their way");
    gates.settle(GateId(1));
    assert_eq!(gates.in_flight(GateId(1)), 0);
    let statistics = receiver.statistics();
    let lost = statistics.receive_no_chunk + statistics.receive_dropped;
    assert!(lost >= 36, "{statistics:?}");
}

/// Frames given up too early are not counted twice when they come after all.
#[test]
fn credit_does_not_grow_when_given_up_frames_arrive() {
    if !private_network("credit_does_not_grow_when_given_up_frames_arrive") {
        return;
    }
    veth("a0", "a1", 1);
    let (mut plane, mut pool) = (plane(), pool());
    let mut sender = open("a0", DeviceRole::Vif(GateId(0)), &mut plane, &mut pool);
    let mut receiver = open("a1", DeviceRole::Vif(GateId(1)), &mut plane, &mut pool);
    let gates = plane.gates().clone();
    for round in 1..=5 {
        gates.grant(GateId(1), 10);
        for number in 0..20 {
            send(&mut sender, &mut pool, &numbered(UNICAST, number, 60));
        }
        let decided = || {
            let counters = gates.counters(GateId(1));
            counters.accepted.packets + counters.dropped.packets
        };
        eventually("all are decided", || decided() == 20 * round);
        gates.settle(GateId(1));
        gates.settle(GateId(1));
        let mut got = 0;
        eventually("ten frames", || {
            got += take(&mut receiver, &mut pool).len();
            got == 10
        });
        assert_eq!(gates.counters(GateId(1)).dropped.packets, 10 * round);
    }
}

/// A sleeping worker wakes up when a frame arrives, and not before, on each kind of descriptor.
#[test]
fn a_frame_wakes_a_sleeper() {
    if !private_network("a_frame_wakes_a_sleeper") {
        return;
    }
    veth("a0", "a1", 1);
    let (mut plane, mut pool) = (plane(), pool());
    let mut sender = open("a0", DeviceRole::Vif(GateId(0)), &mut plane, &mut pool);
    plane.gates().open(GateId(1));
    let xdp = open("a1", DeviceRole::Vif(GateId(1)), &mut plane, &mut pool);
    wakes(&mut sender, AnyPort::Xdp(xdp), &mut plane, &mut pool);
    let packet = PacketPort::open(&PacketConfig::new("a1"), None).unwrap();
    wakes(&mut sender, AnyPort::Packet(Box::new(packet)), &mut plane, &mut pool);
}

fn wakes(sender: &mut XdpPort, mut port: AnyPort, plane: &mut XdpPlane, pool: &mut Pool) {
    let mut waiter =
        Waiter::new(WaitMode::Sleep { margin: Nanos::ZERO, linger: Nanos::ZERO }).unwrap();
    port.descriptors(|descriptor| waiter.add(descriptor)).unwrap();
    for round in 0..100 {
        assert_eq!(waiter.wait(now(), now() + Nanos::from_micros(200)), WakeReason::Time);
        send(sender, pool, &numbered(UNICAST, round, 60));
        assert_eq!(waiter.wait(now(), now() + Nanos::from_secs(5)), WakeReason::Packets);
        let frames = take(&mut port, pool);
        assert_eq!(number(&frames[0]), round);
    }
    port.close(Some(plane), pool);
}
