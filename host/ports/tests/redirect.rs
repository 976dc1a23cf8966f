// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The redirected path on real veth pairs: `t0 — t1 = n1 — n0`, a tenant and the network, and a
//! second tenant `u0 — u1` on the same bridge.
#![allow(unsafe_code)]
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)]

mod common;

use common::{PATIENCE, eventually, number, numbered, plane, pool, private_network, veth};
use weir_ports::{
    BucketId, BucketLimit, DeviceRole, FramePort, GateId, Pool, Redirect, Route, XdpConfig,
    XdpPlane, XdpPort, now,
};
use weir_switch::{FramePool, PortHeaders};
use weir_units::{BitRate, ByteCount, PacketRate};

/// Known frames pass without user space, tagged and untagged on their way; unknown ones and those
/// of another slice go to user space; a wrong source is dropped. All are counted.
#[test]
fn known_frames_pass_without_user_space() {
    if !private_network("known_frames_pass_without_user_space") {
        return;
    }
    let mut lab = Lab::new();
    lab.redirect_all(100, [None; 6]);
    // Out by the port: the slice's tag is pushed.
    lab.send(Lab::T0, &from_tenant(REMOTE, 1));
    assert_eq!(lab.arrives(Lab::N0), tagged(&from_tenant(REMOTE, 1), 100));
    // In by the port: popped.
    lab.send(Lab::N0, &tagged(&numbered(TENANT, 2, 80), 100));
    assert_eq!(lab.arrives(Lab::T0), numbered(TENANT, 2, 80));
    // Between two vifs of the bridge: neither.
    lab.send(Lab::T0, &from_tenant(NEIGHBOUR, 3));
    assert_eq!(lab.arrives(Lab::U0), from_tenant(NEIGHBOUR, 3));
    for end in [Lab::T1, Lab::N1, Lab::U1] {
        assert_eq!(lab.ends[end].statistics().received.packets, 0, "none in user space");
    }
    // To user space: unknown, to a group, tagged by the tenant, and of a VLAN that is not his.
    for frame in [
        from_tenant([2, 0, 0, 0, 7, 7], 4),
        from_tenant([0xff; 6], 5),
        tagged(&from_tenant(REMOTE, 6), 100),
    ] {
        lab.send(Lab::T0, &frame);
        assert_eq!(lab.arrives(Lab::T1), frame);
    }
    let foreign = tagged(&numbered(TENANT, 7, 80), 101);
    lab.send(Lab::N0, &foreign);
    assert_eq!(lab.arrives(Lab::N1), foreign);
    // A source that the bridge has to learn, and one that is a tenant's own.
    for source in [[2, 0, 0, 0, 9, 8], NEIGHBOUR] {
        let mut frame = tagged(&numbered(TENANT, 7, 80), 100);
        frame[6..12].copy_from_slice(&source);
        lab.send(Lab::N0, &frame);
        assert_eq!(lab.arrives(Lab::N1), frame);
    }
    lab.plane.set_route(lab.bridge(), 100, REMOTE, Route::Remote { device: 0, slice: 9 }).unwrap();
    lab.send(Lab::T0, &from_tenant(REMOTE, 8));
    assert_eq!(lab.arrives(Lab::T1), from_tenant(REMOTE, 8), "another slice's station");
    let mut spoofed = from_tenant(NEIGHBOUR, 9);
    spoofed[11] ^= 1;
    lab.send(Lab::T0, &spoofed);
    eventually("the spoofed frame is counted", || {
        lab.plane.redirect_counters(SEND).spoofed.packets == 1
    });
    let counters = lab.plane.redirect_counters(SEND);
    assert_eq!((counters.redirected.packets, counters.redirected.bytes), (2, 160));
    let counters = lab.plane.redirect_counters(RECEIVE);
    assert_eq!((counters.redirected.packets, counters.redirected.bytes), (1, 80), "no tag");
    assert_eq!(lab.plane.redirect_counters(U_RECEIVE).redirected.packets, 1);
    assert!(lab.plane.route_used(lab.bridge(), 100, NEIGHBOUR).unwrap() <= now());
}

/// Buckets of vif, router and slice hold their rates; what is refused is counted at its bucket and
/// costs the others nothing.
#[test]
fn buckets_hold_their_rates() {
    if !private_network("buckets_hold_their_rates") {
        return;
    }
    let packets = |rate, burst| BucketLimit::Packets { rate: PacketRate::from_pps(rate), burst };
    let bits = |rate, burst| BucketLimit::Bits {
        rate: BitRate::from_bps(rate),
        burst: ByteCount::new(burst),
    };
    // Frames of 80 bytes: 640 bits.
    for (position, limit, per_second, burst) in [
        (0, packets(5000, 1000), 5000.0, 1000.0),
        (3, bits(3_200_000, 80_000), 5000.0, 1000.0),
        (4, packets(5000, 1000), 5000.0, 1000.0),
    ] {
        let attempt = || {
            let mut lab = Lab::new();
            let mut buckets: [Option<BucketId>; 6] =
                [packets(1 << 40, 1 << 20), bits(1 << 40, 1 << 30)]
                    .repeat(3)
                    .into_iter()
                    .map(|limit| Some(lab.plane.new_bucket(limit).unwrap()))
                    .collect::<Vec<_>>()
                    .try_into()
                    .unwrap();
            buckets[position] = Some(lab.plane.new_bucket(limit).unwrap());
            let (sent, passed, seconds) = lab.flood(buckets, position);
            let most = burst + per_second * seconds;
            println!("{passed} of {sent} passed in {seconds} s; at most {most}");
            assert!(passed <= most, "the window law");
            // 80 %: a machine that does not run the sender for 200 ms loses credit that it had.
            sent > most && passed >= 0.8 * (burst + per_second * 0.5)
        };
        // A processor that stands still for longer than that offers too little, or loses more.
        assert!((0..3).any(|_| attempt()), "all that may pass does, and more is offered");
    }
}

/// A debt is as many packets, whatever the limit becomes; a limit that is taken away leaves nothing
/// to the next.
#[test]
fn a_bucket_owes_packets_and_not_time() {
    if !private_network("a_bucket_owes_packets_and_not_time") {
        return;
    }
    let packets = |rate, burst| BucketLimit::Packets { rate: PacketRate::from_pps(rate), burst };
    // Empty, it owes for longer than anything here is waited for.
    let slow = packets(1, BURST);
    let mut lab = Lab::new();
    let bucket = lab.plane.new_bucket(slow).unwrap();
    let of = |bucket| [Some(bucket), None, None, None, None, None];
    lab.redirect_all(0, of(bucket));
    let began = now();
    // Packets of so many sent that passed.
    let pass = |lab: &mut Lab, sent: u64| {
        let counted = |lab: &Lab| {
            let counters = lab.plane.redirect_counters(SEND);
            (counters.redirected.packets, counters.redirected.packets + counters.policed[0].packets)
        };
        let before = counted(lab);
        (0..sent).for_each(|_| lab.send(Lab::T0, &from_tenant(REMOTE, 0)));
        eventually("all are decided", || counted(lab).1 == before.1 + sent);
        counted(lab).0 - before.0
    };
    // The credit that came with time, by the slow limit and a second more.
    let earned =
        |began: weir_units::Instant| now().saturating_since(began).as_nanos() / 1_000_000_000 + 1;
    assert!(pass(&mut lab, BURST + 5) >= BURST, "it was full");
    // Twice the room, and as many packets owed as before: the other half is free at once.
    lab.plane.set_bucket(bucket, packets(2, 2 * BURST)).unwrap();
    let passed = pass(&mut lab, 2 * BURST);
    let most = BURST + 3 * earned(began);
    assert!((BURST..=most).contains(&passed), "{passed} of {BURST} to {most}");
    // With as much room, each of the packets that it owes takes twice as long: none is free, where
    // half of the room would be if it owed time.
    lab.plane.set_bucket(bucket, packets(1, 2 * BURST)).unwrap();
    let (passed, most) = (pass(&mut lab, BURST), 3 * earned(began));
    assert!(passed <= most, "{passed} of {most}");
    lab.plane.set_redirect(SEND, None).unwrap();
    lab.plane.free_bucket(bucket);
    let again = lab.plane.new_bucket(slow).unwrap();
    assert_eq!(again, bucket, "the one that was used last");
    lab.redirect_all(0, of(again));
    assert!(pass(&mut lab, BURST + 5) >= BURST, "it is full again");
}

/// A path that is refused is off, and what it would have passed goes to user space.
#[test]
fn a_path_that_is_refused_is_off() {
    if !private_network("a_path_that_is_refused_is_off") {
        return;
    }
    let mut lab = Lab::new();
    lab.redirect_all(0, [None; 6]);
    lab.send(Lab::T0, &from_tenant(REMOTE, 1));
    assert_eq!(lab.arrives(Lab::N0), from_tenant(REMOTE, 1));
    let many = Redirect { macs: vec![TENANT; 5], bridge: lab.bridge(), ..Redirect::default() };
    let refused = lab.plane.set_redirect(SEND, Some(&many)).unwrap_err().to_string();
    assert!(refused.contains("5 source addresses; at most 4"), "{refused}");
    lab.send(Lab::T0, &from_tenant(REMOTE, 2));
    assert_eq!(lab.arrives(Lab::T1), from_tenant(REMOTE, 2));
}

/// Going over to the redirected path under traffic loses and reorders nothing, and back.
#[test]
fn engaging_keeps_the_order() {
    if !private_network("engaging_keeps_the_order") {
        return;
    }
    let mut lab = Lab::new();
    let mut backlog = std::collections::VecDeque::new();
    let (mut sent, mut expected, mut passed_on) = (0, 0, 0_u32);
    let mut frames = Vec::with_capacity(64);
    let (mut asked, mut engaged_at, mut back_at) = (false, None, None);
    let start = now();
    while expected < 30_000 {
        let elapsed = now().saturating_since(start).as_nanos();
        assert!(u128::from(elapsed) < PATIENCE.as_nanos(), "{expected} of {sent}");
        match sent {
            10_000 if !asked => {
                lab.redirect_all(0, [None; 6]);
                asked = true;
            }
            20_000 if back_at.is_none() => {
                lab.plane.set_redirect(SEND, None).unwrap();
                back_at = Some(passed_on);
            }
            _ => {}
        }
        // 24 frames at most on the way, so that no ring overflows; a pause every 500, in which
        // user space empties.
        while sent < 30_000 && sent - expected < if sent % 500 == 0 { 1 } else { 24 } {
            lab.send(Lab::T0, &from_tenant(REMOTE, sent));
            sent += 1;
            if sent % 100 == 0 {
                break;
            }
        }
        // User space: a queue of up to 16 that is served more slowly than it fills.
        lab.ends[Lab::T1].receive(&mut lab.pool, 8, &mut frames);
        backlog.extend(frames.drain(..));
        let keep = if sent % 500 == 0 { 0 } else { 4 };
        while backlog.len() > keep {
            let frame = backlog.pop_front().unwrap();
            lab.ends[Lab::N1].transmit(&mut lab.pool, frame).unwrap();
            passed_on += 1;
        }
        lab.ends[Lab::N1].flush(&mut lab.pool).unwrap();
        lab.ends[Lab::N1].transmit_room(&mut lab.pool);
        lab.plane.gates().drained(SEND, backlog.len() as u64);
        if lab.plane.redirects(SEND) && engaged_at.is_none() {
            engaged_at = Some(sent);
        }
        lab.ends[Lab::N0].receive(&mut lab.pool, 64, &mut frames);
        for frame in frames.drain(..) {
            assert_eq!(number(lab.pool.data(frame)), expected, "in order, none lost");
            expected += 1;
            lab.pool.free(frame.id);
        }
    }
    let redirected = lab.plane.redirect_counters(SEND).redirected.packets;
    println!("engaged after {engaged_at:?}, {redirected} redirected, {passed_on} by user space");
    assert!(redirected > 5000 && passed_on > 15_000, "both ways were used");
    assert_eq!(redirected + u64::from(passed_on), 30_000);
    assert!(back_at.unwrap() < passed_on, "user space has taken over again");
}

/// Six devices; the middle ones (`1`) are the switch's, the outer ones (`0`) the test's own.
struct Lab {
    plane: XdpPlane,
    pool: Pool,
    ends: Vec<XdpPort>,
}

impl Lab {
    const T0: usize = 0;
    const T1: usize = 1;
    const N1: usize = 2;
    const N0: usize = 3;
    const U1: usize = 4;
    const U0: usize = 5;

    fn new() -> Self {
        let (mut plane, mut pool) = (plane(), pool());
        for (outer, inner) in [("t0", "t1"), ("n0", "n1"), ("u0", "u1")] {
            let _ = std::process::Command::new("ip").args(["link", "del", outer]).output();
            veth(outer, inner, 1);
        }
        let roles = [
            ("t0", DeviceRole::Vif(GateId(10))),
            ("t1", DeviceRole::Vif(SEND)),
            ("n1", DeviceRole::Port(FLOOD)),
            ("n0", DeviceRole::Vif(GateId(11))),
            ("u1", DeviceRole::Vif(U_SEND)),
            ("u0", DeviceRole::Vif(GateId(12))),
        ];
        let ends = roles.map(|(device, role)| {
            let config = XdpConfig { fill: 512, ..XdpConfig::new(device, role) };
            XdpPort::open(&config, &mut plane, &mut pool).unwrap()
        });
        (0..16).for_each(|gate| plane.gates().open(GateId(gate)));
        Self { plane, pool, ends: ends.into() }
    }

    fn bridge(&self) -> u32 {
        self.ends[Self::N1].device_index()
    }

    /// Both tenants in both directions; the first tenant's send with those buckets.
    fn redirect_all(&mut self, vlan: u16, buckets: [Option<BucketId>; 6]) {
        let bridge = self.bridge();
        let headers = PortHeaders::new(vlan, None);
        let path = Redirect { bridge, number: vlan, headers, slice: 1, ..Redirect::default() };
        let send = Redirect { macs: vec![TENANT], buckets, ..path.clone() };
        self.plane.set_redirect(SEND, Some(&send)).unwrap();
        for gate in [RECEIVE, U_SEND, U_RECEIVE] {
            self.plane.set_redirect(gate, Some(&path)).unwrap();
        }
        let device = |end: usize| self.ends[end].device_index();
        let vif = |gate, end| Route::Vif { gate, device: device(end), slice: 1 };
        let routes = [
            (TENANT, vif(RECEIVE, Self::T1)),
            (NEIGHBOUR, vif(U_RECEIVE, Self::U1)),
            (REMOTE, Route::Remote { device: bridge, slice: 1 }),
            (SOURCE, Route::Remote { device: bridge, slice: 1 }),
        ];
        for (mac, route) in routes {
            self.plane.set_route(bridge, vlan, mac, route).unwrap();
        }
    }

    /// Sends for half a second by the tenant's path with those buckets: what was sent, what passed
    /// and how long it took, in seconds, until all was decided at that bucket.
    fn flood(&mut self, buckets: [Option<BucketId>; 6], position: usize) -> (f64, f64, f64) {
        let start = now();
        self.redirect_all(0, buckets);
        self.plane.set_redirect(RECEIVE, None).unwrap();
        let mut sent = 0_u64;
        // Nobody reads at the other end; its gate counts.
        while now().saturating_since(start).as_nanos() < 500_000_000 {
            sent += 1;
            self.send(Self::T0, &from_tenant(REMOTE, 0));
            if sent.is_multiple_of(64) {
                std::thread::yield_now();
            }
        }
        eventually("all are decided", || {
            let counters = self.plane.redirect_counters(SEND);
            counters.redirected.packets + counters.policed[position].packets == sent
        });
        let seconds = now().saturating_since(start).as_nanos() as f64 / 1e9;
        let passed = self.plane.redirect_counters(SEND).redirected.packets as f64;
        (sent as f64, passed, seconds)
    }

    fn send(&mut self, end: usize, bytes: &[u8]) {
        let port = &mut self.ends[end];
        eventually("room to send", || port.transmit_room(&mut self.pool) > 0);
        let frame = self.pool.copy_in(bytes).unwrap();
        port.transmit(&mut self.pool, frame).unwrap();
        eventually("the device takes it", || port.flush(&mut self.pool).unwrap() == 0);
    }

    /// The next frame at that end, which must be the only one anywhere.
    fn arrives(&mut self, end: usize) -> Vec<u8> {
        let mut frames = Vec::with_capacity(4);
        eventually("a frame", || self.ends[end].receive(&mut self.pool, 4, &mut frames) > 0);
        assert_eq!(frames.len(), 1);
        let bytes = self.pool.data(frames[0]).to_vec();
        self.pool.free(frames[0].id);
        for other in 0..self.ends.len() {
            assert_eq!(self.ends[other].receive(&mut self.pool, 4, &mut frames), 0, "{other}");
        }
        bytes
    }
}

fn from_tenant(to: [u8; 6], number: u32) -> Vec<u8> {
    let mut frame = numbered(to, number, 80);
    frame[6..12].copy_from_slice(&TENANT);
    frame
}

fn tagged(frame: &[u8], vlan: u16) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame.splice(12..12, [0x81, 0, (vlan >> 8) as u8, vlan as u8]);
    frame
}

const TENANT: [u8; 6] = [2, 0, 0, 0, 0, 1];
const NEIGHBOUR: [u8; 6] = [2, 0, 0, 0, 0, 2];
const REMOTE: [u8; 6] = [2, 0, 0, 0, 0, 3];

/// The source of the frames of `numbered`.
const SOURCE: [u8; 6] = [2, 0, 0, 0, 9, 9];

/// Frames of a full bucket.
const BURST: u64 = 500;

const SEND: GateId = GateId(0);
const RECEIVE: GateId = GateId(1);
const U_SEND: GateId = GateId(2);
const U_RECEIVE: GateId = GateId(3);
const FLOOD: GateId = GateId(4);
