// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Traffic between vifs of one node: limits of sender and receiver hold there, too, and it takes
//! nothing from the others' guarantees on the wire.

use weir_experiment::prelude::*;

use super::parts::{self, BURST_BYTES, LINK_MBPS, mbps};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("inside", 6, BitRate::from_mbps(LINK_MBPS));
    let mut policy =
        parts::in_slices(&star, &[("inside", None, 4), ("owed", None, 1), ("flood", None, 1)]);
    parts::limit(&mut policy.vifs[0].send, LIMIT_MBPS, BURST_BYTES);
    parts::limit(&mut policy.vifs[3].receive, LIMIT_MBPS, BURST_BYTES);
    policy.vifs[4].send.min_rate = BitRate::from_mbps(OWED_MBPS);
    policy.vifs[4].receive.min_rate = BitRate::from_mbps(OWED_MBPS);
    let (sender, receiver) = (policy.vifs[0].send.clone(), policy.vifs[3].receive.clone());
    let (owed, flood) = (mbps(3 * OWED_MBPS), mbps(3 * LINK_MBPS));
    let streams = vec![
        star.stream_between(0, 1, 0, mbps(5 * LIMIT_MBPS)),
        star.stream_between(2, 3, 1, mbps(5 * LIMIT_MBPS)),
        star.stream(4, 2, 1500, owed),
        star.stream(5, 3, 1500, flood),
        star.stream_towards(4, 4, 1500, owed),
        star.stream_towards(5, 5, 1500, flood),
    ];
    let seen = TrafficRun {
        senders: vec![star.generator(streams)],
        receivers: ["wire", "t1", "t3", "t4", "t5"].map(|node| star.sink_at(node)).into(),
        ..TrafficRun::new(&star, policy, parts::length(rec))
    }
    .run()?;
    parts::limited(rec, &seen, ("sender", 1, 0), &sender)?;
    parts::limited(rec, &seen, ("receiver", 2, 1), &receiver)?;
    parts::owed(rec, &seen, ("send", 0, 2), OWED_MBPS)?;
    parts::owed(rec, &seen, ("receive", 3, 4), OWED_MBPS)?;
    parts::full(rec, &seen, [2, 3])?;
    let inside = seen.packets(0, 0) + seen.packets(0, 1);
    rec.none("on-the-wire", "frames between vifs that the wire saw", inside)
}

const LIMIT_MBPS: u64 = 8;
const OWED_MBPS: u64 = 12;
