// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The simulated machine beside the machines of the texts (table `sim`).
//!
//! All but row 9 is in virtual time, so that it holds on any machine. The model is fitted to the
//! caps of `FITTED` and judged on the other caps, those of `PREDICTED`.

mod em_network;
mod forwarding_trial;
mod held;
mod iip_node;
mod linux_tcp;
mod native;
mod router_scenario;
mod routers;
mod scenario_file;
mod stream;

use std::thread;

use weir_experiment::RowPart::Plain;
use weir_experiment::clock::cpu_time;
use weir_experiment::prelude::*;
use weir_experiment::{Requirement, RequirementTable, RowPart};
use weir_sim::{CreditAccounting, CreditScheduler, CreditShare, DomainWork, SimMachine};
use weir_tester::LinearFit;
use weir_units::{CpuShare, Instant};

use held::{COST, SEED};
pub use router_scenario::{
    OrderMeasure, RoutedLoad, RouterCase, RouterControl, RouterController, RouterHostSpec,
    RouterLengths, RouterLikeness, RouterOrder, RouterScenario, XenVersion,
};
pub use scenario_file::SimScenario;

/// The table.
pub const TABLE: RequirementTable = RequirementTable { name: NAME, rows: ROWS };

const NAME: &str = "sim";

const ROWS: &[Requirement] = &[
    row(1, "table 1 of the XTC text: five caps predicted from five others", &[Plain(caps)])
        .correctness(),
    row(2, "a router is held as the XTC text's figure 5 shows", &[Plain(held::show)]).correctness(),
    row(
        3,
        "virtual routers are held and share domain 0 as the XTC text's figures 5 to 20 show",
        &[Plain(routers::show)],
    )
    .correctness(),
    row(
        4,
        "Xen's back end starves, favours and falls short; Weir does not",
        &[Plain(native::show)],
    )
    .correctness(),
    row(5, "a stream's staircase of delay under credit, none with EDF", &[Plain(stream::show)])
        .correctness(),
    row(
        6,
        "the IIP text's node and the Execution Management text's network carry what these say",
        &[Plain(iip_node::show), Plain(em_network::show)],
    )
    .correctness(),
    row(
        7,
        "smoltcp in virtual time has the goodput of Linux's TCP on the wire, and shares it alike",
        &[Plain(linux_tcp::show)],
    ),
    row(8, "one seed has one log of events, on one thread and on two", &[Plain(logs)])
        .correctness(),
    row(9, "events a second of processor time", &[Plain(speed)]),
    row(
        10,
        "the switch in virtual time has the throughput, shares and delays of that on the wire",
        &[Plain(crate::conformance::arms::show)],
    ),
    row(11, "random faults break no invariant of the daemon's logic", &[Plain(crate::swarm::show)])
        .correctness(),
];

const fn row(number: u32, title: &'static str, parts: &'static [RowPart]) -> Requirement {
    Requirement::new(NAME, number, title, parts)
}

/// Caps in percent and what the text measured under each, in thousand packets a second, of 100
/// offered (XTC text, table 1).
type MeasuredCap = (u32, f64);

const FITTED: [MeasuredCap; 5] = [(5, 16.0), (15, 50.0), (25, 77.0), (35, 91.0), (45, 96.0)];
const PREDICTED: [MeasuredCap; 5] = [(10, 32.0), (20, 65.0), (30, 85.0), (40, 94.0), (50, 98.0)];

/// Fits the processor time of a packet to five caps, and predicts five others (row 1).
fn caps(rec: &mut Recording<'_>) -> Result {
    let (step, fit, span) = if rec.quick { (100, 10, 10) } else { (50, 20, 60) };
    let mut best = (f64::INFINITY, 0);
    for cost in (2600..=3600).step_by(step) {
        let mut squares = 0.0;
        for (cap, measured) in FITTED {
            squares +=
                (throughput(cap, cost, CreditAccounting::Sampled, fit)? / measured - 1.0).powi(2);
        }
        best = if squares < best.0 { (squares, cost) } else { best };
    }
    let (_, cost) = best;
    rec.say(&format!("processor time of a packet, fitted: {} us", float(cost) / 1000.0));
    rec.keep("cost", Series::unordered("ns", vec![float(cost)]))?;
    let (exact, _) = compare(rec, cost, CreditAccounting::Exact, span)?;
    rec.keep("exact", exact)?;
    let (sampled, points) = compare(rec, cost, CreditAccounting::Sampled, span)?;
    let text = "predicted caps, off what the text measured";
    rec.claim_samples("sampled", text, sampled, Rule::Max, Bound::at_most(6.0))?;
    let series = Series::unordered("1", vec![r_squared(&points)?]);
    let text = "R² of a line through packets a second by the logarithm of the cap";
    rec.claim_samples("r2", text, series, Rule::Min, Bound::at_least(0.98))
}

/// Runs a router under all caps. Returns by how much the predicted ones are off the text, and the
/// thousands of packets a second by the logarithm of the cap.
fn compare(
    rec: &mut Recording<'_>,
    cost: u64,
    accounting: CreditAccounting,
    seconds: u64,
) -> Result<(Series, Vec<(f64, f64)>)> {
    let (mut off, mut points) = (Vec::new(), Vec::new());
    for (cap, measured) in FITTED.into_iter().chain(PREDICTED) {
        let got = throughput(cap, cost, accounting, seconds)?;
        rec.say(&format!("{accounting:?}, cap {cap} %: {got:.1}, the text {measured} kp/s"));
        points.push((f64::from(cap).ln(), got));
        off.push((got / measured - 1.0).abs() * 100.0);
    }
    Ok((Series::unordered("%", off.split_off(FITTED.len())), points))
}

/// Returns the thousands of packets a second that a capped router does, of 100 offered.
fn throughput(cap: u32, cost: u64, accounting: CreditAccounting, seconds: u64) -> Result<f64> {
    let mut machine = router(cap, cost, accounting, SEED)?;
    machine.run_until(after(seconds))?;
    let done = machine.counts(0).map_or(0, |counts| counts.done);
    Ok(float(done) / float(seconds) / 1000.0)
}

fn router(
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

/// Compares hashes of logs of events (row 8).
fn logs(rec: &mut Recording<'_>) -> Result {
    let hash = |seed| -> Result<u64> {
        let mut machine = router(10, COST.as_nanos(), CreditAccounting::Sampled, seed)?;
        machine.run_until(after(5))?;
        Ok(machine.log_hash())
    };
    let first = [hash(1)?, hash(2)?];
    let at_once = thread::scope(|scope| {
        let runs = [1, 2].map(|seed| scope.spawn(move || hash(seed)));
        runs.map(|run| run.join().ok().and_then(Result::ok))
    });
    let differ = first.iter().zip(at_once).filter(|(alone, beside)| Some(**alone) != *beside);
    rec.none("logs", "logs of one seed that differ", differ.count() as u64)?;
    let same = u64::from(first[0] == first[1]);
    rec.none("seeds", "different seeds with one log", same)
}

/// Measures the processor time of events (row 9).
fn speed(rec: &mut Recording<'_>) -> Result {
    let rates = (0..5).map(|seed| {
        let mut machine = router(20, COST.as_nanos(), CreditAccounting::Sampled, seed)?;
        let until = after(if rec.quick { 10 } else { 60 });
        let (ran, time) = cpu_time(|| machine.run_until(until));
        ran?;
        Ok(float(machine.handled()) / time.as_secs_f64() / 1e6)
    });
    let rates = rates.collect::<Result<Vec<f64>>>()?;
    let text = "million events a second of processor time, one router";
    let series = Series::unordered("1", rates);
    rec.claim_samples("events", text, series, Rule::Median, Bound::at_least(20.0))
}

fn after(seconds: u64) -> Instant {
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
