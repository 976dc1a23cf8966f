// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Series that follow from what the sink saw: means over repetitions, ratios to what is owed.

use weir_experiment::mean;
use weir_experiment::prelude::*;
use weir_result::ResultFile;

use super::interval::{Interval, by_sample, interval};
use super::scenario::{Measure, Panel, Scenario, Tenant};
use super::series::Key;

/// Keeps what follows for a panel with one thing in its middle. `key` is of repetition 0.
pub fn derive(
    trial: &mut Recording<'_>,
    scenario: &Scenario,
    panel: &Panel,
    key: Key<'_>,
) -> Result<(), ExperimentError> {
    match scenario.measure {
        Measure::Rates => rates(trial, scenario, panel, key),
        Measure::Balance => shares(trial, scenario, panel, key),
        Measure::Disturbance => disturbance(trial, scenario, panel, key),
        Measure::Weights => weights(trial, scenario, panel, key),
    }
}

/// The tenant's throughput over time, each sample a mean over repetitions with its interval.
pub fn over_time(result: &ResultFile, tenant: &Tenant, key: Key<'_>) -> Vec<Interval> {
    by_sample(&key.repeated(result, &tenant.name))
}

/// The tenant's mean throughput while it sent, with its interval over repetitions.
pub fn overall(
    result: &ResultFile,
    scenario: &Scenario,
    tenant: &Tenant,
    key: Key<'_>,
) -> Option<Interval> {
    let repeated = key.repeated(result, &tenant.name);
    interval(
        &repeated.iter().map(|samples| mean(judged(scenario, tenant, samples))).collect::<Vec<_>>(),
    )
}

/// First sample of a tenant that bounds are held against.
pub fn first_judged(scenario: &Scenario, tenant: &Tenant) -> usize {
    place(scenario, tenant.start) + scenario.settle()
}

/// Bits of the largest frame, in samples of bits a second.
pub fn packet_bps(scenario: &Scenario, tenant: &Tenant) -> f64 {
    f64::from(tenant.frame_max) * 8.0 / scenario.interval().as_secs_f64()
}

/// Of each tenant, means and half intervals as parts of its `rate`.
fn rates(
    trial: &mut Recording<'_>,
    scenario: &Scenario,
    panel: &Panel,
    key: Key<'_>,
) -> Result<(), ExperimentError> {
    for tenant in panel.all() {
        let rate = tenant.rate.map_or(f64::NAN, |rate| float(rate.as_bps()));
        let seen = over_time(&trial.result, &tenant, key);
        let seen = seen.get(first_judged(scenario, &tenant)..).unwrap_or_default();
        let means = seen.iter().map(|interval| interval.mean / rate).collect();
        let halves: Vec<f64> =
            seen.iter().filter_map(|interval| interval.half).map(|half| half / rate).collect();
        trial
            .keep(&key.whole(&format!("{}/of-rate", tenant.name)), Series::unordered("1", means))?;
        if !halves.is_empty() {
            let name = key.whole(&format!("{}/interval", tenant.name));
            trial.keep(&name, Series::unordered("1", halves))?;
        }
    }
    Ok(())
}

/// What the least tenant got as a part of what the greatest got: in each sample of each repetition,
/// and in all of each repetition. Where nobody got anything it is nothing.
fn shares(
    trial: &mut Recording<'_>,
    scenario: &Scenario,
    panel: &Panel,
    key: Key<'_>,
) -> Result<(), ExperimentError> {
    let skip = |samples| after_settling(scenario, samples);
    let tenants = panel.all();
    let repeated: Vec<_> =
        tenants.iter().map(|tenant| key.repeated(&trial.result, &tenant.name)).collect();
    let count = repeated.iter().map(Vec::len).min().unwrap_or(0);
    let (mut levels, mut totals) = (Vec::new(), Vec::new());
    for repetition in 0..count {
        let rows: Vec<&[f64]> = repeated.iter().map(|rows| skip(rows[repetition])).collect();
        let length = rows.iter().map(|row| row.len()).min().unwrap_or(0);
        levels.push((0..length).map(|k| level(rows.iter().map(|row| row[k]))).collect());
        totals.push(level(rows.iter().map(|row| mean(row))));
    }
    for (repetition, level) in (0..).zip(levels) {
        let name = Key { repetition, ..key }.of("level");
        trial.keep(&name, Series::unordered("1", level))?;
    }
    trial.keep(&key.whole("shares"), Series::unordered("1", totals))
}

/// Least by greatest.
fn level(values: impl Iterator<Item = f64>) -> f64 {
    let (least, greatest) = values
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    if greatest > 0.0 { least / greatest } else { 0.0 }
}

/// What each tenant got while the disk worked, and its mean before, once for each such sample.
fn disturbance(
    trial: &mut Recording<'_>,
    scenario: &Scenario,
    panel: &Panel,
    key: Key<'_>,
) -> Result<(), ExperimentError> {
    let Some(disk) = &scenario.disk else { return Ok(()) };
    // The sample in which the work begins is half of it.
    let (from, to) = (place(scenario, disk.from), place(scenario, disk.to));
    for tenant in panel.all() {
        let mut rows = Vec::new();
        for samples in key.repeated(&trial.result, &tenant.name) {
            let quiet = samples.get(scenario.settle()..from).unwrap_or_default();
            let busy = samples.get(from + 1..to).unwrap_or_default().to_vec();
            rows.push((vec![mean(quiet); busy.len()], busy));
        }
        for (repetition, (quiet, busy)) in (0..).zip(rows) {
            let key = Key { repetition, ..key };
            let name = |what: &str| key.of(&format!("{}/{what}", tenant.name));
            trial.keep(&name("undisturbed"), Series::unordered("bit/s", quiet))?;
            trial.keep(&name("disturbed"), Series::unordered("bit/s", busy))?;
        }
    }
    Ok(())
}

/// How far each tenant was from its weight in what followed each change, and how far it may be.
fn weights(
    trial: &mut Recording<'_>,
    scenario: &Scenario,
    panel: &Panel,
    key: Key<'_>,
) -> Result<(), ExperimentError> {
    let tenants = panel.all();
    let settled = |tenant: &Tenant| {
        let name = format!("{}/settled", tenant.name);
        key.repeated(&trial.result, &name).iter().map(|row| row.to_vec()).collect::<Vec<_>>()
    };
    let rows: Vec<_> = tenants.iter().map(settled).collect();
    let [first, second] = rows.as_slice() else { return Ok(()) };
    for (repetition, both) in (0..).zip(first.iter().zip(second)) {
        let key = Key { repetition, ..key };
        for (index, tenant) in tenants.iter().enumerate() {
            let (mut errors, mut allowed) = (Vec::new(), Vec::new());
            for (step, got) in both.0.iter().zip(both.1).enumerate() {
                let priorities = scenario.priorities(step).map(f64::from);
                let owed = (got.0 + got.1) * priorities[index] / (priorities[0] + priorities[1]);
                let got = [*got.0, *got.1][index];
                errors.push((got - owed).abs());
                let packets = 2.0 * 8.0 * f64::from(tenant.frame_max);
                allowed.push((WEIGHT_ERROR * owed).max(packets));
            }
            let name = |what: &str| key.of(&format!("{}/{what}", tenant.name));
            trial.keep(&name("error"), Series::unordered("bit", errors))?;
            trial.keep(&name("allowed"), Series::unordered("bit", allowed))?;
        }
    }
    Ok(())
}

/// The samples that bounds are held against.
fn judged<'a>(scenario: &Scenario, tenant: &Tenant, samples: &'a [f64]) -> &'a [f64] {
    samples.get(first_judged(scenario, tenant)..).unwrap_or_default()
}

fn after_settling<'a>(scenario: &Scenario, samples: &'a [f64]) -> &'a [f64] {
    samples.get(scenario.settle()..).unwrap_or_default()
}

/// The sample in which an instant lies.
fn place(scenario: &Scenario, at: std::time::Duration) -> usize {
    usize::try_from(at.as_millis() / scenario.interval().as_millis().max(1)).unwrap_or(usize::MAX)
}

/// Of what a tenant's weight gives it.
const WEIGHT_ERROR: f64 = 0.02;
