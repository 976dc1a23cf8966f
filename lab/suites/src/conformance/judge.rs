// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The judgements of the suite: each keeps the series it is about, claims a bound, and notes how
//! large the error was.

use weir_experiment::{ExperimentError, Recording, claims as judge};
use weir_result::{Bound, Claim, Comparison, Rule, Series};
use weir_traffic::Delays;

use super::intent::{FRAME_BYTES, TenantLimits};

/// Judges the record of an experiment.
pub struct ConformanceJudge<'t, 'a> {
    /// The recording that takes series and cases.
    pub trial: &'t mut Recording<'a>,
    /// Prefix of series and cases: `conformance.NAME`.
    pub id: String,
    findings: Vec<BoundError>,
    utilization: Option<f64>,
    missing: Option<String>,
}

/// The errors that a judge found.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    /// Each error, in order.
    pub findings: Vec<BoundError>,
    /// The least utilization of the link that was judged or told, 0 to 1.
    pub utilization: Option<f64>,
    /// The first case that shows that a sender did not send what the scenario needs.
    pub missing: Option<String>,
}

/// A measured error beside its bound.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundError {
    /// The case, without the experiment's name.
    pub part: String,
    /// The error.
    pub error: f64,
    /// The largest error that is allowed.
    pub bound: f64,
    /// Unit of both; `1` for a fraction.
    pub unit: String,
    /// The case's verdict.
    pub holds: bool,
}

/// Bits of two tenants while neither their weights nor their rates changed.
#[derive(Clone, Copy, Debug)]
pub struct MeasuredPhase {
    /// Bits of each.
    pub got: [f64; 2],
    /// Bits of all others.
    pub rest: f64,
    /// The weights of both.
    pub weights: [u32; 2],
    /// The rate of the second, if it has one: then it wants more than that.
    pub rate_bps: Option<u64>,
}

/// A stream behind a packet rate.
#[derive(Clone, Debug)]
pub struct PolicedStream<'a> {
    /// Packets that arrived in each ms.
    pub packets: Vec<f64>,
    /// Packets that were sent in each ms.
    pub offered: &'a [f64],
    /// Delays of the packets.
    pub delays: &'a Delays,
    /// Time that the machine's host took from its processors, s.
    pub stolen_s: f64,
}

/// The throughput of a tenant in each second, and its weight.
#[derive(Clone, Debug)]
pub struct MeasuredShare {
    /// Its name.
    pub name: String,
    /// Bits in each second.
    pub got: Vec<f64>,
    /// Bits that it put on its device.
    pub offered: Vec<f64>,
    /// Its share in proportion to the others'.
    pub weight: u32,
}

impl<'t, 'a> ConformanceJudge<'t, 'a> {
    /// Judges for the experiment `name`.
    pub fn new(trial: &'t mut Recording<'a>, name: &str) -> Self {
        let id = format!("conformance.{name}");
        Self { trial, id, findings: Vec::new(), utilization: None, missing: None }
    }

    /// Returns what was found.
    #[must_use]
    pub fn into_found(self) -> Found {
        let Self { findings, utilization, missing, .. } = self;
        Found { findings, utilization, missing }
    }

    /// Tenants who all want more than they can have share the link in proportion to their weights,
    /// in each second, and leave nothing of it.
    ///
    /// # Errors
    /// Series that do not fit each other.
    pub fn shares(
        &mut self,
        part: &str,
        shares: Vec<MeasuredShare>,
        link_bps: u64,
    ) -> Result<(), ExperimentError> {
        let id = format!("{}/{part}", self.id);
        let link_bps = weir_experiment::float(link_bps);
        let all: u32 = shares.iter().map(|share| share.weight).sum();
        let (mut by_weight, mut pressure) = (Vec::new(), Vec::new());
        for share in &shares {
            let weight = f64::from(share.weight);
            let own = link_bps * weight / f64::from(all.max(1));
            let names =
                ["by-weight", "offered", "share"].map(|what| format!("{id}/{}/{what}", share.name));
            let weighed = share.got.iter().map(|bits| bits / weight).collect();
            let seconds = share.got.len();
            for (name, bits) in
                names.iter().zip([weighed, share.offered.clone(), vec![own; seconds]])
            {
                self.trial.keep(name, Series::sampled("bit/s", 1.0, bits))?;
            }
            let [weighed, offered, own] = names;
            by_weight.push(weighed);
            pressure.extend([offered, own]);
        }
        let claim = self.balance(&format!("{id}/balance"), &shares);
        self.ratio(claim.of(&by_weight).skip(SETTLE_SECONDS))?;
        let name = "offered, of its share: who wants less is owed less, worst second";
        let bound = Bound::at_least(PRESSURE);
        let claim = Claim::new(format!("{id}/offered"), name, Rule::LeastRatio, bound);
        self.scenario(claim.of(&pressure).skip(SETTLE_SECONDS))?;
        let streams = shares.into_iter().map(|share| (share.name, share.got)).collect();
        self.full(part, streams, link_bps)
    }

    /// The claim that shares are balanced; where nobody got anything for a second, that somebody
    /// did.
    fn balance(&self, id: &str, shares: &[MeasuredShare]) -> Claim {
        let seconds = shares.first().map_or(0, |share| share.got.len());
        let is_silent = |second| shares.iter().all(|share| share.got.get(second) == Some(&0.0));
        if (SETTLE_SECONDS..seconds).any(is_silent) {
            let name = "a second in which nothing arrived";
            return Claim::new(id, name, Rule::LeastTotal, Bound::at_least(1.0));
        }
        let name = "least of all in proportion to the largest, by weight, worst second";
        Claim::new(id, name, Rule::LeastBalance, Bound::at_least(BALANCE))
    }

    /// In each phase, of `seconds`, two tenants who want more than there is have what weights and
    /// rates say, and the link is full.
    ///
    /// # Errors
    /// Series that do not fit each other.
    pub fn follows(
        &mut self,
        part: &str,
        phases: &[MeasuredPhase],
        seconds: f64,
        link_bps: f64,
    ) -> Result<(), ExperimentError> {
        let id = format!("{}/{part}", self.id);
        let (mut got, mut owed) = (Vec::new(), Vec::new());
        for MeasuredPhase { got: [first, second], weights: [one, other], rate_bps, .. } in phases {
            // With a rate, the second has that; without, its part of what both got.
            let part = f64::from(*other) / f64::from(one + other);
            let share = (first + second) * part;
            got.push(*second);
            owed.push(rate_bps.map_or(share, |bps| weir_experiment::float(bps) * seconds));
        }
        let names = ["got", "owed"].map(|what| format!("{id}/{what}"));
        for (name, bits) in names.iter().zip([got, owed]) {
            self.trial.keep(name, Series::unordered("bit", bits))?;
        }
        for (side, rule, bound) in [
            ("least", Rule::LeastRatio, Bound::at_least(FOLLOWS)),
            ("most", Rule::GreatestRatio, Bound::at_most(2.0 - FOLLOWS)),
        ] {
            let name = format!("got of what changed values say, {side} of all phases");
            let claim = Claim::new(format!("{id}/{side}"), name, rule, bound);
            self.ratio(claim.of(&names))?;
        }
        let totals = phases.iter().map(|phase| phase.rest + phase.got.iter().sum::<f64>());
        let name = format!("{id}/all");
        self.trial.keep(&name, Series::unordered("bit", totals.collect()))?;
        let all = link_bps * seconds;
        let bound = Bound::at_least(judge::UTILIZATION * all);
        let what = "bits on the link, least of all phases";
        let claim = Claim::new(format!("{id}/utilization"), what, Rule::Min, bound);
        self.trial.judge(claim.of(&[name]))?;
        self.note_utilization(all);
        Ok(())
    }

    /// Streams together fill the link in each second.
    ///
    /// # Errors
    /// Series that do not fit each other.
    pub fn full(
        &mut self,
        part: &str,
        streams: Vec<(String, Vec<f64>)>,
        link_bps: f64,
    ) -> Result<(), ExperimentError> {
        let prefix = format!("{}/{part}", self.id);
        self.trial.saturated(&prefix, streams, link_bps, SETTLE_SECONDS)?;
        self.note_utilization(link_bps);
        Ok(())
    }

    /// Tells the utilization of a link that is not meant to be full.
    pub const fn utilized(&mut self, part: f64) {
        self.utilization = Some(match self.utilization {
            Some(least) => least.min(part),
            None => part,
        });
    }

    /// A tenant got what it is owed in each second: the lesser of its minimum and its offer. It
    /// asked for most of the minimum.
    ///
    /// # Errors
    /// Series that do not fit each other.
    pub fn owed(
        &mut self,
        part: &str,
        who: &str,
        seen: [Vec<f64>; 2],
        min_rate_bps: u64,
    ) -> Result<(), ExperimentError> {
        let id = format!("{}/{part}/{who}", self.id);
        let bps = weir_experiment::float(min_rate_bps);
        self.trial.guaranteed(&id, who, seen, bps, SETTLE_SECONDS)?;
        self.note_last_ratio();
        let name = format!("{who}: asked for, on average");
        let bound = Bound::at_least(ASKED * bps);
        let claim = Claim::new(format!("{id}/asked"), name, Rule::Mean, bound);
        self.scenario(claim.of(&[format!("{id}/owed")]).skip(SETTLE_SECONDS))
    }

    /// A rate is reached to 0.1 % of ten seconds, and exceeded by its burst at most in any 100 ms.
    /// `bits` arrived in each ms.
    ///
    /// A forwarder that has no processor for a time catches up by its burst and loses the rest,
    /// which is less than the rate brings in that time. So the traffic of `stolen_s` may be
    /// missing: of the time that the machine's host took from the forwarder's processor.
    ///
    /// # Errors
    /// Series that do not fit each other.
    pub fn limited(
        &mut self,
        part: &str,
        bits: Vec<f64>,
        limits: &TenantLimits,
        stolen_s: f64,
    ) -> Result<(), ExperimentError> {
        let rate = weir_experiment::float(limits.rate.map_or(0, weir_units::BitRate::as_bps));
        let slack = (RATE_ERROR * 10.0 * rate).max(weir_experiment::float(FRAME_BYTES * 8));
        let measured_s =
            weir_experiment::float(bits.len().saturating_sub(SETTLE_MILLIS) as u64) / 1e3;
        let total = rate * measured_s;
        let name = format!("{}/{part}/each-ms", self.id);
        self.trial.keep(&name, Series::sampled("bit", 0.001, bits))?;
        self.ran(part, stolen_s, measured_s)?;
        for (side, sign, slack) in
            [("at-least", -1.0, slack + rate * stolen_s), ("at-most", 1.0, slack)]
        {
            let most = total + sign * slack;
            let bound = if sign < 0.0 { Bound::at_least(most) } else { Bound::at_most(most) };
            let what = format!("bits in {measured_s} s, {side}");
            let claim = Claim::new(format!("{}/{part}/{side}", self.id), what, Rule::Sum, bound);
            let value = self.value(claim.of(&[&name]).skip(SETTLE_MILLIS))?;
            self.note((sign * (value - total) / total).max(0.0), slack / total, "1");
        }
        self.in_window(part, &name, "bit", rate, weir_experiment::float(limits.burst().get() * 8))
    }

    /// The machine had its processors for nearly all of the time: what they do not run, nobody can
    /// hold.
    fn ran(&mut self, part: &str, stolen_s: f64, measured_s: f64) -> Result<(), ExperimentError> {
        let id = format!("{}/{part}/stolen", self.id);
        self.trial.keep(&id, Series::unordered("s", vec![stolen_s]))?;
        let bound = Bound::at_most(STOLEN_MAX * measured_s);
        let text = "time that the machine's host took from its processors";
        self.scenario(Claim::new(&id, text, Rule::Sum, bound).of(&[&id]))
    }

    /// A packet rate lets through what it may of what was offered, to 1 %, and is exceeded by its
    /// burst at most in any 100 ms: at the place where packets are let through. The sink sees them
    /// later; see [`Delays::on_the_way`] for how many more that can bring into 100 ms.
    ///
    /// # Errors
    /// Series that do not fit each other.
    pub fn limited_packets(
        &mut self,
        part: &str,
        seen: PolicedStream<'_>,
        limits: &TenantLimits,
    ) -> Result<(), ExperimentError> {
        let PolicedStream { packets, offered, delays, stolen_s } = seen;
        let rate = weir_experiment::float(limits.max_pps.map_or(0, weir_units::PacketRate::as_pps));
        let burst = weir_experiment::float(limits.burst_packets());
        let owed = let_through(offered, rate / 1e3, burst);
        let measured_s =
            weir_experiment::float(owed.len().saturating_sub(SETTLE_MILLIS) as u64) / 1e3;
        let id = format!("{}/{part}", self.id);
        let names = ["each-ms", "owed"].map(|what| format!("{id}/{what}"));
        self.trial.keep(&names[0], Series::sampled("packet", 0.001, packets))?;
        self.trial.keep(&names[1], Series::sampled("packet", 0.001, owed))?;
        self.ran(part, stolen_s, measured_s)?;
        // The sender was there, most of the time.
        let bound = Bound::at_least(ASKED * rate * measured_s);
        let claim = Claim::new(format!("{id}/asked"), "packets owed", Rule::Sum, bound);
        self.scenario(claim.of(&names[1..]).skip(SETTLE_MILLIS))?;
        let what = "packets that came, of those that a bucket lets through";
        let bound = Bound::at_least(1.0 - PACKET_RATE_ERROR - stolen_s / measured_s);
        let claim = Claim::new(format!("{id}/at-least"), what, Rule::RatioOfSums, bound);
        self.ratio(claim.of(&names).skip(SETTLE_MILLIS))?;
        let total = rate * measured_s;
        let bound = Bound::at_most((1.0 + PACKET_RATE_ERROR) * total);
        let claim = Claim::new(format!("{id}/at-most"), "packets that came", Rule::Sum, bound);
        let value = self.value(claim.of(&names[..1]).skip(SETTLE_MILLIS))?;
        self.note((value / total - 1.0).max(0.0), PACKET_RATE_ERROR, "1");
        let late = delays.on_the_way(rate);
        let name = format!("{id}/on-the-way");
        self.trial.keep(&name, Series::unordered("packet", vec![late]))?;
        let what = "packets that delays can add to 100 ms";
        let bound = Bound::at_most(ON_THE_WAY_MAX_S * rate);
        self.scenario(Claim::new(&name, what, Rule::Sum, bound).of(&[&name]))?;
        self.in_window(part, &names[0], "packet", rate, burst + late)
    }

    /// No 100 ms hold more than rate · T + burst.
    fn in_window(
        &mut self,
        part: &str,
        series: &str,
        unit: &str,
        rate: f64,
        burst: f64,
    ) -> Result<(), ExperimentError> {
        let bound = Bound::at_most(rate * 0.1 + burst);
        let what = format!("{unit} in the fullest 100 ms");
        let rule = Rule::GreatestWindow { samples: 100 };
        let claim = Claim::new(format!("{}/{part}/window", self.id), what, rule, bound);
        let value = self.value(claim.of(&[series]))?;
        self.note((value - rate * 0.1).max(0.0), burst, unit);
        Ok(())
    }

    /// Judges a claim, and gives its value.
    fn value(&mut self, claim: Claim) -> Result<f64, ExperimentError> {
        self.trial.judge(claim)?;
        Ok(self.trial.result.cases().last().map_or(0.0, weir_result::Case::value))
    }

    /// 99 of 100 packets of a well-behaved tenant wait for `most_s` at most. `quantiles` are those
    /// of its delays, evenly spaced.
    ///
    /// # Errors
    /// There are no delays.
    pub fn waits(
        &mut self,
        part: &str,
        quantiles: Vec<f64>,
        most_s: f64,
    ) -> Result<(), ExperimentError> {
        let id = format!("{}/{part}/p99", self.id);
        let name = format!("{}/{part}/delay", self.id);
        self.trial.keep(&name, Series::unordered("s", quantiles))?;
        let rule = Rule::Percentile { percent: 99.0 };
        let claim = Claim::new(id, "delay, 99th percentile", rule, Bound::at_most(most_s));
        let value = self.value(claim.of(&[name]))?;
        self.note(value, most_s, "s");
        Ok(())
    }

    /// Something happened not even once.
    ///
    /// # Errors
    /// The name is taken.
    pub fn none(&mut self, part: &str, what: &str, count: u64) -> Result<(), ExperimentError> {
        let id = format!("{}/{part}", self.id);
        self.trial.keep(&id, Series::count("packet", count))?;
        self.trial.judge(Claim::new(&id, what, Rule::Sum, Bound::equal(0.0)).of(&[&id]))?;
        self.note(weir_experiment::float(count), 0.0, "packet");
        Ok(())
    }

    /// The scenario was there: on average a stream offered at least so much in each second.
    ///
    /// # Errors
    /// The name is taken.
    pub fn offered(
        &mut self,
        part: &str,
        bits: Vec<f64>,
        least_bps: f64,
    ) -> Result<(), ExperimentError> {
        let id = format!("{}/{part}", self.id);
        self.trial.keep(&id, Series::sampled("bit/s", 1.0, bits))?;
        let bound = Bound::at_least(least_bps);
        let claim = Claim::new(&id, "offered, on average", Rule::Mean, bound);
        self.scenario(claim.of(&[&id]).skip(SETTLE_SECONDS))
    }

    /// Judges a claim about the senders, not about the data plane.
    fn scenario(&mut self, claim: Claim) -> Result<(), ExperimentError> {
        let id = claim.id.clone();
        if !self.trial.verdict(claim)? && self.missing.is_none() {
            let part = id.strip_prefix(&self.id).unwrap_or(&id).trim_start_matches('/');
            self.missing = Some(part.to_owned());
        }
        Ok(())
    }

    /// Judges a claim whose value is 1 where it is perfect.
    ///
    /// # Errors
    /// The claim does not fit its series.
    pub fn ratio(&mut self, claim: Claim) -> Result<(), ExperimentError> {
        self.trial.judge(claim)?;
        self.note_last_ratio();
        Ok(())
    }

    /// Notes what part of `all` the value of the last case is.
    fn note_utilization(&mut self, all: f64) {
        if let Some(case) = self.trial.result.cases().last() {
            let full = case.value() / all;
            self.utilized(full);
            self.note((1.0 - full).max(0.0), 1.0 - judge::UTILIZATION, "1");
        }
    }

    fn note_last_ratio(&mut self) {
        if let Some(case) = self.trial.result.cases().last() {
            let (value, bound) = (case.value(), case.bound());
            let sign = if bound.op == Comparison::AtMost { 1.0 } else { -1.0 };
            let is_ratio = case.unit() == "1";
            let (value, bound) = if is_ratio { (value, bound.value) } else { (0.0, BALANCE) };
            self.note((sign * (value - 1.0)).max(0.0), sign * (bound - 1.0), "1");
        }
    }

    /// Notes the error that the last case is about.
    fn note(&mut self, error: f64, bound: f64, unit: &str) {
        if let Some(case) = self.trial.result.cases().last() {
            let part = case.id().strip_prefix(&self.id).unwrap_or_else(|| case.id());
            let part = part.trim_start_matches('/').to_owned();
            let (unit, holds) = (unit.to_owned(), case.holds());
            self.findings.push(BoundError { part, error, bound, unit, holds });
        }
    }
}

impl BoundError {
    /// The error in proportion to its bound.
    #[must_use]
    pub fn of_bound(&self) -> f64 {
        if self.error == 0.0 { 0.0 } else { self.error / self.bound }
    }
}

/// Returns a lower bound of what a token bucket lets through in each ms of the offer: the tokens at
/// the start of the ms, however the offer lies within it.
fn let_through(offered: &[f64], rate_ms: f64, burst: f64) -> Vec<f64> {
    let mut tokens = burst;
    let pass = |offered: &f64| {
        let passed = offered.min(tokens);
        tokens = (tokens - passed + rate_ms).min(burst);
        passed
    };
    offered.iter().map(pass).collect()
}

/// Seconds at the beginning that no bound is held against.
pub const SETTLE_SECONDS: usize = 1;
const SETTLE_MILLIS: usize = 1000 * SETTLE_SECONDS;

/// Least ÷ largest of shares by weight, in each second.
pub const BALANCE: f64 = 0.99;

/// Least part of the new share or rate, from 100 ms after a change on.
pub const FOLLOWS: f64 = 0.98;

/// Least offer of a backlogged tenant, in shares: the generator keeps its rate to 2 %.
const PRESSURE: f64 = 1.1;

/// Least offer of a tenant with a minimum, of that minimum, on average: a sender that skips what it
/// was kept from sends less than it was told to.
const ASKED: f64 = 0.75;

/// Greatest part of the measured time that the machine's host may take: beyond it a run shows
/// nothing.
const STOLEN_MAX: f64 = 0.005;

/// Greatest allowance for delays in 100 ms of a packet rate, in seconds at that rate: as long as
/// the suite's bursts. Without this bound, a data plane that holds packets back and lets them out
/// at once would earn itself an allowance.
const ON_THE_WAY_MAX_S: f64 = 0.005;

/// Greatest error of a rate over ten seconds. A shorter run may miss as many bits.
pub const RATE_ERROR: f64 = 0.001;

/// Greatest error of a packet rate over the whole run.
pub const PACKET_RATE_ERROR: f64 = 0.01;

/// Time for the devices on the way and for a shared machine.
pub(crate) const DELAY_SLACK_S: f64 = 200e-6;
