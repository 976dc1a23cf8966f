// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The changes of row 11, one value each. None takes from a flow what it needs: 5 Mb/s for those
//! of vifs 0, 2, 3 and 4, 1 Mb/s for that of vif 1. Limits have a burst for packets that come in
//! lumps: a port without hierarchy drops what exceeds them.

use std::net::IpAddr;

use weir_experiment::prelude::*;
use weir_policy::{
    Codel, Filter, FilterAction, Layer, MacAddr, Overbooking, Router, RouterId, SchedulerKind,
    Slice, SliceId,
};

use super::parts::{self, BURST_BYTES, LINK_MBPS};

/// A change of one value.
pub(super) type ChangeStep = fn(&mut Policy);

/// In this order, each on top of those before it.
pub(super) const STEPS: &[ChangeStep] = &[
    |p| p.vifs[5].send.priority = 2,
    |p| p.vifs[5].send.priority = 1,
    |p| p.vifs[0].send.min_rate = BitRate::from_mbps(10),
    |p| parts::limit(&mut p.vifs[0].send, 30, BURST_BYTES),
    |p| p.vifs[0].send.burst = ByteCount::new(64 << 10),
    |p| p.vifs[0].send.max_pps = Some(PacketRate::from_pps(50_000)),
    |p| p.vifs[0].send_queue.packets = 2048,
    |p| p.vifs[0].send_queue.bytes = ByteCount::new(4 << 20),
    |p| p.vifs[0].delay = Some(Nanos::from_millis(5)),
    |p| p.vifs[0].delay_packet = ByteCount::new(1000),
    |p| p.vifs[2].receive.min_rate = BitRate::from_mbps(6),
    |p| parts::limit(&mut p.vifs[2].receive, 20, BURST_BYTES),
    |p| p.vifs[2].receive_queue.packets = 512,
    |p| p.vifs[4].receive.max_pps = Some(PacketRate::from_pps(50_000)),
    |p| parts::limit(&mut p.vifs[3].send, 20, BURST_BYTES),
    |p| p.ports[0].rate = BitRate::from_mbps(LINK_MBPS + 20),
    |p| p.ports[0].layer = Layer::L1,
    |p| p.ports[0].overhead = 4,
    |p| p.ports[0].catch_up = Nanos::from_millis(30),
    |p| {
        let router = p.add_router(Router::new("r0", SliceId(0)));
        p.vifs[0].router = Some(router);
    },
    |p| parts::limit(&mut p.routers[0].send, 35, BURST_BYTES),
    |p| p.vifs[1].router = Some(RouterId(0)),
    |p| {
        p.vifs[..2].iter_mut().for_each(|vif| vif.router = None);
        p.routers.clear();
    },
    |p| parts::limit(&mut p.slices[0].send, 35, BURST_BYTES),
    |p| p.slices[0].send.priority = 3,
    |p| p.vifs[0].filter = vec![no_dns()],
    |p| p.vifs[0].filter.clear(),
    |p| p.vifs[5].storm = Some(PacketRate::from_pps(100)),
    |p| p.vifs[5].macs_max = 4,
    |p| p.vifs[1].macs.push(MacAddr([2, 0, 0, 7, 7, 7])),
    |p| p.vifs[0].addresses = vec![IpAddr::V4(StarTopology::address(0))],
    |p| p.vifs[0].addresses.clear(),
    |p| p.vifs[0].send_queue.codel = Some(patient()),
    |p| p.vifs[0].send_queue.codel = None,
    |p| p.node.overbooking = Overbooking::from_thousandths(1500),
    |p| p.ports[0].scheduler = SchedulerKind::Drr,
    |p| p.ports[0].scheduler = SchedulerKind::Wfq,
    |p| p.ports[0].scheduler = SchedulerKind::Wrr,
    |p| p.ports[0].scheduler = SchedulerKind::Hfsc,
    |p| p.slices.push(Slice::new("more")),
    |p| p.slices.truncate(4),
    |p| p.slices[0].vlan = Some(7),
    |p| p.slices[0].vlan = None,
];

/// Active queue management that only a queue of half a second would notice.
fn patient() -> Codel {
    let (target, interval) = (Nanos::from_millis(100), Nanos::from_millis(500));
    Codel { target, interval, ecn: true }
}

/// A filter that none of the flows meets.
fn no_dns() -> Filter {
    Filter {
        action: FilterAction::Drop,
        direction: None,
        mac: None,
        vlan: None,
        src: None,
        dst: None,
        protocol: Some(17),
        port: Some(53),
    }
}
