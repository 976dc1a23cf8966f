// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A probe of 0.1 kp/s through a router that is held, beside TCP and beside a UDP flood: how long
//! it takes there and back, and how many fail.

use weir_experiment::prelude::*;

use super::combined::{SETTLE, capacity};
use super::held::Bench;
use crate::routers::{HeldLab, ProbePath, Probed, SAMPLING, probing};

/// Shows the row on bench number `bench`.
pub(super) fn show(rec: &mut Recording<'_>, bench: usize) -> Result<(), ExperimentError> {
    super::needs_root(rec)?;
    let (points, samples): (&[u64], usize) =
        if rec.quick { (&[1, 10, 80], 30) } else { (&[1, 5, 10, 20, 40, 60, 80, 100], 120) };
    let bench = Bench::numbered("xtc-probe", SAMPLING, bench)?;
    for (percent, probed) in run(&bench, points, samples)? {
        judge(rec, &bench, percent, &probed)?;
    }
    Ok(())
}

/// Shows what the cap alone does to probes.
pub(super) fn alone(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    super::needs_root(rec)?;
    for bench in Bench::benches("xtc-capped", Nanos::from_secs(1)) {
        let points: &[u64] = if rec.quick { &[20] } else { &[10, 20, 60] };
        for (percent, probed) in bench.probe_alone(points)? {
            tell(rec, &bench, percent, &probed)?;
        }
    }
    Ok(())
}

/// Probes while a node holds the router at each set-point. The probe comes by a vif of its own,
/// beside the traffic's port, and is limited together with the traffic.
fn run(
    bench: &Bench,
    points: &[u64],
    samples: usize,
) -> Result<Vec<(u64, Probed)>, ExperimentError> {
    let mut lab = HeldLab::up(bench.plan.clone())?;
    let offered = bench.flooded(&mut lab, capacity)?;
    let (seen, _) = offered.beside(&mut lab, |lab| {
        let capacity = capacity(lab)?;
        let mut seen = Vec::new();
        for percent in points {
            let set_point = PacketRate::from_pps((capacity.as_pps() * percent / 100).max(1));
            lab.hold(0, set_point)?;
            lab.watch(0, SETTLE)?;
            let (_, probed) = probing(lab, 0, ProbePath::Own, |lab| lab.watch(0, samples))?;
            seen.push((*percent, probed));
        }
        Ok(seen)
    })?;
    Ok(seen)
}

fn judge(
    rec: &mut Recording<'_>,
    bench: &Bench,
    percent: u64,
    probed: &Probed,
) -> Result<(), ExperimentError> {
    let id = |part: &str| format!("{}/{percent}%/{part}", bench.name());
    probed.keep(rec, &format!("{}/{percent}%", bench.name()))?;
    let who = format!("{} at {percent} %", bench.name());
    let came_back = Claim::new(
        id("came-back"),
        format!("{who}: probes that came back"),
        Rule::Sum,
        Bound::at_least(1.0),
    );
    rec.judge(came_back.of(&[id("answered")]))?;
    if !probed.times_s.is_empty() {
        let text = format!("{who}: round trip, 99th percentile");
        let rule = Rule::Percentile { percent: 99.0 };
        rec.claim(id("round-trip"), text, rule, Bound::at_most(0.005), &[id("times")])?;
    }
    rec.say(&format!(
        "{who}: {} of {} failed, worst of the others {:.2} ms",
        probed.failed(),
        probed.due,
        1e3 * probed.times_s.iter().copied().fold(0.0, f64::max)
    ));
    let text = format!("{who}: probes that failed");
    rec.claim(
        id("loss"),
        text,
        Rule::RatioOfSums,
        Bound::at_most(0.001),
        &[id("failed"), id("due")],
    )
}

/// The cap alone: averages beside the text's.
fn tell(
    rec: &mut Recording<'_>,
    bench: &Bench,
    percent: u64,
    probed: &Probed,
) -> Result<(), ExperimentError> {
    probed.keep(rec, &format!("alone/{}/{percent}%", bench.name()))?;
    let (failed, due) = (probed.failed(), probed.due);
    let text = format!(
        "{}: cap alone at {percent} %: {:.2} ms on average, {failed} of {due} failed; the text: 14 \
         ms (chain), 55 ms (one router at 20 kp/s), 70 ms (worst of six)",
        rec.id(),
        1e3 * weir_experiment::mean(&probed.times_s)
    );
    rec.say(&format!("{} {text}", bench.name()));
    rec.result.add_note(format!("{} {text}", bench.name()));
    Ok(())
}
