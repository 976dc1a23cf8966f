// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Series that follow from the sink's: means over repetitions, ratios to what is guaranteed.

use weir_experiment::mean;
use weir_experiment::prelude::*;

use super::runs::PanelRuns;
use super::scenario::Measure;

/// Keeps what follows for the runs of a panel.
pub fn derive(rec: &mut Recording<'_>, runs: PanelRuns<'_>) -> Result {
    match runs.scenario.measure {
        Measure::Rates => rates(rec, runs),
        Measure::Balance => shares(rec, runs),
        Measure::Disturbance => disturbance(rec, runs),
        Measure::Weights => weights(rec, runs),
    }
}

/// Keeps each tenant's means and half intervals as parts of its `rate`.
fn rates(rec: &mut Recording<'_>, runs: PanelRuns<'_>) -> Result {
    for tenant in runs.panel.all() {
        let (who, rate) = (&tenant.name, tenant.rate_bps());
        let mut seen = runs.over_time(&rec.result, &tenant);
        seen.drain(..runs.scenario.first_judged(&tenant).min(seen.len()));
        let means = seen.iter().map(|interval| interval.mean / rate).collect();
        rec.keep(&runs.all(&format!("{who}/of-rate")), Series::unordered("1", means))?;
        let halves = seen.iter().filter_map(|interval| interval.half);
        let halves: Vec<f64> = halves.map(|half| half / rate).collect();
        if !halves.is_empty() {
            rec.keep(&runs.all(&format!("{who}/interval")), Series::unordered("1", halves))?;
        }
    }
    Ok(())
}

/// Keeps the least tenant's throughput as a part of the greatest one's: in each sample of each
/// repetition, and in all of each repetition; 0 where nobody got anything.
fn shares(rec: &mut Recording<'_>, runs: PanelRuns<'_>) -> Result {
    let settle = runs.scenario.settle();
    let tenants = runs.panel.all();
    let repeated: Vec<_> =
        tenants.iter().map(|tenant| runs.repeated(&rec.result, &tenant.name)).collect();
    let count = repeated.iter().map(Vec::len).min().unwrap_or(0);
    let (mut levels, mut totals) = (Vec::new(), Vec::new());
    for number in 0..count {
        let rows = repeated.iter().map(|rows| rows[number].get(settle..).unwrap_or_default());
        let rows: Vec<&[f64]> = rows.collect();
        let length = rows.iter().map(|row| row.len()).min().unwrap_or(0);
        levels.push((0..length).map(|k| level(rows.iter().map(|row| row[k]))).collect());
        totals.push(level(rows.iter().map(|row| mean(row))));
    }
    runs.keep(rec, "level", "1", levels)?;
    rec.keep(&runs.all("shares"), Series::unordered("1", totals))
}

/// Least by greatest.
fn level(values: impl Iterator<Item = f64>) -> f64 {
    let (least, greatest) = values
        .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
    if greatest > 0.0 { least / greatest } else { 0.0 }
}

/// Keeps each tenant's throughput while the disk worked, and its mean before, once for each sample.
fn disturbance(rec: &mut Recording<'_>, runs: PanelRuns<'_>) -> Result {
    let scenario = runs.scenario;
    let Some(disk) = &scenario.disk else { return Ok(()) };
    // The sample in which the work begins is half of it.
    let (from, to) = (scenario.sample_at(disk.from), scenario.sample_at(disk.to));
    for tenant in runs.panel.all() {
        let (mut quiet, mut busy) = (Vec::new(), Vec::new());
        for samples in runs.repeated(&rec.result, &tenant.name) {
            let before = mean(samples.get(scenario.settle()..from).unwrap_or_default());
            let meanwhile = samples.get(from + 1..to).unwrap_or_default().to_vec();
            quiet.push(vec![before; meanwhile.len()]);
            busy.push(meanwhile);
        }
        runs.keep(rec, &format!("{}/undisturbed", tenant.name), "bit/s", quiet)?;
        runs.keep(rec, &format!("{}/disturbed", tenant.name), "bit/s", busy)?;
    }
    Ok(())
}

/// Keeps the distance of each tenant from its weight after each change, and the one allowed.
fn weights(rec: &mut Recording<'_>, runs: PanelRuns<'_>) -> Result {
    let tenants = runs.panel.all();
    let settled = tenants.iter().map(|tenant| {
        let rows = runs.repeated(&rec.result, &format!("{}/settled", tenant.name));
        rows.iter().map(|row| row.to_vec()).collect::<Vec<_>>()
    });
    let settled: Vec<_> = settled.collect();
    let [first, second] = settled.as_slice() else { return Ok(()) };
    for (index, tenant) in tenants.iter().enumerate() {
        let (mut errors, mut allowed) = (Vec::new(), Vec::new());
        for (first, second) in first.iter().zip(second) {
            let guaranteed: Vec<[f64; 2]> = (0..)
                .zip(first.iter().zip(second))
                .map(|(step, (first, second))| {
                    let priorities = runs.scenario.priorities(step).map(f64::from);
                    let part = priorities[index] / (priorities[0] + priorities[1]);
                    [[*first, *second][index], (first + second) * part]
                })
                .collect();
            let packets = 2.0 * 8.0 * f64::from(tenant.frame_max);
            errors.push(guaranteed.iter().map(|[got, due]| (got - due).abs()).collect());
            allowed.push(
                guaranteed.iter().map(|[_, due]| (WEIGHT_ERROR * due).max(packets)).collect(),
            );
        }
        runs.keep(rec, &format!("{}/error", tenant.name), "bit", errors)?;
        runs.keep(rec, &format!("{}/allowed", tenant.name), "bit", allowed)?;
    }
    Ok(())
}

/// Allowed distance, as a part of what a tenant's weight gives it.
const WEIGHT_ERROR: f64 = 0.02;
