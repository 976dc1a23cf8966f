// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The judgements of the suite. Each judgement keeps its series, claims a bound on them, and notes
//! the size of the error for the table. Some claims are about the *scenario* instead: if a sender
//! offered less than the experiment needs, the data plane is not judged. Names are relative to the
//! variant that is judged.

use serde::{Deserialize, Serialize};
use weir_experiment::Result;
use weir_experiment::prelude::*;
use weir_result::Comparison;
use weir_traffic::Delays;

use super::bounds::SuiteBounds;
use super::intent::{FRAME_BYTES, TenantLimits};

/// Judges the record of a variant.
pub(super) struct ConformanceJudge<'t, 'a> {
    /// The recording that takes series and cases.
    pub(super) rec: &'t mut Recording<'a>,
    found: &'t mut JudgeFindings,
    /// The bounds that the judge claims.
    pub(super) bounds: SuiteBounds,
}

/// The findings of a judge.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct JudgeFindings {
    /// The errors, in order.
    pub(super) findings: Vec<BoundError>,
    /// The least utilization of the link so far, 0 to 1.
    pub(super) utilization: Option<f64>,
    /// The first case that shows that a sender offered less than the scenario needs.
    pub(super) missing: Option<String>,
}

/// A measured error beside its bound.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct BoundError {
    pub(super) case: String,
    pub(super) error: f64,
    /// The largest error that is allowed.
    pub(super) bound: f64,
    /// Unit of both; `1` for a fraction.
    pub(super) unit: String,
    /// The case's verdict.
    pub(super) holds: bool,
}

/// Bits of two tenants while neither their weights nor their rates changed.
#[derive(Clone, Copy, Debug)]
pub(super) struct MeasuredPhase {
    pub(super) got: [f64; 2],
    /// Bits of all others.
    pub(super) rest: f64,
    /// The weights of both.
    pub(super) weights: [u32; 2],
    /// The maximum rate of the second tenant, if it has one. The tenant offers more than that.
    pub(super) rate_bps: Option<u64>,
}

/// A stream behind a packet rate.
#[derive(Clone, Debug)]
pub(super) struct PolicedStream<'a> {
    /// Packets that arrived in each ms.
    pub(super) packets: Vec<f64>,
    /// Packets that were sent in each ms.
    pub(super) offered: &'a [f64],
    /// Delays of the packets.
    pub(super) delays: &'a Delays,
    /// Time that the machine's host took from its processors, s.
    pub(super) stolen_s: f64,
}

/// The throughput of a tenant in each second, and its weight.
#[derive(Clone, Debug)]
pub(super) struct MeasuredShare {
    pub(super) name: String,
    /// Bits in each second.
    pub(super) got: Vec<f64>,
    /// Bits that the tenant sent on its device in each second.
    pub(super) offered: Vec<f64>,
    /// Its weight.
    pub(super) weight: u32,
}

impl<'t, 'a> ConformanceJudge<'t, 'a> {
    /// Makes a judge that claims `bounds` in `rec` and notes errors in `found`.
    pub(super) const fn new(
        rec: &'t mut Recording<'a>,
        found: &'t mut JudgeFindings,
        bounds: SuiteBounds,
    ) -> Self {
        Self { rec, found, bounds }
    }

    /// Claims that tenants that all offer more than their shares divide the whole link in
    /// proportion to their weights, in each second.
    pub(super) fn shares(&mut self, shares: Vec<MeasuredShare>, link_bps: u64) -> Result {
        let link_bps = float(link_bps);
        let all: u32 = shares.iter().map(|share| share.weight).sum();
        let (mut by_weight, mut pressure) = (Vec::new(), Vec::new());
        for MeasuredShare { name, got, offered, weight } in &shares {
            let weight = f64::from(*weight);
            let own = link_bps * weight / f64::from(all.max(1));
            let names = ["by-weight", "offered", "share"].map(|what| format!("{name}/{what}"));
            let weighed = got.iter().map(|bits| bits / weight).collect();
            for (name, bits) in names.iter().zip([weighed, offered.clone(), vec![own; got.len()]]) {
                self.rec.keep(name, Series::sampled("bit/s", 1.0, bits))?;
            }
            let [weighed, offered, own] = names;
            by_weight.push(weighed);
            pressure.extend([offered, own]);
        }
        self.ratio(balance(&shares, self.bounds.balance).of(&by_weight).skip(SETTLE_SECONDS))?;
        let name = "offered, of its share: who wants less is owed less, worst second";
        let claim = Claim::new("offered", name, Rule::LeastRatio, Bound::at_least(PRESSURE));
        self.scenario(claim.of(&pressure).skip(SETTLE_SECONDS))?;
        self.full(shares.into_iter().map(|share| (share.name, share.got)), link_bps)
    }

    /// Claims that in each phase of `seconds`, two tenants that together offer more than the link
    /// carries get the shares of their weights and rates, and that the link is full.
    pub(super) fn follows(
        &mut self,
        phases: &[MeasuredPhase],
        seconds: f64,
        link_bps: f64,
    ) -> Result {
        let (mut got, mut owed) = (Vec::new(), Vec::new());
        for MeasuredPhase { got: [first, second], weights: [one, other], rate_bps, .. } in phases {
            // The second tenant is to get its rate if it has one, otherwise its part of both.
            let share = (first + second) * f64::from(*other) / f64::from(one + other);
            got.push(*second);
            owed.push(rate_bps.map_or(share, |bps| float(bps) * seconds));
        }
        let names = ["got", "owed"];
        for (name, bits) in names.iter().zip([got, owed]) {
            self.rec.keep(name, Series::unordered("bit", bits))?;
        }
        let follows = self.bounds.follows;
        for (side, rule, bound) in [
            ("least", Rule::LeastRatio, Bound::at_least(follows)),
            ("most", Rule::GreatestRatio, Bound::at_most(2.0 - follows)),
        ] {
            let name = format!("got of what changed values say, {side} of all phases");
            self.ratio(Claim::new(side, name, rule, bound).of(&names))?;
        }
        let totals = phases.iter().map(|phase| phase.rest + phase.got.iter().sum::<f64>());
        self.rec.keep("all", Series::unordered("bit", totals.collect()))?;
        let (all, what) = (link_bps * seconds, "bits on the link, least of all phases");
        let bound = Bound::at_least(self.bounds.utilization * all);
        self.rec.claim("utilization", what, Rule::Min, bound, &["all"])?;
        self.note_utilization(all);
        Ok(())
    }

    /// Claims that streams together fill the link in each second.
    pub(super) fn full(
        &mut self,
        streams: impl IntoIterator<Item = (String, Vec<f64>)>,
        link_bps: f64,
    ) -> Result {
        self.rec.saturated_to(self.bounds.utilization, streams, link_bps, SETTLE_SECONDS)?;
        self.note_utilization(link_bps);
        Ok(())
    }

    /// Notes the utilization of a link that is not meant to be full.
    pub(super) fn utilized(&mut self, part: f64) {
        let least = self.found.utilization.map_or(part, |least| least.min(part));
        self.found.utilization = Some(least);
    }

    /// Claims that a tenant got its minimum in each second, or its offer if that was less, and that
    /// on average it offered most of its minimum.
    pub(super) fn owed(&mut self, who: &str, seen: [Vec<f64>; 2], min_rate_bps: u64) -> Result {
        let bps = float(min_rate_bps);
        self.rec.guaranteed_to(self.bounds.guaranteed, [who, who], seen, bps, SETTLE_SECONDS)?;
        self.note_last_ratio();
        let (id, name) = (format!("{who}/asked"), format!("{who}: asked for, on average"));
        let claim = Claim::new(id, name, Rule::Mean, Bound::at_least(ASKED * bps));
        self.scenario(claim.of(&[format!("{who}/owed")]).skip(SETTLE_SECONDS))
    }

    /// Claims that a rate is reached within the bounds' `rate_error`, and exceeded by at most its
    /// burst in any 100 ms. `bits` arrived in each ms.
    ///
    /// A forwarder that has no processor for a time catches up by its burst and loses the rest,
    /// which is less than the traffic of that time at the rate. So the traffic of `stolen_s` may be
    /// missing: the time that the machine's host took from the forwarder's processor.
    pub(super) fn limited(
        &mut self,
        case: &str,
        bits: Vec<f64>,
        limits: &TenantLimits,
        stolen_s: f64,
    ) -> Result {
        let rate = float(limits.rate.map_or(0, BitRate::as_bps));
        let measured_s = settled_s(&bits);
        let SuiteBounds { rate_error, rate_error_of_s, .. } = self.bounds;
        let slack = rate_error * rate_error_of_s.unwrap_or(measured_s) * rate;
        let slack = slack.max(float(FRAME_BYTES * 8));
        let total = rate * measured_s;
        let name = format!("{case}/each-ms");
        self.rec.keep(&name, Series::sampled("bit", 0.001, bits))?;
        self.ran(case, stolen_s, measured_s)?;
        for (side, sign, bound) in [
            ("at-least", -1.0, Bound::at_least(total - slack - rate * stolen_s)),
            ("at-most", 1.0, Bound::at_most(total + slack)),
        ] {
            let what = format!("bits in {measured_s} s, {side}");
            let claim = Claim::new(format!("{case}/{side}"), what, Rule::Sum, bound);
            let value = self.value(claim.of(&[&name]).skip(SETTLE_MILLIS))?;
            let [error, most] = [value, bound.value].map(|bits| sign * (bits - total) / total);
            self.note(error.max(0.0), most, "1");
        }
        self.in_window(case, &name, "bit", rate, float(limits.burst().get() * 8))
    }

    /// Claims that the machine had its processors for nearly all of the time, since no forwarder
    /// can hold a rate without a processor.
    fn ran(&mut self, case: &str, stolen_s: f64, measured_s: f64) -> Result {
        let id = format!("{case}/stolen");
        self.rec.keep(&id, Series::unordered("s", vec![stolen_s]))?;
        let bound = Bound::at_most(STOLEN_MAX * measured_s);
        let text = "time that the machine's host took from its processors";
        self.scenario(Claim::new(&id, text, Rule::Sum, bound).of(&[&id]))
    }

    /// Claims that a packet rate admits as much of the offer as its token bucket allows, within the
    /// bounds' `packet_rate_error`, and is exceeded by at most its burst in any 100 ms at the point
    /// of admission. The sink sees packets later; [`Delays::on_the_way`] says how many more packets
    /// these delays can bring into 100 ms.
    pub(super) fn limited_packets(
        &mut self,
        case: &str,
        seen: PolicedStream<'_>,
        limits: &TenantLimits,
    ) -> Result {
        let PolicedStream { packets, offered, delays, stolen_s } = seen;
        let rate = float(limits.max_pps.map_or(0, PacketRate::as_pps));
        let burst = float(limits.burst_packets());
        let packet_error = self.bounds.packet_rate_error;
        let owed = let_through(offered, rate / 1e3, burst);
        let measured_s = settled_s(&owed);
        let total = rate * measured_s;
        let names = ["each-ms", "owed"].map(|what| format!("{case}/{what}"));
        for (name, packets) in names.iter().zip([packets, owed]) {
            self.rec.keep(name, Series::sampled("packet", 0.001, packets))?;
        }
        self.ran(case, stolen_s, measured_s)?;
        let claim = |part: &str, what, rule, bound, series: &[String]| {
            let claim = Claim::new(format!("{case}/{part}"), what, rule, bound);
            claim.of(series).skip(SETTLE_MILLIS)
        };
        // The sender offered enough, most of the time.
        let bound = Bound::at_least(ASKED * total);
        self.scenario(claim("asked", "packets owed", Rule::Sum, bound, &names[1..]))?;
        let what = "packets that came, of those that a bucket lets through";
        let bound = Bound::at_least(1.0 - packet_error - stolen_s / measured_s);
        self.ratio(claim("at-least", what, Rule::RatioOfSums, bound, &names))?;
        let bound = Bound::at_most((1.0 + packet_error) * total);
        let claim = claim("at-most", "packets that came", Rule::Sum, bound, &names[..1]);
        let value = self.value(claim)?;
        self.note((value / total - 1.0).max(0.0), packet_error, "1");
        let (late, name) = (delays.on_the_way(rate), format!("{case}/on-the-way"));
        self.rec.keep(&name, Series::unordered("packet", vec![late]))?;
        let bound = Bound::at_most(ON_THE_WAY_MAX_S * rate);
        let what = "packets that delays can add to 100 ms";
        self.scenario(Claim::new(&name, what, Rule::Sum, bound).of(&[&name]))?;
        self.in_window(case, &names[0], "packet", rate, burst + late)
    }

    /// Claims that no window of T = 100 ms holds more than rate · T + burst.
    fn in_window(&mut self, case: &str, series: &str, unit: &str, rate: f64, burst: f64) -> Result {
        let bound = Bound::at_most(rate * 0.1 + burst);
        let what = format!("{unit} in the fullest 100 ms");
        let rule = Rule::GreatestWindow { samples: 100 };
        let claim = Claim::new(format!("{case}/window"), what, rule, bound);
        let value = self.value(claim.of(&[series]))?;
        self.note((value - rate * 0.1).max(0.0), burst, unit);
        Ok(())
    }

    /// Claims that 99 of 100 packets of a well-behaved tenant wait for `most_s` at most.
    /// `quantiles` are evenly spaced quantiles of its delays.
    pub(super) fn waits(&mut self, quantiles: Vec<f64>, most_s: f64) -> Result {
        self.rec.keep("delay", Series::unordered("s", quantiles))?;
        let (rule, bound) = (Rule::Percentile { percent: 99.0 }, Bound::at_most(most_s));
        let claim = Claim::new("p99", "delay, 99th percentile", rule, bound);
        let value = self.value(claim.of(&["delay"]))?;
        self.note(value, most_s, "s");
        Ok(())
    }

    /// Claims that something never happened.
    pub(super) fn none(&mut self, case: &str, what: &str, count: u64) -> Result {
        let series = Series::count("packet", count);
        self.rec.claim_samples(case, what, series, Rule::Sum, Bound::equal(0.0))?;
        self.note(float(count), 0.0, "packet");
        Ok(())
    }

    /// Claims about the scenario that a stream offered at least `least_bps` on average.
    pub(super) fn offered(&mut self, case: &str, bits: Vec<f64>, least_bps: f64) -> Result {
        self.rec.keep(case, Series::sampled("bit/s", 1.0, bits))?;
        let bound = Bound::at_least(least_bps);
        let claim = Claim::new(case, "offered, on average", Rule::Mean, bound);
        self.scenario(claim.of(&[case]).skip(SETTLE_SECONDS))
    }

    /// Judges a claim about the scenario, not about the data plane.
    fn scenario(&mut self, claim: Claim) -> Result {
        let id = self.rec.name(&claim.id);
        if !self.rec.verdict(claim)? && self.found.missing.is_none() {
            self.found.missing = Some(id);
        }
        Ok(())
    }

    /// Judges a claim, and returns its value.
    fn value(&mut self, claim: Claim) -> Result<f64> {
        self.rec.judge(claim)?;
        Ok(self.rec.result.cases().last().map_or(0.0, weir_result::Case::value))
    }

    /// Judges a claim whose ideal value is 1.
    fn ratio(&mut self, claim: Claim) -> Result {
        self.rec.judge(claim)?;
        self.note_last_ratio();
        Ok(())
    }

    /// Notes the value of the last case, as a part of `all`, as the utilization.
    fn note_utilization(&mut self, all: f64) {
        if let Some(case) = self.rec.result.cases().last() {
            let full = case.value() / all;
            self.utilized(full);
            self.note((1.0 - full).max(0.0), 1.0 - self.bounds.utilization, "1");
        }
    }

    /// Notes how far the ratio of the last case is from 1.
    fn note_last_ratio(&mut self) {
        if let Some(case) = self.rec.result.cases().last() {
            let (value, bound) = (case.value(), case.bound());
            let sign = if bound.op == Comparison::AtMost { 1.0 } else { -1.0 };
            let is_ratio = case.unit() == "1";
            let (value, bound) =
                if is_ratio { (value, bound.value) } else { (0.0, self.bounds.balance) };
            self.note((sign * (value - 1.0)).max(0.0), sign * (bound - 1.0), "1");
        }
    }

    /// Notes the error of the last case.
    fn note(&mut self, error: f64, bound: f64, unit: &str) {
        if let Some(case) = self.rec.result.cases().last() {
            let (case, unit, holds) = (case.id().to_owned(), unit.to_owned(), case.holds());
            self.found.findings.push(BoundError { case, error, bound, unit, holds });
        }
    }
}

impl BoundError {
    /// Returns the error as a multiple of its bound.
    pub(super) fn of_bound(&self) -> f64 {
        if self.error == 0.0 { 0.0 } else { self.error / self.bound }
    }
}

/// Returns the claim that shares are balanced. If no tenant got anything in some second, the
/// balance is undefined, and the claim is that some tenant did.
fn balance(shares: &[MeasuredShare], least: f64) -> Claim {
    let seconds = shares.first().map_or(0, |share| share.got.len());
    let is_silent = |second| shares.iter().all(|share| share.got.get(second) == Some(&0.0));
    if (SETTLE_SECONDS..seconds).any(is_silent) {
        let name = "a second in which nothing arrived";
        return Claim::new("balance", name, Rule::LeastTotal, Bound::at_least(1.0));
    }
    let name = "least of all in proportion to the largest, by weight, worst second";
    Claim::new("balance", name, Rule::LeastBalance, Bound::at_least(least))
}

/// Returns the judged time, in seconds, of samples that each cover 1 ms.
fn settled_s(each_ms: &[f64]) -> f64 {
    float(each_ms.len().saturating_sub(SETTLE_MILLIS) as u64) / 1e3
}

/// Returns a lower bound on the packets that a token bucket admits in each ms of the offer: at most
/// the tokens at the start of the ms, wherever in the ms the packets lie.
fn let_through(offered: &[f64], rate_ms: f64, burst: f64) -> Vec<f64> {
    let mut tokens = burst;
    let pass = |offered: &f64| {
        let passed = offered.min(tokens);
        tokens = (tokens - passed + rate_ms).min(burst);
        passed
    };
    offered.iter().map(pass).collect()
}

/// Seconds at the beginning that are not judged.
pub(super) const SETTLE_SECONDS: usize = 1;
const SETTLE_MILLIS: usize = 1000 * SETTLE_SECONDS;

/// The least offer of a backlogged tenant, as a multiple of its share. The generator keeps its rate
/// to 2 %.
const PRESSURE: f64 = 1.1;

/// The least mean offer of a tenant with a minimum, as a part of that minimum. A sender that was
/// kept from sending, and does not catch up, offers less than its rate.
const ASKED: f64 = 0.75;

/// The greatest part of the measured time that the machine's host may take. Beyond it, a run proves
/// nothing.
const STOLEN_MAX: f64 = 0.005;

/// The greatest allowance for delays in 100 ms of a packet rate, in seconds at that rate: as long
/// as the suite's bursts. Without this bound, a data plane that holds packets back and releases
/// them together would get an allowance for it.
const ON_THE_WAY_MAX_S: f64 = 0.005;
