// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tap sees what its vif sends and receives, in order, within its bounds.

mod common;

use common::{Steps, UP, ether, mac, node, tenant};
use weir_policy::{Filter, FilterAction, MacAddr};
use weir_switch::{CaptureConfig, CaptureCounters, Direction, pcapng};
use weir_units::BitRate;

#[test]
fn both_directions_are_seen_in_order_and_losses_counted() {
    let mut policy = node(BitRate::from_mbps(1000));
    let (_, a) = tenant(&mut policy, "a");
    let (_, other) = tenant(&mut policy, "other");
    let mut rig = common::start(&policy);
    let config = CaptureConfig { snaplen: 20, frames: 3, ..CaptureConfig::default() };
    assert!(rig.switch.capture_start(a, &config));
    rig.put_vif(other, &ether(mac(9), mac(3), 60, 0));
    rig.put_vif(a, &ether(mac(9), mac(1), 60, 1));
    rig.drain();
    rig.wait(1000);
    rig.put(UP, &ether(mac(1), mac(9), 100, 2));
    rig.drain();
    rig.put_vif(a, &ether(mac(9), [0; 6], 60, 3));
    rig.put_vif(a, &ether(mac(9), mac(1), 60, 4));
    let mut seen = Vec::new();
    let counters = rig.switch.capture_read(a, |frame| {
        assert_eq!(frame.bytes.len(), 20);
        seen.push((frame.direction, frame.length, frame.bytes[6..12].to_vec()));
    });
    assert_eq!(counters, Some(CaptureCounters { seen: 4, lost: 1 }));
    let expected = [
        (Direction::Send, 60, mac(1).to_vec()),
        (Direction::Receive, 100, mac(9).to_vec()),
        (Direction::Send, 60, vec![0; 6]),
    ];
    assert_eq!(seen, expected, "refused frames are seen too");
    rig.switch.capture_stop(a);
    rig.put_vif(a, &ether(mac(9), mac(1), 60, 5));
    assert_eq!(rig.switch.capture_read(a, |_| panic!("stopped")), None);
}

#[test]
fn a_filter_chooses_what_is_captured() {
    let mut policy = node(BitRate::from_mbps(1000));
    let (_, a) = tenant(&mut policy, "a");
    let mut rig = common::start(&policy);
    let only = Filter { mac: Some(MacAddr(mac(7))), ..Filter::new(FilterAction::Accept) };
    let filter = vec![only, Filter::new(FilterAction::Drop)];
    rig.switch.capture_start(a, &CaptureConfig { filter, ..CaptureConfig::default() });
    for station in 5..9 {
        rig.put_vif(a, &ether(mac(station), mac(1), 60, 0));
    }
    let mut out = Vec::new();
    pcapng::section(&mut out, "weir");
    pcapng::interface(&mut out, "a", 1522);
    let empty = out.len();
    let counters = rig.switch.capture_read(a, |frame| pcapng::packet(&mut out, 0, 0, &frame));
    assert_eq!(counters, Some(CaptureCounters { seen: 1, lost: 0 }));
    assert_eq!(out.len() - empty, 32 + 60 + 12);
}
