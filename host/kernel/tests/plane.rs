// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The data plane in a network namespace of its own, with real frames.
//!
//! A bridge has a port (`up0`, with `wire0` at the other end) and two vifs (`t0` and `t1`, with
//! `g0` and `g1`). Frames are sent at the other ends.
#![allow(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use weir_kernel::{DirectionCounts, KernelPlane, MemberCounts, PortCounts};
use weir_kernel_plan::HookKind;
use weir_platform::journal::Journal;
use weir_platform::{ChangePurpose, StateDir};
use weir_policy::Policy;
use weir_ports::{device_number, link_program};
use weir_units::PacketRate;

/// Goal: frames that the switch drops are dropped, under the same reasons, and sound ones pass.
#[test]
fn hostile_frames_are_dropped_under_the_reasons_of_the_switch() {
    let Some(mut lab) = TestBridge::new("hostile_frames") else { return };
    let mut policy = lab.policy();
    policy.vifs[0].macs = vec![weir_policy::MacAddr(OWN)];
    lab.apply(&policy);
    let sound = frame(WIRE, OWN, &[0x08, 0]);
    let with = |at: usize, more: &[u8]| [&sound[..at], more, &sound[at..]].concat();
    let (five, six, none) = ([0x81, 0, 0, 5], [0x81, 0, 0, 6], [0x81, 0, 0, 0]);
    for (name, reason, frame) in [
        ("tag", "unexpected_tag", with(12, &five)),
        ("two tags", "nested_tag", with(12, &[six, five].concat())),
        ("a service tag", "nested_tag", with(12, &[0x88, 0xa8, 0, 5])),
        ("a group as source", "bad_source", frame(WIRE, [1, 0, 0x5e, 0, 0, 1], &[0x08, 0])),
        ("no source", "bad_source", frame(WIRE, [0; 6], &[0x08, 0])),
        ("a bridge's group", "reserved_group", frame(GROUP, OWN, &[0x88, 0xcc])),
        ("another's address", "spoofed_mac", frame(WIRE, [2, 0, 0, 0, 0, 9], &[0x08, 0])),
    ] {
        let before = lab.sent("t0");
        lab.send("g0", &frame, 20);
        lab.wait(name, |lab| lab.dropped("t0", reason) == 20 + drops(&before, reason));
        assert_eq!(lab.sent("t0").passed, before.passed, "{name}");
    }
    let before = lab.sent("t0").passed[0];
    lab.send("g0", &sound, 20);
    // A priority tag is no VLAN.
    lab.send("g0", &with(12, &none), 20);
    lab.wait("sound frames", |lab| lab.sent("t0").passed[0] == before + 40);
}

/// Goal: an address belongs to one vif; neither another vif nor the wire takes it, nor a vif the
/// wire's or the host's; and no vif has more than `macs_max`.
#[test]
fn an_address_belongs_to_one_sender() {
    let Some(mut lab) = TestBridge::new("an_address") else { return };
    let mut policy = lab.policy();
    policy.vifs[1].macs_max = 3;
    lab.apply(&policy);
    lab.send("g0", &frame(WIRE, OWN, &[0x08, 0]), 5);
    lab.wait("learned", |lab| lab.sent("t0").passed[0] >= 5);
    lab.send("g1", &frame(WIRE, OWN, &[0x08, 0]), 10);
    lab.wait("another vif", |lab| lab.dropped("t1", "moved") == 10);
    lab.send("wire0", &frame([0xff; 6], WIRE, &[0x08, 0]), 5);
    lab.send("wire0", &frame([0xff; 6], OWN, &[0x08, 0]), 10);
    let moved = |lab: &TestBridge| lab.port().moved[0];
    lab.wait("the wire", |lab| moved(lab) == 10);
    lab.send("g1", &frame([0xff; 6], WIRE, &[0x08, 0]), 10);
    lab.wait("the wire's", |lab| lab.dropped("t1", "moved") == 20);
    let bridge = lab.address_of("br0");
    lab.send("g1", &frame(WIRE, bridge, &[0x08, 0]), 10);
    lab.wait("the host's", |lab| lab.dropped("t1", "moved") == 30);
    // The kernel's own messages at g1 have an address of theirs, which may be one of the three.
    for last in 1..=20 {
        lab.send("g1", &frame(WIRE, [2, 0, 0, 0, 1, last], &[0x08, 0]), 1);
    }
    lab.wait("too many", |lab| lab.dropped("t1", "macs_full") >= 17);
    // A vif that leaves gives its addresses back.
    let mut without = policy.clone();
    without.vifs.remove(0);
    lab.apply(&without);
    policy.vifs[1].macs_max = 100;
    lab.apply(&policy);
    let before = lab.sent("t1").passed[0];
    lab.send("g1", &frame(WIRE, OWN, &[0x08, 0]), 10);
    lab.wait("given back", |lab| lab.sent("t1").passed[0] >= before + 10);
}

/// Goal: slices stay apart whatever others write into a frame. Where its class is gone, the device
/// by which it came tells its vif; bits that others add to the mark change nothing; the number of a
/// vif that nobody knows is dropped under a reason of its own. Method: a program behind Weir's at
/// the sender's device writes priority and mark.
#[test]
fn slices_stay_apart_where_others_write_marks() {
    let Some(mut lab) = TestBridge::new("others_write_marks") else { return };
    let mut policy = lab.policy();
    let other = policy.add_slice(weir_policy::Slice::new("other"));
    policy.vifs[1].slice = other;
    lab.apply(&policy);
    let owner = u32::from(lab.member("t0").owner);
    let of = |lab: &TestBridge| lab.member("t1").programs.receive;
    let ingress = libbpf_rs::libbpf_sys::BPF_TCX_INGRESS;
    for (what, reason, mark) in [
        ("neither number is Weir's", "foreign_slice", 1),
        ("bits beside the number", "foreign_slice", 0x7e10_c000 | owner),
        ("a number that nobody has", "unknown_slice", 0x7e10_03ff),
    ] {
        let program = writes_mark(mark);
        let number = device_number("t0").unwrap();
        let _link = link_program(program.as_fd(), number, ingress, 0).unwrap();
        let before = of(&lab);
        // No IP: netfilter would drop what is only its header.
        lab.send("g0", &frame([0xff; 6], OWN, &[0x88, 0xb5]), 20);
        let wanted = drops(&before, reason) + 20;
        lab.wait(what, |lab| drops(&of(lab), reason) == wanted);
        assert_eq!(of(&lab).passed, before.passed, "{what}");
    }
}

/// Goal: a guest that already has an address cannot take one known beyond the port, however long
/// that one is silent, and even if only the bridge learned it before Weir started. A new guest may
/// bring such an address as its first: it may have migrated.
#[test]
fn a_silent_gateway_keeps_its_address() {
    let Some(mut lab) = TestBridge::new("a_silent_gateway") else { return };
    let mut policy = lab.policy();
    let early = [2, 0, 0, 0, 0xff, 2];
    lab.send("wire0", &frame([0xff; 6], early, &[0x88, 0xb5]), 1);
    let known = |_: &TestBridge| run("bridge fdb show brport up0").contains("02:00:00:00:ff:02");
    lab.wait("learned by the bridge", known);
    lab.apply(&policy);
    let own = [2, 0, 0, 0, 0, 0x0b];
    lab.send("g1", &frame([0xff; 6], own, &[0x88, 0xb5]), 10);
    lab.wait("it has one", |lab| lab.sent("t1").passed[0] == 10);
    lab.send("g1", &frame([0xff; 6], early, &[0x88, 0xb5]), 10);
    lab.wait("known by the bridge", |lab| lab.dropped("t1", "moved") == 10);
    lab.send("wire0", &frame([0xff; 6], WIRE, &[0x88, 0xb5]), 1);
    lab.wait("seen", |lab| lab.member("t1").programs.receive.passed[0] > 0);
    std::thread::sleep(Duration::from_millis(2_300));
    lab.send("g1", &frame([0xff; 6], WIRE, &[0x88, 0xb5]), 10);
    lab.wait("silent", |lab| lab.dropped("t1", "moved") == 20);
    let comes_again = policy.vifs.remove(1);
    lab.apply(&policy);
    policy.vifs.push(comes_again);
    lab.apply(&policy);
    lab.send("g1", &frame([0xff; 6], WIRE, &[0x88, 0xb5]), 10);
    lab.wait("its first", |lab| lab.sent("t1").passed[0] == 10);
    assert_eq!(lab.dropped("t1", "moved"), 0);
}

/// Goal: an address that the policy gives to a vif is no other vif's while its device is away. It
/// may be beyond the port meanwhile, and is free when the policy gives it to nobody.
#[test]
fn an_address_waits_for_its_vif() {
    let Some(mut lab) = TestBridge::new("an_address_waits") else { return };
    let without = lab.policy();
    let mut policy = without.clone();
    let mut away = policy.vifs[0].clone();
    (away.name, away.device) = ("t9".to_owned(), "t9".to_owned());
    let others = [2, 0, 0, 0, 0, 0x0c];
    away.macs = [OWN, others].map(weir_policy::MacAddr).to_vec();
    policy.vifs.push(away);
    // Learned before the policy gives it.
    lab.apply(&without);
    lab.send("g1", &frame([0xff; 6], others, &[0x88, 0xb5]), 10);
    lab.wait("learned", |lab| lab.sent("t1").passed[0] == 10);
    lab.apply(&policy);
    let refused = |lab: &TestBridge, what: &str, from: [u8; 6]| {
        let before = lab.sent("t1");
        lab.send("g1", &frame([0xff; 6], from, &[0x88, 0xb5]), 10);
        lab.wait(what, |lab| lab.dropped("t1", "moved") == drops(&before, "moved") + 10);
        assert_eq!(lab.sent("t1").passed, before.passed, "{what}");
    };
    refused(&lab, "away", OWN);
    refused(&lab, "learned before", others);
    let arrived = |lab: &TestBridge| lab.member("t0").programs.receive.passed[0];
    let before = arrived(&lab);
    lab.send("wire0", &frame([0xff; 6], OWN, &[0x88, 0xb5]), 10);
    lab.wait("on another host", |lab| arrived(lab) == before + 10);
    run("ip link add t9 type veth peer name g9");
    run("ip link set t9 master br0 up");
    run("ip link set g9 up");
    lab.apply(&policy);
    lab.send("g9", &frame([0xff; 6], OWN, &[0x88, 0xb5]), 10);
    lab.wait("here", |lab| lab.sent("t9").passed[0] == 10);
    refused(&lab, "here", OWN);
    run("ip link del t9");
    lab.apply(&policy);
    refused(&lab, "gone", others);
    lab.reopen(HookKind::Tcx);
    lab.apply(&policy);
    refused(&lab, "after the next start", others);
    lab.apply(&without);
    let before = lab.sent("t1").passed[0];
    lab.send("g1", &frame([0xff; 6], others, &[0x88, 0xb5]), 10);
    lab.wait("nobody's", |lab| lab.sent("t1").passed[0] == before + 10);
}

/// Goal: while a vif with `mac` is silent, frames that another vif sends it reach it, and none
/// leaves by the port, where the bridge floods them: it counts each copy. Frames for an address
/// that nobody has do leave.
#[test]
fn frames_for_a_silent_vif_stay_inside() {
    let Some(mut lab) = TestBridge::new("a_silent_vif") else { return };
    let (mut policy, silent) = lab.policy_of_a_silent_vif();
    lab.apply(&policy);
    let before = received("wire0");
    lab.send("g0", &frame(silent, OWN, &[0x88, 0xb5]), 20);
    let of = |lab: &TestBridge| lab.member("t1").programs.receive;
    lab.wait("inside", |lab| of(lab).passed[0] == 20);
    lab.send("g0", &frame([2, 0, 0, 0, 0, 0x0c], OWN, &[0x88, 0xb5]), 20);
    // The flooded frames come behind the others.
    lab.wait("nobody's", |_| received("wire0") >= before + 20);
    assert_eq!(received("wire0"), before + 20);
    let counted = lab.port().flooded;
    assert_eq!(counted, [20, 20 * 60]);
    assert_eq!(lab.member("t0").programs.port.passed[0], 20);
    // It counts on when the port changes, and for the next process.
    policy.ports[0].rate = weir_units::BitRate::from_mbps(900);
    lab.apply(&policy);
    lab.reopen(HookKind::Tcx);
    assert_eq!(lab.port().flooded, counted);
}

/// Goal: a copy of what is for a silent vif with `mac` is neither delivered to another vif nor
/// charged to its limit. One for an address that nobody has is.
#[test]
fn a_vif_gets_no_copy_of_anothers_frames() {
    let Some(mut lab) = TestBridge::new("a_copy") else { return };
    let (mut policy, silent) = lab.policy_of_a_silent_vif();
    policy.vifs[0].receive.max_pps = Some(PacketRate::from_pps(1));
    lab.apply(&policy);
    let of = |lab: &TestBridge, device: &str| lab.member(device).programs.receive;
    let before = of(&lab, "t0");
    lab.send("wire0", &frame(silent, WIRE, &[0x88, 0xb5]), 20);
    lab.wait("its own", |lab| of(lab, "t1").passed[0] == 20);
    lab.wait("copies", |lab| drops(&of(lab, "t0"), "flooded") == 20);
    let after = of(&lab, "t0");
    assert_eq!((after.passed, after.policed), (before.passed, before.policed));
    lab.send("wire0", &frame([2, 0, 0, 0, 0, 0x0c], WIRE, &[0x88, 0xb5]), 20);
    lab.wait("nobody's", |lab| of(lab, "t0").passed[0] == before.passed[0] + 20);
}

/// Goal: the verifier walks a tenth of what it allows at most: kernels differ in what they walk,
/// and refuse a program above a million instructions.
#[test]
fn the_verifier_is_far_from_its_limit() {
    let Some(_loaded) = TestBridge::new("the_verifier") else { return };
    for hook in weir_kernel_plan::Hook::ALL {
        let name = hook.program();
        // Tests that run beside this one have loaded the same programs.
        let walked: Vec<u32> = libbpf_rs::query::ProgInfoIter::default()
            .filter(|info| info.name.to_str() == Some(name))
            .map(|info| info.verified_insns)
            .collect();
        println!("{name}: {walked:?} instructions");
        assert!(!walked.is_empty(), "{name} is not loaded");
        assert!(walked.iter().all(|walked| *walked <= 100_000), "{name}: {walked:?} instructions");
    }
}

/// Goal: a limit that is raised holds from the next frame on, however far the bucket was in debt.
#[test]
fn a_raised_limit_passes_at_once() {
    let Some(mut lab) = TestBridge::new("a_raised_limit") else { return };
    let mut policy = lab.policy();
    policy.vifs[0].send.max_pps = Some(PacketRate::from_pps(1));
    policy.vifs[0].send_queue.packets = 1;
    lab.apply(&policy);
    lab.send("g0", &frame(WIRE, OWN, &[0x08, 0]), 3_000);
    lab.wait("the limit", |lab| lab.sent("t0").policed[0][0] > 1_000);
    policy.vifs[0].send.max_pps = Some(PacketRate::from_pps(1_000_000));
    lab.apply(&policy);
    let before = lab.sent("t0");
    lab.send("g0", &frame(WIRE, OWN, &[0x08, 0]), 1);
    lab.wait("the next frame", |lab| lab.sent("t0").passed[0] > before.passed[0]);
    assert_eq!(lab.sent("t0").policed, before.policed);
}

/// Goal: what passes of a flood beyond a limit does not wait: the bucket is shallow meanwhile, and
/// the rate is at most the limit (row kernel.3 holds the least). Afterwards it has its burst again.
/// Method: the queue is looked at as often as possible, since a sender that pauses empties a full
/// one, too.
#[test]
fn a_flood_beyond_its_limit_fills_no_queue() {
    let Some(mut lab) = TestBridge::new("a_flood_beyond") else { return };
    let mut policy = lab.policy();
    policy.vifs[0].send.rate = Some(weir_units::BitRate::from_mbps(20));
    // The queue then has the least size, 128 KB. A larger one holds all bytes that the sender's
    // socket may have on their way, so that the sender would wait for it.
    policy.vifs[0].send_queue.bytes = weir_units::ByteCount::new(50_000);
    lab.apply(&policy);
    let long = long_frame();
    let mut backlogs = Vec::new();
    let begun = std::time::Instant::now();
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| send_at("g0", &long, 400_000));
        while !flood.is_finished() {
            let counts = lab.member("t0");
            if counts.programs.send.policed[1][0] > 2000 {
                backlogs.push(counts.send.backlog[0]);
            }
        }
    });
    let bits = lab.sent("t0").passed[1] as f64 * 8.0;
    let rate = bits / begun.elapsed().as_secs_f64();
    backlogs.sort_unstable();
    assert!(backlogs.len() >= 10, "{backlogs:?}");
    assert!(backlogs[backlogs.len() / 2] <= 1, "frames wait while the flood lasts: {backlogs:?}");
    assert!(rate < 24e6, "{rate} of 20 Mbit/s");
    std::thread::sleep(std::time::Duration::from_millis(150));
    let before = lab.sent("t0");
    lab.send("g0", &long, 60);
    lab.wait("the burst", |lab| lab.sent("t0").passed[0] >= before.passed[0] + 60);
    assert_eq!(lab.sent("t0").policed, before.policed);
}

/// Goal: with `node.redirect`, known unicast leaves past the bridge, both ways. All else crosses
/// it: one frame of a source in half a second, frames for an address that is silent, frames too
/// long for the port, and everything where the bridge does more than forward. Method: the bridge is
/// down, so that what arrives went past it.
#[test]
fn known_unicast_leaves_past_the_bridge() {
    let Some(mut lab) = TestBridge::new("past_the_bridge") else { return };
    let mut policy = lab.policy();
    policy.vifs[0].macs = vec![weir_policy::MacAddr(OWN)];
    run("ip link set br0 down");
    netfilter("0");
    let (there, back) = (frame(WIRE, OWN, &[0x08, 0]), frame(OWN, WIRE, &[0x08, 0]));
    let past = |lab: &TestBridge, there: &[u8]| {
        // Both addresses are heard, and noted by frames that cross the bridge.
        lab.send("wire0", &back, 2);
        lab.send("g0", there, 2);
        let before = ["wire0", "g0"].map(received);
        lab.send("g0", there, 100);
        lab.send("wire0", &back, 100);
        let mut past = [0, 0];
        // Frames are on their way for a moment; the kernel's own messages are a few.
        let end = Instant::now() + Duration::from_secs(2);
        while past.iter().any(|seen| *seen < 95) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
            past = [0, 1].map(|at| received(["wire0", "g0"][at]) - before[at]);
        }
        past.map(|seen| seen >= 95)
    };
    lab.apply(&policy);
    assert_eq!(past(&lab, &there), [false, false], "not asked for");
    policy.node.redirect = true;
    lab.apply(&policy);
    assert_eq!(past(&lab, &there), [true, true]);
    let none = frame([2, 0, 0, 0, 0xff, 9], OWN, &[0x08, 0]);
    assert_eq!(past(&lab, &none), [false, true], "an address that nobody has");
    run("ip link set up0 mtu 1300");
    lab.apply(&policy);
    let long = [&there[..], &[0; 1300]].concat();
    assert_eq!(past(&lab, &long), [false, true], "too long for the port");
    if netfilter("1") {
        lab.apply(&policy);
        assert_eq!(past(&lab, &there), [false, false], "netfilter sees the bridge's frames");
        netfilter("0");
    }
    run("bridge link set dev t0 isolated on");
    lab.apply(&policy);
    assert_eq!(past(&lab, &there), [false, false], "the bridge isolates the vif");
    run("bridge link set dev t0 isolated off");
    lab.apply(&policy);
    assert_eq!(past(&lab, &there), [true, true]);
    // This kernel may have no VLANs.
    let filter = ["link", "set", "br0", "type", "bridge", "vlan_filtering", "1"];
    if Command::new("ip").args(filter).status().unwrap().success() {
        lab.apply(&policy);
        assert_eq!(past(&lab, &there), [false, false], "the bridge keeps VLANs apart");
    }
}

/// Goal: where the host routes, a frame keeps its class at the port, and its slice before a vif.
#[test]
fn a_routed_frame_keeps_its_class_and_its_slice() {
    let Some(mut lab) = TestBridge::new("a_routed_frame") else { return };
    let mut policy = lab.policy();
    let other = policy.add_slice(weir_policy::Slice::new("other"));
    policy.vifs[1].slice = other;
    lab.apply(&policy);
    run("ip addr add 10.0.0.1/24 dev br0");
    run("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0");
    run("sysctl -qw net.ipv4.conf.br0.rp_filter=0");
    let guest = [2, 0, 0, 0, 0, 0x0b];
    for (address, mac) in [("10.0.1.2", "02:00:00:00:ff:01"), ("10.0.2.2", "02:00:00:00:00:0b")] {
        run(&format!("ip route add {address} dev br0"));
        run(&format!("ip neigh add {address} lladdr {mac} dev br0 nud permanent"));
    }
    lab.send("wire0", &frame([0xff; 6], WIRE, &[0x08, 0]), 5);
    lab.send("g1", &frame([0xff; 6], guest, &[0x08, 0]), 5);
    let host = lab.address_of("br0");
    let of = |lab: &TestBridge, device: &str| lab.member(device);
    let before = of(&lab, "t0").programs.port.passed[0];
    lab.send("g0", &routed(host, OWN, [10, 0, 1, 2]), 10);
    lab.wait("at the port", |lab| of(lab, "t0").programs.port.passed[0] >= before + 10);
    let foreign = |lab: &TestBridge| drops(&of(lab, "t1").programs.receive, "foreign_slice");
    let before = foreign(&lab);
    lab.send("g0", &routed(host, OWN, [10, 0, 2, 2]), 10);
    lab.wait("before a vif", |lab| foreign(lab) >= before + 10);
}

/// Goal: frames that the host routes out by another port are neither offered to the vif's queue at
/// its own port nor counted as drops there. They are counted as sent. This holds where an earlier
/// version left its tables, too. Method: the queue has dropped some before, by which drops are told
/// from frames on their way to it.
#[test]
fn a_frame_that_leaves_by_another_port_is_no_drop() {
    let Some(mut lab) = TestBridge::new("another_port") else { return };
    run("ip link add br1 type bridge mcast_snooping 0");
    run("ip link add up1 type veth peer name wire1");
    run("ip link set up1 master br1 up");
    run("ip link set wire1 up");
    run("ip link set br1 up");
    let mut policy = lab.slow_policy();
    let mut other = policy.ports[0].clone();
    (other.name, other.device) = ("up1".to_owned(), "up1".to_owned());
    other.bridge = Some("br1".to_owned());
    policy.ports.push(other);
    lab.apply(&policy);
    run("ip addr add 10.0.0.1/24 dev br0");
    run("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0");
    run("sysctl -qw net.ipv4.conf.br0.rp_filter=0");
    run("ip route add 10.0.1.2 dev br1");
    run("ip neigh add 10.0.1.2 lladdr 02:00:00:00:ff:01 dev br1 nud permanent");
    let host = lab.address_of("br0");
    let leaves_by_another = |lab: &TestBridge| {
        lab.send("g0", &long_frame(), 1_000);
        lab.wait("all left", |lab| {
            let MemberCounts { programs, send, .. } = lab.member("t0");
            send.drops > 0
                && send.dropped[0] + send.sent[0] == programs.port.passed[0]
                && programs.send.passed[0] == programs.port.passed[0] + received("wire1")
        });
        let (before, arrived) = (lab.member("t0"), received("wire1"));
        lab.send("g0", &routed(host, OWN, [10, 0, 1, 2]), 50);
        lab.wait("by another port", |_| received("wire1") == arrived + 50);
        let after = lab.member("t0");
        assert_eq!(after.programs.send.passed[0], before.programs.send.passed[0] + 50);
        assert_eq!(after.send, before.send);
        assert_eq!(after.programs.port.passed, before.programs.port.passed);
    };
    leaves_by_another(&lab);
    fs::remove_file(lab.tables().join("bridges")).unwrap();
    lab.reopen(HookKind::Tcx);
    leaves_by_another(&lab);
}

/// Goal: a second node finds the tree of the first in its way and leaves it, and itself, alone.
#[test]
fn a_second_node_leaves_the_first_ones_tree() {
    let Some(mut lab) = TestBridge::new("a_second_node") else { return };
    let policy = lab.policy();
    lab.apply(&policy);
    let mut other = lab.second();
    let before = run("tc -d class show dev up0");
    let error = other.plane.apply(&policy, &mut other.journal).unwrap_err().to_string();
    assert!(error.contains("7e10: (of another node of Weir)"), "{error}");
    assert_eq!(run("tc -d class show dev up0"), before);
    assert!(before.contains("7e10:1 "), "{before}");
    drop(other);
    // The first goes on, and has nothing to do.
    assert!(lab.plane.apply(&policy, &mut lab.journal).unwrap().plan.is_empty());
}

/// Goal: a tree that somebody removed is not counted as one, and is made again.
#[test]
fn a_removed_tree_is_made_again() {
    let Some(mut lab) = TestBridge::new("a_removed_tree") else { return };
    let policy = lab.policy();
    lab.apply(&policy);
    let before = run("tc class show dev up0");
    run("tc qdisc del dev up0 root");
    assert!(!lab.plane.counts().unwrap().trees.contains_key("up0"));
    lab.apply(&policy);
    assert!(lab.plane.counts().unwrap().trees.contains_key("up0"));
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&run("tc class show dev up0")), sorted(&before));
}

/// Goal: a port that somebody gives another discipline is a fault of its own: a live change and
/// devices that come still take effect, and the port's programs stay. Another process goes on with
/// it, too. The tree is back when the discipline is gone.
#[test]
fn a_port_that_others_changed_stops_no_plan() {
    let Some(mut lab) = TestBridge::new("a_port_changed") else { return };
    let mut policy = lab.policy();
    run("ip link set t1 nomaster");
    lab.apply(&policy);
    run("tc qdisc replace dev up0 root handle 5: pfifo");
    policy.vifs[0].send.max_pps = Some(PacketRate::from_pps(1));
    policy.vifs[0].send_queue.packets = 1;
    lab.apply(&policy);
    lab.send("g0", &frame(WIRE, OWN, &[0x08, 0]), 3_000);
    lab.wait("the limit", |lab| lab.sent("t0").policed[0][0] > 1_000);
    lab.reopen(HookKind::Tcx);
    run("ip link set t1 master br0");
    let applied = lab.plane.follow(&policy, &mut lab.journal).unwrap();
    let faults: Vec<String> = applied.compiled.faults.iter().map(ToString::to_string).collect();
    assert!(faults.len() == 1 && faults[0].starts_with("port \"up0\".device: "), "{faults:?}");
    assert!(lab.plane.counts().unwrap().members.contains_key("t1"));
    let number = device_number("up0").unwrap();
    assert!(lab.links().contains(&format!("{number}-weir_from_port")), "{:?}", lab.links());
    assert!(run("tc qdisc show dev up0").contains("pfifo 5:"), "it is kept");
    run("tc qdisc del dev up0 root");
    let applied = lab.plane.follow(&policy, &mut lab.journal).unwrap();
    assert!(applied.compiled.faults.is_empty());
    assert!(lab.plane.counts().unwrap().trees.contains_key("up0"));
}

/// Goal: where the steps of one device fail, the plans of the others go on, and the device is tried
/// again after a while. Method: a discipline without classes has the number of the port's tree.
#[test]
fn a_device_that_refuses_steps_is_left_out() {
    let Some(mut lab) = TestBridge::new("a_device_refuses") else { return };
    let mut policy = lab.policy();
    policy.vifs[1].receive.rate = Some(weir_units::BitRate::from_mbps(10));
    run("ip link set t1 nomaster");
    lab.apply(&policy);
    run("tc qdisc del dev up0 root");
    run("tc qdisc add dev up0 root handle 7e10: pfifo");
    run("ip link set t1 master br0");
    assert!(lab.plane.change(&policy, &mut lab.journal).is_err(), "a caller is told");
    let of_t1 = |purpose: &ChangePurpose| purpose.concerns_device("t1");
    assert!(!run("tc qdisc show dev t1").contains("7e10:"), "it was rolled back");
    assert!(!lab.journal.purposes().any(of_t1), "what was rolled back has no undo");
    let applied = lab.plane.follow(&policy, &mut lab.journal).unwrap();
    let faults: Vec<String> = applied.compiled.faults.iter().map(ToString::to_string).collect();
    assert!(faults.len() == 1 && faults[0].starts_with("port \"up0\".device: "), "{faults:?}");
    let counts = lab.plane.counts().unwrap();
    assert!(counts.members.contains_key("t1") && counts.trees.contains_key("t1"), "{counts:?}");
    run("tc qdisc del dev up0 root");
    let again = Instant::now() + Duration::from_secs(20);
    while !lab.plane.counts().unwrap().trees.contains_key("up0") {
        assert!(Instant::now() < again, "the tree is not made again");
        std::thread::sleep(Duration::from_millis(500));
        lab.plane.follow(&policy, &mut lab.journal).unwrap();
    }
    assert!(lab.plane.apply(&policy, &mut lab.journal).unwrap().compiled.faults.is_empty());
}

/// Goal: a port that leaves its bridge keeps what it counted, and no vif takes the host's own
/// address meanwhile. A new port without a device is refused: the wrong name would take the tree
/// away.
#[test]
fn a_port_comes_and_goes() {
    let Some(mut lab) = TestBridge::new("a_port_comes_and_goes") else { return };
    let policy = lab.slow_policy();
    run("ip link set up0 nomaster");
    lab.apply(&policy);
    let shown = run("ip -br link show br0");
    let own: weir_policy::MacAddr = shown.split_whitespace().nth(2).unwrap().parse().unwrap();
    lab.send("g1", &frame([0xff; 6], own.0, &[0x88, 0xb5]), 10);
    lab.wait("the host's own", |lab| lab.dropped("t1", "moved") == 10);
    run("ip link set up0 master br0");
    lab.apply(&policy);
    assert!(lab.plane.counts().unwrap().trees.contains_key("up0"));
    let mut wrong = policy.clone();
    wrong.ports[0].device = "up7".to_owned();
    let refused = lab.plane.change(&wrong, &mut lab.journal).unwrap_err().to_string();
    assert_eq!(refused, "port \"up0\".device: device up7: there is none");
    assert!(lab.plane.counts().unwrap().trees.contains_key("up0"));
    // More than its queue holds, at once.
    let long = long_frame();
    lab.send("g0", &long, 3000);
    let dropped = |lab: &TestBridge| lab.member("t0").send.dropped;
    lab.wait("dropped", |lab| dropped(lab)[0] > 0);
    lab.wait("sent", |lab| lab.member("t0").send.backlog == [0; 2]);
    let before = dropped(&lab);
    for line in ["ip link set up0 nomaster", "ip link set up0 master br0"] {
        run(line);
        lab.apply(&policy);
        assert_eq!(dropped(&lab), before, "{line}");
    }
}

/// Goal: a device that was renamed is no vif any more: neither its entry nor its programs stay.
#[test]
fn a_renamed_device_is_let_go() {
    let Some(mut lab) = TestBridge::new("a_renamed_device") else { return };
    let policy = lab.policy();
    lab.apply(&policy);
    let number = device_number("t0").unwrap();
    assert!(lab.links().contains(&format!("{number}-weir_from_vif")), "{:?}", lab.links());
    run("ip link set t0 name t9");
    let applied = lab.plane.apply(&policy, &mut lab.journal).unwrap();
    assert_eq!(applied.compiled.waiting, ["t0"]);
    let said: Vec<String> = applied.compiled.unheld.iter().map(ToString::to_string).collect();
    assert!(
        said.iter().any(|line| line.contains("device t9 is on this bridge, but no vif")),
        "{said:?}"
    );
    assert!(!lab.links().iter().any(|link| link.starts_with(&format!("{number}-"))));
    run("ip link set t9 name t0");
    lab.apply(&policy);
    lab.send("g0", &frame(WIRE, OWN, &[0x08, 0]), 5);
    lab.wait("taken again", |lab| lab.sent("t0").passed[0] >= 5);
}

/// Goal: a device that is renamed, to a free name or to that of another vif, keeps no tree: its
/// limit would hold for whatever the device is now, and nobody would remove it.
#[test]
fn a_renamed_device_keeps_no_tree() {
    let Some(mut lab) = TestBridge::new("a_renamed_tree") else { return };
    let mut policy = lab.policy();
    for (vif, mbps) in policy.vifs.iter_mut().zip([10, 20]) {
        vif.receive.rate = Some(weir_units::BitRate::from_mbps(mbps));
    }
    lab.apply(&policy);
    let tree = |device: &str| run(&format!("tc qdisc show dev {device}")).contains("htb 7e10:");
    for (old, new) in [("t0", "t9"), ("up0", "up9")] {
        assert!(tree(old), "{old}");
        run(&format!("ip link set {old} name {new}"));
        lab.apply(&policy);
        assert!(!tree(new), "{new}");
        run(&format!("ip link set {new} name {old}"));
        lab.apply(&policy);
        assert!(tree(old), "{old} is back");
    }
    // Another process has only the record.
    for line in ["t0 name x", "t1 name t0", "x name t1"] {
        run(&format!("ip link set {line}"));
    }
    lab.reopen(HookKind::Tcx);
    lab.apply(&policy);
    for (device, rate) in [("t0", "rate 10Mbit"), ("t1", "rate 20Mbit")] {
        let classes = run(&format!("tc class show dev {device}"));
        assert!(classes.contains(rate), "{device}: {classes}");
    }
}

/// Goal: a bridge that is made again under its name, between two plans or while no node runs, has
/// another number: the addresses on it are again the host's and each vif's own.
#[test]
fn a_bridge_that_is_made_again_keeps_addresses_apart() {
    let Some(mut lab) = TestBridge::new("a_bridge_made_again") else { return };
    let policy = lab.policy();
    lab.apply(&policy);
    lab.send("g0", &frame([0xff; 6], OWN, &[0x88, 0xb5]), 5);
    lab.wait("it has its own", |lab| lab.sent("t0").passed[0] == 5);
    run("ip link del br0");
    run("ip link add br0 address 02:00:00:00:aa:01 type bridge mcast_snooping 0");
    for device in ["up0", "t0", "t1", "br0"] {
        let master = if device == "br0" { "" } else { " master br0" };
        run(&format!("ip link set {device}{master} up"));
    }
    lab.reopen(HookKind::Tcx);
    lab.apply(&policy);
    let host = [2, 0, 0, 0, 0xaa, 1];
    assert_eq!(lab.address_of("br0"), host);
    lab.send("g1", &frame([0xff; 6], host, &[0x88, 0xb5]), 10);
    lab.wait("the host's", |lab| lab.dropped("t1", "moved") == 10);
    lab.send("g0", &frame([0xff; 6], OWN, &[0x88, 0xb5]), 5);
    lab.wait("it goes on counting", |lab| lab.sent("t0").passed[0] == 10);
    lab.send("g1", &frame([0xff; 6], OWN, &[0x88, 0xb5]), 10);
    lab.wait("another vif's", |lab| lab.dropped("t1", "moved") == 20);
}

/// Goal: a vif whose device is made again under its name goes on counting, drops of its queue at
/// the port included. One that was gone begins anew.
#[test]
fn a_device_that_is_made_again_goes_on_counting() {
    let Some(mut lab) = TestBridge::new("a_device_made_again") else { return };
    let policy = lab.slow_policy();
    lab.apply(&policy);
    let long = long_frame();
    let counts = |lab: &TestBridge| lab.member("t0");
    for sent in [1_000, 2_000] {
        lab.send("g0", &long, 1_000);
        lab.wait("counted", |lab| counts(lab).programs.send.passed[0] == sent);
        lab.wait("all left", |lab| counts(lab).send.backlog == [0; 2]);
        let queue = counts(&lab).send;
        assert_eq!(queue.dropped[0] + queue.sent[0], sent, "{queue:?}");
        run("ip link del t0");
        run("ip link add t0 type veth peer name g0");
        run("ip link set t0 master br0 up");
        run("ip link set g0 up");
        lab.apply(&policy);
    }
    // A vif that was gone begins anew, although it may get its number again.
    let owner = counts(&lab).owner;
    for line in ["nomaster", "master br0"] {
        run(&format!("ip link set t0 {line}"));
        lab.apply(&policy);
    }
    let anew = counts(&lab);
    assert_eq!((anew.owner, anew.send.dropped, anew.programs.port.passed), (owner, [0; 2], [0; 2]));
}

/// Goal: what a queue dropped never falls, and is never more than what it dropped, while frames
/// come faster than they leave and the counters are read.
#[test]
fn what_a_queue_dropped_never_falls() {
    let Some(mut lab) = TestBridge::new("never_falls") else { return };
    let policy = lab.slow_policy();
    lab.apply(&policy);
    let long = long_frame();
    let counts = |lab: &TestBridge| lab.member("t0");
    let mut last = [0; 2];
    std::thread::scope(|scope| {
        let flood = scope.spawn(|| send_at("g0", &long, 100_000));
        while !flood.is_finished() {
            let now = counts(&lab).send.dropped;
            assert!(now[0] >= last[0] && now[1] >= last[1], "{last:?} {now:?}");
            last = now;
        }
    });
    lab.wait("all left", |lab| counts(lab).send.backlog == [0; 2]);
    let end = counts(&lab);
    assert_eq!(end.send.dropped[0] + end.send.sent[0], end.programs.port.passed[0]);
    assert!(last[0] > 0 && end.send.dropped[0] >= last[0], "{last:?} {end:?}");
}

/// Goal: frames that no vif sent and that find no room at the port are drops of the port, exactly
/// as many as were dropped. The count goes on when the tree is made again, and begins where an
/// earlier version counted none. Method: a device on the bridge that nobody names, whose frames
/// have the class of the host's.
#[test]
fn the_hosts_frames_without_room_are_drops_of_the_port() {
    let Some(mut lab) = TestBridge::new("the_hosts_frames") else { return };
    run("ip link add t9 type veth peer name g9");
    run("ip link set t9 master br0 up");
    run("ip link set g9 up");
    let mut policy = lab.policy();
    policy.ports[0].rate = weir_units::BitRate::from_mbps(100);
    lab.apply(&policy);
    let floods = |lab: &TestBridge, queue_before: u64| {
        let before = lab.port();
        // One socket has fewer frames under way than the queue has room for.
        std::thread::scope(|scope| {
            (0..5).for_each(|_| drop(scope.spawn(|| send_at("g9", &long_frame(), 2_000))));
        });
        lab.wait("all left", |lab| {
            let PortCounts { host, others, .. } = lab.port();
            host.backlog == [0; 2] && others[0] >= before.others[0] + 10_000
        });
        let PortCounts { host, others, .. } = lab.port();
        let more = host.drops - queue_before;
        assert!(more > 0, "{host:?}");
        let dropped = [0, 1].map(|at| host.dropped[at] - before.host.dropped[at]);
        assert_eq!(dropped, [more, more * 1514]);
        assert_eq!(others[0] - before.others[0], 10_000);
        host
    };
    let first = floods(&lab, 0);
    run("tc qdisc del dev up0 root");
    assert_eq!(lab.port().host.dropped, first.dropped);
    lab.apply(&policy);
    assert_eq!(lab.port().host.dropped, first.dropped);
    let second = floods(&lab, 0);
    fs::remove_file(lab.tables().join("port_counts")).unwrap();
    lab.reopen(HookKind::Tcx);
    floods(&lab, second.drops);
    assert_eq!(lab.member("t0").send.dropped, [0; 2]);
}

/// Goal: Weir's programs come before those that are there; one that comes before them later is
/// named.
#[test]
fn programs_of_others_before_ours_are_named() {
    let Some(mut lab) = TestBridge::new("programs_of_others") else { return };
    let policy = lab.policy();
    let mut open = libbpf_rs::ObjectBuilder::default();
    let other = open.open_memory(OBJECT).unwrap().load().unwrap();
    let program = other.progs().find(|program| program.name() == "weir_to_port").unwrap();
    let attach = |device: &str, flags| {
        let ingress = libbpf_rs::libbpf_sys::BPF_TCX_INGRESS;
        link_program(program.as_fd(), device_number(device).unwrap(), ingress, flags).unwrap()
    };
    let _first = attach("t0", 0);
    let applied = lab.plane.apply(&policy, &mut lab.journal).unwrap();
    assert!(applied.programs_before.is_empty(), "{:?}", applied.programs_before);
    let _before = attach("t1", 1 << 3);
    let applied = lab.plane.apply(&policy, &mut lab.journal).unwrap();
    let line = "device t1: program weir_to_port of others is before weir_from_vif at tcx_ingress, \
                and may end the chain";
    assert_eq!(applied.programs_before, [line]);
}

/// Goal: where programs are filters (before Linux 6.6), they do the same, a next process takes them
/// over, a filter that somebody removed comes back, and nothing is left of them.
#[test]
fn programs_can_be_filters_of_each_device() {
    let Some(mut lab) = TestBridge::with("filters", HookKind::Clsact) else { return };
    run("tc qdisc add dev t1 clsact");
    let of_others = "tc filter show dev t1 ingress pref 7";
    let mut open = libbpf_rs::ObjectBuilder::default();
    let other = open.open_memory(OBJECT).unwrap().load().unwrap();
    let program = other.progs().find(|program| program.name() == "weir_to_port").unwrap();
    let add_foreign = |device: &str| {
        let mut hook = libbpf_rs::TcHookBuilder::new(program.as_fd());
        hook.ifindex(device_number(device).unwrap().try_into().unwrap()).handle(9).priority(7);
        hook.hook(libbpf_rs::TC_INGRESS).attach().unwrap();
    };
    add_foreign("t1");
    let foreign = run(of_others);
    assert!(foreign.contains("weir_to_port"), "{foreign}");
    let mut policy = lab.policy();
    policy.vifs[0].macs = vec![weir_policy::MacAddr(OWN)];
    lab.apply(&policy);
    let filters = |device: &str| {
        ["ingress", "egress"].map(|side| run(&format!("tc filter show dev {device} {side}")))
    };
    let all = filters("t0");
    assert!(all[0].contains("weir_from_vif") && all[1].contains("weir_to_vif"), "{all:?}");
    assert!(filters("t1").iter().all(|side| side.contains("0x7e10")));
    let spoofed = |lab: &mut TestBridge, what: &str| {
        let before = lab.dropped("t0", "spoofed_mac");
        let passed = lab.sent("t0").passed[0];
        lab.send("g0", &frame(WIRE, [2, 0, 0, 0, 0, 9], &[0x08, 0]), 20);
        lab.send("g0", &frame(WIRE, OWN, &[0x08, 0]), 20);
        lab.wait(what, |lab| lab.dropped("t0", "spoofed_mac") == before + 20);
        lab.wait(what, |lab| lab.sent("t0").passed[0] == passed + 20);
    };
    spoofed(&mut lab, "the first process");
    lab.reopen(HookKind::Clsact);
    spoofed(&mut lab, "the next process, before its plan");
    assert!(lab.plane.apply(&policy, &mut lab.journal).unwrap().plan.is_empty());
    run("tc filter del dev t0 ingress");
    lab.apply(&policy);
    spoofed(&mut lab, "after a filter was removed");
    let mut without = policy.clone();
    without.vifs.truncate(1);
    lab.apply(&without);
    assert!(!filters("t1").concat().contains("0x7e10"), "{:?}", filters("t1"));
    add_foreign("t0");
    let folder = StateDir::at(&lab.state);
    let empty = Journal::open(&folder, "none", Duration::ZERO).unwrap();
    let journal = std::mem::replace(&mut lab.journal, empty);
    let report = journal.undo_all(&weir_platform::run::Host::default()).unwrap();
    assert!(report.failed.is_empty(), "{report:?}");
    assert!(!run("tc qdisc show dev up0").contains("clsact"));
    let left = filters("t0").concat();
    assert!(left.contains("0x9") && !left.contains("0x7e10"), "{left}");
    assert_eq!(run(of_others), foreign, "somebody else's stays");
}

/// Goal: devices that rules name become vifs when they come, in the order of the rules, with their
/// guest's slice and limit; they are let go when they leave; one beyond the rule's most is named.
#[test]
fn devices_are_taken_by_rule_as_they_come_and_go() {
    let Some(mut lab) = TestBridge::new("by_rule") else { return };
    let policy = by_rule();
    let apply = |lab: &mut TestBridge| {
        let applied = lab.plane.apply(&policy, &mut lab.journal).unwrap();
        let policy = &applied.compiled.policy;
        let vifs = policy.vifs.iter();
        let vifs = vifs.map(|vif| format!("{}:{}", vif.name, policy[vif.slice].name));
        let said: Vec<String> = applied.compiled.unheld.iter().map(ToString::to_string).collect();
        (vifs.collect::<Vec<_>>().join(" "), said.join("\n"), applied.plan.is_empty())
    };
    // The devices on the bridge already, t0 and t1, belong to the default slice.
    assert_eq!(apply(&mut lab).0, "t0:guests t1:guests");
    assert!(apply(&mut lab).2, "nothing is to do");
    for (guest, peer) in [("tap100i0", "g2"), ("tap100i1", "g3"), ("tap101i0", "g4")] {
        run(&format!("ip link add {guest} type veth peer name {peer}"));
        run(&format!("ip link set {guest} master br0 up"));
        run(&format!("ip link set {peer} up"));
    }
    let (vifs, said, _) = apply(&mut lab);
    assert_eq!(vifs, "tap100i0:vm-100 tap100i1:vm-100 t0:guests t1:guests");
    let wanted = "device tap101i0 is on this bridge, but rule 2 of the port has its 2 devices: \
                  it is neither limited nor isolated";
    assert!(said.contains(wanted), "{said}");
    // The limit of the guest's slice, and isolation from the others.
    // No IP: netfilter would drop what is only its header.
    lab.send("g3", &frame([0xff; 6], [2, 0, 0, 0, 3, 3], &[0x88, 0xb5]), 5);
    lab.wait("sent", |lab| lab.sent("tap100i1").passed[0] == 5);
    let foreign = |lab: &TestBridge| {
        let counts = lab.plane.counts().unwrap();
        drops(&counts.members["t0"].programs.receive, "foreign_slice")
    };
    lab.wait("not to another slice", |lab| foreign(lab) == 5);
    let classes = run("tc class show dev up0");
    assert_eq!(classes.matches("ceil 300Mbit").count(), 1, "{classes}");
    // One leaves the bridge, one the host; the one that had to wait is taken.
    let number = device_number("t0").unwrap();
    run("ip link set t0 nomaster");
    run("ip link del tap100i0");
    assert_eq!(apply(&mut lab).0, "tap100i1:vm-100 tap101i0:vm-101 t1:guests");
    assert!(!lab.links().iter().any(|link| link.starts_with(&format!("{number}-"))));
    run("ip link set t0 master br0");
    assert_eq!(apply(&mut lab).0, "tap100i1:vm-100 tap101i0:vm-101 t0:guests t1:guests");
    assert!(apply(&mut lab).2, "nothing is to do");
}

/// Goal: where a vif is guaranteed what it receives, frames from the port wait in its class before
/// the bridge, and those for nobody in that of the rest; the next process finds nothing to do, what
/// somebody removed is made again, and nothing is left without a guarantee or after an undo.
#[test]
fn what_a_port_brings_waits_for_its_turn() {
    let Some(mut lab) = TestBridge::new("what_a_port_brings") else { return };
    netfilter("0");
    let mut policy = lab.policy();
    policy.vifs[0].macs = vec![weir_policy::MacAddr(OWN)];
    lab.apply(&policy);
    let inbound = format!("wrx{}", device_number("up0").unwrap());
    let is_there = || device_number(&inbound).is_some();
    assert!(!is_there(), "nobody is guaranteed anything");
    let passes = |lab: &TestBridge| {
        let of = |lab: &TestBridge| lab.member("t0");
        let (before, queue) = (of(lab), of(lab).inbound.unwrap_or_default().sent[0]);
        lab.send("wire0", &frame(OWN, WIRE, &[0x08, 0]), 20);
        lab.send("wire0", &frame([0xff; 6], WIRE, &[0x08, 0]), 20);
        let passed = before.programs.receive.passed[0] + 40;
        lab.wait("at the vif", |lab| of(lab).programs.receive.passed[0] >= passed);
        let after = of(lab);
        let waited = after.inbound.map_or(0, |leaf| leaf.sent[0]) - queue;
        (waited, after.programs.inbound[0] - before.programs.inbound[0])
    };
    assert_eq!(passes(&lab), (0, 0));
    policy.vifs[0].receive.min_rate = weir_units::BitRate::from_mbps(300);
    lab.apply(&policy);
    assert!(is_there());
    assert_eq!(passes(&lab), (20, 20));
    let classes = run(&format!("tc class show dev {inbound}"));
    assert!(classes.contains("rate 300Mbit ceil 1Gbit"), "{classes}");
    // The next process goes on with it.
    let folder = StateDir::at(&lab.state);
    lab.plane = KernelPlane::open(&folder, "edge1", &mut lab.journal).unwrap();
    assert_eq!(passes(&lab), (20, 20));
    assert!(lab.plane.apply(&policy, &mut lab.journal).unwrap().plan.is_empty());
    run(&format!("ip link del {inbound}"));
    lab.apply(&policy);
    assert_eq!(passes(&lab), (20, 20));
    policy.vifs[0].receive.min_rate = weir_units::BitRate::ZERO;
    lab.apply(&policy);
    assert!(!is_there());
    assert_eq!(passes(&lab), (0, 0));
    policy.vifs[1].receive.min_rate = weir_units::BitRate::from_mbps(1);
    lab.apply(&policy);
    assert!(is_there());
    let host = lab.journal.host();
    let undone = lab.journal.undo_since(&host, 0).unwrap();
    assert!(undone.failed.is_empty() && !is_there(), "{undone:?}");
}

/// Goal: a hundred guests that come at once are taken by one plan, and gone by one.
#[test]
fn a_hundred_guests_come_and_go_at_once() {
    let Some(mut lab) = TestBridge::new("a_hundred_guests") else { return };
    let mut policy = by_rule();
    policy.ports[0].rules[0].devices_max = 100;
    let lines = |line: fn(u32) -> String| (0..100).map(line).collect::<Vec<_>>().join("\n");
    let batch = |text: String| {
        let path = lab.state.join("batch");
        fs::write(&path, text).unwrap();
        run(&format!("ip -batch {}", path.display()));
    };
    batch(lines(|n| format!("link add tap{n}i0 master br0 type veth peer name g{n}x")));
    let begun = Instant::now();
    let applied = lab.plane.apply(&policy, &mut lab.journal).unwrap();
    println!("100 guests taken in {:?}", begun.elapsed());
    assert_eq!(applied.compiled.policy.vifs.len(), 102);
    batch(lines(|n| format!("link del tap{n}i0")));
    let applied = lab.plane.apply(&policy, &mut lab.journal).unwrap();
    assert_eq!(applied.compiled.policy.vifs.len(), 2);
    let classes = run("tc class show dev up0");
    // The link, what no vif sends, the default slice and its two vifs.
    assert_eq!(classes.lines().count(), 5, "{classes}");
}

/// A bridge, and the data plane on it.
struct TestBridge {
    plane: KernelPlane,
    journal: Journal,
    state: PathBuf,
}

impl TestBridge {
    /// `None` without root.
    fn new(test: &str) -> Option<Self> {
        Self::with(test, HookKind::Tcx)
    }

    fn with(test: &str, hooks: HookKind) -> Option<Self> {
        // SAFETY: no pointers; affects the calling thread only.
        if unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) } != 0 {
            println!("SKIPPED {test}: needs root for network namespaces");
            return None;
        }
        println!("ON THE HOST");
        run("mount --make-rprivate /");
        // The kernel's own frames, to find neighbours, would be counted too.
        run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
        run("ip link add br0 type bridge mcast_snooping 0");
        for (device, peer) in [("up0", "wire0"), ("t0", "g0"), ("t1", "g1")] {
            run(&format!("ip link add {device} type veth peer name {peer}"));
            run(&format!("ip link set {device} master br0 up"));
            run(&format!("ip link set {peer} up"));
        }
        run("ip link set br0 up");
        Some(Self::of(test, hooks))
    }

    fn of(name: &str, hooks: HookKind) -> Self {
        let state = std::env::temp_dir().join(format!("weir-kernel-{name}-{}", std::process::id()));
        fs::create_dir_all(state.join("bpf")).unwrap();
        // Goes with the namespace of mounts.
        run(&format!("mount -t bpf bpf {}", state.join("bpf").display()));
        let folder = StateDir::at(&state);
        let mut journal = Journal::open(&folder, "test", Duration::from_secs(5)).unwrap();
        let plane = KernelPlane::open_with(hooks, &folder, "edge1", &mut journal).unwrap();
        Self { plane, journal, state }
    }

    /// Is another process, which takes over.
    fn reopen(&mut self, hooks: HookKind) {
        let folder = StateDir::at(&self.state);
        self.plane = KernelPlane::open_with(hooks, &folder, "edge1", &mut self.journal).unwrap();
    }

    /// Another node, on the same devices.
    fn second(&self) -> Self {
        let name = self.state.file_name().unwrap().to_str().unwrap();
        Self::of(&format!("{name}-second"), HookKind::Tcx)
    }

    fn policy(&self) -> Policy {
        let text = "
            version = 1
            [node]
            name = \"edge1\"
            dataplane = \"kernel\"
            [[port]]
            name = \"up0\"
            bridge = \"br0\"
            rate = \"1Gbit\"
            [[slice]]
            name = \"gold\"
            [[vif]]
            name = \"t0\"
            slice = \"gold\"
            [[vif]]
            name = \"t1\"
            slice = \"gold\"
        ";
        weir_policy::parse(text).unwrap()
    }

    /// The policy with an address for the second vif, which sends nothing; and the address.
    fn policy_of_a_silent_vif(&self) -> (Policy, [u8; 6]) {
        let (mut policy, silent) = (self.policy(), [2, 0, 0, 0, 0, 0x0b]);
        policy.vifs[1].macs = vec![weir_policy::MacAddr(silent)];
        (policy, silent)
    }

    /// A port that is slower than a sender, and a short queue of the first vif there.
    fn slow_policy(&self) -> Policy {
        let mut policy = self.policy();
        policy.ports[0].rate = weir_units::BitRate::from_mbps(10);
        policy.vifs[0].send_queue.bytes = weir_units::ByteCount::new(10_000);
        policy
    }

    fn apply(&mut self, policy: &Policy) {
        self.plane.apply(policy, &mut self.journal).unwrap();
    }

    /// The counters of a vif.
    fn member(&self, device: &str) -> MemberCounts {
        self.plane.counts().unwrap().members[device].clone()
    }

    /// The counters of the port.
    fn port(&self) -> PortCounts {
        self.plane.counts().unwrap().ports["up0"]
    }

    fn sent(&self, device: &str) -> DirectionCounts {
        self.member(device).programs.send
    }

    fn dropped(&self, device: &str, reason: &str) -> u64 {
        drops(&self.sent(device), reason)
    }

    /// The folder of the programs' tables.
    fn tables(&self) -> PathBuf {
        let mut folders = fs::read_dir(self.state.join("bpf")).unwrap();
        folders.next().unwrap().unwrap().path()
    }

    /// The names of the links that are kept.
    fn links(&self) -> Vec<String> {
        let names = fs::read_dir(self.tables().join("links")).unwrap();
        names.map(|name| name.unwrap().file_name().into_string().unwrap()).collect()
    }

    fn address_of(&self, device: &str) -> [u8; 6] {
        let text = run(&format!("ip -br link show {device}"));
        let words = text.split_whitespace();
        words.filter_map(|word| word.parse::<weir_policy::MacAddr>().ok()).next().unwrap().0
    }

    /// Sends a frame at a device, that often.
    #[allow(clippy::unused_self, reason = "the device is the bridge's")]
    fn send(&self, device: &str, frame: &[u8], times: u32) {
        send_at(device, frame, times);
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let end = Instant::now() + Duration::from_secs(60);
        while !is_so(self) {
            assert!(Instant::now() < end, "{what}: {:#?}", self.plane.counts().unwrap());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for TestBridge {
    fn drop(&mut self) {
        let _gone = Command::new("umount").arg(self.state.join("bpf")).status();
        let _gone = fs::remove_dir_all(&self.state);
    }
}

/// Sends a frame at a device, that often.
fn send_at(device: &str, frame: &[u8], times: u32) {
    // SAFETY: plain system calls; the address and the frame live until each returns.
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        assert!(socket >= 0);
        let mut to: libc::sockaddr_ll = std::mem::zeroed();
        to.sll_family = u16::try_from(libc::AF_PACKET).unwrap();
        to.sll_ifindex = device_number(device).unwrap().cast_signed();
        let length = libc::socklen_t::try_from(size_of_val(&to)).unwrap();
        for _ in 0..times {
            let sent = libc::sendto(
                socket,
                frame.as_ptr().cast(),
                frame.len(),
                0,
                (&raw const to).cast(),
                length,
            );
            assert_eq!(sent.cast_unsigned(), frame.len());
        }
        libc::close(socket);
    }
}

/// A policy without vifs: those of guests by rule, the rest in a default slice.
fn by_rule() -> Policy {
    let text = "
        version = 1
        [node]
        name = \"edge1\"
        dataplane = \"kernel\"
        [[port]]
        name = \"up0\"
        bridge = \"br0\"
        rate = \"1Gbit\"
        [[port.rule]]
        match = \"tap{vm}i{n}\"
        slice = \"vm-{vm}\"
        devices_max = 2
        send = { min_rate = \"1Mbit\" }
        slice_send = { rate = \"300Mbit\" }
        [[port.rule]]
        slice = \"guests\"
        devices_max = 2
        [[slice]]
        name = \"guests\"
    ";
    weir_policy::parse(text).unwrap()
}

/// Has netfilter see the bridge's frames in this namespace, or not; false if it never does here.
fn netfilter(sees: &str) -> bool {
    let folder = std::path::Path::new("/proc/sys/net/bridge");
    for name in ["iptables", "ip6tables", "arptables"] {
        if folder.is_dir() {
            fs::write(folder.join(format!("bridge-nf-call-{name}")), sees).unwrap();
        }
    }
    folder.is_dir()
}

/// Packets that a device received.
fn received(device: &str) -> u64 {
    let said = run(&format!("ip -j -s link show dev {device}"));
    let links: serde_json::Value = serde_json::from_str(&said).unwrap();
    links[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

fn drops(counts: &DirectionCounts, reason: &str) -> u64 {
    let at = DirectionCounts::REASONS.iter().position(|one| *one == reason).unwrap();
    counts.dropped[at][0]
}

/// Loads a program that writes a frame's mark, sets its priority to zero, and lets it pass.
fn writes_mark(mark: u32) -> std::os::fd::OwnedFd {
    use libbpf_rs::libbpf_sys;
    // Code, registers, offset, immediate value.
    let one = |code: u8, registers: u8, offset: u8, value: u32| {
        let [a, b, c, d] = value.to_ne_bytes();
        u64::from_ne_bytes([code, registers, offset, 0, a, b, c, d])
    };
    let (set, store) = (0xb4, 0x63);
    let (at_mark, at_priority) = (8, 32);
    let code = [
        one(set, 2, 0, mark),
        one(store, 0x21, at_mark, 0),
        one(set, 2, 0, 0),
        one(store, 0x21, at_priority, 0),
        // TCX_NEXT, and the end.
        one(set, 0, 0, u32::MAX),
        one(0x95, 0, 0, 0),
    ];
    // SAFETY: `bpf_insn` has eight bytes; the code and the texts live until the call returns, which
    // gives a descriptor of its own.
    unsafe {
        let program = libbpf_sys::bpf_prog_load(
            libbpf_sys::BPF_PROG_TYPE_SCHED_CLS,
            c"others".as_ptr(),
            c"MIT".as_ptr(),
            code.as_ptr().cast(),
            code.len() as u64,
            std::ptr::null_mut(),
        );
        assert!(program >= 0, "{program}");
        std::os::fd::FromRawFd::from_raw_fd(program)
    }
}

fn frame(to: [u8; 6], from: [u8; 6], kind: &[u8]) -> Vec<u8> {
    [&to[..], &from, kind, &[0; 46]].concat()
}

/// A frame of 1514 bytes from the vif to a station beyond the port.
fn long_frame() -> Vec<u8> {
    [&WIRE[..], &OWN, &[0x88, 0xb5], &[0; 1500]].concat()
}

/// A UDP datagram from 10.0.0.2 for the host to route, with a header that is sound.
fn routed(host: [u8; 6], from: [u8; 6], to: [u8; 4]) -> Vec<u8> {
    let mut header = [0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 2, 0, 0, 0, 0];
    header[16..].copy_from_slice(&to);
    let words = header.chunks_exact(2).map(|two| u32::from(u16::from_be_bytes([two[0], two[1]])));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let checksum = !u16::try_from(folded).unwrap();
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    [&host[..], &from, &[0x08, 0], &header, &[0; 26]].concat()
}

fn run(line: &str) -> String {
    let mut words = line.split(' ');
    let output = Command::new(words.next().unwrap()).args(words).output().unwrap();
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

const OWN: [u8; 6] = [2, 0, 0, 0, 0, 0x0a];
const GROUP: [u8; 6] = [1, 0x80, 0xc2, 0, 0, 0x0e];
const WIRE: [u8; 6] = [2, 0, 0, 0, 0xff, 1];
static OBJECT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/bridge.bpf.o"));
