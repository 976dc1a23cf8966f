// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Table 1 of the XTC text: the rate of a router by its cap (row 1).
//!
//! The model is fitted to the caps of `FITTED` and judged on the other caps, those of `PREDICTED`.
//! A rate is the mean of machines that differ in their seed: metered by samples, a machine's rate
//! depends on where its ticks fall.

use weir_experiment::prelude::*;
use weir_sim::{CreditAccounting, CreditScheduler, CreditShare, DomainWork, Seed, SimMachine};
use weir_tester::LinearFit;
use weir_units::{CpuShare, Instant};

use super::held::MACHINE;

/// Caps in percent and what the text measured under each, in thousand packets a second, of 100
/// offered (XTC text, table 1).
type MeasuredCap = (u32, f64);

const FITTED: [MeasuredCap; 5] = [(5, 16.0), (15, 50.0), (25, 77.0), (35, 91.0), (45, 96.0)];
const PREDICTED: [MeasuredCap; 5] = [(10, 32.0), (20, 65.0), (30, 85.0), (40, 94.0), (50, 98.0)];

/// Fits the processor time of a packet to five caps, and predicts five others.
pub(super) fn show(rec: &mut Recording<'_>) -> Result {
    let (step, fit, span) = if rec.quick { (100, 10, 10) } else { (50, 20, 60) };
    let seeds = seeds(rec);
    let mut best = (f64::INFINITY, 0);
    for cost in (2600..=3600).step_by(step) {
        let mut squares = 0.0;
        for (cap, measured) in FITTED {
            let got = throughput((cap, cost), CreditAccounting::Sampled, fit, &seeds)?;
            squares += (got / measured - 1.0).powi(2);
        }
        best = if squares < best.0 { (squares, cost) } else { best };
    }
    let (_, cost) = best;
    rec.say(&format!("processor time of a packet, fitted: {} us", float(cost) / 1000.0));
    rec.keep("cost", Series::unordered("ns", vec![float(cost)]))?;
    let (exact, _) = compare(rec, (CreditAccounting::Exact, &seeds[..1]), cost, span)?;
    rec.keep("exact", exact)?;
    let (sampled, points) = compare(rec, (CreditAccounting::Sampled, &seeds), cost, span)?;
    let text = "predicted caps, off what the text measured";
    rec.claim_samples("sampled", text, sampled, Rule::Max, Bound::at_most(6.0))?;
    let series = Series::unordered("1", vec![r_squared(&points)?]);
    let text = "R² of a line through packets a second by the logarithm of the cap";
    rec.claim_samples("r2", text, series, Rule::Min, Bound::at_least(0.98))
}

/// The seeds of the machines.
fn seeds(rec: &Recording<'_>) -> Vec<u64> {
    let machines = if rec.quick { 8 } else { 16 };
    let mut draw = Seed::new(rec.sim.seed_of(MACHINE));
    (0..machines).map(|_| draw.draw()).collect()
}

/// Runs a router under all caps. Returns by how much the predicted ones are off the text, and the
/// thousands of packets a second by the logarithm of the cap.
fn compare(
    rec: &mut Recording<'_>,
    (accounting, seeds): (CreditAccounting, &[u64]),
    cost: u64,
    seconds: u64,
) -> Result<(Series, Vec<(f64, f64)>)> {
    let (mut off, mut points) = (Vec::new(), Vec::new());
    for (cap, measured) in FITTED.into_iter().chain(PREDICTED) {
        let got = throughput((cap, cost), accounting, seconds, seeds)?;
        rec.say(&format!("{accounting:?}, cap {cap} %: {got:.1}, the text {measured} kp/s"));
        points.push((f64::from(cap).ln(), got));
        off.push((got / measured - 1.0).abs() * 100.0);
    }
    Ok((Series::unordered("%", off.split_off(FITTED.len())), points))
}

/// Returns the thousands of packets a second that a capped router does, of 100 offered: the mean
/// of machines with these seeds.
fn throughput(
    (cap, cost): (u32, u64),
    accounting: CreditAccounting,
    seconds: u64,
    seeds: &[u64],
) -> Result<f64> {
    let mut done = 0;
    for seed in seeds {
        let mut machine = router(cap, cost, accounting, *seed)?;
        machine.run_until(after(seconds))?;
        done += machine.counts(0).map_or(0, |counts| counts.done);
    }
    let span = seconds * seeds.len() as u64;
    Ok(float(done) / float(span) / 1000.0)
}

/// Makes a machine of one router behind a cap, which is offered 100 kp/s.
pub(super) fn router(
    cap: u32,
    cost: u64,
    accounting: CreditAccounting,
    seed: u64,
) -> Result<SimMachine<CreditScheduler>> {
    let share = CreditShare { cap: Some(CpuShare::from_percent(cap)), ..CreditShare::default() };
    let scheduler = CreditScheduler::new(1, accounting, &[share]);
    let (gap, cost) = (Nanos::from_micros(10), Nanos::new(cost));
    // Xen's network ring has 256 places.
    let work = DomainWork::Router { gap, cost, ring: 256 };
    Ok(SimMachine::new(1, scheduler, &[work], seed)?)
}

/// Returns R² of the least-squares line through points.
fn r_squared(points: &[(f64, f64)]) -> Result<f64> {
    let (terms, values): (Vec<_>, Vec<f64>) =
        points.iter().map(|(x, y)| (vec![*x, 1.0], *y)).unzip();
    let fit = LinearFit::of(&terms, &values);
    fit.map(|fit| fit.r_square).map_err(|error| ExperimentError::Node(error.to_string()))
}

/// Returns the instant so many seconds after the start.
pub(super) fn after(seconds: u64) -> Instant {
    Instant::ZERO + Nanos::from_secs(seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r_squared_by_hand() {
        let of = |points: &[(f64, f64)]| r_squared(points).unwrap();
        assert!((of(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)]) - 1.0).abs() < 1e-12);
        assert!((of(&[(0.0, 0.0), (1.0, 1.0), (2.0, 0.0)])).abs() < 1e-12);
    }
}
