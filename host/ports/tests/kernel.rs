// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet sockets and TAP between two kernels' own stacks, each in a network namespace.
#![allow(unsafe_code)]
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Instant;

use common::{Namespace, PATIENCE, eventually, plane, pool, private_network, run, snmp, udp, veth};
use weir_ports::{AnyPort, FramePort, PacketConfig, PacketPort, Pool, TapConfig, TapPort};
use weir_switch::{Frame, FramePool};

/// TCP with the kernel's default offloads: super-frames are cut, checksums finished, the stream
/// arrives whole, and no frame on the way is longer than the link carries.
#[test]
fn tcp_crosses_packet_sockets_with_default_offloads() {
    if !private_network("tcp_crosses_packet_sockets_with_default_offloads") {
        return;
    }
    let (near, far) = (Namespace::new(), Namespace::new());
    let mut ends = [packet_end("a", &near, "10.9.0.1/24"), packet_end("b", &far, "10.9.0.2/24")];
    let longest = stream(&near, &far, &mut ends);
    assert_eq!(longest, 1514, "cut to the link's frames");
    for end in &mut ends {
        end.properties().unwrap().refresh();
        let statistics = end.statistics();
        println!("{}: {statistics:?}", end.name());
        assert_eq!((statistics.receive_dropped, statistics.device_dropped), (0, 0));
    }
}

/// TCP crosses a TAP, with offloads and without.
#[test]
fn tcp_crosses_a_tap() {
    if !private_network("tcp_crosses_a_tap") {
        return;
    }
    for offloads in [true, false] {
        let (near, far) = (Namespace::new(), Namespace::new());
        let tap = TapPort::open(&TapConfig { offloads, ..TapConfig::new("tap0") }).unwrap();
        near.take("tap0", "10.9.0.1/24");
        let tap = AnyPort::Tap(Box::new(tap));
        let mut ends = [tap, packet_end("b", &far, "10.9.0.2/24")];
        assert_eq!(stream(&near, &far, &mut ends), 1514);
        assert_eq!(ends[0].statistics().receive_dropped, 0);
        run("ip link del b1");
    }
}

/// UDP whose checksum the sender left to its device, and UDP GSO, arrive right.
#[test]
fn udp_checksums_are_finished() {
    if !private_network("udp_checksums_are_finished") {
        return;
    }
    let (near, far) = (Namespace::new(), Namespace::new());
    let mut ends = [packet_end("a", &near, "10.9.0.1/24"), packet_end("b", &far, "10.9.0.2/24")];
    let mut pool = pool();
    // There before anybody sends: who comes too early is refused.
    let socket = far.run(|| UdpSocket::bind("10.9.0.2:9999").unwrap()).recv().unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let received = far.run(move || {
        let mut lengths = Vec::new();
        let mut bytes = [0; 2000];
        while lengths.len() < 110 {
            lengths.push(socket.recv(&mut bytes).unwrap());
        }
        (lengths, snmp("Udp", "InCsumErrors"))
    });
    let sent = near.run(|| {
        let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
        socket.connect("10.9.0.2:9999").unwrap();
        for length in 1..=100 {
            socket.send(&vec![1; length]).unwrap();
        }
        // One send of ten datagrams (UDP_SEGMENT).
        let size = 1000;
        // SAFETY: an int that lives until the call returns.
        let result = unsafe {
            let value = (&raw const size).cast();
            let socket = std::os::fd::AsRawFd::as_raw_fd(&socket);
            libc::setsockopt(socket, libc::SOL_UDP, libc::UDP_SEGMENT, value, 4)
        };
        assert_eq!(result, 0);
        socket.send(&vec![2; 10_000]).unwrap();
    });
    let (mut lengths, errors) = forward_until(&mut ends, &mut pool, || received.try_recv().ok());
    sent.recv().unwrap();
    // Not in order: what waits for ARP leaves by another processor than what follows it.
    lengths.sort_unstable();
    assert_eq!(lengths[..100], (1..=100).collect::<Vec<_>>());
    assert_eq!(lengths[100..], [1000; 10]);
    assert_eq!(errors, 0);
}

/// While a port holds a device the kernel's own stack does not answer on it; afterwards it does.
#[test]
fn the_stack_does_not_see_what_a_port_reads() {
    if !private_network("the_stack_does_not_see_what_a_port_reads") {
        return;
    }
    let plane = plane();
    let mut pool = pool();
    let far = Namespace::new();
    veth("a0", "a1", 1);
    far.take("a0", "10.9.0.1/24");
    run("ip addr add 10.9.0.2/24 dev a1");
    let ping = |seconds: &'static str| {
        far.run(move || {
            let status = std::process::Command::new("ping")
                .args(["-c", "1", "-W", seconds, "10.9.0.2"])
                .stdout(std::process::Stdio::null())
                .status();
            status.unwrap().success()
        })
        .recv()
        .unwrap()
    };
    assert!(ping("20"), "the stack answers before");
    let mut port = PacketPort::open(&PacketConfig::new("a1"), Some(plane.devices())).unwrap();
    assert!(port.hides_from_stack());
    assert!(!ping("1"), "the stack is silent");
    let mut frames = Vec::with_capacity(64);
    assert!(port.receive(&mut pool, 64, &mut frames) > 0, "the port has the frames");
    frames.iter().for_each(|frame| pool.free(frame.id));
    port.close(&mut pool);
    assert!(ping("20"), "the stack answers again");
    assert_eq!(pool.free_frames(), pool.chunks() as usize);
}

/// A tag that the device keeps apart from the frame is put back.
#[test]
fn a_stripped_tag_is_put_back() {
    if !private_network("a_stripped_tag_is_put_back") {
        return;
    }
    let mut pool = pool();
    veth("a0", "a1", 1);
    let mut port = PacketPort::open(&PacketConfig::new("a1"), None).unwrap();
    let mut frame = udp(7, 1000);
    frame.splice(12..12, [0x81, 0, 0x60, 100]);
    common::send_raw("a0", &[frame.clone()]);
    let mut frames: Vec<Frame> = Vec::with_capacity(4);
    eventually("the frame", || port.receive(&mut pool, 4, &mut frames) > 0);
    assert_eq!(pool.data(frames[0]), frame);
}

/// A peer that is full holds the port back; nothing is lost.
#[test]
fn a_full_device_keeps_frames_in_the_port() {
    if !private_network("a_full_device_keeps_frames_in_the_port") {
        return;
    }
    let (plane, mut pool) = (plane(), pool());
    veth("a0", "a1", 1);
    let mut sender = PacketPort::open(&PacketConfig::new("a0"), Some(plane.devices())).unwrap();
    let before = received_by("a1");
    let mut sent = 0_u64;
    while sent < 100_000 {
        let room = (sender.transmit_room(&mut pool) as u64).min(100_000 - sent);
        for _ in 0..room {
            let frame = pool.copy_in(&udp(0, 1)).unwrap();
            sender.transmit(&mut pool, frame).unwrap();
        }
        sent += room;
        sender.flush(&mut pool).unwrap();
    }
    eventually("all are taken", || sender.flush(&mut pool).unwrap() == 0);
    eventually("all arrive", || received_by("a1") - before == 100_000);
}

fn received_by(device: &str) -> u64 {
    let output = std::process::Command::new("ip")
        .args(["-j", "-s", "link", "show", device])
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let packets = text.split("\"rx\":").nth(1).unwrap().split("\"packets\":").nth(1).unwrap();
    packets.split(',').next().unwrap().parse().unwrap()
}

/// `X0` goes to the namespace, `X1` stays and is opened.
fn packet_end(name: &str, namespace: &Namespace, address: &str) -> AnyPort {
    let (theirs, ours) = (format!("{name}0"), format!("{name}1"));
    veth(&theirs, &ours, 1);
    namespace.take(&theirs, address);
    AnyPort::Packet(Box::new(PacketPort::open(&PacketConfig::new(&ours), None).unwrap()))
}

/// 20 MB of TCP from `near` to `far` through the two ends; the longest frame on the way.
fn stream(near: &Namespace, far: &Namespace, ends: &mut [AnyPort; 2]) -> usize {
    const LENGTH: usize = 20_000_000;
    let mut pool = pool();
    let listening = far.run(|| TcpListener::bind("10.9.0.2:5001").unwrap()).recv().unwrap();
    let received = far.run(move || {
        let (mut stream, _) = listening.accept().unwrap();
        let mut bytes = Vec::with_capacity(LENGTH);
        stream.read_to_end(&mut bytes).unwrap();
        let right = bytes.iter().enumerate().all(|(index, byte)| *byte == (index % 251) as u8);
        (bytes.len(), right, snmp("Tcp", "InCsumErrors"))
    });
    let sent = near.run(move || {
        let mut stream = TcpStream::connect("10.9.0.2:5001").unwrap();
        let bytes: Vec<u8> = (0..LENGTH).map(|index| (index % 251) as u8).collect();
        stream.write_all(&bytes).unwrap();
    });
    let mut longest = 0;
    let result = forward_all(ends, &mut pool, &mut longest, || received.try_recv().ok());
    sent.recv().unwrap();
    assert_eq!(result, (LENGTH, true, 0), "length, content, checksum errors");
    longest
}

fn forward_until<T>(
    ends: &mut [AnyPort; 2],
    pool: &mut Pool,
    done: impl FnMut() -> Option<T>,
) -> T {
    forward_all(ends, pool, &mut 0, done)
}

fn forward_all<T>(
    ends: &mut [AnyPort; 2],
    pool: &mut Pool,
    longest: &mut usize,
    mut done: impl FnMut() -> Option<T>,
) -> T {
    let start = Instant::now();
    let mut frames = Vec::with_capacity(64);
    loop {
        for (from, to) in [(0, 1), (1, 0)] {
            let room = ends[to].transmit_room(pool);
            ends[from].receive(pool, room, &mut frames);
            for frame in frames.drain(..) {
                *longest = (*longest).max(usize::from(frame.len));
                ends[to].transmit(pool, frame).unwrap();
            }
            ends[to].flush(pool).unwrap();
        }
        if let Some(result) = done() {
            return result;
        }
        assert!(start.elapsed() < PATIENCE, "not within {PATIENCE:?}");
    }
}
