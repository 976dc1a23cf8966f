// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two vifs of equal priority, of which one tries three times as hard, through kernel sockets.

use weir_experiment::prelude::*;

use super::SETTLE_SECONDS;

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let seconds = if rec.quick { 5 } else { 12 };
    for mbps in [100, 1000] {
        let star = StarTopology::new("fair", 2, BitRate::from_mbps(mbps));
        let senders = vec![
            star.udp(0, 0, FRAME_BYTES, None),
            star.udp(1, 1, FRAME_BYTES, None),
            star.udp(1, 2, FRAME_BYTES, None),
            star.udp(1, 3, FRAME_BYTES, None),
        ];
        let outcome = TrafficRun {
            middle: Forwarder::Weir(Box::new(star.policy())),
            senders,
            receivers: vec![star.sink()],
            changes: Vec::new(),
            length: Duration::from_secs(seconds as u64),
            star,
        }
        .run()?;
        let calm = outcome.bits_each_second(0, 0, seconds);
        let mut active = vec![0.0; seconds];
        for stream in 1..=3 {
            let bits = outcome.bits_each_second(0, stream, seconds);
            active.iter_mut().zip(bits).for_each(|(sum, bits)| *sum += bits);
        }
        let part = format!("{mbps}M");
        judge_activity(rec, &part, &outcome, seconds)?;
        let streams = vec![("calm".to_owned(), calm), ("active".to_owned(), active)];
        rec.saturated(&part, streams, float(mbps * 1_000_000), SETTLE_SECONDS)?;
        let id = format!("{part}/balance");
        let name = "least of the two in proportion to the other, worst second";
        let claim = Claim::new(id, name, Rule::LeastBalance, Bound::at_least(0.99));
        let names = ["calm", "active"].map(|name| format!("{part}/{name}"));
        rec.judge(claim.of(&names).skip(SETTLE_SECONDS))?;
    }
    Ok(())
}

/// Claims that one of the two tried harder indeed.
fn judge_activity(
    rec: &mut Recording<'_>,
    part: &str,
    outcome: &TrafficRecord,
    seconds: usize,
) -> Result<(), ExperimentError> {
    let tried = |stream| outcome.offered_each_second(stream, seconds).into_iter().sum::<f64>();
    let names = ["active", "calm"].map(|who| format!("{part}/tried/{who}"));
    let bits = [(1..=3).map(tried).sum(), tried(0)];
    for (name, bits) in names.iter().zip(bits) {
        rec.keep(name, Series::unordered("bit", vec![bits]))?;
    }
    let id = format!("{part}/activity");
    let bound = Bound::at_least(TIMES_AS_ACTIVE);
    rec.claim(id, "tried by one, of the other", Rule::RatioOfSums, bound, &names)
}

/// Three senders against one on the same processor: 3, if the kernel shares it to the microsecond.
const TIMES_AS_ACTIVE: f64 = 2.5;

const FRAME_BYTES: u16 = 1500;
