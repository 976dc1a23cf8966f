// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thousand instances ten times a second: the manager and its collector as they are in the node,
//! on 2000 interfaces of a namespace of their own; the actuators only remember.

use std::time::Duration;

use weir_loops::load::{Cost, Many, measure};
use weir_platform::netns;
use weir_platform::process::is_root;
use weir_platform::run::{Command, Host, Platform};
use weir_result::{Bound, Claim, Rule, Series};
use weir_units::Nanos;

use super::Row;
use crate::{Trial, TrialError};

/// Shows the row.
pub(super) fn show(trial: &mut Trial<'_>, row: &Row) -> Result<(), TrialError> {
    if !is_root() {
        return Err(TrialError::Node("a namespace of 2000 interfaces takes root".into()));
    }
    let time = Nanos::from_secs(if trial.quick { 5 } else { 60 });
    let names = |router| ["a", "b"].map(|end| format!("{end}{router}")).to_vec();
    let routers = (0..ROUTERS).map(names).collect();
    let many = Many { routers, period: PERIOD, time };
    let lines: Vec<String> =
        (0..ROUTERS).map(|n| format!("link add a{n} type veth peer name b{n}")).collect();
    let cost = netns::in_new(|| {
        let batch = Command::batch("ip", &lines).limit(Duration::from_secs(120));
        Host::default().run(&batch).map(|_| measure(&many))
    })?;
    let cost = cost.map_err(|error| TrialError::Node(error.to_string()))?;
    judge(trial, row, &cost)
}

fn judge(trial: &mut Trial<'_>, row: &Row, cost: &Cost) -> Result<(), TrialError> {
    let id = |part: &str| row.id(part);
    let seconds = |time: Nanos| vec![crate::float(time.as_nanos()) / 1e9];
    trial.keep(&id("cpu"), Series::unordered("s", seconds(cost.cpu)))?;
    trial.keep(&id("time"), Series::unordered("s", seconds(cost.time)))?;
    trial.keep(&id("late"), Series::count("1", cost.load.late))?;
    let worst = crate::float(cost.load.late_worst_thousandths) / 1000.0;
    trial.keep(&id("lateness"), Series::unordered("1", vec![worst]))?;
    trial.keep(&id("samples"), Series::count("1", cost.samples))?;
    trial.keep(&id("faults"), Series::count("1", cost.faults))?;
    let due = ROUTERS as u64 * (cost.time.as_nanos() / PERIOD.as_nanos());
    trial.keep(&id("due"), Series::count("1", due))?;
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
        let of: Vec<String> = of.iter().map(|name| id(name)).collect();
        trial.judge(Claim::new(id(part), what, rule, bound).of(&of))?;
    }
    Ok(())
}

const ROUTERS: usize = 1000;
const PERIOD: Nanos = Nanos::from_millis(100);
