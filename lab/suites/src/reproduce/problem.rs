// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads a scenario and refuses errors before anything is made of it: each number is within its
//! bounds before it is multiplied, and each name is checked before a device, a namespace or a file
//! gets it.

use std::fmt::Display;
use std::ops::RangeInclusive;

use weir_experiment::TENANTS_MAX;
use weir_experiment::prelude::*;

use super::scenario::{Defect, FigurePanel, FigureTenant, Measure, Scenario};
use crate::checks::{FRAMES, RATES, STREAMS_MAX, odd_name, outside, outside_by, twice};

impl Scenario {
    /// Reads a scenario; `name` is for the error.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        let scenario: Self = toml::from_str(text).map_err(|error| wrong(name, error))?;
        scenario.checked(name)
    }

    /// Returns the scenario, if nothing in it is out of bounds.
    pub fn checked(self, name: &str) -> Result<Self> {
        problem(&self).map_or(Ok(self), |what| Err(wrong(name, what)))
    }
}

fn wrong(name: &str, what: impl Display) -> ExperimentError {
    ExperimentError::Scenario { name: name.to_owned(), what: what.to_string() }
}

/// Returns the first error: the key, its value, and the permitted values.
fn problem(scenario: &Scenario) -> Option<String> {
    lengths(scenario)
        .or_else(|| rates(scenario))
        .or_else(|| outside("panel: number", scenario.panels.len(), 1..=PANELS_MAX))
        .or_else(|| scenario.panels.iter().find_map(|panel| panel_of(scenario, panel)))
        .or_else(|| twice("panel", scenario.panels.iter().map(|panel| panel.name.as_str())))
        .or_else(|| sweep(scenario))
        .or_else(|| disk(scenario))
        .or_else(|| {
            let mut named = scenario.quick.panels.iter();
            named.find_map(|name| missing_panel(scenario, "quick", name))
        })
        .or_else(|| outside("defect: number", scenario.defects.len(), 0..=DEFECTS_MAX))
        .or_else(|| scenario.defects.iter().find_map(|defect| defect_of(scenario, defect)))
}

fn lengths(scenario: &Scenario) -> Option<String> {
    let Scenario { duration, repetitions, quick, .. } = scenario;
    outside_by("duration", *duration, LENGTH)
        .or_else(|| outside_by("quick: duration", quick.duration, LENGTH))
        .or_else(|| outside("repetitions", *repetitions, REPETITIONS))
        .or_else(|| outside("quick: repetitions", quick.repetitions, REPETITIONS))
}

fn rates(scenario: &Scenario) -> Option<String> {
    outside("link", scenario.link, RATES)
        .or_else(|| outside("connection", scenario.connection, RATES))
}

fn panel_of(scenario: &Scenario, panel: &FigurePanel) -> Option<String> {
    let within = |what: String| format!("panel {:?}: {what}", panel.name);
    name("name", &panel.name, PANEL_NAME_MAX)
        .or_else(|| outside("tenant: number", panel.tenants.len(), 1..=TENANTS_MAX))
        .or_else(|| panel.tenants.iter().find_map(|tenant| tenant_of(scenario, tenant)))
        .or_else(|| together(scenario, panel))
        .map(within)
}

/// Checks one entry of a panel, which may stand for many.
fn tenant_of(scenario: &Scenario, tenant: &FigureTenant) -> Option<String> {
    let FigureTenant { name: who, rate, credit, offers, frame_min, frame_max, .. } = tenant;
    let within = |what: String| format!("tenant {who:?}: {what}");
    let digits = if tenant.count == 1 { 0 } else { tenant.count.to_string().len() };
    outside("count", u64::from(tenant.count), 1..=TENANTS_MAX as u64)
        .or_else(|| name("name", who, DEVICE_NAME_MAX - digits))
        .or_else(|| outside("connections", tenant.connections, 1..=STREAMS_MAX))
        .or_else(|| rate.and_then(|rate| outside("rate", rate, RATES)))
        .or_else(|| offers.and_then(|rate| outside("offers", rate, RATES)))
        .or_else(|| credit.and_then(|credit| outside("credit", credit, CREDIT)))
        .or_else(|| outside("nice", tenant.nice, NICE))
        .or_else(|| outside("frame_max", *frame_max, FRAMES))
        .or_else(|| outside("frame_min", *frame_min, *FRAMES.start()..=*frame_max))
        .or_else(|| {
            let late = tenant.start >= scenario.duration;
            let (start, end) = (tenant.start, scenario.duration);
            late.then(|| format!("start is {start:?}; before the end at {end:?}"))
        })
        .or_else(|| {
            let lacks = scenario.measure == Measure::Rates && rate.is_none();
            lacks.then(|| "rate: there is none, and measure is \"rates\"".to_owned())
        })
        .map(within)
}

/// Checks all tenants of a panel together. Their own numbers are known to be small.
fn together(scenario: &Scenario, panel: &FigurePanel) -> Option<String> {
    let count: u64 = panel.tenants.iter().map(|tenant| u64::from(tenant.count)).sum();
    let connections =
        |tenant: &FigureTenant| u64::from(tenant.count) * u64::from(tenant.connections);
    let streams: u64 = panel.tenants.iter().map(connections).sum();
    let most = TENANTS_MAX as u64;
    outside("tenants with their copies: number", count, 1..=most)
        .or_else(|| outside("connections of all", streams, 1..=u64::from(STREAMS_MAX)))
        .or_else(|| {
            let tenants = panel.all();
            twice("tenant", tenants.iter().map(|tenant| tenant.name.as_str()))
        })
        .or_else(|| {
            let not_two = scenario.sweep.is_some() && count != 2;
            not_two.then(|| format!("{count} tenants; a sweep is of 2"))
        })
        .or_else(|| {
            let who = &scenario.disk.as_ref()?.tenant;
            let missing = panel.all().iter().all(|tenant| tenant.name != *who);
            missing.then(|| format!("disk: tenant is {who:?}; there is none of that name"))
        })
}

fn sweep(scenario: &Scenario) -> Option<String> {
    let Some(sweep) = &scenario.sweep else {
        let lacks = scenario.measure == Measure::Weights;
        return lacks.then(|| "sweep: there is none, and measure is \"weights\"".to_owned());
    };
    let longest = scenario.duration.min(scenario.quick.duration);
    outside("sweep: from", sweep.from, 1..=RATIO_MAX)
        .or_else(|| outside_by("sweep: every", sweep.every, EVERY_MIN..=longest))
        .or_else(|| {
            let rest = sweep.every.as_nanos() % CELL.as_nanos();
            let every = sweep.every;
            (rest != 0).then(|| format!("sweep: every is {every:?}; a multiple of {CELL:?}"))
        })
}

fn disk(scenario: &Scenario) -> Option<String> {
    let Some(disk) = &scenario.disk else {
        let lacks = scenario.measure == Measure::Disturbance;
        return lacks.then(|| "disk: there is none, and measure is \"disturbance\"".to_owned());
    };
    // There must be one judged sample before the disk work, and one in its middle.
    let sample = scenario.interval();
    let settled = sample * u32::try_from(scenario.settle()).unwrap_or(u32::MAX);
    outside_by("disk: from", disk.from, settled + sample..=scenario.duration)
        .or_else(|| outside_by("disk: to", disk.to, disk.from + sample * 2..=scenario.duration))
}

fn defect_of(scenario: &Scenario, defect: &Defect) -> Option<String> {
    let words = scenario.measure.words();
    let claim = &defect.claim;
    let named = defect.panels.iter().find_map(|name| missing_panel(scenario, "defect", name));
    named
        .or_else(|| {
            let known = words.contains(&claim.as_str());
            (!known).then(|| format!("defect: claim is {claim:?}; one of {}", words.join(", ")))
        })
        .or_else(|| match (defect.at_most, defect.at_least) {
            (Some(bound), None) | (None, Some(bound)) if bound.is_finite() => None,
            (most, least) => Some(format!(
                "defect: at_most is {most:?}, at_least is {least:?}; one of both, a number"
            )),
        })
        .or_else(|| {
            let who = defect.favours.as_ref()?;
            let mut panels = scenario.panels.iter().filter(|panel| defect.concerns(panel));
            let lacking = panels.find(|panel| panel.all().iter().all(|one| one.name != *who))?;
            let panel = &lacking.name;
            Some(format!("defect: favours is {who:?}; panel {panel:?} has no such tenant"))
        })
}

fn missing_panel(scenario: &Scenario, key: &str, name: &str) -> Option<String> {
    let mut panels = scenario.panels.iter().map(|panel| panel.name.as_str());
    let names = || scenario.panels.iter().map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
    let missing = panels.all(|panel| panel != name);
    missing.then(|| format!("{key}: panel is {name:?}; one of {}", names()))
}

/// Checks a name of devices, namespaces, series and files.
fn name(what: &str, name: &str, most: usize) -> Option<String> {
    let taken = || {
        let taken = TAKEN.contains(&name);
        taken.then(|| format!("{what} is {name:?}; that is the lab's own"))
    };
    odd_name(what, name, most, "-_").or_else(taken)
}

/// Shorter runs have no sample after settling; receivers count for ten minutes at most.
const LENGTH: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(590);

const REPETITIONS: RangeInclusive<u32> = 1..=100;

/// At least a frame. The kernel's token bucket counts in 32 bits.
const CREDIT: RangeInclusive<ByteCount> = ByteCount::new(1_514)..=ByteCount::new(1 << 30);

const PANELS_MAX: usize = 16;
const PANEL_NAME_MAX: usize = 32;
const DEFECTS_MAX: usize = 16;

/// `IFNAMSIZ` less the final zero.
const DEVICE_NAME_MAX: usize = 15;

/// Names of the star's own nodes and devices, and of devices in every namespace.
const TAKEN: [&str; 8] = ["sw", "wire", "up0", "br0", "lo", "eth0", "all", "default"];

/// The nice values of sched(7).
const NICE: RangeInclusive<i32> = -20..=19;

/// Priorities are 10 000 times the root of a ratio, and at most a million.
const RATIO_MAX: u32 = 10_000;

/// Twice the time after a change that is not judged.
const EVERY_MIN: Duration = Duration::from_millis(200);

/// The width of the cells in which receivers count.
const CELL: Duration = Duration::from_millis(10);
