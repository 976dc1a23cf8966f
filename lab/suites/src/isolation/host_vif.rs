// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's own stack behind a vif, on a node whose only way to the wire becomes a port: it is
//! reached as before while a tenant floods, has its minimum, and finds everything in its place
//! when the node is gone.

use std::net::{IpAddr, SocketAddr};

use weir_experiment::Bulk;
use weir_experiment::UPLINK;
use weir_experiment::prelude::*;
use weir_platform::run::Command;
use weir_policy::{Kind, MacAddr, PortId, Slice, Vif};
use weir_traffic::{FrameSizes, UdpSend};

use super::parts::{self, Flow, IsolationPart, LINK_MBPS};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let seconds = parts::length(rec);
    let star = StarTopology {
        host: true,
        ..StarTopology::new("hostvif", 1, BitRate::from_mbps(LINK_MBPS))
    };
    let middle = Forwarder::Weir(Box::new(policy(&star)));
    let flood = Some(Rate::Bps(3 * LINK_MBPS * 1_000_000));
    let run = TrafficRun {
        middle: middle.clone(),
        senders: vec![
            star.udp_from("sw", from_host()),
            star.generator(vec![star.stream(0, 1, 1500, flood)]),
        ],
        receivers: vec![star.sink()],
        changes: Vec::new(),
        length: Duration::from_secs(seconds as u64),
        star,
    };
    let mut rig = Testbed::up(&run.star)?;
    let before = addresses(&rig)?;
    rig.put(&middle)?;
    let moved = rig.ask("sw", Command::new("ip", ["-o", "-4", "addr", "show", "dev", UPLINK]))?;
    let (outcome, met) = run.flow(&rig, meet_host)?;
    rig.stop_node()?;
    let after = addresses(&rig)?;
    let pings = rig.ping("wire", IpAddr::V4(StarTopology::host().0), PINGS)?;
    rig.down()?;

    let part = IsolationPart { name: "host", outcome: &outcome, seconds };
    let flow = Flow { name: "udp", receiver: 0, stream: 0 };
    part.owed(rec, flow, OWED_MBPS * 1_000_000)?;
    let left = moved.lines().count() as u64;
    part.none(rec, "addresses", "addresses left on the NIC while the node runs", left)?;
    let few = u64::from(PINGS);
    part.at_least(rec, "ping", "answers to pings beside a flood", (met.pings, few))?;
    for (id, bulk) in [("to-host", met.to_host), ("from-host", met.from_host)] {
        part.none(rec, id, "bytes over TCP lost or changed", bulk.wrong)?;
    }
    part.none(rec, "checksums", "wrong checksums at the receivers", met.checksum_errors)?;
    part.at_least(rec, "after/ping", "answers to pings without the node", (pings, few))?;
    let differ = before.lines().count().abs_diff(after.lines().count())
        + before.lines().zip(after.lines()).filter(|(a, b)| a != b).count();
    let what = "lines of addresses and routes that are not as before";
    part.none(rec, "after/changed", what, differ as u64)
}

/// Result of the host's stack during the flood.
struct HostTraffic {
    pings: u64,
    to_host: Bulk,
    from_host: Bulk,
    checksum_errors: u64,
}

fn meet_host(rig: &Testbed) -> Result<HostTraffic, ExperimentError> {
    let (host, wire) =
        (IpAddr::V4(StarTopology::host().0), IpAddr::V4(StarTopology::wire_address()));
    Ok(HostTraffic {
        pings: rig.ping("wire", host, PINGS)?,
        to_host: rig.bulk("wire", ("sw", host), BULK_BYTES)?,
        from_host: rig.bulk("sw", ("wire", wire), BULK_BYTES)?,
        checksum_errors: rig.checksum_errors("sw")? + rig.checksum_errors("wire")?,
    })
}

/// The tenant's vif, and the host's with a minimum.
fn policy(star: &StarTopology) -> Policy {
    let mut policy = star.policy();
    let slice = policy.add_slice(Slice::new("host"));
    let mut vif = Vif::new("host", slice, PortId(0));
    (vif.device, vif.kind) = ("hv0".to_owned(), Kind::Host);
    vif.macs = vec![MacAddr(StarTopology::host().1.0)];
    // What the stream takes of it leaves room for the rest.
    vif.send.min_rate = BitRate::from_mbps(OWED_MBPS + 8);
    policy.add_vif(vif);
    policy.node.frames = u32::try_from(policy.frames_needed()).unwrap_or(u32::MAX);
    policy
}

/// The host's own stream.
fn from_host() -> UdpSend {
    UdpSend {
        stream: 0,
        to: SocketAddr::new(IpAddr::V4(StarTopology::wire_address()), 9_000),
        from: None,
        connections: 1,
        // A little more than is asked of it, since a busy machine makes its sender late.
        rate: Some(Rate::Bps((OWED_MBPS + 2) * 1_000_000)),
        sizes: FrameSizes::Fixed(1500),
        count: None,
        buffer_bytes: None,
    }
}

/// Addresses, routes and devices of the switch node's host.
fn addresses(rig: &Testbed) -> Result<String, ExperimentError> {
    let addresses = rig.ask("sw", Command::new("ip", ["-o", "addr", "show"]))?;
    let routes = rig.ask("sw", Command::new("ip", ["route", "show", "table", "all"]))?;
    let links = rig.ask("sw", Command::new("ip", ["-o", "link", "show"]))?;
    Ok(addresses + &routes + &links)
}

const OWED_MBPS: u64 = 12;
const PINGS: u32 = 20;
const BULK_BYTES: u64 = 500_000;
