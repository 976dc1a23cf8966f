// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Once it runs, the switch allocates nothing: counted by the allocator itself. One test, in a
//! binary of its own, so that nothing else allocates meanwhile.
#![allow(unsafe_code, reason = "an allocator that counts can only be written so")]
#![allow(clippy::unwrap_used, reason = "a test stops at a surprise")]

mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use common::{BROADCAST, Rig, Steps, UP, ether, mac, node, tagged};
use weir_policy::{Codel, QueueKind, SchedulerKind, Slice, VifId};
use weir_switch::{FramePool, IfaceId, Transmit};
use weir_units::{BitRate, PacketRate};

struct Counting;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

fn count() {
    // During the end of a thread there is nothing to count any more.
    let _ = COUNT.try_with(|count| count.set(count.get() + 1));
}

// SAFETY: every call is passed on unchanged to the system's allocator, whose contract is the same.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count();
        // SAFETY: the caller's promises are passed on.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Frames of all kinds, at most once a pool of chunks, then everything is taken: one round.
fn round(rig: &mut Rig, frames: &[(IfaceId, Vec<u8>)], interfaces: u32) -> u64 {
    let mut sent = 0;
    for (from, bytes) in frames {
        let Some(id) = rig.pool.alloc() else { break };
        let len = u16::try_from(bytes.len()).unwrap();
        let frame = weir_switch::Frame { id, offset: weir_sim::MemoryPool::HEADROOM, len };
        rig.pool.data(frame).copy_from_slice(bytes);
        rig.switch.receive_batch(rig.now, *from, &[frame], &mut rig.pool);
        rig.wait(5_000);
        let _ = rig.switch.credit(rig.now, VifId(0), weir_switch::Direction::Send);
        rig.switch.advance(rig.now, &mut rig.pool);
        for iface in 0..interfaces {
            let out = rig.switch.transmit(rig.now, IfaceId(iface), &mut rig.pool);
            if let Transmit::Frame(frame) = out {
                rig.pool.free(frame.id);
                sent += 1;
            }
        }
    }
    sent
}

#[test]
fn no_packet_costs_an_allocation() {
    let kinds = [SchedulerKind::Hfsc, SchedulerKind::Drr, SchedulerKind::Wfq];
    for kind in [&kinds[..], &[SchedulerKind::Wrr, SchedulerKind::Strict]].concat() {
        let mut policy = node(BitRate::from_mbps(100));
        policy.ports[0].scheduler = kind;
        for slice in 0..4u16 {
            let mut config = Slice::new(&format!("s{slice}"));
            config.vlan = (slice > 1).then_some(100 + slice);
            config.send.rate = Some(BitRate::from_mbps(40));
            config.receive.max_pps = Some(PacketRate::from_pps(50_000));
            let slice = policy.add_slice(config);
            for vif in 0..3 {
                let id = common::vif(&mut policy, &format!("{}.{vif}", slice.0), slice);
                policy[id].send.min_rate = BitRate::from_mbps(5);
                policy[id].send_queue.codel = Some(Codel::default());
                policy[id].send_queue.packets = 16;
                // The other vifs have one queue.
                if vif == 0 {
                    policy[id].send_queue.kind = QueueKind::Flows;
                }
                policy[id].receive.rate = Some(BitRate::from_mbps(30));
            }
        }
        let mut rig = common::start(&policy);
        let mut frames = Vec::new();
        for vif in 0..12u32 {
            let (from, own) = (IfaceId(1 + vif), mac(vif + 1));
            let neighbour = mac(vif / 3 * 3 + (vif + 1) % 3 + 1);
            for to in [mac(0xff), neighbour, BROADCAST, mac(0xfe)] {
                frames.push((from, ether(to, own, 60 + vif as usize * 90, vif)));
                let back = ether(own, mac(0xff), 200, vif);
                let slice = u16::try_from(vif / 3).unwrap();
                let wire = if slice > 1 { tagged(&back, 100 + slice) } else { back };
                frames.push((UP, wire));
            }
            frames.push((from, ether(mac(0xff), mac(1000 + vif), 60, vif)));
            frames.push((from, tagged(&ether(mac(0xff), own, 60, vif), 9)));
        }
        // Queues, heaps and tables reach their size.
        for _ in 0..40 {
            round(&mut rig, &frames, 13);
        }
        let before = COUNT.with(Cell::get);
        let mut sent = 0;
        for _ in 0..40 {
            sent += round(&mut rig, &frames, 13);
        }
        let allocations = COUNT.with(Cell::get) - before;
        assert!(sent > 2000, "{kind:?} {sent}");
        let flows = rig.switch.flow_counters(VifId(0), weir_switch::Direction::Send).started;
        assert!(flows > 80, "{kind:?}: {flows} flows began");
        assert_eq!(allocations, 0, "{kind:?}: {sent} frames");
        // The counter counts.
        drop(std::hint::black_box(Box::new(7)));
        assert_eq!(COUNT.with(Cell::get) - before, 2);
    }
}
