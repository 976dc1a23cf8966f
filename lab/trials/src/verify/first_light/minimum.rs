// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A tenth of the link, guaranteed, against ten vifs that flood it.

use std::time::Duration;

use weir_policy::VifId;
use weir_result::{Bound, Claim, Rule};
use weir_traffic::Rate;
use weir_units::BitRate;

use super::{Row, judge_owed, keep_saturated};
use crate::in_memory::{Departure, InMemory, Source, bits_each_second};
use crate::{Middle, Run, Star, Trial, TrialError};

/// Shows the row.
pub(super) fn show(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    on_the_wire(trial, row, 100, 64)?;
    on_the_wire(trial, row, 1000, 1500)?;
    in_memory(trial, row)
}

/// 999 floods between ports in memory, in virtual time.
fn in_memory(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    let seconds = if trial.quick { 3 } else { 5 };
    let link = BitRate::from_mbps(1000);
    let mut policy = Star::new("memory", CLASSES, link).policy();
    let guaranteed = link.as_bps() / 10;
    policy.vifs[0].send.min_rate = BitRate::from_bps(guaranteed);
    let source = |(id, _): (VifId, _)| {
        let floods = FLOOD_TIMES_LINK * link.as_bps() / CLASSES as u64;
        let offered = if id == VifId(0) { guaranteed + guaranteed / 2 } else { floods };
        Source::new(id, 1500, offered)
    };
    let mut sources: Vec<Source> = policy.vifs().map(source).collect();
    let end_ns = crate::clock::nanos(Duration::from_secs(seconds as u64));
    let departures = InMemory::new(&policy)?.run(&mut sources, end_ns)?;
    let of = |departure: &Departure| Departure {
        source: usize::from(departure.source != 0),
        ..*departure
    };
    let departures: Vec<Departure> = departures.iter().map(of).collect();
    let streams = ["guaranteed", "floods"].into_iter().zip(0..);
    let bits = |(name, source): (&str, usize)| {
        (name.to_owned(), bits_each_second(&departures, source, seconds))
    };
    keep_saturated(trial, row, "memory", streams.map(bits).collect(), crate::float(link.as_bps()))?;
    let name = row.id("memory/guaranteed");
    let bound = Bound::at_least(0.99 * crate::float(guaranteed));
    let id = row.id("memory/worst");
    let claim = Claim::new(id, "guaranteed vif against 999 floods, worst second", Rule::Min, bound);
    trial.judge(claim.of(&[name]))?;
    Ok(())
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
    let seen = [outcome.bits_each_second(0, 0, seconds), outcome.offered_each_second(0, seconds)];
    let id = row.id(&format!("{part}/guaranteed"));
    judge_owed(trial, &id, "guaranteed vif", seen, crate::float(guaranteed))
}

const FLOODERS: usize = 10;

/// With ports in memory.
const CLASSES: usize = 1000;

/// What all flooders together offer, in links.
const FLOOD_TIMES_LINK: u64 = 3;
