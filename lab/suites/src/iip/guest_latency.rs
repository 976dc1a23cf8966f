// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Throughput and delay of the node with its three guests, as Figs 5, 6, 10 and 11 of the text have
//! them; first of the machine alone, whose kernel bridges.
//!
//! A search finds the greatest load of all three streams of which at most half a percent is lost.
//! Then packets are timed at 90 % of it, and at 130 %, where queues are full. Delays are those of
//! packets that arrive: so most must, at either load.

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
    judge(rec, &sizes, &native, &node)
}

fn judge(
    rec: &mut Recording<'_>,
    sizes: &[FramePattern],
    native: &[NodeDelay],
    node: &[NodeDelay],
) -> Result {
    for (name, found) in [("native", native), ("node", node)] {
        let mut keep = |what: &str, unit, value: fn(&NodeDelay) -> f64| {
            let samples = found.iter().map(value).collect();
            rec.keep(&format!("{name}/{what}"), Series::unordered(unit, samples))
        };
        keep("throughput", "packet/s", |one| one.throughput)?;
        keep("median-at-90", "ms", |one| one.below[0])?;
        keep("mean-at-90", "ms", |one| one.below[1])?;
        keep("median-past", "ms", |one| one.past[0])?;
        keep("mean-past", "ms", |one| one.past[1])?;
        keep("arrived-at-90", "1", |one| one.arrived[0])?;
        keep("arrived-past", "1", |one| one.arrived[1])?;
    }
    let text = "throughput of the node and of the machine alone, worst size";
    let bound = Bound::at_least(float(PPS_MIN));
    let forwards = ["native/throughput", "node/throughput"];
    rec.claim("forwards", text, Rule::Min, bound, &forwards)?;
    for (id, text, least) in [
        ("arrived-at-90", "arrived at 90 % of the throughput, of what was sent: worst run", 0.9),
        ("arrived-past", "arrived at 130 % of the throughput, of what was sent: worst run", 0.25),
    ] {
        let series = [format!("native/{id}"), format!("node/{id}")];
        rec.claim(id, text, Rule::Min, Bound::at_least(least), &series)?;
    }
    if native.iter().chain(node).any(|one| one.throughput < 1.0) {
        rec.say("ratios and delays are not judged: nothing is forwarded of a size");
        return Ok(());
    }
    let bits_of = |wanted: &str| {
        let each = sizes.iter().zip(node).filter(|(size, _)| size_key(size) == wanted);
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
    /// Packets a second of all three streams; 0 if none of the loads is forwarded.
    throughput: f64,
    /// Median and mean time on the way at 90 % of it, ms; medians of the runs.
    below: [f64; 2],
    /// Median and mean at 130 %.
    past: [f64; 2],
    /// Packets that arrived, of those sent, at 90 % and at 130 %: of the worst run.
    arrived: [f64; 2],
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
        // The least load is timed, too, if nothing is forwarded of it.
        let timed_load = throughput.max(PPS_MIN);
        let mut timed = |percent: u64| -> Result<([f64; 2], f64)> {
            let (mut medians, mut means, mut arrived) = (Vec::new(), Vec::new(), 1.0_f64);
            for _ in 0..runs {
                lab.restart_guests()?;
                let trial = measurer.trial(&lab, &load(timed_load * percent / 100))?;
                let outcome = trial.outcome()?;
                let sent = float(outcome.offered.max(1));
                arrived = arrived.min(float(outcome.forwarded) / sent);
                for tenant in &trial.tenants {
                    let delays = &tenant.delays;
                    medians.push(float(delays.quantile_ns(1, 2)) / 1e6);
                    means.push(float(delays.sum_ns) / float(delays.count.max(1)) / 1e6);
                }
            }
            Ok(([median(&medians), median(&means)], arrived))
        };
        let ((below, at_90), (past, beyond)) = (timed(90)?, timed(130)?);
        let arrived = [at_90, beyond];
        let found = NodeDelay { throughput: float(throughput), below, past, arrived };
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
    Ok(search.results().first().map_or(0, GoalResult::throughput))
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

#[cfg(test)]
mod tests {
    use weir_result::{Machine, Origin, ResultFile};

    use super::*;

    fn holds(native: NodeDelay, node: NodeDelay) -> bool {
        let origin = Origin {
            command: String::new(),
            machine: Machine { cpu: String::new(), cores: 1, memory_mib: 1 },
            kernel: String::new(),
            commit: String::new(),
            start: String::new(),
        };
        let mut silent = |_: &str| {};
        let mut rec = Recording::new(ResultFile::new(origin), true, &mut silent);
        let sizes = [FramePattern::Fixed(128), FramePattern::Fixed(1024)];
        judge(&mut rec, &sizes, &[native; 2], &[node; 2]).unwrap();
        rec.result.holds()
    }

    /// Goal: a node that forwards nothing fails, and so does one that loses most of what it is
    /// timed with: neither has long delays.
    #[test]
    fn a_node_that_forwards_nothing_fails() {
        let native = NodeDelay {
            throughput: 150_000.0,
            below: [0.1; 2],
            past: [5.0; 2],
            arrived: [1.0, 0.7],
        };
        let node = NodeDelay { throughput: 90_000.0, ..native };
        assert!(holds(native, node));
        let silent =
            NodeDelay { throughput: 0.0, below: [0.0; 2], past: [0.0; 2], arrived: [0.0; 2] };
        assert!(!holds(native, silent));
        assert!(!holds(silent, silent));
        assert!(!holds(native, NodeDelay { arrived: [0.5, 0.7], ..node }));
        assert!(!holds(native, NodeDelay { arrived: [1.0, 0.1], ..node }));
        assert!(!holds(native, NodeDelay { past: [25.0; 2], ..node }));
    }
}
