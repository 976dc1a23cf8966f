// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Connections with the kernel's default offloads over XDP: to the wire, from it, and between two
//! tenants. They reach their limits, and what arrives is whole.

use std::net::IpAddr;

use weir_experiment::prelude::*;

use super::parts::{self, BURST_BYTES, IsolationPart, LINK_MBPS};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let seconds = parts::length(rec);
    let star = StarTopology::new("tcp", 4, BitRate::from_mbps(LINK_MBPS));
    let mut policy = parts::in_slices(&star, &[("limited", None, 1), ("two", None, 3)]);
    parts::limit(&mut policy.vifs[0].send, LIMIT_MBPS, BURST_BYTES);
    let share = policy.vifs[0].send.clone();
    let run = TrafficRun {
        middle: Forwarder::Weir(Box::new(policy)),
        senders: vec![star.tcp(0, 0, 4)],
        receivers: vec![star.sink(), star.tcp_server()],
        changes: Vec::new(),
        length: Duration::from_secs(seconds as u64),
        star,
    };
    let (wire, t2) =
        (IpAddr::V4(StarTopology::wire_address()), IpAddr::V4(StarTopology::address(2)));
    let (outcome, (bulks, errors)) = run.run_beside(|rig| {
        let bulks = [
            ("to-wire", rig.bulk("t1", ("wire", wire), BULK_BYTES)?),
            ("from-wire", rig.bulk("wire", ("t2", t2), BULK_BYTES)?),
            ("between-tenants", rig.bulk("t1", ("t2", t2), BULK_BYTES)?),
        ];
        let at = ["wire", "t0", "t1", "t2"].map(|node| rig.checksum_errors(node));
        let errors: Result<u64, ExperimentError> = at.into_iter().sum();
        Ok((bulks, errors?))
    })?;
    let part = IsolationPart { name: "offloads", outcome: &outcome, seconds };
    for (id, bulk) in bulks {
        part.none(rec, id, "bytes over TCP lost or changed", bulk.wrong)?;
    }
    part.none(rec, "checksums", "wrong checksums at the receivers", errors)?;
    let bits = outcome.source_bits_each_second(0, StarTopology::mac(0), seconds);
    part.limited_bits(rec, "limited", bits, &share)
}

const LIMIT_MBPS: u64 = 20;
const BULK_BYTES: u64 = 2_000_000;
