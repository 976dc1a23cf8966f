// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The host's own stack behind a vif, on a node whose only way to the wire becomes a port: it is
//! reached as before while a tenant floods, has its minimum, and finds everything in its place
//! when the node is gone.

use std::net::IpAddr;

use weir_experiment::Bulk;
use weir_experiment::UPLINK;
use weir_experiment::prelude::*;
use weir_platform::run::Command;
use weir_policy::{Kind, MacAddr, PortId, Slice, Vif};

use super::parts::{self, LINK_MBPS, mbps};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let mut star = StarTopology::new("hostvif", 1, BitRate::from_mbps(LINK_MBPS));
    star.host = true;
    // A little more than is asked of it, since a busy machine makes its sender late.
    let rate = mbps(OWED_MBPS + 2);
    let run = TrafficRun {
        senders: vec![
            star.udp_from("sw", StarTopology::wire_address(), 0, 1500, rate),
            star.generator(vec![star.stream(0, 1, 1500, mbps(3 * LINK_MBPS))]),
        ],
        receivers: vec![star.sink()],
        ..TrafficRun::new(&star, policy(&star), parts::length(rec))
    };
    let mut rig = Testbed::up(&star)?;
    let before = addresses(&rig)?;
    rig.put(&run.middle)?;
    let moved = rig.ask("sw", Command::new("ip", ["-o", "-4", "addr", "show", "dev", UPLINK]))?;
    let (seen, met) = run.flow(&rig, meet_host)?;
    rig.stop_node()?;
    let after = addresses(&rig)?;
    let pings = rig.ping("wire", IpAddr::V4(StarTopology::host().0), PINGS)?;
    rig.down()?;

    parts::owed(rec, &seen, ("udp", 0, 0), OWED_MBPS)?;
    let left = moved.lines().count() as u64;
    rec.none("addresses", "addresses left on the NIC while the node runs", left)?;
    let few = u64::from(PINGS);
    rec.at_least("ping", "answers to pings beside a flood", met.pings, few)?;
    for (id, bulk) in [("to-host", met.to_host), ("from-host", met.from_host)] {
        rec.none(id, "bytes over TCP lost or changed", bulk.wrong)?;
    }
    rec.none("checksums", "wrong checksums at the receivers", met.checksum_errors)?;
    rec.at_least("after/ping", "answers to pings without the node", pings, few)?;
    let differ = before.lines().count().abs_diff(after.lines().count())
        + before.lines().zip(after.lines()).filter(|(a, b)| a != b).count();
    let what = "lines of addresses and routes that are not as before";
    rec.none("after/changed", what, differ as u64)
}

/// Result of the host's stack during the flood.
struct HostTraffic {
    pings: u64,
    to_host: Bulk,
    from_host: Bulk,
    checksum_errors: u64,
}

fn meet_host(rig: &Testbed) -> Result<HostTraffic> {
    let [host, wire] = [StarTopology::host().0, StarTopology::wire_address()].map(IpAddr::V4);
    Ok(HostTraffic {
        pings: rig.ping("wire", host, PINGS)?,
        to_host: rig.bulk("wire", ("sw", host), BULK_BYTES)?,
        from_host: rig.bulk("sw", ("wire", wire), BULK_BYTES)?,
        checksum_errors: rig.checksum_errors(&["sw", "wire"])?,
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

/// Addresses, routes and devices of the switch node's host.
fn addresses(rig: &Testbed) -> Result<String> {
    let lines = ["ip -o addr show", "ip route show table all", "ip -o link show"];
    lines.iter().map(|line| rig.ask("sw", Command::line(line))).collect()
}

const OWED_MBPS: u64 = 12;
const PINGS: u32 = 20;
const BULK_BYTES: u64 = 500_000;
