// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Common code of rows about correctness: short policies, and judgements that hold on a busy
//! machine, where a second may come late but the run as a whole does not.

use weir_experiment::prelude::*;
use weir_policy::{Share, Slice, SliceId};
use weir_traffic::Sent;

/// A part of a row after its run.
pub(super) struct IsolationPart<'a> {
    pub(super) name: &'static str,
    pub(super) outcome: &'a TrafficRecord,
    /// Length of the traffic.
    pub(super) seconds: usize,
}

/// A stream, and the receiver that saw it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    pub(super) name: &'static str,
    pub(super) receiver: usize,
    pub(super) stream: u16,
}

impl IsolationPart<'_> {
    /// Returns the identifier of a claim of this part.
    pub(super) fn id(&self, what: &str) -> String {
        format!("{}/{what}", self.name)
    }

    /// Claims that a stream got at least the lesser of `bps` and what its sender offered, which on
    /// a busy machine may be less than it was told to.
    pub(super) fn owed(
        &self,
        rec: &mut Recording<'_>,
        flow: Flow,
        bps: u64,
    ) -> Result<(), ExperimentError> {
        let name = self.id(flow.name);
        let bits = self.outcome.bits_each_second(flow.receiver, flow.stream, self.seconds);
        rec.keep(&name, Series::sampled("bit/s", 1.0, bits))?;
        let (sent, arrived) = (self.sent(flow.stream), self.packets(flow.receiver, flow.stream));
        let names = [("arrived", arrived), ("offered", sent)]
            .map(|(what, count)| (self.id(&format!("{}/{what}", flow.name)), count));
        for (name, count) in &names {
            rec.keep(name, Series::count("packet", *count))?;
        }
        let what = format!("{}/guaranteed", flow.name);
        let offered: u64 = self.streams_of(flow.stream).map(|sent| sent.bytes * 8).sum();
        if offered >= bps * self.seconds as u64 {
            let bound = Bound::at_least(0.99 * float(bps));
            return self.judge_mean(rec, &what, &name, bound);
        }
        let claim = format!("{what}, of an offer below it");
        rec.claim(
            self.id(&what),
            claim,
            Rule::RatioOfSums,
            Bound::at_least(0.99),
            &names.map(|(name, _)| name),
        )
    }

    /// Claims that a stream got what its limit lets through, and no more.
    pub(super) fn limited(
        &self,
        rec: &mut Recording<'_>,
        flow: Flow,
        share: &Share,
    ) -> Result<(), ExperimentError> {
        let bits = self.outcome.bits_each_second(flow.receiver, flow.stream, self.seconds);
        self.limited_bits(rec, flow.name, bits, share)
    }

    /// Claims it of what arrived in each second, whatever it was.
    pub(super) fn limited_bits(
        &self,
        rec: &mut Recording<'_>,
        flow: &str,
        bits: Vec<f64>,
        share: &Share,
    ) -> Result<(), ExperimentError> {
        let name = self.id(flow);
        rec.keep(&name, Series::sampled("bit/s", 1.0, bits))?;
        let bps = float(share.rate.map_or(0, BitRate::as_bps));
        let measured = float(self.seconds.saturating_sub(SETTLE_SECONDS).max(1) as u64);
        let most = bps + float(share.burst.get() * 8) / measured;
        self.judge_mean(rec, &format!("{flow}/limit"), &name, Bound::at_most(most))?;
        let least = Bound::at_least(0.98 * bps);
        self.judge_mean(rec, &format!("{flow}/limit-reached"), &name, least)
    }

    /// Claims that streams together filled the link to the wire, whose sink is the first receiver.
    pub(super) fn full(
        &self,
        rec: &mut Recording<'_>,
        streams: impl Iterator<Item = u16>,
        bps: u64,
    ) -> Result<(), ExperimentError> {
        let each = streams.map(|stream| self.outcome.bits_each_second(0, stream, self.seconds));
        let mut total = vec![0.0; self.seconds];
        for bits in each {
            total.iter_mut().zip(bits).for_each(|(sum, bits)| *sum += bits);
        }
        let name = self.id("all");
        rec.keep(&name, Series::sampled("bit/s", 1.0, total))?;
        let bound = Bound::at_least(weir_experiment::claims::UTILIZATION * float(bps));
        self.judge_mean(rec, "utilization", &name, bound)
    }

    /// Claims that something was counted not even once.
    pub(super) fn none(
        &self,
        rec: &mut Recording<'_>,
        id: &str,
        what: &str,
        count: u64,
    ) -> Result<(), ExperimentError> {
        self.count(rec, id, what, count, Bound::equal(0.0))
    }

    /// Claims that something was counted at least so often.
    pub(super) fn at_least(
        &self,
        rec: &mut Recording<'_>,
        id: &str,
        what: &str,
        (count, least): (u64, u64),
    ) -> Result<(), ExperimentError> {
        self.count(rec, id, what, count, Bound::at_least(float(least)))
    }

    /// Packets of a stream that a receiver saw.
    pub(super) fn packets(&self, receiver: usize, stream: u16) -> u64 {
        self.outcome.stream(receiver, stream).map_or(0, |seen| seen.packets)
    }

    /// Packets of a stream that its sender says it sent.
    pub(super) fn sent(&self, stream: u16) -> u64 {
        self.streams_of(stream).map(|sent| sent.packets).sum()
    }

    fn streams_of(&self, stream: u16) -> impl Iterator<Item = &Sent> {
        let sent = self.outcome.sent.iter().flat_map(|sender| &sender.streams);
        sent.filter(move |sent| sent.stream == stream)
    }

    fn count(
        &self,
        rec: &mut Recording<'_>,
        id: &str,
        what: &str,
        count: u64,
        bound: Bound,
    ) -> Result<(), ExperimentError> {
        let id = self.id(id);
        rec.count(&id, what, count, bound)
    }

    fn judge_mean(
        &self,
        rec: &mut Recording<'_>,
        what: &str,
        series: &str,
        bound: Bound,
    ) -> Result<(), ExperimentError> {
        let claim = Claim::new(self.id(what), format!("{what}, mean"), Rule::Mean, bound);
        rec.judge(claim.of(&[series]).skip(SETTLE_SECONDS))
    }
}

/// A star's policy with its tenants in these slices, in order: name, VLAN, how many. Its port is
/// patient with a late worker.
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

/// Limits a share, with a burst of this many bytes.
pub(super) fn limit(share: &mut Share, mbps: u64, burst: u64) {
    share.rate = Some(BitRate::from_mbps(mbps));
    share.burst = ByteCount::new(burst);
}

/// Length of the traffic of a part.
pub(super) const fn length(rec: &Recording<'_>) -> usize {
    if rec.quick { 3 } else { 4 }
}

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
const SETTLE_SECONDS: usize = 1;
