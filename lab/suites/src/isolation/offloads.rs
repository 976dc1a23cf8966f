// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections with the kernel's default offloads over XDP: to the wire, from it, and between two
//! tenants. They reach their limits, and what arrives is whole.

use std::net::IpAddr;

use weir_experiment::prelude::*;

use super::parts::{self, BURST_BYTES, LINK_MBPS};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("tcp", 4, BitRate::from_mbps(LINK_MBPS));
    let mut policy = parts::in_slices(&star, &[("limited", None, 1), ("two", None, 3)]);
    parts::limit(&mut policy.vifs[0].send, LIMIT_MBPS, BURST_BYTES);
    let share = policy.vifs[0].send.clone();
    let run = TrafficRun {
        senders: vec![star.tcp(0, 0, 4)],
        receivers: vec![star.sink(), star.tcp_server()],
        ..TrafficRun::new(&star, policy, parts::length(rec))
    };
    let [wire, t2] = [StarTopology::wire_address(), StarTopology::address(2)].map(IpAddr::V4);
    let (seen, (bulks, errors)) = run.run_beside(|rig| {
        let bulks = [
            ("to-wire", rig.bulk("t1", ("wire", wire), BULK_BYTES)?),
            ("from-wire", rig.bulk("wire", ("t2", t2), BULK_BYTES)?),
            ("between-tenants", rig.bulk("t1", ("t2", t2), BULK_BYTES)?),
        ];
        Ok((bulks, rig.checksum_errors(&["wire", "t0", "t1", "t2"])?))
    })?;
    for (id, bulk) in bulks {
        rec.none(id, "bytes over TCP lost or changed", bulk.wrong)?;
    }
    rec.none("checksums", "wrong checksums at the receivers", errors)?;
    parts::limited_bits(rec, "limited", seen.got_from(0, StarTopology::mac(0)), &share)
}

const LIMIT_MBPS: u64 = 20;
const BULK_BYTES: u64 = 2_000_000;
