// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts that know nobody's address: ARP and neighbour discovery, ping and TCP, over IPv4 and
//! IPv6, to the wire and between tenants whose addresses the bridge learns.

use std::net::{IpAddr, Ipv4Addr};

use weir_experiment::prelude::*;

use super::parts::{self, LINK_MBPS};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let mut star = StarTopology::new("asking", 3, BitRate::from_mbps(LINK_MBPS));
    star.resolves = true;
    let mut policy = parts::in_slices(&star, &[("two", None, 2), ("other", None, 1)]);
    // The second tenant's address is learned.
    policy.vifs[1].macs.clear();
    let (wire, tenant) = (StarTopology::wire_address(), StarTopology::address);
    let paths = [
        ("t0", "wire", wire),
        ("t1", "wire", wire),
        ("wire", "t2", tenant(2)),
        ("t0", "t1", tenant(1)),
        ("t1", "t0", tenant(0)),
    ];
    let (_, (pings, wrong, errors)) = TrafficRun::new(&star, policy, 0).run_beside(|rig| {
        let mut wrong = 0;
        for ip in both(wire) {
            wrong += rig.bulk("t1", ("wire", ip), BULK_BYTES)?.wrong;
        }
        let errors = rig.checksum_errors(&["wire", "t0", "t1", "t2"])?;
        let mut pings = Vec::new();
        for (from, to, ip) in paths {
            for (family, ip) in ["ipv4", "ipv6"].into_iter().zip(both(ip)) {
                pings.push((format!("{family}/{from}-{to}"), rig.ping(from, ip, PINGS)?));
            }
        }
        Ok((pings, wrong, errors))
    })?;
    for (id, answers) in pings {
        rec.at_least(id, "answers to pings", answers, u64::from(PINGS))?;
    }
    rec.none("bulk", "bytes over TCP lost or changed", wrong)?;
    rec.none("checksums", "wrong checksums at the receivers", errors)
}

/// Returns an address of each family.
fn both(ip: Ipv4Addr) -> [IpAddr; 2] {
    [IpAddr::V4(ip), IpAddr::V6(StarTopology::ipv6(ip))]
}

const PINGS: u32 = 10;
const BULK_BYTES: u64 = 200_000;
