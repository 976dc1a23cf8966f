// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Trials on the wire: all tests of RFC 2544 and RFC 5180 through a bridge, and searches of a
//! device that polices at a known rate.

use weir_experiment::prelude::*;
use weir_experiment::stolen::StealWatch;
use weir_tester::{
    BenchmarkLimits, BinarySearch, DutNoise, DutOutages, FakeDut, FramePattern, Goal, GoalResult,
    IpVersion, Measurer, Ppm, ResetRequest, ResetTime, Search, SearchConfig, SizeResult, Step,
    SuiteChoice, SuiteResult, TrafficProfile, TrialRequest, run_suite,
};
use weir_traffic::{TrialEnd, WireMeasurer};

use super::repeatability::spread;

/// Shows that every test answers as a device of known capacity is, in virtual time.
pub(super) fn known(rec: &mut Recording<'_>) -> Result {
    let outages = DutOutages { recovery: RECOVERY, reset: Some(RESET) };
    let mut dut = FakeDut::new(CAPACITY_PPS, QUEUE, DutNoise::default(), 1).with_outages(outages);
    let suite = suite(&mut dut, &[profile(128, IpVersion::V4)], Goal::NDR, &LIMITS)?;
    let size = suite.sizes.first().ok_or_else(|| told("no size was measured"))?;
    let capacity = f64::from(CAPACITY_PPS);
    widths(rec, "fake", &suite)?;
    let loss = size.loss_rate.first().map_or(0.0, |point| point.result.outcome.loss_ratio());
    let expected = 1.0 - capacity / float(size.max_pps);
    let burst = size.back_to_back.as_ref().map_or(0.0, |burst| burst.mean);
    // While a burst arrives the DUT forwards a part of it.
    let longest = f64::from(QUEUE) / (1.0 - capacity / float(size.max_pps));
    let full = size.latency.last().and_then(|point| point.result.latency);
    let queue_ns = f64::from(QUEUE) * 1e9 / capacity;
    let waits = full.map_or(0.0, |latency| float(latency.max_ns));
    for (id, text, ratio) in [
        ("fake/loss", "frame loss rate at the line's rate", loss / expected),
        ("fake/burst", "longest burst", burst / longest),
        ("fake/latency", "longest wait past saturation", waits / queue_ns),
    ] {
        let off = Series::unordered("1", vec![(ratio - 1.0).abs()]);
        let text = format!("{text}, off by");
        rec.claim_samples(id, text, off, Rule::Max, Bound::at_most(0.01))?;
    }
    let recovery = size.recovery.map_or(u64::MAX, |recovery| recovery.recovery_ns);
    let distance = size.recovery.map_or(0, |recovery| 1_000_000_000 / recovery.pps.max(1));
    for (id, text, told, known) in [
        ("fake/recovery", "time to recover after an overload", recovery, RECOVERY),
        ("fake/reset", "time away after a reset", size.reset_ns.unwrap_or(u64::MAX), RESET),
    ] {
        let off = Series::unordered("ns", vec![float(told.abs_diff(known.as_nanos()))]);
        let text = format!("{text}, off by; two packets' distance at most");
        rec.claim_samples(id, text, off, Rule::Max, Bound::at_most(float(2 * distance)))?;
    }
    let gone = DutOutages { reset: Some(Nanos::from_secs(3600)), ..outages };
    let mut dut = FakeDut::new(CAPACITY_PPS, QUEUE, DutNoise::default(), 1).with_outages(gone);
    let profile = profile(128, IpVersion::V4);
    let (pps, duration, patience) = (1_000, LIMITS.overload, LIMITS.reset_patience);
    let answer = dut.reset(&ResetRequest { profile, pps, duration, patience });
    let answer = answer.map_err(|error| told(&error.to_string()))?;
    let back = u64::from(!matches!(answer, Some(ResetTime::NotBack(_))));
    rec.none("fake/not-back", "resets that a device did not survive and that have a time", back)
}

/// Shows that each packet of the wire is forwarded, lost or unsent, by two counts.
pub(super) fn wire(rec: &mut Recording<'_>) -> Result {
    for (name, ip, sizes) in
        [("rfc2544", IpVersion::V4, [79, 512, 1518]), ("rfc5180", IpVersion::V6, [84, 512, 1518])]
    {
        rec.within(&format!("{name}/"), |rec| through_bridge(rec, ip, &sizes))?;
    }
    Ok(())
}

fn through_bridge(rec: &mut Recording<'_>, ip: IpVersion, sizes: &[u16]) -> Result {
    let star = StarTopology::new("iip-trials", 1, BitRate::from_mbps(100_000));
    let mut rig = Testbed::up(&star)?;
    rig.put(&Forwarder::Bridge)?;
    let stop = weir_traffic::stop_on_signals()?;
    let mut measurer = WireMeasurer::new(sender(&star), receiver(&star), None, None, true, stop)?;
    measurer.announce()?;
    let profiles: Vec<TrafficProfile> = sizes.iter().map(|size| profile(*size, ip)).collect();
    let mut max_pps = Vec::new();
    for profile in &profiles {
        max_pps.push(measurer.generator_pps(profile, CALIBRATION)? / 10 * 9);
    }
    let search = Nanos::from_secs(20);
    let limits = BenchmarkLimits { max_pps, search, ..LIMITS };
    let suite = suite(&mut measurer, &profiles, QUICK, &limits)?;
    let totals = measurer.totals();
    drop(measurer);
    rig.down()?;
    let sent = totals.outcome;
    let counted = sent.unsent + sent.forwarded + totals.lost_by_sequence;
    let text = "packets intended that are not exactly one of unsent, forwarded and lost, by their \
                sequence numbers";
    rec.none("sum", text, sent.intended.abs_diff(counted))?;
    rec.at_least("intended", "packets intended", sent.intended, 100_000)?;
    rec.at_least("forwarded", "packets forwarded", sent.forwarded, 100_000)?;
    let all = |size: &SizeResult| {
        !size.latency.is_empty()
            && !size.loss_rate.is_empty()
            && (size.back_to_back.is_some() || left_out(size, "back to back"))
            && (size.recovery.is_some() || left_out(size, "recovery"))
    };
    let answered = suite.sizes.iter().filter(|size| all(size)).count() as u64;
    let text = "sizes with an answer to every test, or the reason why it says nothing of them";
    rec.count("answers", text, answered, Bound::equal(float(sizes.len() as u64)))?;
    for size in &suite.sizes {
        let name = size.profile.sizes.to_string();
        let pps = size.goals.first().map_or(0, GoalResult::throughput);
        rec.keep(&format!("{name}/throughput"), Series::count("packet/s", pps))?;
    }
    Ok(())
}

/// Tells whether a test was left out, with its reason.
fn left_out(size: &SizeResult, test: &str) -> bool {
    size.notes.iter().any(|note| note.starts_with(&format!("{test} left out: ")))
}

/// Shows that searches of a device that polices find its rate, each time.
pub(super) fn policed(rec: &mut Recording<'_>) -> Result {
    let star = StarTopology::new("iip-policed", 1, BitRate::from_mbps(10_000));
    let mut policy = star.policy();
    policy.vifs[0].send.max_pps = Some(PacketRate::from_pps(POLICED_PPS));
    let searches = if rec.quick { 2 } else { 10 };
    let found = compare(&star, &Forwarder::from(policy), searches)?;
    let of_rate = found.searched.iter().map(|pps| pps / float(POLICED_PPS)).collect::<Vec<f64>>();
    let (own, plain) = (spread(&found.searched), spread(&found.bisected));
    found.keep(rec, "policed")?;
    rec.keep("of-rate", Series::unordered("1", of_rate))?;
    for (id, bound) in
        [("least", Bound::at_least(1.0 - NEAR)), ("most", Bound::at_most(1.0 + NEAR))]
    {
        let text = "PDR's median, of the rate that the device polices at";
        rec.claim(id, text, Rule::Median, bound, &["of-rate"])?;
    }
    let text = format!("middle half of the PDRs, of the median (zero-loss bisection {plain:.3})");
    let series = Series::unordered("1", vec![own]);
    rec.claim_samples("iqr", text, series, Rule::Max, Bound::at_most(0.02))?;
    rec.keep("iqr-of-bisection", Series::unordered("1", vec![plain]))?;
    let text = "middle half of the PDRs, by that of zero-loss bisection";
    rec.claim(
        "iqr-ratio",
        text,
        Rule::RatioOfSums,
        Bound::at_most(0.5),
        &["iqr", "iqr-of-bisection"],
    )?;
    let unpoliced = compare(&star, &Forwarder::Bridge, if rec.quick { 1 } else { 3 })?;
    unpoliced.keep(rec, "unpoliced")
}

/// Results of searches in turns, packets a second, and ms that the machine's host took during each
/// pair of them.
#[derive(Default)]
struct Searches {
    searched: Vec<f64>,
    bisected: Vec<f64>,
    stolen: Vec<f64>,
}

impl Searches {
    fn keep(&self, rec: &mut Recording<'_>, name: &str) -> Result {
        for (part, unit, samples) in [
            ("pdr", "packet/s", &self.searched),
            ("bisection", "packet/s", &self.bisected),
            ("stolen", "ms", &self.stolen),
        ] {
            rec.keep(&format!("{name}/{part}"), Series::unordered(unit, samples.clone()))?;
        }
        Ok(())
    }
}

/// Searches and bisects a forwarder in turns.
fn compare(star: &StarTopology, middle: &Forwarder, searches: usize) -> Result<Searches> {
    let mut rig = Testbed::up(star)?;
    rig.put(middle)?;
    let stop = weir_traffic::stop_on_signals()?;
    let mut measurer = WireMeasurer::new(sender(star), receiver(star), None, None, false, stop)?;
    measurer.announce()?;
    let profile = profile(128, IpVersion::V4);
    let mut found = Searches::default();
    for _ in 0..searches {
        let watch = StealWatch::begin();
        let (goals, limit) = (vec![SHORT_PDR], Nanos::from_secs(120));
        let config = SearchConfig { goals, min: MIN_PPS, max: MAX_PPS, limit };
        let mut search = Search::new(config).map_err(|error| told(&error.to_string()))?;
        while let Step::Trial(step) = search.next() {
            let outcome = trial(&mut measurer, &profile, step.load, step.duration)?;
            search.record(outcome).map_err(|error| told(&error.to_string()))?;
        }
        let lower = search.results().first().map_or(0, GoalResult::throughput);
        found.searched.push(float(lower));
        let zero = Goal { trial: Nanos::from_secs(1), ..Goal::RFC2544 };
        let mut bisection =
            BinarySearch::new(zero, MIN_PPS, MAX_PPS).map_err(|error| told(&error.to_string()))?;
        while let Step::Trial(step) = bisection.next() {
            let outcome = trial(&mut measurer, &profile, step.load, step.duration)?;
            bisection.record(outcome).map_err(|error| told(&error.to_string()))?;
        }
        found.bisected.push(float(bisection.throughput()));
        found.stolen.push(watch.end().iter().map(|window| window.stolen_ms).sum());
    }
    drop(measurer);
    rig.down()?;
    Ok(found)
}

fn trial(
    measurer: &mut WireMeasurer<'_>,
    profile: &TrafficProfile,
    pps: u64,
    duration: Nanos,
) -> Result<weir_tester::Outcome> {
    let request = TrialRequest { profile: profile.clone(), pps, duration, burst: None };
    Ok(measurer.trial(&request)?.outcome)
}

/// All tests of RFC 2544 for one goal.
fn suite<M: Measurer>(
    measurer: &mut M,
    profiles: &[TrafficProfile],
    goal: Goal,
    limits: &BenchmarkLimits,
) -> Result<SuiteResult>
where
    M::Error: std::fmt::Display + std::fmt::Debug,
{
    // A device that cannot be reset has no answer to that.
    let choice = SuiteChoice {
        latency: true,
        loss_rate: true,
        back_to_back: true,
        recovery: true,
        reset: true,
    };
    let done = run_suite(measurer, profiles, &[goal], choice, limits, &mut |_| (), &mut |_, _| ());
    done.map_err(|error| told(&format!("{error:?}")))
}

/// Claims that the bounds of each size lie within the goal's width.
fn widths(rec: &mut Recording<'_>, name: &str, suite: &SuiteResult) -> Result {
    let results = suite.sizes.iter().flat_map(|size| &size.goals);
    let width = |result: &GoalResult| {
        let (lower, upper) = (result.lower?, result.upper?);
        Some(float(upper - lower) / float(upper))
    };
    let widths = results.map(|result| width(result).unwrap_or(1.0)).collect();
    let text = "distance of the bounds, of the upper one";
    let bound = Bound::at_most(Goal::NDR.width.as_float());
    rec.claim_samples(
        format!("{name}/width"),
        text,
        Series::unordered("1", widths),
        Rule::Max,
        bound,
    )
}

fn sender(star: &StarTopology) -> TrialEnd {
    let netns = Some(star.namespace(&star.tenants[0]));
    TrialEnd { netns, device: "eth0".to_owned(), address: None }
}

fn receiver(star: &StarTopology) -> TrialEnd {
    TrialEnd { netns: Some(star.namespace("wire")), device: "eth0".to_owned(), address: None }
}

fn profile(size: u16, ip: IpVersion) -> TrafficProfile {
    TrafficProfile { sizes: FramePattern::Fixed(size), ip, streams: 1, tag: None }
}

fn told(what: &str) -> ExperimentError {
    ExperimentError::Node(what.to_owned())
}

/// The fake device.
const CAPACITY_PPS: u32 = 1_000_000;
const QUEUE: u32 = 256;
const RECOVERY: Nanos = Nanos::from_millis(70);
const RESET: Nanos = Nanos::from_millis(240);
const LIMITS: BenchmarkLimits = BenchmarkLimits {
    line_bps: 10_000_000_000,
    max_pps: Vec::new(),
    min_pps: MIN_PPS,
    search: Nanos::from_secs(3_600),
    trial: Nanos::from_millis(200),
    latency_trial: Nanos::from_millis(200),
    latency_times: 1,
    loss_trial: Nanos::from_millis(200),
    loads_bps: Vec::new(),
    bursts: 2,
    first_burst: Nanos::from_millis(100),
    overload: Nanos::from_millis(500),
    reset_patience: Nanos::from_millis(500),
    overhead: Nanos::from_millis(200),
};
const CALIBRATION: Nanos = Nanos::from_millis(200);
/// Searches of the wire that are to show that counts add up, not what a bridge can do.
const QUICK: Goal = Goal {
    width: Ppm::new(50_000),
    trial: Nanos::from_millis(100),
    sum: Nanos::from_millis(300),
    ..Goal::NDR
};
const SHORT_PDR: Goal =
    Goal { trial: Nanos::from_millis(500), sum: Nanos::from_millis(5_500), ..Goal::PDR };
const MIN_PPS: u64 = 1_000;
const MAX_PPS: u64 = 200_000;
const POLICED_PPS: u64 = 40_000;
/// Half a percent of loss allowed, half a percent of width, and half a percent for the bucket.
const NEAR: f64 = 0.015;
