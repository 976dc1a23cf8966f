// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Laws that hold after every step of any traffic: no frame is lost or invented, the counters add
//! up at every interface, and no slice ever sees a frame of another.
#![allow(clippy::unwrap_used, reason = "a test stops at a surprise")]

mod common;

use common::{BROADCAST, Steps, UP, ether, mac, node, tagged, vif};
use proptest::prelude::*;
use weir_policy::{Codel, Policy, QueueKind, SchedulerKind, Slice, SmoothWindow, VifId};
use weir_switch::{Direction, IfaceId};
use weir_units::{BitRate, ByteCount, Nanos, PacketRate};

/// Two tagged slices and two untagged ones, two vifs each, with small queues and low limits.
fn four_slices(kind: SchedulerKind) -> Policy {
    let mut policy = node(BitRate::from_mbps(10));
    policy.ports[0].scheduler = kind;
    policy.node.frames = 96;
    policy.node.flows = 12;
    for at in 0..4u16 {
        let mut slice = Slice::new(&format!("s{at}"));
        slice.vlan = (at < 2).then_some(10 + at);
        slice.send.max_pps = (at == 1).then_some(PacketRate::from_pps(2000));
        let slice = policy.add_slice(slice);
        for n in 0..2 {
            let id = vif(&mut policy, &format!("s{at}.{n}"), slice);
            let config = &mut policy[id];
            config.send_queue.packets = 5;
            config.receive_queue.packets = 4;
            config.receive_queue.bytes = ByteCount::new(3000);
            config.storm = (at == 2).then_some(PacketRate::from_pps(500));
            config.macs_max = 3;
            if at % 2 == 0 {
                // One with CoDel and one without.
                (config.send_queue.kind, config.receive_queue.kind) =
                    (QueueKind::Flows, QueueKind::Flows);
            }
            if n == 0 && at % 2 == 1 {
                let short = Nanos::from_millis(2);
                let window = SmoothWindow { credit: short, delay_max: short, ..<_>::default() };
                (config.send_shaper, config.receive_shaper) = (Some(window), Some(window));
                config.send.rate = Some(BitRate::from_mbps(2));
                config.receive.rate = Some(BitRate::from_mbps(1));
            }
            if n == 1 {
                config.send.rate = Some(BitRate::from_mbps(2));
                config.receive.rate = Some(BitRate::from_mbps(1));
                let short = Nanos::from_micros(200);
                let codel = Codel { target: short, interval: Nanos::from_millis(1), ecn: false };
                config.send_queue.codel = Some(codel);
                config.receive_queue.codel = Some(codel);
            }
        }
    }
    policy
}

/// The slice in whose name a frame was made: the last byte of its payload but the mark.
fn slice_of(bytes: &[u8]) -> u8 {
    bytes[bytes.len() - 5]
}

/// A frame that says which slice it belongs to.
fn frame(to: [u8; 6], from: [u8; 6], length: usize, slice: u8) -> Vec<u8> {
    let mut bytes = ether(to, from, length.max(60), 0);
    let at = bytes.len() - 5;
    bytes[at] = slice;
    bytes
}

/// A frame of a slice as it travels beyond the port.
fn wire(bytes: Vec<u8>, slice: u8) -> Vec<u8> {
    if slice < 2 { tagged(&bytes, 10 + u16::from(slice)) } else { bytes }
}

/// Tells whether a frame may leave there: at a vif of its slice, or with the tag of its slice.
fn may_leave(iface: IfaceId, bytes: &[u8]) -> bool {
    let slice = slice_of(bytes);
    match iface.0.checked_sub(1) {
        Some(vif) => {
            let from_wire = bytes[6..12] == mac(0xff);
            vif / 2 == u32::from(slice) || (from_wire && slice > 1 && vif > 3)
        }
        None => {
            let tag = (bytes[12..14] == [0x81, 0]).then(|| bytes[15]);
            tag == (slice < 2).then_some(10 + slice)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]
    #[test]
    fn every_step_adds_up_and_no_slice_sees_another(
        kind in prop::sample::select(vec![
            SchedulerKind::Hfsc, SchedulerKind::Drr, SchedulerKind::Wrr, SchedulerKind::Fifo,
        ]),
        steps in prop::collection::vec((0u8..12, any::<u8>(), 0usize..1500), 1..400),
    ) {
        let policy = four_slices(kind);
        let mut rig = common::start(&policy);
        let mut taken = 0;
        for (what, value, length) in steps {
            let own = value % 8;
            let slice = own / 2;
            let target = match value / 8 % 6 {
                0 => BROADCAST,
                1 => mac(0xff),
                2 => mac(u32::from(own ^ 1) + 1),
                other => mac(u32::from(other) * 2),
            };
            match what {
                0..=4 => {
                    let bytes = frame(target, mac(u32::from(own) + 1), length, slice);
                    rig.put_vif(VifId(own.into()), &bytes);
                }
                5..=7 => {
                    // What comes in untagged is everyone's without a tag: slices 2 and 3.
                    let bytes = frame(target, mac(0xff), length, slice);
                    rig.put(UP, &wire(bytes, slice));
                }
                8 => rig.wait(u64::from(value) * 20_000),
                _ => {
                    let iface = IfaceId(u32::from(value % 9));
                    let Some(bytes) = rig.take(iface) else { continue };
                    taken += 1;
                    prop_assert!(may_leave(iface, &bytes), "{:?} {:?}", iface, bytes);
                }
            }
            rig.check();
            for (vif, config) in policy.vifs() {
                let held = rig.switch.waiting(vif, Direction::Receive);
                prop_assert!(held <= config.receive_queue.packets);
                let queued = rig.switch.queue_backlog(vif, Direction::Send);
                prop_assert!(queued.packets <= u64::from(config.send_queue.packets));
            }
        }
        taken += rig.drain().len() as u64;
        rig.check();
        prop_assert_eq!(rig.pool.taken(), 0);
        let mut sent = rig.counters(UP, Direction::Send).sent.packets;
        for (vif, _) in policy.vifs() {
            let counters = rig.vif_counters(vif, Direction::Receive);
            prop_assert_eq!(counters.backlog().packets, 0);
            prop_assert_eq!(rig.switch.waiting(vif, Direction::Receive), 0);
            prop_assert_eq!(rig.switch.waiting(vif, Direction::Send), 0);
            sent += counters.sent.packets;
        }
        prop_assert_eq!(sent, taken, "what was taken is what was counted as sent");
    }

    /// Credit is a promise: so many packets are taken, one after the other, without a refusal.
    #[test]
    fn credit_is_honoured(
        packets in 1u32..300, pps in 0u64..3, backlog in 0u32..20, wait in 0u64..50,
    ) {
        let mut policy = node(BitRate::from_mbps(100));
        let (slice, vif) = common::tenant(&mut policy, "a");
        policy[vif].send_queue.packets = packets;
        policy[slice].send.max_pps = (pps > 0).then(|| PacketRate::from_pps(pps * 1000));
        let mut rig = common::start(&policy);
        rig.put(UP, &ether(mac(7), mac(9), 60, 0));
        rig.drain();
        let out = ether(mac(9), mac(1), 60, 0);
        for _ in 0..backlog {
            rig.put_vif(vif, &out);
        }
        rig.wait(wait * 1_000_000);
        let refused = rig.vif_counters(vif, Direction::Send).dropped_total();
        let credit = rig.switch.credit(rig.now, vif, Direction::Send);
        for _ in 0..credit {
            rig.put_vif(vif, &out);
        }
        prop_assert_eq!(rig.vif_counters(vif, Direction::Send).dropped_total(), refused);
        rig.put_vif(vif, &out);
        let after = rig.vif_counters(vif, Direction::Send).dropped_total();
        prop_assert_eq!(after.packets, refused.packets + 1, "and it is not less than it could be");
        rig.check();
    }
}
