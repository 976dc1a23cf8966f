// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tenth of the link, guaranteed, against ten vifs that flood it.

use std::time::Duration;

use weir_host::traffic::Rate;
use weir_result::{Bound, Claim, Rule};
use weir_units::BitRate;

use super::{Row, SETTLE_SECONDS, keep_saturated};
use crate::{Middle, Run, Star, Trial, TrialError};

/// Shows the row.
pub(super) fn show(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    on_the_wire(trial, row, 100, 64)?;
    on_the_wire(trial, row, 1000, 1500)
}

fn on_the_wire(
    trial: &mut Trial<'_>,
    row: &Row,
    mbps: u64,
    frame_bytes: u16,
) -> Result<(), TrialError> {
    let seconds = if trial.quick { 5 } else { 12 };
    let star = Star::new("min", 1 + FLOODERS, BitRate::from_mbps(mbps));
    let mut policy = star.policy();
    let guaranteed = mbps * 1_000_000 / 10;
    policy.vifs[0].send.min_rate = BitRate::from_bps(guaranteed);
    // The guaranteed vif offers half as much again as it is owed, each flooder a whole link.
    let offered = guaranteed + guaranteed / 2;
    let mut streams = vec![star.stream(0, 0, frame_bytes, Some(Rate::Bps(offered)))];
    for (index, stream) in (1..=FLOODERS).zip(1..) {
        let flood = Some(Rate::Bps(FLOOD_TIMES_LINK * mbps * 1_000_000 / 10));
        streams.push(star.stream(index, stream, frame_bytes, flood));
    }
    let outcome = Run {
        middle: Middle::Weir(Box::new(policy)),
        senders: vec![star.generator(streams)],
        receivers: vec![star.sink()],
        changes: Vec::new(),
        length: Duration::from_secs(seconds as u64),
        star,
    }
    .run()?;
    let part = format!("{mbps}M-{frame_bytes}B");
    let seen = (0..=u16::try_from(FLOODERS).unwrap_or(0))
        .map(|stream| (format!("t{stream}"), outcome.bits_each_second(0, stream, seconds)))
        .collect();
    keep_saturated(trial, row, &part, seen, crate::float(mbps * 1_000_000))?;
    let bound = Bound::at_least(0.99 * crate::float(guaranteed));
    let id = row.id(&format!("{part}/guaranteed"));
    let claim = Claim::new(id, "guaranteed vif, worst second", Rule::Min, bound);
    trial.judge(claim.of(&[row.id(&format!("{part}/t0"))]).skip(SETTLE_SECONDS))?;
    Ok(())
}

const FLOODERS: usize = 10;

/// What all flooders together offer, in links.
const FLOOD_TIMES_LINK: u64 = 3;
