// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A thousand instances ten times a second: the manager and its collector as they are in the node,
//! on 2000 interfaces of a namespace of their own; the actuators only remember.

use weir_experiment::prelude::*;
use weir_loops::load::{LoadCost, LoadSpec, measure};
use weir_platform::netns;
use weir_platform::process::is_root;
use weir_platform::run::{Command, Host, Platform};

use super::parts::{claim_all, keep_all};

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
    let due = ROUTERS as u64 * (cost.time.as_nanos() / PERIOD.as_nanos());
    let worst = float(cost.load.late_worst_thousandths) / 1000.0;
    let series = [
        ("cpu", Series::unordered("s", seconds(cost.cpu))),
        ("time", Series::unordered("s", seconds(cost.time))),
        ("late", Series::count("1", cost.load.late)),
        ("lateness", Series::unordered("1", vec![worst])),
        ("samples", Series::count("1", cost.samples)),
        ("faults", Series::count("1", cost.faults)),
        ("due", Series::count("1", due)),
    ];
    keep_all(rec, series)?;
    let core = "CPU time of the thread, of one core";
    let all = "samples made of those that were due";
    let none = Bound::at_most(0.0);
    claim_all(
        rec,
        &[
            ("core", core, Rule::RatioOfSums, Bound::at_most(0.05), &["cpu", "time"]),
            ("on-time", "samples later than a period", Rule::Sum, none, &["late"]),
            ("latest", "latest sample, in periods", Rule::Max, Bound::at_most(1.0), &["lateness"]),
            ("all", all, Rule::RatioOfSums, Bound::at_least(0.99), &["samples", "due"]),
            ("clean", "readings without a sample", Rule::Sum, none, &["faults"]),
        ],
    )
}

const ROUTERS: usize = 1000;
const PERIOD: Nanos = Nanos::from_millis(100);
