// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A probe of 0.1 kp/s through a router that is held, beside TCP and beside a UDP flood: how long
//! it takes there and back, and how many fail.

use weir_result::{Bound, Claim, Rule};
use weir_units::{Nanos, PacketRate};

use super::Row;
use super::combined::{SETTLE, capacity};
use super::held::Bench;
use crate::routers::{HeldLab, Probed, SAMPLING, Way, probing};
use crate::{Trial, TrialError};

/// Shows the row on bench number `BENCH`.
pub(super) fn show<const BENCH: usize>(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    super::needs_root(trial, row)?;
    let (points, samples): (&[u64], usize) =
        if trial.quick { (&[1, 10, 80], 30) } else { (&[1, 5, 10, 20, 40, 60, 80, 100], 120) };
    let bench = Bench::numbered("xtc-probe", SAMPLING, BENCH)?;
    for (percent, probed) in run(&bench, points, samples)? {
        judge(trial, row, &bench, percent, &probed)?;
    }
    Ok(())
}

/// Shows what the cap alone does to probes.
pub(super) fn alone(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    super::needs_root(trial, row)?;
    for bench in Bench::benches("xtc-capped", Nanos::from_secs(1)) {
        let points: &[u64] = if trial.quick { &[20] } else { &[10, 20, 60] };
        for (percent, probed) in bench.probe_alone(points)? {
            tell(trial, row, &bench, percent, &probed)?;
        }
    }
    Ok(())
}

/// Probes while a node holds the router at each set-point. The probe comes by a vif of its own,
/// beside the traffic's port, and is limited together with the traffic.
fn run(bench: &Bench, points: &[u64], samples: usize) -> Result<Vec<(u64, Probed)>, TrialError> {
    let mut lab = HeldLab::up(bench.plan.clone())?;
    let offered = bench.flooded(&mut lab, capacity)?;
    let (seen, _) = offered.beside(&mut lab, |lab| {
        let capacity = capacity(lab)?;
        let mut seen = Vec::new();
        for percent in points {
            let set_point = PacketRate::from_pps((capacity.as_pps() * percent / 100).max(1));
            lab.hold(0, set_point)?;
            lab.watch(0, SETTLE)?;
            let (_, probed) = probing(lab, 0, Way::Own, |lab| lab.watch(0, samples))?;
            seen.push((*percent, probed));
        }
        Ok(seen)
    })?;
    Ok(seen)
}

fn judge(
    trial: &mut Trial<'_>,
    row: &Row,
    bench: &Bench,
    percent: u64,
    probed: &Probed,
) -> Result<(), TrialError> {
    let id = |part: &str| row.id(&format!("{}/{percent}%/{part}", bench.name()));
    probed.keep(trial, &row.id(&format!("{}/{percent}%", bench.name())))?;
    let who = format!("{} at {percent} %", bench.name());
    let came_back = Claim::new(
        id("came-back"),
        format!("{who}: probes that came back"),
        Rule::Sum,
        Bound::at_least(1.0),
    );
    trial.judge(came_back.of(&[id("answered")]))?;
    if !probed.times_s.is_empty() {
        let text = format!("{who}: round trip, 99th percentile");
        let rule = Rule::Percentile { percent: 99.0 };
        let claim = Claim::new(id("round-trip"), text, rule, Bound::at_most(0.005));
        trial.judge(claim.of(&[id("times")]))?;
    }
    trial.say(&format!(
        "{who}: {} of {} failed, worst of the others {:.2} ms",
        probed.failed(),
        probed.due,
        1e3 * probed.times_s.iter().copied().fold(0.0, f64::max)
    ));
    let text = format!("{who}: probes that failed");
    let claim = Claim::new(id("loss"), text, Rule::RatioOfSums, Bound::at_most(0.001));
    trial.judge(claim.of(&[id("failed"), id("due")])).map(drop)
}

/// The cap alone: averages beside the text's.
fn tell(
    trial: &mut Trial<'_>,
    row: &Row,
    bench: &Bench,
    percent: u64,
    probed: &Probed,
) -> Result<(), TrialError> {
    probed.keep(trial, &row.id(&format!("alone/{}/{percent}%", bench.name())))?;
    let (failed, due) = (probed.failed(), probed.due);
    let text = format!(
        "{}: cap alone at {percent} %: {:.2} ms on average, {failed} of {due} failed; the text: 14 \
         ms (chain), 55 ms (one router at 20 kp/s), 70 ms (worst of six)",
        row.id(""),
        1e3 * crate::mean(&probed.times_s)
    );
    trial.say(&format!("{} {text}", bench.name()));
    trial.result.add_note(format!("{} {text}", bench.name()));
    Ok(())
}
