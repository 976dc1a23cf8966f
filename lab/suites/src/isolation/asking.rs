// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts that know nobody's address: ARP and neighbour discovery, ping and TCP, over IPv4 and
//! IPv6, to the wire and between tenants whose addresses the bridge learns.

use std::net::{IpAddr, Ipv4Addr};

use weir_experiment::prelude::*;

use super::parts::{self, IsolationPart, LINK_MBPS};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let star = StarTopology {
        resolves: true,
        ..StarTopology::new("asking", 3, BitRate::from_mbps(LINK_MBPS))
    };
    let mut policy = parts::in_slices(&star, &[("two", None, 2), ("other", None, 1)]);
    // The second tenant's address is learned.
    policy.vifs[1].macs.clear();
    let run = TrafficRun {
        middle: Forwarder::Weir(Box::new(policy)),
        senders: Vec::new(),
        receivers: Vec::new(),
        changes: Vec::new(),
        length: Duration::ZERO,
        star,
    };
    let (outcome, (pings, wrong, errors)) = run.run_beside(|rig| {
        let mut wrong = 0;
        for ip in both(StarTopology::wire_address()) {
            wrong += rig.bulk("t1", ("wire", ip), BULK_BYTES)?.wrong;
        }
        let at = ["wire", "t0", "t1", "t2"].map(|node| rig.checksum_errors(node));
        let errors: Result<u64, ExperimentError> = at.into_iter().sum();
        Ok((pings(rig)?, wrong, errors?))
    })?;
    let part = IsolationPart { name: "asking", outcome: &outcome, seconds: 0 };
    for (id, answers) in pings {
        part.at_least(rec, &id, "answers to pings", (answers, u64::from(PINGS)))?;
    }
    part.none(rec, "bulk", "bytes over TCP lost or changed", wrong)?;
    part.none(rec, "checksums", "wrong checksums at the receivers", errors)
}

/// Pings over each way and each family: a name, and how many answers came.
fn pings(rig: &Testbed) -> Result<Vec<(String, u64)>, ExperimentError> {
    let ways = [
        ("t0", "wire", StarTopology::wire_address()),
        ("t1", "wire", StarTopology::wire_address()),
        ("wire", "t2", StarTopology::address(2)),
        ("t0", "t1", StarTopology::address(1)),
        ("t1", "t0", StarTopology::address(0)),
    ];
    let mut seen = Vec::new();
    for (from, to, ip) in ways {
        for (family, ip) in ["ipv4", "ipv6"].into_iter().zip(both(ip)) {
            seen.push((format!("{family}/{from}-{to}"), rig.ping(from, ip, PINGS)?));
        }
    }
    Ok(seen)
}

/// An address of each family.
fn both(ip: Ipv4Addr) -> [IpAddr; 2] {
    [IpAddr::V4(ip), IpAddr::V6(StarTopology::ipv6(ip))]
}

const PINGS: u32 = 10;
const BULK_BYTES: u64 = 200_000;
