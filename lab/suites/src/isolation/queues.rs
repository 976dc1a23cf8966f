// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices with several receive queues: each of them is served, nothing that was granted is lost,
//! and a limit is one limit over all of them.

use std::net::Ipv4Addr;

use weir_experiment::UPLINK;
use weir_experiment::prelude::*;
use weir_platform::run::Command;
use weir_traffic::{SendMethod, SendSpec};

use super::parts::{self, BURST_BYTES, LINK_MBPS, mbps};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let mut star = StarTopology::new("queues", 2, BitRate::from_mbps(LINK_MBPS));
    star.queues = QUEUES;
    let mut policy = star.policy();
    parts::limit(&mut policy.vifs[1].send, LIMIT_MBPS, BURST_BYTES);
    policy.node.frames = u32::try_from(policy.frames_needed()).unwrap_or(u32::MAX);
    let share = policy.vifs[1].send.clone();
    let wire = StarTopology::wire_address();
    let run = TrafficRun {
        senders: vec![
            many_flows(&star, "t0", wire, 0, LIMIT_MBPS),
            many_flows(&star, "t1", wire, 1, 5 * LIMIT_MBPS),
            many_flows(&star, "wire", StarTopology::address(0), 2, LIMIT_MBPS),
        ],
        receivers: vec![star.sink(), star.sink_at("t0")],
        ..TrafficRun::new(&star, policy, parts::length(rec))
    };
    let (seen, served) = run.run_beside(|rig| {
        // Long enough for the rarest queue to have had its share.
        std::thread::sleep(Duration::from_secs(2));
        Ok([("vif", queues_served(rig, "t0")?), ("port", queues_served(rig, UPLINK)?)])
    })?;
    for (device, queues) in served {
        let what = format!("queues of the {device} that packets came by");
        rec.at_least(device, what, queues as u64, u64::from(QUEUES))?;
    }
    for (id, receiver, stream) in [("send", 0, 0), ("receive", 1, 2)] {
        let lost = seen.packets_sent(stream).abs_diff(seen.packets(receiver, stream));
        rec.none(format!("{id}/lost"), "packets below the limit lost", lost)?;
    }
    parts::limited(rec, &seen, ("limited", 0, 1), &share)
}

/// UDP over many sockets, whose flows the kernel spreads over the queues.
fn many_flows(star: &StarTopology, from: &str, to: Ipv4Addr, stream: u16, rate: u64) -> SendSpec {
    let mut flows = star.udp_from(from, to, stream, 1_000, mbps(rate));
    if let SendMethod::Udp(udp) = &mut flows.method {
        udp.connections = 64;
    }
    flows
}

/// Counts the receive queues by which a device of the switch node gave packets to XDP.
fn queues_served(rig: &Testbed, device: &str) -> Result<usize> {
    let text = rig.ask("sw", Command::new("ethtool", ["-S", device]))?;
    let packets = |line: &str| {
        let (name, value) = line.trim().split_once(": ")?;
        let queue = name.strip_prefix("rx_queue_")?.strip_suffix("_xdp_packets")?;
        queue.parse::<u32>().ok().and_then(|_| value.parse::<u64>().ok())
    };
    Ok(text.lines().filter_map(packets).filter(|packets| *packets > 0).count())
}

const QUEUES: u32 = 4;
const LIMIT_MBPS: u64 = 8;
