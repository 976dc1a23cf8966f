// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A training of both guests at once (§5): caps in turn, the curve of rate by cap, a model of each.

use weir_control::identify::{self, CurvePoint, Identified, Point, TrainingPlan};
use weir_experiment::mean;
use weir_experiment::prelude::*;
use weir_plot::{Bar, BarGroup, Bars};
use weir_units::CpuShare;

use super::bench::GuestBench;
use super::capacity::{rates, whole};
use super::load::OFFERED_PPS;
use super::spec::{XenSpec, refused, write};

/// Runs it. Returns the model of each guest.
pub(super) fn run(
    trial: &mut Recording<'_>,
    id: &str,
    bench: &mut GuestBench<'_>,
    spec: &XenSpec,
) -> Result<Vec<Identified>, ExperimentError> {
    let caps = CAPS_PERCENT.map(CpuShare::from_percent).to_vec();
    let offered = vec![PacketRate::from_pps(OFFERED_PPS)];
    let length = Nanos::from_secs(SAMPLES as u64);
    let plan = TrainingPlan::new(caps, offered, 1, length).map_err(refused)?;
    let orders: Vec<_> = (1..).take(bench.guests.len()).map(|seed| plan.steps(seed)).collect();
    let mut seen: Vec<TrainingRecord> =
        bench.guests.iter().map(|_| TrainingRecord::default()).collect();
    for step in 0..CAPS_PERCENT.len() {
        let caps: Vec<CpuShare> = orders.iter().map(|order| order[step].cap).collect();
        bench.cap(&caps)?;
        for ((seen, samples), cap) in seen.iter_mut().zip(bench.samples(SAMPLES)?).zip(caps) {
            seen.add(cap, &rates(&samples));
        }
    }
    bench.release()?;
    let mut models = Vec::new();
    let mut curves = Vec::new();
    for (guest, seen) in bench.guests.iter().zip(&seen) {
        let curve = identify::curve(&seen.runs);
        models.push(judge(trial, id, guest.name, seen, &curve)?);
        curves.push((guest.name, curve));
    }
    write(spec, "training.svg", bars(id, &curves).draw()?.as_str())?;
    Ok(models)
}

/// The record of one guest.
#[derive(Default)]
struct TrainingRecord {
    /// The rate of each period, and the cap from then on.
    points: Vec<Point>,
    /// The mean rate under each cap.
    runs: Vec<(CpuShare, PacketRate)>,
}

impl TrainingRecord {
    fn add(&mut self, cap: CpuShare, rates: &[f64]) {
        // What was in force at the end of the step before is not any more.
        if let Some(last) = self.points.last_mut() {
            last.cap = cap;
        }
        let point = |rate: &f64| Point { rate: PacketRate::from_pps(whole(*rate)), cap };
        self.points.extend(rates.iter().map(point));
        self.runs.push((cap, PacketRate::from_pps(whole(mean(rates)))));
    }
}

fn judge(
    trial: &mut Recording<'_>,
    id: &str,
    name: &str,
    seen: &TrainingRecord,
    curve: &[CurvePoint],
) -> Result<Identified, ExperimentError> {
    let id = format!("{id}/{name}/training");
    let identified = identify::fit(&[&seen.points]).map_err(refused)?;
    let free = identify::r_squared(&identify::free_run(&identified, &seen.points));
    let before = identify::r_squared(&identify::persistence(&seen.points));
    let (a, b) = (identified.model.a(), identified.model.b());
    trial.say(&format!("{id}: a {a:.3}, b {b:.3}, one step R² {:.3}", identified.r_squared));
    trial.keep(&format!("{id}/model"), Series::unordered("1", vec![a, b]))?;
    for (part, value) in [("free-run", free), ("persistence", before)] {
        let series = Series::unordered("1", vec![value.unwrap_or(0.0)]);
        trial.keep(&format!("{id}/r2-{part}"), series)?;
    }
    let rates: Vec<f64> = curve.iter().map(|point| float(point.mean.as_pps())).collect();
    let (least, most) = (rates.first().copied(), rates.last().copied());
    let [low, high] = [format!("{id}/least-cap"), format!("{id}/largest-cap")];
    trial.keep(&low, Series::unordered("pps", least.into_iter().collect()))?;
    trial.keep(&high, Series::unordered("pps", most.into_iter().collect()))?;
    trial.keep(&format!("{id}/curve"), Series::unordered("pps", rates))?;
    let title = "rate under the largest cap, of that under the least";
    trial.claim(&id, title, Rule::RatioOfSums, Bound::at_least(CAP_COUNTS), &[high, low])?;
    Ok(identified)
}

fn bars(id: &str, curves: &[(&str, Vec<CurvePoint>)]) -> Bars {
    let group = |(name, curve): &(&str, Vec<CurvePoint>)| BarGroup {
        name: (*name).to_owned(),
        guarantee: None,
        bars: curve
            .iter()
            .map(|point| Bar { name: point.cap.to_string(), value: float(point.mean.as_pps()) })
            .collect(),
    };
    let title = format!("{id}: packets forwarded by cap");
    Bars { title, unit: "pps".to_owned(), groups: curves.iter().map(group).collect() }
}

/// Both guests share a processor: the largest caps of both still fit.
const CAPS_PERCENT: [u32; 7] = [5, 8, 12, 17, 24, 33, 45];

/// Under each cap.
const SAMPLES: usize = 3;

/// Nine times the cap is worth at least this, however slow the machine is.
const CAP_COUNTS: f64 = 2.0;
