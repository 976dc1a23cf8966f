// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Throughput and delay of the node with its three guests, as Figs 5, 6, 10 and 11 of the text have
//! them; first of the machine alone, whose kernel bridges.
//!
//! A search finds the greatest load of all three streams of which at most half a percent is lost.
//! Then packets are timed at 90 % of it, and at 130 %, where queues are full.

use weir_experiment::median;
use weir_experiment::prelude::*;
use weir_tester::{FramePattern, Goal, GoalResult, Ppm, Search, SearchConfig, Step};

use crate::guests::scenario::{GuestScenario, size_key};
use crate::guests::{GuestLab, GuestMeasurer, InternetsLoad, ParallelInternet};

/// Shows the part.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let scenario = GuestScenario::load(rec.quick)?;
    let mut sizes = scenario.sweep("fixed")?.sizes;
    sizes.extend(scenario.sweep("random")?.sizes);
    let native = measure(rec, &scenario, "native", &sizes)?;
    let node = measure(rec, &scenario, "fixed", &sizes)?;
    for (name, found) in [("native", &native), ("node", &node)] {
        let mut keep = |what: &str, unit, value: fn(&NodeDelay) -> f64| {
            let samples = found.iter().map(value).collect();
            rec.keep(&format!("{name}/{what}"), Series::unordered(unit, samples))
        };
        keep("throughput", "packet/s", |one| one.throughput)?;
        keep("median-at-90", "ms", |one| one.below[0])?;
        keep("mean-at-90", "ms", |one| one.below[1])?;
        keep("median-past", "ms", |one| one.past[0])?;
        keep("mean-past", "ms", |one| one.past[1])?;
    }
    let bits_of = |wanted: &str| {
        let each = sizes.iter().zip(&node).filter(|(size, _)| size_key(size) == wanted);
        each.map(|(size, one)| one.throughput * 8.0 * size.mean()).collect::<Vec<f64>>()
    };
    rec.keep("bits-128", Series::unordered("bit/s", bits_of("128")))?;
    rec.keep("bits-1024", Series::unordered("bit/s", bits_of("1024")))?;
    let text = "throughput in bits at 1024 bytes by that at 128: small frames are dear";
    let series = ["bits-1024", "bits-128"];
    rec.claim("shape", text, Rule::RatioOfSums, Bound::at_least(2.0), &series)?;
    let text = "throughput of the machine alone by that of the node, worst size";
    let series = ["native/throughput", "node/throughput"];
    rec.claim("native-first", text, Rule::LeastRatio, Bound::at_least(1.0), &series)?;
    let text = "median time on the way at 90 % of the throughput, worst size";
    let bound = Bound::at_most(0.5);
    rec.claim("at-90", text, Rule::Max, bound, &["node/median-at-90"])?;
    let text = "mean time on the way at 130 % of the throughput, worst size";
    rec.claim("past", text, Rule::Max, Bound::at_most(20.0), &["node/mean-past"])
}

/// The findings of one size.
#[derive(Clone, Copy, Debug)]
struct NodeDelay {
    /// Packets a second of all three streams.
    throughput: f64,
    /// Median and mean time on the way at 90 % of it, ms; medians of the runs.
    below: [f64; 2],
    /// Median and mean at 130 %.
    past: [f64; 2],
}

fn measure(
    rec: &mut Recording<'_>,
    scenario: &GuestScenario,
    sweep: &str,
    sizes: &[FramePattern],
) -> Result<Vec<NodeDelay>> {
    let runs = if rec.quick { 1 } else { 5 };
    let mut lab = GuestLab::up("iip-guests", scenario.sweep(sweep)?.middle())?;
    let mut measurer = GuestMeasurer::new(&lab)?;
    let mut all = Vec::new();
    for size in sizes {
        lab.restart_guests()?;
        let load = |total: u64| InternetsLoad {
            sizes: size.clone(),
            pps: (total / STREAMS).max(1),
            duration: scenario.trial,
        };
        let throughput = search(&lab, &mut measurer, size, &load)?;
        let mut timed = |percent: u64| -> Result<[f64; 2]> {
            let (mut medians, mut means) = (Vec::new(), Vec::new());
            for _ in 0..runs {
                lab.restart_guests()?;
                let trial = measurer.trial(&lab, &load(throughput * percent / 100))?;
                for tenant in &trial.tenants {
                    let delays = &tenant.delays;
                    medians.push(float(delays.quantile_ns(1, 2)) / 1e6);
                    means.push(float(delays.sum_ns) / float(delays.count.max(1)) / 1e6);
                }
            }
            Ok([median(&medians), median(&means)])
        };
        let (below, past) = (timed(90)?, timed(130)?);
        let found = NodeDelay { throughput: float(throughput), below, past };
        rec.say(&format!("{sweep}, {size} bytes: {found:?}"));
        all.push(found);
    }
    drop(measurer);
    lab.down()?;
    Ok(all)
}

fn search(
    lab: &GuestLab,
    measurer: &mut GuestMeasurer,
    size: &FramePattern,
    load: &impl Fn(u64) -> InternetsLoad,
) -> Result<u64> {
    let max = size.frames_at(TEXT_BPS).min(PPS_MAX);
    let config = SearchConfig { goals: vec![GOAL], min: PPS_MIN, max, limit: LIMIT };
    let mut search = Search::new(config).map_err(|error| told(&error.to_string()))?;
    while let Step::Trial(step) = search.next() {
        let load = InternetsLoad { duration: step.duration, ..load(step.load) };
        let outcome = measurer.trial(lab, &load)?.outcome()?;
        search.record(outcome).map_err(|error| told(&error.to_string()))?;
    }
    Ok(search.results().first().map_or(0, GoalResult::throughput).max(PPS_MIN))
}

fn told(what: &str) -> ExperimentError {
    ExperimentError::Node(what.to_owned())
}

const STREAMS: u64 = ParallelInternet::ALL.len() as u64;
/// The text's three streams of 330 Mbit/s.
const TEXT_BPS: u64 = 990_000_000;
const PPS_MIN: u64 = 3_000;
const PPS_MAX: u64 = 300_000;
const GOAL: Goal = Goal {
    width: Ppm::new(20_000),
    trial: Nanos::from_millis(300),
    sum: Nanos::from_millis(1_500),
    ..Goal::PDR
};
const LIMIT: Nanos = Nanos::from_secs(15);
