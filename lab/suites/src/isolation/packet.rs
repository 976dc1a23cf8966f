// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Everything over packet sockets, as where XDP is missing: limits and minimums hold at moderate
//! rates; a connection with the kernel's default offloads arrives whole, and its super-frames are
//! counted by their segments.

use std::net::IpAddr;

use weir_experiment::prelude::*;
use weir_policy::Kind;

use super::parts::{self, BURST_BYTES, Flow, IsolationPart, LINK_MBPS};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let seconds = parts::length(rec);
    let star = StarTopology::new("packet", 4, BitRate::from_mbps(LINK_MBPS));
    let mut policy = star.policy();
    policy.ports.iter_mut().for_each(|port| port.kind = Kind::Packet);
    policy.vifs.iter_mut().for_each(|vif| vif.kind = Kind::Packet);
    parts::limit(&mut policy.vifs[0].send, LIMIT_MBPS, BURST_BYTES);
    policy.vifs[1].send.min_rate = BitRate::from_mbps(OWED_MBPS);
    policy.node.frames = u32::try_from(policy.frames_needed()).unwrap_or(u32::MAX);
    let share = policy.vifs[0].send.clone();
    let mbps = |mbps: u64| Some(Rate::Bps(mbps * 1_000_000));
    let run = TrafficRun {
        middle: Forwarder::Weir(Box::new(policy)),
        senders: vec![
            star.udp(0, 0, 1500, mbps(5 * LIMIT_MBPS)),
            star.udp(1, 1, 1500, mbps(3 * OWED_MBPS)),
            star.udp(2, 2, 1500, mbps(3 * LINK_MBPS)),
        ],
        receivers: vec![star.sink()],
        changes: Vec::new(),
        length: Duration::from_secs(seconds as u64),
        star,
    };
    let wire = IpAddr::V4(StarTopology::wire_address());
    let (outcome, (bulk, errors)) = run.run_beside(|rig| {
        let bulk = rig.bulk("t3", ("wire", wire), BULK_BYTES)?;
        Ok((bulk, rig.checksum_errors("wire")? + rig.checksum_errors("t3")?))
    })?;
    let part = IsolationPart { name: "packet", outcome: &outcome, seconds };
    let flow = |name, stream| Flow { name, receiver: 0, stream };
    part.limited(rec, flow("limited", 0), &share)?;
    part.owed(rec, flow("owed", 1), OWED_MBPS * 1_000_000)?;
    part.none(rec, "bulk", "bytes over TCP lost or changed", bulk.wrong)?;
    part.none(rec, "checksums", "wrong checksums at the receivers", errors)?;
    let sent = outcome.status.as_ref().and_then(|status| status.vif("t3"));
    let sent = sent.map(|vif| vif.send.received).unwrap_or_default();
    let what = "packets counted, of a bulk in super-frames";
    part.at_least(rec, "segments", what, (sent.packets, BULK_BYTES.div_ceil(1460)))
}

const LIMIT_MBPS: u64 = 8;
const OWED_MBPS: u64 = 12;
const BULK_BYTES: u64 = 1_000_000;
