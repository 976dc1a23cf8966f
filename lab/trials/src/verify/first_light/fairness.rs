// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Two vifs of equal priority, of which one tries three times as hard, through kernel sockets.

use std::time::Duration;

use weir_result::{Bound, Claim, Rule, Series};
use weir_units::BitRate;

use super::{Row, SETTLE_SECONDS, keep_saturated};
use crate::{Middle, Outcome, Run, Star, Trial, TrialError};

/// Shows the row.
pub(super) fn show(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    let seconds = if trial.quick { 5 } else { 12 };
    for mbps in [100, 1000] {
        let star = Star::new("fair", 2, BitRate::from_mbps(mbps));
        let senders = vec![
            star.udp(0, 0, FRAME_BYTES, None),
            star.udp(1, 1, FRAME_BYTES, None),
            star.udp(1, 2, FRAME_BYTES, None),
            star.udp(1, 3, FRAME_BYTES, None),
        ];
        let outcome = Run {
            middle: Middle::Weir(Box::new(star.policy())),
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
        judge_activity(trial, row, &part, &outcome, seconds)?;
        let streams = vec![("calm".to_owned(), calm), ("active".to_owned(), active)];
        keep_saturated(trial, row, &part, streams, crate::float(mbps * 1_000_000))?;
        let id = row.id(&format!("{part}/balance"));
        let name = "least of the two in proportion to the other, worst second";
        let claim = Claim::new(id, name, Rule::LeastBalance, Bound::at_least(0.99));
        let names = ["calm", "active"].map(|name| row.id(&format!("{part}/{name}")));
        trial.judge(claim.of(&names).skip(SETTLE_SECONDS))?;
    }
    Ok(())
}

/// Claims that one of the two tried harder indeed.
fn judge_activity(
    trial: &mut Trial<'_>,
    row: &Row,
    part: &str,
    outcome: &Outcome,
    seconds: usize,
) -> Result<(), TrialError> {
    let tried = |stream| outcome.offered_each_second(stream, seconds).into_iter().sum::<f64>();
    let names = ["active", "calm"].map(|who| row.id(&format!("{part}/tried/{who}")));
    let bits = [(1..=3).map(tried).sum(), tried(0)];
    for (name, bits) in names.iter().zip(bits) {
        trial.keep(name, Series::unordered("bit", vec![bits]))?;
    }
    let id = row.id(&format!("{part}/activity"));
    let bound = Bound::at_least(TIMES_AS_ACTIVE);
    let claim = Claim::new(id, "tried by one, of the other", Rule::RatioOfSums, bound);
    trial.judge(claim.of(&names))?;
    Ok(())
}

/// Three senders against one on the same processor: 3, if the kernel shares it to the microsecond.
const TIMES_AS_ACTIVE: f64 = 2.5;

const FRAME_BYTES: u16 = 1500;
