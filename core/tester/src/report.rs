// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A measurement as a document: everything that a reader needs to judge it and to repeat it, as
//! data for JSON, and as a table for CSV. The page is in `page`.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::bounds::{GoalResult, SearchEnd};
use crate::error::SearchError;
use crate::goal::Goal;
use crate::measurer::{CpuLoad, NodeLoad, TrialResult};
use crate::model::{CpuLine, CpuPoint, CpuSurface};
use crate::outcome::Outcome;
use crate::repetitions::Repetitions;
use crate::schedule::SizeTest;
use crate::suite::{LadderPoint, SizeResult, SuiteResult};

/// A measurement of a device under test.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasurementReport {
    /// Version of this document: another when a key goes or means something else.
    pub version: u32,
    /// Name of the device under test.
    pub dut: String,
    /// `rfc2544`, `rfc5180` or `ndr`.
    pub method: String,
    /// Command line.
    pub command: String,
    /// When it began, as UTC.
    pub start: String,
    /// Its length in seconds, settling included.
    pub seconds: f64,
    /// Kernel and processors of the tester.
    pub machine: String,
    /// The interface that sends.
    pub from: String,
    /// The interface that receives, and how its program is attached.
    pub to: String,
    /// Rate of the link, bits a second.
    pub line_bps: u64,
    /// The tester's own limit for each frame size: packets a second that the generator offers and
    /// the sending interface takes, measured before the first trial.
    pub generator_pps: Vec<u64>,
    /// Results without the device, which were measured before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub baseline: Option<NativeBaseline>,
    /// The goals of the throughput.
    pub goals: Vec<Goal>,
    /// The results.
    pub suite: SuiteResult,
    /// The packets of all trials.
    pub packets: Outcome,
    /// Lost packets by the numbers in those that arrived: the same as `packets.lost` if nothing is
    /// wrong with either count.
    pub lost_by_sequence: u64,
    /// The load of the processors by packet rate; no entry where it has no fit.
    pub cpu: Vec<CpuFit>,
    /// Frame sizes that were to be measured and are not at all: the measurement runs, or was
    /// interrupted.
    #[serde(default)]
    pub missing: Vec<String>,
    /// Remarks that a reader has to know beside the figures.
    pub notes: Vec<String>,
}

/// A measurement with nothing but a cable, or the kernel alone, in place of the device: what the
/// tester and its machine do by themselves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NativeBaseline {
    /// A name for what was in place of the device.
    pub dut: String,
    /// When it began, as UTC.
    pub start: String,
    /// Its command line.
    pub command: String,
    /// Its results.
    pub suite: SuiteResult,
}

/// CPU = a · kpps + b of one frame size, of all processors together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CpuFit {
    /// The frame sizes, or `all`.
    pub sizes: String,
    /// Percent of a processor for each thousand packets a second.
    pub a: f64,
    /// Half the width of its 95 % interval.
    pub a_interval: f64,
    /// Percent of a processor for each thousand packets a second and byte: of `all` only.
    pub a_byte: Option<f64>,
    /// Percent of a processor without packets.
    pub b: f64,
    /// Half the width of its 95 % interval.
    pub b_interval: f64,
    /// The part of the variance that is explained.
    pub r_square: f64,
}

impl MeasurementReport {
    /// The version that is written.
    pub const VERSION: u32 = 1;

    /// Returns a table for a spreadsheet: a line for each measured value, with its test, size, load
    /// and unit.
    pub fn csv(&self) -> String {
        let mut csv = String::from("test,frame_bytes,load_pps,quantity,unit,value\n");
        for size in &self.missing {
            let _written = writeln!(csv, "INCOMPLETE,{size},,not measured,,");
        }
        for size in &self.suite.sizes {
            let name = size.profile.sizes.to_string();
            if let Some(test) = size.ended_in.map(SizeTest::name) {
                let _written = writeln!(csv, "INCOMPLETE,{name},,ended in {test},,");
            }
            let mut line = |test: &str, pps: u64, quantity: &str, unit: &str, value: String| {
                let _written = writeln!(csv, "{test},{name},{pps},{quantity},{unit},{value}");
            };
            for result in &size.goals {
                let goal = format!("loss {} exceed {}", result.goal.loss, result.goal.exceed);
                let test = format!("throughput {goal}");
                for (quantity, value) in [
                    ("lower bound", result.lower),
                    ("upper bound", result.upper),
                    ("conditional throughput", result.conditional),
                ] {
                    if let Some(value) = value {
                        line(&test, value, quantity, "packet/s", value.to_string());
                    }
                }
                let end = self.end_text(size, result);
                line(&test, result.throughput(), "search ended", "", end.to_owned());
            }
            for (test, points) in [("latency", &size.latency), ("loss rate", &size.loss_rate)] {
                for point in points {
                    for (quantity, unit, value) in quantities(&point.result) {
                        line(test, point.pps, &quantity, unit, value);
                    }
                }
            }
            if let Some(burst) = &size.back_to_back {
                for length in &burst.bursts {
                    line("back to back", burst.pps, "burst", "packet", length.to_string());
                }
                for (quantity, value) in [("mean", burst.mean), ("deviation", burst.stddev)] {
                    line("back to back", burst.pps, quantity, "packet", format!("{value:.2}"));
                }
            }
            if let Some(recovery) = size.recovery {
                let ns = recovery.recovery_ns.to_string();
                line("recovery", recovery.over_pps, recovery.quantity(), "ns", ns);
            }
            if let Some(ns) = size.not_back_ns {
                line("reset", 0, "not back in", "ns", ns.to_string());
            }
            if let Some(ns) = size.reset_ns {
                line("reset", 0, "without forwarding", "ns", ns.to_string());
            }
        }
        for one in self.repetitions() {
            let Repetitions { sizes, goal, count, finished, tester_bound, min, median, max } = one;
            let test = format!("repetitions loss {} exceed {}", goal.loss, goal.exceed);
            for (quantity, unit, value) in [
                ("repetitions", "1", count.into()),
                ("finished", "1", finished.into()),
                ("bounded by the tester", "1", tester_bound.into()),
                ("least", "packet/s", min),
                ("median", "packet/s", median),
                ("greatest", "packet/s", max),
            ] {
                let _written = writeln!(csv, "{test},{sizes},{median},{quantity},{unit},{value}");
            }
        }
        csv
    }

    /// Returns the spread of each size and goal that was measured more than once.
    pub fn repetitions(&self) -> Vec<Repetitions> {
        self.suite.repetitions(|size, result| self.is_tester_bound(size, result))
    }

    /// Says how a search ended. What the tester bounds is said to be so.
    pub fn end_text(&self, size: &SizeResult, result: &GoalResult) -> &'static str {
        if let Some(why) = self.tester_limit(size, result) {
            return why;
        }
        match result.end {
            SearchEnd::TimeUp => "not finished: time was up",
            SearchEnd::Tester => MISSING_AT_TESTER,
            SearchEnd::MaxLoad => "the line's rate",
            SearchEnd::MinLoad => "none found",
            SearchEnd::Regular => "regular",
        }
    }

    /// Says whether the throughput is a limit of the tester: the device may forward more.
    pub fn is_tester_bound(&self, size: &SizeResult, result: &GoalResult) -> bool {
        self.tester_limit(size, result).is_some()
    }

    /// Says what of the tester bounds the throughput; none if the device does, or if it is unknown.
    fn tester_limit(&self, size: &SizeResult, result: &GoalResult) -> Option<&'static str> {
        let line = size.profile.sizes.line_pps(self.line_bps);
        match result.end {
            SearchEnd::TimeUp => None,
            SearchEnd::Tester => Some(MISSING_AT_TESTER),
            SearchEnd::MaxLoad if size.max_pps < line => Some("or more: the generator's limit"),
            SearchEnd::MaxLoad | SearchEnd::MinLoad | SearchEnd::Regular => {
                self.is_native(size, result).then_some("or more: as without the device")
            }
        }
    }

    /// Returns the result of the same size and goal without the device.
    pub(crate) fn native(&self, size: &SizeResult, goal: &Goal) -> Option<&GoalResult> {
        let baseline = self.baseline.as_ref()?;
        let same = baseline.suite.sizes.iter().find(|other| other.profile == size.profile)?;
        same.goals.iter().find(|other| other.goal == *goal)
    }

    /// Says whether the device forwards what was forwarded without it, within the goal's width.
    /// Then the figure is of what both have in common, the tester.
    fn is_native(&self, size: &SizeResult, result: &GoalResult) -> bool {
        let line = size.profile.sizes.line_pps(self.line_bps);
        self.native(size, &result.goal).is_some_and(|native| {
            let (with, without) = (result.throughput(), native.throughput());
            let (distance, most) = (with.abs_diff(without), with.max(without));
            with > 0 && without < line && !result.goal.width.is_exceeded_by(distance, most)
        })
    }
}

const MISSING_AT_TESTER: &str = "or more: packets were missing at the tester itself";

/// Returns each quantity of a trial: name, unit, value.
fn quantities(result: &TrialResult) -> Vec<(String, &'static str, String)> {
    let outcome = result.outcome;
    let mut all: Vec<(String, &'static str, String)> = [
        ("intended", outcome.intended),
        ("offered", outcome.offered),
        ("forwarded", outcome.forwarded),
        ("lost", outcome.lost),
        ("unsent", outcome.unsent),
    ]
    .map(|(name, count)| (name.to_owned(), "packet", count.to_string()))
    .into();
    if let Some(latency) = result.latency {
        let times = [
            ("latency min", latency.min_ns),
            ("latency mean", latency.mean_ns),
            ("latency median", latency.median_ns),
            ("latency p99", latency.p99_ns),
            ("latency max", latency.max_ns),
        ];
        all.extend(times.map(|(name, ns)| (name.to_owned(), "ns", ns.to_string())));
    }
    if let Some(node) = result.node {
        all.push(("node worker".to_owned(), "%", format!("{:.2}", node.cpu_percent)));
    }
    for load in &result.cpu {
        for (what, percent) in [
            ("busy", load.busy_percent),
            ("softirq", load.softirq_percent),
            ("stolen", load.stolen_percent),
        ] {
            all.push((format!("cpu {} {what}", load.cpu), "%", format!("{percent:.2}")));
        }
    }
    all
}

/// Returns the load of all processors in a trial together, in percent of one.
pub(crate) fn busy(loads: &[CpuLoad]) -> f64 {
    loads.iter().map(|load| load.busy_percent).sum()
}

/// Returns the points of the loads up to the throughput: past it the line bends.
pub(crate) fn cpu_points(size: &SizeResult) -> Vec<CpuPoint> {
    let within = size.latency.iter().filter(|point| point.percent <= 100);
    within.filter_map(|point| cpu_point(size, point)).collect()
}

/// Returns a load and what it took: of the measured node's worker, by its own counters, where they
/// are known, else of all processors of this machine.
fn cpu_point(size: &SizeResult, point: &LadderPoint) -> Option<CpuPoint> {
    if let Some(NodeLoad { kpps, frame_bytes: mean, cpu_percent }) = point.result.node {
        // The node counts the frames that announce addresses too: a size is to stay one size.
        let near = (mean - size.frame_bytes).abs() <= MEAN_OFF * size.frame_bytes;
        let frame_bytes = if near { size.frame_bytes } else { mean };
        return Some(CpuPoint { kpps, frame_bytes, wakeups_k: 0.0, cpu_percent });
    }
    let cpu = &point.result.cpu;
    (!cpu.is_empty()).then(|| CpuPoint {
        kpps: offered_kpps(point),
        frame_bytes: size.frame_bytes,
        wakeups_k: 0.0,
        cpu_percent: busy(cpu),
    })
}

/// Returns the load that was really sent, thousands of packets a second: processors worked for no
/// other.
pub(crate) fn offered_kpps(point: &LadderPoint) -> f64 {
    kilo(point.pps) * point.result.offered_ratio()
}

/// Part by which the mean length of what a node forwarded may be off the length that was sent. With
/// more, the node forwarded frames of others too.
const MEAN_OFF: f64 = 0.05;

/// Returns the lines of CPU by packet rate for each size, of all its repetitions together, and the
/// surface over all of them.
pub fn cpu_fits(suite: &SuiteResult) -> Vec<CpuFit> {
    let mut fits = Vec::new();
    let mut all = Vec::new();
    for (index, size) in suite.sizes.iter().enumerate() {
        let is_same = |other: &&SizeResult| other.profile == size.profile;
        if suite.sizes[..index].iter().any(|other| is_same(&other)) {
            continue;
        }
        let same = suite.sizes.iter().filter(is_same);
        let points: Vec<CpuPoint> = same.flat_map(cpu_points).collect();
        if let Ok(line) = CpuLine::of(&points) {
            fits.push(CpuFit {
                sizes: size.profile.sizes.to_string(),
                a: line.slope(),
                a_interval: line.fit().interval(0),
                a_byte: None,
                b: line.offset(),
                b_interval: line.fit().interval(1),
                r_square: line.fit().r_square,
            });
        }
        all.extend(points);
    }
    if let Ok(surface) = CpuSurface::of(&all, false)
        && let [b, a, a_byte] = surface.fit().coefficients[..]
    {
        fits.push(CpuFit {
            sizes: "all".to_owned(),
            a,
            a_interval: surface.fit().interval(1),
            a_byte: Some(a_byte),
            b,
            b_interval: surface.fit().interval(0),
            r_square: surface.fit().r_square,
        });
    }
    fits
}

/// Converts a count to thousands.
#[expect(clippy::cast_precision_loss, reason = "rates stay below 2^53")]
pub(crate) fn kilo(count: u64) -> f64 {
    count as f64 / 1e3
}

/// Checks goals as a search does, before anything is sent.
pub fn check_goals(goals: &[Goal]) -> Result<(), SearchError> {
    let goals_max = crate::search::Search::GOALS_MAX;
    if !(1..=goals_max).contains(&goals.len()) {
        return Err(SearchError::Goals { count: goals.len(), goals_max });
    }
    goals.iter().try_for_each(|goal| Ok(goal.check()?))
}
