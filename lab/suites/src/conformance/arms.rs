// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One body, two arms: the same scenarios with the switch on the wire and in virtual time (`sim`,
//! row 10).
//!
//! It compares the throughput as a part of what link and offer allow, Jain's index over the streams
//! that want more than they get, and the median delay, averaged over streams of one rate and size.
//! In virtual time the machine takes the times of a scenario file ([`HostTimes`]), all multiplied
//! by one factor, since machines differ in speed: the factor with which one light stream has the
//! delay that it has on the wire. Delays on the wire differ from run to run, so the median of
//! several runs counts; their spread is kept, too.

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
    machine: ArmMachine,
    full: ArmRuns,
    quick: ArmRuns,
    bounds: ArmBounds,
    #[serde(rename = "experiment")]
    experiments: Vec<ArmExperiment>,
}

/// The part of [`HostTimes`] that a scenario file sets.
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

/// The variant whose delay on the wire tells the machine's speed.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ArmMachine {
    /// The experiment, and its variant.
    experiment: String,
    variant: String,
    /// The least and the greatest factor that is tried.
    factors: [f64; 2],
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
    /// The traffic of all streams, divided by the link's rate or their offer, whichever is less.
    carried: f64,
    /// Jain's index over the streams that offered more than they got; 1 if none did.
    jain: f64,
    /// The median delays of streams of one rate and size, their mean, µs; 0 without packets.
    delays: Vec<f64>,
}

/// Shows the row.
pub(crate) fn show(rec: &mut Recording<'_>) -> Result {
    let parsed = toml::from_str(SCENARIO).map_err(|error| wrong(error.to_string()));
    let scenario: ArmsScenario = parsed?;
    let mut suite = experiments()?;
    suite.push(ConformanceScenario::parse("light.toml", LIGHT)?);
    let find = |name: &str| {
        let known = suite.iter().find(|one| one.name() == name);
        known.ok_or_else(|| unknown("an experiment", name))
    };
    let host = times_here(rec, &scenario, find(&scenario.machine.experiment)?)?;
    let runs = if rec.quick { scenario.quick.runs } else { scenario.full.runs };
    for of in &scenario.experiments {
        let experiment = find(&of.name)?;
        for variant in experiment.variants(false, None) {
            let name = variant.name();
            if rec.quick && !of.quick.contains(&name) {
                continue;
            }
            let setup = experiment.setup(&variant, rec.quick)?;
            let wire = on_the_wire(runs, &setup, &name)?;
            let sim = in_virtual_time(host, &setup, &name)?;
            let kind = if of.fitted.contains(&name) { "fitted" } else { "predicted" };
            let id = format!("{}/{name}", of.name);
            rec.say(&format!("{id}, {kind}: wire {wire:.4?}, virtual {sim:.4?}"));
            rec.within(&format!("{id}/"), |rec| judge(rec, scenario.bounds, &wire, &sim))?;
        }
    }
    Ok(())
}

/// Returns the times of this machine: those of the scenario, multiplied by the factor with which
/// the scenario's variant has the same delay in virtual time as on the wire.
fn times_here(
    rec: &mut Recording<'_>,
    scenario: &ArmsScenario,
    experiment: &ConformanceScenario,
) -> Result<HostTimes> {
    let ArmMachine { variant: name, factors, .. } = &scenario.machine;
    let found = experiment.variants(false, None).find(|one| one.name() == *name);
    let variant = found.ok_or_else(|| unknown("a variant", name))?;
    let setup = experiment.setup(&variant, rec.quick)?;
    let delay = |run: &ArmRecord| run.delays.first().copied().unwrap_or(0.0);
    let wire = on_the_wire(CALIBRATIONS, &setup, name)?;
    let wanted = median(&wire.iter().map(delay).collect::<Vec<f64>>());
    let virtual_delay =
        |factor| Ok(delay(&in_virtual_time(scenario.times.by(factor), &setup, name)?));
    let factor = factor_for(wanted, *factors, virtual_delay)?;
    rec.say(&format!("this machine takes {factor:.2} of the scenario's times"));
    rec.keep("machine/factor", Series::unordered("1", vec![factor]))?;
    Ok(scenario.times.by(factor))
}

/// Returns the factor, within 1 %, that gives a delay of `wanted` µs, by bisection on a scale of
/// logarithms. Delays grow with the factor.
fn factor_for(
    wanted: f64,
    [mut least, mut most]: [f64; 2],
    mut delay: impl FnMut(f64) -> Result<f64>,
) -> Result<f64> {
    let ends = [delay(least)?, delay(most)?];
    if !(0.0 < ends[0] && ends[0] <= wanted && wanted <= ends[1]) {
        return Err(wrong(format!(
            "machine: a median delay of {wanted:.1} us on the wire; factors from {least} to {most} \
             give {:.1} to {:.1} us",
            ends[0], ends[1]
        )));
    }
    while most / least > 1.01 {
        let middle = (least * most).sqrt();
        if delay(middle)? < wanted {
            least = middle;
        } else {
            most = middle;
        }
    }
    Ok((least * most).sqrt())
}

fn on_the_wire(runs: usize, setup: &Setup, name: &str) -> Result<Vec<ArmRecord>> {
    let mut beside = nothing_beside;
    let mut wire = Laboratory::new(&SWITCH, "arms", &mut beside, SimArm::default());
    (0..runs).map(|_| Ok(ArmRecord::of(setup, &wire.run(setup, name)?))).collect()
}

fn in_virtual_time(host: HostTimes, setup: &Setup, name: &str) -> Result<ArmRecord> {
    let mut beside = nothing_beside;
    let arm = SimArm { host: Some(host), ..SimArm::default() };
    let mut sim = Laboratory::new(&SIM, "arms", &mut beside, arm);
    Ok(ArmRecord::of(setup, &sim.run(setup, name)?))
}

fn unknown(kind: &str, name: &str) -> ExperimentError {
    wrong(format!("{name:?} is not {kind} of the suite"))
}

fn wrong(what: String) -> ExperimentError {
    ExperimentError::Scenario { name: "host.toml".to_owned(), what }
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
    /// Returns the times, each multiplied by a factor.
    fn by(self, factor: f64) -> HostTimes {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let by = |time: Nanos| Nanos::new((float(time.as_nanos()) * factor) as u64);
        HostTimes {
            look: by(self.look),
            make: by(self.make),
            batch: self.batch,
            flush: by(self.flush),
            pass: by(self.pass),
            turn: by(self.turn),
            receive: by(self.receive),
            send: by(self.send),
            catch_up: Nanos::ZERO,
        }
    }
}

/// Runs on the wire that tell the machine's speed.
const CALIBRATIONS: usize = 3;

/// A stream that gets less than this part of its offer wants more.
const WANTED: f64 = 0.95;

/// The place of the median among the quantiles of a record, which are a thousand.
const MEDIAN: usize = 499;

/// The least divisor: for delays, a nanosecond in µs.
const LEAST: f64 = 0.001;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_factor_is_found_or_refused() {
        // A part of the delay does not depend on the machine.
        let delay = |factor: f64| Ok(2.0 + 10.0 * factor);
        let found = factor_for(9.0, [0.125, 8.0], delay).unwrap();
        assert!((found / 0.7 - 1.0).abs() < 0.01, "{found}");
        for wanted in [0.0, 3.0, 83.0] {
            let error = factor_for(wanted, [0.125, 8.0], delay).unwrap_err().to_string();
            assert!(error.contains("factors from 0.125 to 8 give 3.2 to 82.0 us"), "{error}");
        }
        assert!(factor_for(9.0, [0.125, 8.0], |_| Ok(0.0)).is_err(), "nothing arrives");
    }

    #[test]
    fn the_scenario_names_what_there_is() {
        let scenario: ArmsScenario = toml::from_str(SCENARIO).unwrap();
        let light = ConformanceScenario::parse("light.toml", LIGHT).unwrap();
        assert_eq!(light.name(), scenario.machine.experiment);
        let mut variants = light.variants(false, None);
        assert!(variants.any(|one| one.name() == scenario.machine.variant));
    }
}
