// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thousand instances ten times a second: the manager and its collector as they are in the node,
//! on 2000 interfaces of a namespace of their own; the actuators only remember.

use weir_experiment::prelude::*;
use weir_loops::load::{LoadCost, LoadSpec, measure};
use weir_platform::netns;
use weir_platform::process::is_root;
use weir_platform::run::{Command, Host, Platform};

/// Shows the row.
pub(super) fn show(rec: &mut Recording<'_>) -> Result<(), ExperimentError> {
    if !is_root() {
        return Err(ExperimentError::Node("a namespace of 2000 interfaces takes root".into()));
    }
    let time = Nanos::from_secs(if rec.quick { 5 } else { 60 });
    let names = |router| ["a", "b"].map(|end| format!("{end}{router}")).to_vec();
    let routers = (0..ROUTERS).map(names).collect();
    let many = LoadSpec { routers, period: PERIOD, time };
    let lines: Vec<String> =
        (0..ROUTERS).map(|n| format!("link add a{n} type veth peer name b{n}")).collect();
    let cost = netns::in_new(|| {
        let batch = Command::batch("ip", &lines).limit(Duration::from_secs(120));
        Host::default().run(&batch).map(|_| measure(&many))
    })?;
    let cost = cost.map_err(|error| ExperimentError::Node(error.to_string()))?;
    judge(rec, &cost)
}

fn judge(rec: &mut Recording<'_>, cost: &LoadCost) -> Result<(), ExperimentError> {
    let seconds = |time: Nanos| vec![float(time.as_nanos()) / 1e9];
    rec.keep("cpu", Series::unordered("s", seconds(cost.cpu)))?;
    rec.keep("time", Series::unordered("s", seconds(cost.time)))?;
    rec.keep("late", Series::count("1", cost.load.late))?;
    let worst = float(cost.load.late_worst_thousandths) / 1000.0;
    rec.keep("lateness", Series::unordered("1", vec![worst]))?;
    rec.keep("samples", Series::count("1", cost.samples))?;
    rec.keep("faults", Series::count("1", cost.faults))?;
    let due = ROUTERS as u64 * (cost.time.as_nanos() / PERIOD.as_nanos());
    rec.keep("due", Series::count("1", due))?;
    let claims = [
        ("core", "CPU time of the thread, of one core", Rule::RatioOfSums, Bound::at_most(0.05)),
        ("on-time", "samples later than a period", Rule::Sum, Bound::at_most(0.0)),
        ("latest", "latest sample, in periods", Rule::Max, Bound::at_most(1.0)),
        ("all", "samples made of those that were due", Rule::RatioOfSums, Bound::at_least(0.99)),
        ("clean", "readings without a sample", Rule::Sum, Bound::at_most(0.0)),
    ];
    let series: [&[&str]; 5] =
        [&["cpu", "time"], &["late"], &["lateness"], &["samples", "due"], &["faults"]];
    for ((part, what, rule, bound), of) in claims.into_iter().zip(series) {
        rec.claim(part, what, rule, bound, of)?;
    }
    Ok(())
}

const ROUTERS: usize = 1000;
const PERIOD: Nanos = Nanos::from_millis(100);
