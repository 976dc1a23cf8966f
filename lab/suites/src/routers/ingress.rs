// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node's side of the routers' interfaces: Weir's data plane between source, router and sink,
//! on the redirected path, with one limit of packets for each router where they enter the node.
//!
//! A router hangs on two bridges: source and router on the first, router and sink on the second.
//! What is above its limit is dropped where it enters, in the sender's own time. Who probes the
//! router enters by another way.

use weir_experiment::prelude::*;
use weir_platform::netns::Namespace;
use weir_policy::MacAddr;
use weir_policy::Share;
use weir_ports::{
    BucketId, BucketLimit, DeviceRole, GateId, PlaneLimits, Pool, Redirect, Route, XdpConfig,
    XdpPlane, XdpPort,
};

/// A data plane over the node's ends of all links. It lets go of them with this value.
#[derive(Debug)]
pub(crate) struct Ingress {
    plane: XdpPlane,
    // Each holds its device, and chunks of the pool.
    _ports: Vec<XdpPort>,
    _pool: Pool,
    doors: Vec<BucketId>,
}

/// The node's devices of a router's links, and who is behind each.
#[derive(Clone, Debug)]
pub(crate) struct RouterLine {
    /// To the source, to the router, from the router, to the sink; to who probes, to who answers.
    pub(crate) devices: [String; 6],
    /// The addresses behind them.
    pub(crate) macs: [MacAddr; 6],
}

impl Ingress {
    /// Takes over the devices, which are in the namespace `node`. Nothing is limited yet.
    pub(crate) fn open(node: &Namespace, lines: &[RouterLine]) -> Result<Self, ExperimentError> {
        node.run(|| Self::open_here(lines))?
    }

    fn open_here(lines: &[RouterLine]) -> Result<Self, ExperimentError> {
        let count = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        let vifs = count.saturating_mul(VIFS);
        let limits = PlaneLimits { gates: 2 * vifs, devices: vifs, sockets: vifs, stations: vifs };
        let mut plane = XdpPlane::load(limits)?;
        let mut pool = Pool::new(vifs.saturating_mul(CHUNKS_A_PORT), 2048)?;
        let (mut ports, mut doors) = (Vec::new(), Vec::new());
        for (line, first) in lines.iter().zip((0_u32..).step_by(GATES)) {
            let bucket = plane.new_bucket(limit(None))?;
            let mut indexes = Vec::new();
            for (device, send) in line.devices.iter().zip((first..).step_by(2)) {
                let role = DeviceRole::Vif(GateId(send));
                let config = XdpConfig {
                    ring: 64,
                    fill: 64,
                    transmit_limit: 64,
                    ..XdpConfig::new(device, role)
                };
                let port = XdpPort::open(&config, &mut plane, &mut pool)?;
                indexes.push(port.device_index());
                ports.push(port);
            }
            for (vif, (mac, (index, send))) in
                line.macs.iter().zip(indexes.iter().zip((first..).step_by(2))).enumerate()
            {
                let inside = [0, 1, 4].contains(&vif);
                let bridge = if inside { indexes.first() } else { indexes.get(2) };
                let bridge = bridge.copied().unwrap_or(0);
                let receive = GateId(send + 1);
                let route = Route::Vif { gate: receive, device: *index, slice: 1 };
                plane.set_route(bridge, 0, mac.0, route)?;
                let path = Redirect { bridge, slice: 1, ..Redirect::default() };
                plane.set_redirect(receive, Some(&path))?;
                let mut enters = path;
                if OUTER.contains(&vif) {
                    enters.buckets[ROUTER_PACKETS] = Some(bucket);
                }
                plane.set_redirect(GateId(send), Some(&enters))?;
            }
            doors.push(bucket);
        }
        Ok(Self { plane, _ports: ports, _pool: pool, doors })
    }

    /// Lets so many packets a second in to a router, over both of its interfaces; `None`: all.
    pub(crate) fn limit(
        &mut self,
        router: usize,
        rate: Option<PacketRate>,
    ) -> Result<(), ExperimentError> {
        match self.doors.get(router) {
            Some(bucket) => Ok(self.plane.set_bucket(*bucket, limit(rate))?),
            None => Err(ExperimentError::Node(format!("no router {router}"))),
        }
    }

    /// Packets that came for a router so far, with those that its limit dropped.
    pub(crate) fn offered(&self, router: usize) -> u64 {
        let first = u32::try_from(router).unwrap_or(u32::MAX).saturating_mul(2 * VIFS);
        let sent = OUTER.map(|vif| {
            let send = GateId(first.saturating_add(u32::try_from(2 * vif).unwrap_or(0)));
            let counted = self.plane.redirect_counters(send);
            let policed: u64 = counted.policed.iter().map(|tally| tally.packets).sum();
            counted.redirected.packets + policed
        });
        sent.into_iter().sum()
    }
}

/// A limit's bucket holds 1 ms, or [`BURST_LEAST`] packets.
fn limit(rate: Option<PacketRate>) -> BucketLimit {
    match rate {
        Some(rate) => {
            let burst = (rate.as_pps() / 1000).max(BURST_LEAST);
            BucketLimit::Packets { rate: rate.max(PacketRate::from_pps(1)), burst }
        }
        None => BucketLimit::Packets { rate: PacketRate::from_pps(1 << 30), burst: 1 << 20 },
    }
}

/// Interfaces of a router's line.
const VIFS: u32 = 6;

/// Gates of them: each sends and receives.
const GATES: usize = 2 * VIFS as usize;

/// Those where packets enter the node: at the source and at the sink.
const OUTER: [usize; 2] = [0, 3];

/// The position of the packets of a router among a path's buckets.
const ROUTER_PACKETS: usize = 2;

/// On the redirected path no chunk is ever used; a port opens with some all the same.
const CHUNKS_A_PORT: u32 = 256;

/// As the node's.
const BURST_LEAST: u64 = Share::BURST_PACKETS;
