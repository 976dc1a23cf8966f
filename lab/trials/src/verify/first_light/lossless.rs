// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Eight senders fill a link for a minute: what the scheduler let go is what the sink saw.

use std::time::Duration;

use weir_policy::{Direction, VifId};
use weir_result::{Bound, Claim, Rule, Series};
use weir_traffic::Rate;
use weir_units::BitRate;

use super::{Row, keep_saturated};
use crate::in_memory::{InMemory, Source};
use crate::{Middle, Run, Star, Trial, TrialError};

/// Shows the row.
pub(super) fn show(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    on_the_wire(trial, row)?;
    in_memory(trial, row)
}

/// Senders in memory wait instead of losing frames.
fn in_memory(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    let policy = Star::new("held", SENDERS, BitRate::from_mbps(LINK_MBPS)).policy();
    let each = 2 * LINK_MBPS * 1_000_000 / SENDERS as u64;
    let source = |(id, _): (VifId, _)| Source::new(id, 1500, each).waiting();
    let mut sources: Vec<Source> = policy.vifs().map(source).collect();
    let mut memory = InMemory::new(&policy)?;
    let departures = memory.run(&mut sources, 2_000_000_000)?;
    let counters = policy
        .vifs()
        .filter_map(|(id, _)| memory.switch.counters(memory.switch.vif_iface(id), Direction::Send));
    let dropped: u64 = counters.map(|counters| counters.dropped_total().packets).sum();
    let names = [row.id("memory/left"), row.id("memory/dropped")];
    trial.keep(&names[0], Series::count("packet", departures.len() as u64))?;
    trial.keep(&names[1], Series::count("packet", dropped))?;
    // 98 % of the link for 2 s, so that they were held back indeed.
    let full = Bound::at_least(0.98 * crate::float(LINK_MBPS * 2_000_000) / (1500.0 * 8.0));
    let claim = Claim::new(row.id("memory/full"), "in memory, left", Rule::Sum, full);
    trial.judge(claim.of(&names[..1]))?;
    let claim = Claim::new(row.id("memory/none"), "dropped", Rule::Sum, Bound::equal(0.0));
    trial.judge(claim.of(&names[1..]))?;
    Ok(())
}

fn on_the_wire(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    let seconds = if trial.quick { 5 } else { 60 };
    let star = Star::new("lossless", SENDERS, BitRate::from_mbps(LINK_MBPS));
    let each = Some(Rate::Bps(2 * LINK_MBPS * 1_000_000 / SENDERS as u64));
    let streams = (0..SENDERS).zip(0..).map(|(k, stream)| star.stream(k, stream, 1500, each));
    let outcome = Run {
        middle: Middle::Weir(Box::new(star.policy())),
        senders: vec![star.generator(streams.collect())],
        receivers: vec![star.sink()],
        changes: Vec::new(),
        length: Duration::from_secs(seconds as u64),
        star,
    }
    .run()?;
    let status = outcome.status.as_ref().ok_or_else(|| TrialError::Node("no status".into()))?;
    let seen = (0..8).map(|k| (format!("t{k}"), outcome.bits_each_second(0, k, seconds))).collect();
    keep_saturated(trial, row, "wire", seen, crate::float(LINK_MBPS * 1_000_000))?;
    let scheduled: u64 = status.vifs.iter().map(|vif| vif.send.sent.packets).sum();
    let arrived: u64 = outcome.received.iter().map(|sink| sink.totals.packets).sum();
    let lost = status.ports.iter().map(|port| port.lost_after_transmit).sum();
    let reordered = outcome.received.iter().flat_map(|sink| &sink.streams);
    let reordered = reordered.map(|s| s.order.reordered + s.order.duplicated).sum();
    let mut count = |name: &str, packets: u64| {
        trial.keep(&row.id(name), Series::count("packet", packets)).map(|()| row.id(name))
    };
    let counts = [count("scheduled", scheduled)?, count("arrived", arrived)?];
    let (dropped, reordered) = (count("tx-dropped", lost)?, count("reordered", reordered)?);
    let none = Bound::equal(0.0);
    let id = row.id("lost");
    let claim = Claim::new(id, "scheduled, not seen by the sink", Rule::Difference, none);
    trial.judge(claim.of(&counts))?;
    let claim = Claim::new(row.id("device"), "dropped by the device", Rule::Sum, none);
    trial.judge(claim.of(&[dropped]))?;
    let claim = Claim::new(row.id("order"), "out of order at the sink", Rule::Sum, none);
    trial.judge(claim.of(&[reordered]))?;
    Ok(())
}

const SENDERS: usize = 8;
const LINK_MBPS: u64 = 500;
