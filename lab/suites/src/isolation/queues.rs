// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Devices with several receive queues: each of them is served, nothing that was granted is lost,
//! and a limit is one limit over all of them.

use std::net::{IpAddr, SocketAddr};

use weir_experiment::UPLINK;
use weir_experiment::prelude::*;
use weir_platform::run::Command;
use weir_traffic::{FrameSizes, SendSpec, UdpSend};

use super::parts::{self, BURST_BYTES, Flow, IsolationPart, LINK_MBPS};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let seconds = parts::length(rec);
    let star = StarTopology {
        queues: QUEUES,
        ..StarTopology::new("queues", 2, BitRate::from_mbps(LINK_MBPS))
    };
    let mut policy = star.policy();
    parts::limit(&mut policy.vifs[1].send, LIMIT_MBPS, BURST_BYTES);
    policy.node.frames = u32::try_from(policy.frames_needed()).unwrap_or(u32::MAX);
    let share = policy.vifs[1].send.clone();
    let run = TrafficRun {
        middle: Forwarder::Weir(Box::new(policy)),
        senders: vec![
            many_flows(&star, "t0", StarTopology::wire_address().into(), 0, IN_PROFILE_MBPS),
            many_flows(&star, "t1", StarTopology::wire_address().into(), 1, 5 * LIMIT_MBPS),
            many_flows(&star, "wire", StarTopology::address(0).into(), 2, IN_PROFILE_MBPS),
        ],
        receivers: vec![star.sink(), star.sink_at("t0")],
        changes: Vec::new(),
        length: Duration::from_secs(seconds as u64),
        star,
    };
    let (outcome, served) = run.run_beside(|rig| {
        // Long enough for the rarest queue to have had its share.
        std::thread::sleep(Duration::from_secs(2));
        Ok([packets_of_queues(rig, "t0")?, packets_of_queues(rig, UPLINK)?])
    })?;
    let part = IsolationPart { name: "queues", outcome: &outcome, seconds };
    for (device, packets) in ["vif", "port"].into_iter().zip(served) {
        let queues = packets.iter().filter(|packets| **packets > 0).count();
        let what = format!("queues of the {device} that packets came by");
        part.at_least(rec, device, &what, (queues as u64, u64::from(QUEUES)))?;
    }
    for (id, receiver, stream) in [("send", 0, 0), ("receive", 1, 2)] {
        let lost = part.sent(stream).abs_diff(part.packets(receiver, stream));
        part.none(rec, &format!("{id}/lost"), "packets below the limit lost", lost)?;
    }
    part.limited(rec, Flow { name: "limited", receiver: 0, stream: 1 }, &share)
}

/// UDP over many sockets, whose flows the kernel spreads over the queues.
fn many_flows(star: &StarTopology, from: &str, to: IpAddr, stream: u16, mbps: u64) -> SendSpec {
    let send = UdpSend {
        stream,
        to: SocketAddr::new(to, 9_000),
        from: None,
        connections: FLOWS,
        rate: Some(Rate::Bps(mbps * 1_000_000)),
        sizes: FrameSizes::Fixed(1_000),
        count: None,
        buffer_bytes: None,
    };
    star.udp_from(from, send)
}

/// Packets that a device of the switch node gave to XDP, by receive queue.
fn packets_of_queues(rig: &Testbed, device: &str) -> Result<Vec<u64>, ExperimentError> {
    let text = rig.ask("sw", Command::new("ethtool", ["-S", device]))?;
    let queue = |line: &str| {
        let (name, value) = line.trim().split_once(": ")?;
        let queue = name.strip_prefix("rx_queue_")?.strip_suffix("_xdp_packets")?;
        queue.parse::<u32>().ok()?;
        value.parse().ok()
    };
    Ok(text.lines().filter_map(queue).collect())
}

const QUEUES: u32 = 4;
const FLOWS: u32 = 64;
const LIMIT_MBPS: u64 = 8;
const IN_PROFILE_MBPS: u64 = 8;
