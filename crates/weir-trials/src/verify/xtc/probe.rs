// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A probe of 0.1 kp/s through a router that is held, beside TCP and beside a UDP flood: how long
//! it takes there and back, and how many fail.

use weir_control::{Combined, CombinedConfig};
use weir_result::{Bound, Claim, Rule, Series};
use weir_units::{Nanos, PacketRate};

use super::Row;
use super::held::Bench;
use crate::routers::{Loop, Probed, RouterLab, mean, probing};
use crate::{Trial, TrialError};

/// Shows the row.
pub(super) fn show(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    super::needs_root(trial, row)?;
    let (points, samples): (&[u64], usize) =
        if trial.quick { (&[10, 80], 30) } else { (&[1, 5, 10, 20, 40, 60, 80, 100], 120) };
    for bench in Bench::all("xtc-probe", Nanos::from_millis(100)) {
        for (percent, probed) in run(&bench, points, samples)? {
            judge(trial, row, &bench, percent, &probed)?;
        }
    }
    for bench in Bench::all("xtc-probe-alone", Nanos::from_secs(1)) {
        let points: &[u64] = if trial.quick { &[20] } else { &[10, 20, 60] };
        for (percent, probed) in bench.probe_alone(points)? {
            tell(trial, row, &bench, percent, &probed)?;
        }
    }
    Ok(())
}

/// Probes beside the combined controller, at each set-point.
fn run(bench: &Bench, points: &[u64], samples: usize) -> Result<Vec<(u64, Probed)>, TrialError> {
    let mut lab = RouterLab::up(bench.plan.clone())?;
    let (seen, _) = bench.load(None).beside(&mut lab, |lab| {
        let (range, capacity) = {
            let mut on = Loop::begin(lab, 0)?;
            let range = on.range()?;
            on.hold(range.most(), SETTLE)?;
            (range, mean(&on.hold(range.most(), CAPACITY)?))
        };
        let mut seen = Vec::new();
        for percent in points {
            let set_point = PacketRate::from_pps((capacity.as_pps() * percent / 100).max(1));
            let config = CombinedConfig::new(range);
            let mut on = Loop::begin(lab, 0)?;
            let controller = Combined::new(config, set_point, range.most());
            // From when it has settled on.
            let mut instance = on.instance(Box::new(controller));
            on.activate(&mut instance, set_point)?;
            on.follow(&mut instance, SETTLE)?;
            let (_, probed) = probing(lab, 0, |lab| {
                let mut on = Loop::resume(lab, 0, instance.status().in_force)?;
                on.follow(&mut instance, samples)
            })?;
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
    keep(trial, &id, probed)?;
    let who = format!("{} at {percent} %", bench.name());
    let bound = Bound::at_most(0.005);
    // A probe of which none came back took at least as long as it was waited for.
    let text = format!("{who}: round trip, 99th percentile");
    let claim = Claim::new(id("round-trip"), text, Rule::Percentile { percent: 99.0 }, bound);
    trial.judge(claim.of(&[id("times")]))?;
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
    let id = |part: &str| row.id(&format!("alone/{}/{percent}%/{part}", bench.name()));
    keep(trial, &id, probed)?;
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

fn keep(
    trial: &mut Trial<'_>,
    id: &dyn Fn(&str) -> String,
    probed: &Probed,
) -> Result<(), TrialError> {
    let mut times = probed.times_s.clone();
    if times.is_empty() {
        times.push(1.0);
    }
    trial.keep(&id("times"), Series::unordered("s", times))?;
    for (name, count) in
        [("due", probed.due), ("failed", probed.failed()), ("unsent", probed.unsent)]
    {
        trial.keep(&id(name), Series::count("packet", count))?;
    }
    Ok(())
}

/// Samples of 100 ms.
const SETTLE: usize = 10;
const CAPACITY: usize = 20;
