// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Common code of rows about correctness: short policies, and claims that hold on a busy machine,
//! where a second may come late but the run as a whole does not.

use weir_experiment::claims::UTILIZATION;
use weir_experiment::prelude::*;
use weir_policy::{Share, Slice, SliceId};

/// A stream: its name in the result, the receiver that sees it, its number.
pub(crate) type Flow = (&'static str, usize, u16);

/// Claims that a stream got at least the lesser of `mbps` and what its sender offered, which on a
/// busy machine may be less than it was told to.
pub(super) fn owed(
    rec: &mut Recording<'_>,
    seen: &TrafficRecord,
    (name, receiver, stream): Flow,
    mbps: u64,
) -> Result {
    rec.keep(name, Series::sampled("bit/s", 1.0, seen.got(receiver, stream)))?;
    let names = ["arrived", "offered"].map(|what| format!("{name}/{what}"));
    let counts = [seen.packets(receiver, stream), seen.packets_sent(stream)];
    for (name, count) in names.iter().zip(counts) {
        rec.keep(name, Series::count("packet", count))?;
    }
    let id = format!("{name}/guaranteed");
    let (bps, offered) = (mbps * 1_000_000, seen.sent_of(stream).map(|sent| sent.bytes * 8));
    if offered.sum::<u64>() >= bps * seen.seconds as u64 {
        return judge_mean(rec, &id, name, Bound::at_least(0.99 * float(bps)));
    }
    let text = format!("{id}, of an offer below it");
    rec.claim(id, text, Rule::RatioOfSums, Bound::at_least(0.99), &names)
}

/// Claims that a stream got what its limit lets through, and no more.
pub(super) fn limited(
    rec: &mut Recording<'_>,
    seen: &TrafficRecord,
    (name, receiver, stream): Flow,
    share: &Share,
) -> Result {
    limited_bits(rec, name, seen.got(receiver, stream), share)
}

/// Claims the same of the bits that arrived in each second, whatever they were.
pub(super) fn limited_bits(
    rec: &mut Recording<'_>,
    name: &str,
    bits: Vec<f64>,
    share: &Share,
) -> Result {
    let measured = float(bits.len().saturating_sub(SETTLED).max(1) as u64);
    rec.keep(name, Series::sampled("bit/s", 1.0, bits))?;
    let bps = float(share.rate.map_or(0, BitRate::as_bps));
    let most = bps + float(share.burst.get() * 8) / measured;
    judge_mean(rec, &format!("{name}/limit"), name, Bound::at_most(most))?;
    judge_mean(rec, &format!("{name}/limit-reached"), name, Bound::at_least(0.98 * bps))
}

/// Claims that streams together filled the link to the wire, whose sink is the first receiver.
pub(super) fn full(
    rec: &mut Recording<'_>,
    seen: &TrafficRecord,
    streams: impl IntoIterator<Item = u16>,
) -> Result {
    rec.keep("all", Series::sampled("bit/s", 1.0, seen.got_together(0, streams)))?;
    let bound = Bound::at_least(UTILIZATION * float(LINK_MBPS * 1_000_000));
    judge_mean(rec, "utilization", "all", bound)
}

fn judge_mean(rec: &mut Recording<'_>, id: &str, series: &str, bound: Bound) -> Result {
    let claim = Claim::new(id, format!("{id}, mean"), Rule::Mean, bound);
    rec.judge(claim.of(&[series]).skip(SETTLED))
}

/// Returns a star's policy with its tenants in these slices, in order: name, VLAN, how many. Its
/// port is patient with a late worker.
pub(super) fn in_slices(star: &StarTopology, slices: &[(&str, Option<u16>, usize)]) -> Policy {
    let mut policy = star.policy();
    policy.slices.clear();
    policy.ports.iter_mut().for_each(|port| port.catch_up = CATCH_UP);
    let mut vifs = policy.vifs.iter_mut();
    for ((name, vlan, tenants), id) in slices.iter().zip(0..) {
        policy.slices.push(Slice { vlan: *vlan, ..Slice::new(name) });
        vifs.by_ref().take(*tenants).for_each(|vif| vif.slice = SliceId(id));
    }
    policy
}

/// Limits a share, with a burst of that many bytes.
pub(super) fn limit(share: &mut Share, mbps: u64, burst: u64) {
    share.rate = Some(BitRate::from_mbps(mbps));
    share.burst = ByteCount::new(burst);
}

/// Returns the rate of a stream.
pub(super) const fn mbps(mbps: u64) -> Option<Rate> {
    Some(Rate::Bps(mbps * 1_000_000))
}

/// Returns the seconds of traffic of a part whose bounds are about the run as a whole.
pub(super) const fn length(rec: &Recording<'_>) -> usize {
    if rec.quick { 3 } else { 4 }
}

/// Returns the seconds of traffic of a row whose seconds are judged one by one.
pub(super) const fn long(rec: &Recording<'_>) -> usize {
    if rec.quick { 5 } else { 12 }
}

/// Seconds at the beginning of such a run that no bound is held against.
pub(super) const SETTLE_SECONDS: usize = 2;

/// The rate of the link. It is low, and what is offered is some times what can pass, so that it
/// still is when a busy machine keeps the senders from their processor for most of the time.
pub(super) const LINK_MBPS: u64 = 40;

/// The burst of a limit of some Mb/s that is to be reached by a sender whose packets come in lumps
/// of many milliseconds, as they do on a busy machine.
pub(super) const BURST_BYTES: u64 = 256 << 10;

/// A busy machine keeps the worker from its processor for some milliseconds now and then: with the
/// default of 1 ms the link loses 8 % of its time beside two compilers.
const CATCH_UP: Nanos = Nanos::from_millis(20);

/// Seconds at the beginning that are not judged.
const SETTLED: usize = 1;
