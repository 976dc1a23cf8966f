// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One body, two arms: the same scenarios with the switch on the wire and in virtual time (`sim`,
//! row 10).
//!
//! Compared are the bits of all streams of a run, Jain's index over them, and each stream's median
//! delay. In virtual time the machine takes the times of a scenario file ([`HostTimes`]). Delays on
//! the wire differ from run to run, so the median of several runs counts; how far they are apart is
//! kept beside.

use serde::Deserialize;
use weir_experiment::prelude::*;
use weir_experiment::{SimArm, jain, mean, median};
use weir_sim::HostTimes;

use super::measure::TenantLoad;
use super::planes::{SIM, SWITCH};
use super::{ConformanceScenario, Laboratory, RunRecord, Setup, experiments, nothing_beside};
use crate::reproduce::scenario::unit;

const SCENARIO: &str = include_str!("../../../scenarios/sim/host.toml");
const LIGHT: &str = include_str!("../../../scenarios/sim/light.toml");

/// The times of a machine, and what is run on both arms.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmsScenario {
    times: HostTimesSpec,
    full: ArmRuns,
    quick: ArmRuns,
    bounds: ArmBounds,
    #[serde(rename = "experiment")]
    experiments: Vec<ArmExperiment>,
}

/// [`HostTimes`] without what a scenario says itself.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct HostTimesSpec {
    #[serde(deserialize_with = "unit")]
    look: Nanos,
    #[serde(deserialize_with = "unit")]
    make: Nanos,
    batch: u32,
    #[serde(deserialize_with = "unit")]
    flush: Nanos,
    #[serde(deserialize_with = "unit")]
    pass: Nanos,
    #[serde(deserialize_with = "unit")]
    turn: Nanos,
    #[serde(deserialize_with = "unit")]
    receive: Nanos,
    #[serde(deserialize_with = "unit")]
    send: Nanos,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmRuns {
    /// Runs on the wire.
    runs: usize,
}

/// The most that virtual time may be off the wire.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmBounds {
    /// The distance of throughputs, as a part of the wire's.
    throughput: f64,
    /// The distance of Jain's indices.
    jain: f64,
    /// The distance of median delays, as a part of the wire's.
    delay: f64,
}

/// An experiment of the suite, or the light one.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmExperiment {
    name: String,
    /// Variants that a time was fitted to.
    #[serde(default)]
    fitted: Vec<String>,
    /// Variants of a quick run.
    #[serde(default)]
    quick: Vec<String>,
}

/// A run as it is compared.
#[derive(Clone, Debug, Default)]
struct ArmRecord {
    mbps: f64,
    /// The traffic of all streams, by that of the link or of their offer, whichever is less.
    carried: f64,
    /// Jain's index over the streams that offered more than they got; 1 if none did.
    jain: f64,
    /// The median delays of streams of one rate and size, their mean, µs; 0 without packets.
    delays: Vec<f64>,
}

/// Shows the row.
pub(crate) fn show(rec: &mut Recording<'_>) -> Result {
    let wrong = |error: toml::de::Error| {
        let (name, what) = ("host.toml".to_owned(), error.to_string());
        ExperimentError::Scenario { name, what }
    };
    let scenario: ArmsScenario = toml::from_str(SCENARIO).map_err(wrong)?;
    let mut suite = experiments()?;
    suite.push(ConformanceScenario::parse("light.toml", LIGHT)?);
    for of in &scenario.experiments {
        let known = suite.iter().find(|one| one.name() == of.name);
        let experiment = known.ok_or_else(|| ExperimentError::Scenario {
            name: "host.toml".to_owned(),
            what: format!("experiment: there is no {:?}", of.name),
        })?;
        both_arms(rec, &scenario, of, experiment)?;
    }
    Ok(())
}

/// Runs the variants of an experiment on both arms.
fn both_arms(
    rec: &mut Recording<'_>,
    scenario: &ArmsScenario,
    of: &ArmExperiment,
    experiment: &ConformanceScenario,
) -> Result {
    let runs = if rec.quick { scenario.quick.runs } else { scenario.full.runs };
    for variant in experiment.variants(false, None) {
        let name = variant.name();
        if rec.quick && !of.quick.contains(&name) {
            continue;
        }
        let setup = experiment.setup(&variant, rec.quick)?;
        let mut beside = nothing_beside;
        let mut wire = Laboratory::new(&SWITCH, "arms", &mut beside, SimArm::default());
        let wire = (0..runs).map(|_| Ok(ArmRecord::of(&setup, &wire.run(&setup, &name)?)));
        let wire = wire.collect::<Result<Vec<_>>>()?;
        let mut beside = nothing_beside;
        let arm = SimArm { host: Some(scenario.times.times()), ..SimArm::default() };
        let mut sim = Laboratory::new(&SIM, "arms", &mut beside, arm);
        let sim = ArmRecord::of(&setup, &sim.run(&setup, &name)?);
        let kind = if of.fitted.contains(&name) { "fitted" } else { "predicted" };
        let id = format!("{}/{name}", of.name);
        rec.say(&format!("{id}, {kind}: wire {wire:.4?}, virtual {sim:.4?}"));
        rec.within(&format!("{id}/"), |rec| judge(rec, scenario.bounds, &wire, &sim))?;
    }
    Ok(())
}

fn judge(
    rec: &mut Recording<'_>,
    bounds: ArmBounds,
    wire: &[ArmRecord],
    sim: &ArmRecord,
) -> Result {
    let all = |value: fn(&ArmRecord) -> f64| wire.iter().map(value).collect::<Vec<f64>>();
    let (carried, index) = (all(|run| run.carried), all(|run| run.jain));
    rec.keep("wire/throughput", Series::unordered("Mb/s", all(|run| run.mbps)))?;
    rec.keep("virtual/throughput", Series::unordered("Mb/s", vec![sim.mbps]))?;
    // On the wire a sender that has no processor for a while offers less.
    let text = "throughput of what link and offer allow, in virtual time, off that on the wire";
    let off = Series::unordered("1", vec![(sim.carried / median(&carried).max(LEAST) - 1.0).abs()]);
    rec.claim_samples("throughput", text, off, Rule::Max, Bound::at_most(bounds.throughput))?;
    let text = "Jain's index in virtual time, off that on the wire";
    let off = Series::unordered("1", vec![(sim.jain - median(&index)).abs()]);
    rec.claim_samples("jain", text, off, Rule::Max, Bound::at_most(bounds.jain))?;
    let (mut offs, mut spread, mut delays) = (Vec::new(), Vec::new(), Vec::new());
    for (kind, here) in sim.delays.iter().enumerate() {
        let there: Vec<f64> = wire.iter().filter_map(|run| run.delays.get(kind).copied()).collect();
        let middle = median(&there).max(LEAST);
        offs.push((here / middle - 1.0).abs());
        delays.push(middle);
        spread.extend(there.iter().map(|one| (one / middle - 1.0).abs()));
    }
    rec.keep("wire/delay", Series::unordered("us", delays))?;
    rec.keep("virtual/delay", Series::unordered("us", sim.delays.clone()))?;
    rec.keep("wire/spread", Series::unordered("1", spread))?;
    let text = "median delay in virtual time, off that on the wire, each kind of streams";
    let series = Series::unordered("1", offs);
    rec.claim_samples("delay", text, series, Rule::Max, Bound::at_most(bounds.delay))
}

impl ArmRecord {
    fn of(setup: &Setup, record: &RunRecord) -> Self {
        // The first second is not judged.
        let settled = |seconds: Vec<f64>| mean(seconds.get(1..).unwrap_or_default());
        let loads = 0..setup.loads.len();
        let both = loads.clone().map(|load| [record.got(load), record.offered(load)].map(settled));
        let both: Vec<[f64; 2]> = both.collect();
        let [got, offered] = [0, 1].map(|at| both.iter().map(|one| one[at]).sum::<f64>());
        let link = float(setup.intent.link.as_bps());
        let backlogged = both.iter().filter(|[got, offered]| *got < WANTED * offered);
        let shares: Vec<f64> = backlogged.map(|[got, _]| *got).collect();
        let mut kinds: Vec<(&TenantLoad, Vec<f64>)> = Vec::new();
        for (at, load) in loads.zip(&setup.loads) {
            let delay = record.delays(at).get(MEDIAN).copied().unwrap_or(0.0) * 1e6;
            let alike = |known: &&TenantLoad| known.rate == load.rate && known.sizes == load.sizes;
            match kinds.iter_mut().find(|(known, _)| alike(known)) {
                Some((_, delays)) => delays.push(delay),
                None => kinds.push((load, vec![delay])),
            }
        }
        Self {
            mbps: got / 1e6,
            carried: got / link.min(offered).max(1.0),
            jain: if shares.is_empty() { 1.0 } else { jain(&shares) },
            delays: kinds.iter().map(|(_, delays)| mean(delays)).collect(),
        }
    }
}

impl HostTimesSpec {
    const fn times(self) -> HostTimes {
        let Self { look, make, batch, flush, pass, turn, receive, send } = self;
        HostTimes { look, make, batch, flush, pass, turn, receive, send, catch_up: Nanos::ZERO }
    }
}

/// A stream that gets less than this part of its offer wants more.
const WANTED: f64 = 0.95;

/// The place of the median among the quantiles of a record, which are a thousand.
const MEDIAN: usize = 499;

/// Nothing is divided by less: a nanosecond in µs.
const LEAST: f64 = 0.001;
