// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A probe of 0.1 kp/s through a router that is held, beside TCP and beside a UDP flood: how long
//! it takes there and back, and how many fail.

use weir_experiment::prelude::*;
use weir_policy::ControllerKind;

use super::combined;
use super::parts::{MEAN_OF, SETTLE};
use crate::routers::{
    BenchLoad, Contender, ProbePath, ProbeResult, RouterBench, RouterKnowledge, RouterLab, part,
    probing,
};

/// Shows the row on bench number `bench`. The probe comes by a vif of its own, beside the traffic's
/// port, and is limited together with the traffic.
pub(super) fn show(rec: &mut Recording<'_>, bench: usize) -> Result<(), ExperimentError> {
    let (points, samples): (&[u64], usize) =
        if rec.quick { (&[1, 10, 80], 30) } else { (&[1, 5, 10, 20, 40, 60, 80, 100], 120) };
    let bench = RouterBench::numbered("xtc-probe", BenchLoad::Flood, bench);
    let bench = bench.forwarded_by_the_node();
    let seen = probed(&bench, points, |lab, set_point| {
        lab.hold(0, ControllerKind::Combined, set_point)?;
        lab.watch(0, combined::SETTLE)?;
        Ok(probing(lab, 0, ProbePath::Own, |lab| lab.watch(0, samples))?.1)
    })?;
    seen.iter().try_for_each(|(percent, probed)| judge(rec, &bench, *percent, probed))
}

/// Shows the effect of the cap alone on probes.
pub(super) fn alone(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    let points: &[u64] = if rec.quick { &[20] } else { &[10, 20, 60] };
    for number in 0..4 {
        let bench = RouterBench::numbered("xtc-capped", BenchLoad::Flood, number);
        let seen = probed(&bench, points, |lab, set_point| {
            let weir = Contender::FeedForward;
            let held = |lab: &mut RouterLab| {
                RouterKnowledge::default().hold(lab, weir, weir.period(), set_point)?;
                lab.watch(0, SETTLE + MEAN_OF)
            };
            Ok(probing(lab, 0, ProbePath::Own, held)?.1)
        })?;
        seen.iter().try_for_each(|(percent, probed)| tell(rec, &bench, *percent, probed))?;
    }
    Ok(())
}

/// Has `probe` probe a router at each set-point, in percent of its capacity.
fn probed(
    bench: &RouterBench,
    points: &[u64],
    mut probe: impl FnMut(&mut RouterLab, PacketRate) -> Result<ProbeResult, ExperimentError>,
) -> Result<Vec<(u64, ProbeResult)>, ExperimentError> {
    let (_, seen) = bench.run(|lab, capacity| {
        let at = |percent: &u64| Ok((*percent, probe(lab, part(capacity, *percent))?));
        points.iter().map(at).collect()
    })?;
    Ok(seen)
}

fn judge(
    rec: &mut Recording<'_>,
    bench: &RouterBench,
    percent: u64,
    probed: &ProbeResult,
) -> Result<(), ExperimentError> {
    let id = |part: &str| format!("{}/{percent}%/{part}", bench.name());
    probed.keep(rec, &format!("{}/{percent}%", bench.name()))?;
    let who = format!("{} at {percent} %", bench.name());
    let text = format!("{who}: probes that came back");
    rec.claim(id("came-back"), text, Rule::Sum, Bound::at_least(1.0), &[id("answered")])?;
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
    let of = [id("failed"), id("due")];
    rec.claim(id("loss"), text, Rule::RatioOfSums, Bound::at_most(0.001), &of)
}

/// The cap alone: averages beside the text's.
fn tell(
    rec: &mut Recording<'_>,
    bench: &RouterBench,
    percent: u64,
    probed: &ProbeResult,
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
