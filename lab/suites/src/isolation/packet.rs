// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything over packet sockets, as where XDP is missing: limits and minimums hold at moderate
//! rates; a connection with the kernel's default offloads arrives whole, and its super-frames are
//! counted by their segments.

use std::net::IpAddr;

use weir_experiment::prelude::*;
use weir_policy::Kind;

use super::parts::{self, BURST_BYTES, LINK_MBPS, mbps};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("packet", 4, BitRate::from_mbps(LINK_MBPS));
    let mut policy = star.policy();
    policy.ports.iter_mut().for_each(|port| port.kind = Kind::Packet);
    policy.vifs.iter_mut().for_each(|vif| vif.kind = Kind::Packet);
    parts::limit(&mut policy.vifs[0].send, LIMIT_MBPS, BURST_BYTES);
    policy.vifs[1].send.min_rate = BitRate::from_mbps(OWED_MBPS);
    policy.node.frames = u32::try_from(policy.frames_needed()).unwrap_or(u32::MAX);
    let share = policy.vifs[0].send.clone();
    let run = TrafficRun {
        senders: vec![
            star.udp(0, 0, 1500, mbps(5 * LIMIT_MBPS)),
            star.udp(1, 1, 1500, mbps(3 * OWED_MBPS)),
            star.udp(2, 2, 1500, mbps(3 * LINK_MBPS)),
        ],
        receivers: vec![star.sink()],
        ..TrafficRun::new(&star, policy, parts::length(rec))
    };
    let wire = IpAddr::V4(StarTopology::wire_address());
    let (seen, (bulk, errors)) = run.run_beside(|rig| {
        let bulk = rig.bulk("t3", ("wire", wire), BULK_BYTES)?;
        Ok((bulk, rig.checksum_errors(&["wire", "t3"])?))
    })?;
    parts::limited(rec, &seen, ("limited", 0, 0), &share)?;
    parts::owed(rec, &seen, ("owed", 0, 1), OWED_MBPS)?;
    rec.none("bulk", "bytes over TCP lost or changed", bulk.wrong)?;
    rec.none("checksums", "wrong checksums at the receivers", errors)?;
    let sent = seen.status.as_ref().and_then(|status| status.vif("t3"));
    let sent = sent.map_or(0, |vif| vif.send.received.packets);
    let what = "packets counted, of a bulk in super-frames";
    rec.at_least("segments", what, sent, BULK_BYTES.div_ceil(1460))
}

const LIMIT_MBPS: u64 = 8;
const OWED_MBPS: u64 = 12;
const BULK_BYTES: u64 = 1_000_000;
