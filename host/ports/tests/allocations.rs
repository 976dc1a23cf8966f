// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No port allocates per packet: an allocator that counts, and ten thousand frames each.
#![allow(unsafe_code)]
#![allow(clippy::cast_possible_truncation, clippy::unwrap_used)]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{UNICAST, numbered, plane, pool, private_network, udp, veth};
use weir_ports::{
    DeviceRole, FramePort, GateId, MemoryPort, PacketConfig, PacketPort, Pool, TapConfig, TapPort,
    XdpConfig, XdpPort, now,
};
use weir_switch::{Frame, FramePool};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is the system allocator's own; the counter does not allocate.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is passed on.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn no_port_allocates_per_packet() {
    let mut pool = pool();
    let (mut a, mut b) = MemoryPort::pair(["a", "b"], 256);
    assert!(ALLOCATIONS.with(Cell::get) > 0, "the counter counts");
    assert_eq!(exchange(&mut a, &mut b, &mut pool), 0, "memory");
    if !private_network("no_port_allocates_per_packet") {
        return;
    }
    let mut plane = plane();
    veth("a0", "a1", 1);
    let mut ends = ["a0", "a1"].map(|device| {
        let config = XdpConfig::new(device, DeviceRole::Vif(GateId(0)));
        XdpPort::open(&config, &mut plane, &mut pool).unwrap()
    });
    plane.gates().open(GateId(0));
    let [a, b] = &mut ends;
    assert_eq!(exchange(a, b, &mut pool), 0, "AF_XDP");
    ends.into_iter().for_each(|end| end.close(&mut plane, &mut pool));
    let mut ends =
        ["a0", "a1"].map(|device| PacketPort::open(&PacketConfig::new(device), None).unwrap());
    let [a, b] = &mut ends;
    assert_eq!(exchange(a, b, &mut pool), 0, "AF_PACKET");
    let mut tap = TapPort::open(&TapConfig::new("tap0")).unwrap();
    common::run("ip link set tap0 up");
    let mut other = PacketPort::open(&PacketConfig::new("tap0"), None).unwrap();
    assert_eq!(exchange(&mut tap, &mut other, &mut pool), 0, "TAP");
}

/// Allocations while ten thousand frames go from one port to the other, the first hundred apart.
fn exchange(from: &mut impl FramePort, to: &mut impl FramePort, pool: &mut Pool) -> u64 {
    let mut frames: Vec<Frame> = Vec::with_capacity(64);
    let bytes = if from.name() == "tap0" { udp(0, 1) } else { numbered(UNICAST, 0, 60) };
    let (mut got, mut sent, mut before) = (0, 0, 0);
    let start = now();
    while got < 10_000 {
        assert!(now().saturating_since(start).as_nanos() < 10_000_000_000, "{got} within 10 s");
        let room = from.transmit_room(pool).min(32).min(100 + got - sent);
        for _ in 0..room {
            let frame = pool.copy_in(&bytes).unwrap();
            from.transmit(pool, frame).unwrap();
            sent += 1;
        }
        from.flush(pool).unwrap();
        got += to.receive(pool, 64, &mut frames);
        frames.drain(..).for_each(|frame| pool.free(frame.id));
        if got <= 100 {
            before = ALLOCATIONS.with(Cell::get);
        }
    }
    ALLOCATIONS.with(Cell::get) - before
}
