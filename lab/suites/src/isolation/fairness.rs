// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two vifs of equal priority, of which one tries three times as hard, through kernel sockets.

use weir_experiment::prelude::*;

use super::parts::{SETTLE_SECONDS, long};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    for mbps in [100, 1000] {
        let star = StarTopology::new("fair", 2, BitRate::from_mbps(mbps));
        let sender = |(tenant, stream)| star.udp(tenant, stream, FRAME_BYTES, None);
        let outcome = TrafficRun {
            senders: [(0, 0), (1, 1), (1, 2), (1, 3)].map(sender).into(),
            receivers: vec![star.sink()],
            ..TrafficRun::new(&star, star.policy(), long(rec))
        }
        .run()?;
        rec.within(&format!("{mbps}M/"), |rec| judge(rec, &outcome, mbps))?;
    }
    Ok(())
}

/// Claims that one of the two tried harder indeed, and that they shared a full link equally.
fn judge(rec: &mut Recording<'_>, outcome: &TrafficRecord, mbps: u64) -> Result {
    let tried = |stream| outcome.offered(stream).into_iter().sum::<f64>();
    let names = ["tried/active", "tried/calm"];
    for (name, bits) in names.into_iter().zip([(1..=3).map(tried).sum(), tried(0)]) {
        rec.keep(name, Series::unordered("bit", vec![bits]))?;
    }
    let bound = Bound::at_least(TIMES_AS_ACTIVE);
    rec.claim("activity", "tried by one, of the other", Rule::RatioOfSums, bound, &names)?;
    let streams = [("calm", outcome.got(0, 0)), ("active", outcome.got_together(0, 1..=3))];
    rec.saturated(streams, float(mbps * 1_000_000), SETTLE_SECONDS)?;
    let name = "least of the two in proportion to the other, worst second";
    let claim = Claim::new("balance", name, Rule::LeastBalance, Bound::at_least(0.99));
    rec.judge(claim.of(&["calm", "active"]).skip(SETTLE_SECONDS))
}

/// Three senders against one on the same processor: 3, if the kernel shares it to the microsecond.
const TIMES_AS_ACTIVE: f64 = 2.5;

const FRAME_BYTES: u16 = 1500;
