// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir plan verify`: whether running nodes hold what was planned.
//!
//! The nodes' own counters are read twice. They count what left for the wire, so that nothing needs
//! to be connected; a tester outside is `weir measure`, on the interfaces of one slice.
//!
//! Counters show nothing about a plan that is not in force. So each node is asked before and after
//! what an apply would change on it. Both answers must be nothing, of one number: then nobody
//! changed the policy in between. And both readings must be of one run of the node.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;
use weir_api_types::change::{ChangeView, EditView};
use weir_api_types::policy::PolicyView;
use weir_api_types::status::NodeStatus;
use weir_api_types::xtc::XtcView;
use weir_plan::{NodePlan, PlanRequest, PlannedNode, Resource};
use weir_platform::failure::{Failure, UsageError};
use weir_platform::output;
use weir_units::{BitRate, CpuShare, Nanos};

use super::apply::{foresee, policy_of};
use super::file::{NOT_HELD, placed, print_refused, read};
use super::running::{self, RunningNode, pairs};
use super::verdict::{PlanVerdict, RouterLoads, SideView, side, worker_ppm};

/// Measure on the running nodes whether what was planned is in force and held: each slice 99 % of
/// its rate, each node at most 3 points of a processor above what was planned. A slice that offers
/// less than its rate is judged by what it offers. Exit status 6: not held.
#[derive(Debug, Args)]
pub(crate) struct PlanVerify {
    /// The plan's file, where each node has its address: docs/planning.md
    file: PathBuf,
    /// Measure for so long, 1s to 1h
    #[arg(long = "for", value_name = "TIME", default_value = "10s")]
    span: Nanos,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The findings on all nodes.
#[derive(Debug, Serialize)]
struct VerifiedView {
    held: bool,
    /// Directions of slices that offered their rate and got it.
    proven: usize,
    /// Directions of slices in all.
    sides: usize,
    nodes: Vec<VerifiedNodeView>,
}

#[derive(Debug, Serialize)]
struct VerifiedNodeView {
    name: String,
    held: bool,
    /// Why the counters say nothing about this plan: it is not in force, or was not all the time.
    problems: Vec<String>,
    /// Mean processor time of the worker and of held routers that are planned; null if the node
    /// has no worker, or a router's time is not metered.
    cpu_ppm: Option<u64>,
    /// The sum of the slices' bounds, and the node's own time.
    cpu_planned_ppm: u64,
    slices: Vec<VerifiedSliceView>,
}

#[derive(Debug, Serialize)]
struct VerifiedSliceView {
    name: String,
    send: SideView,
    receive: SideView,
}

impl PlanVerify {
    pub(crate) fn run(self) -> Result<ExitCode, Failure> {
        if !(SPAN_MIN..=SPAN_MAX).contains(&self.span) {
            let text = format!("--for is {}; it must be {SPAN_MIN} to {SPAN_MAX}", self.span);
            return Err(UsageError(text).into());
        }
        let request = read(&self.file)?;
        let plan = match placed(&request) {
            Ok(plan) => plan,
            Err(answer) => return print_refused(&request, &answer, self.json),
        };
        let nodes = running::nodes(&request, &plan, &self.file)?;
        let begin = read_all(&request, &plan, &nodes)?;
        let routers = sampled(&nodes, Duration::from_nanos(self.span.as_nanos()))?;
        let end = read_all(&request, &plan, &nodes)?;
        let found = pairs(&plan, &nodes).zip(routers).zip(begin.iter().zip(&end));
        let found = found.map(|(((planned, node), routers), ends)| {
            verified(&request, planned, &node.name, &routers, ends)
        });
        let view = VerifiedView::of(found.collect());
        if self.json {
            output::print_own(&view)?;
        } else {
            output::print(&text(&view))?;
        }
        Ok(if view.held { ExitCode::SUCCESS } else { ExitCode::from(NOT_HELD) })
    }
}

impl VerifiedView {
    fn of(nodes: Vec<VerifiedNodeView>) -> Self {
        let each = nodes.iter().flat_map(|node| &node.slices);
        let sides: Vec<_> = each.flat_map(|slice| [slice.send, slice.receive]).collect();
        let proven = sides.iter().filter(|side| side.verdict == PlanVerdict::Held).count();
        Self { held: nodes.iter().all(|node| node.held), proven, sides: sides.len(), nodes }
    }
}

/// A node at one end of the measurement.
struct NodeReading {
    status: NodeStatus,
    policy: PolicyView,
    /// Reasons why the plan is not in force.
    problems: Vec<String>,
    /// The number that the next change would have.
    number: Option<u64>,
}

fn read_all(
    request: &PlanRequest,
    plan: &NodePlan,
    nodes: &[RunningNode],
) -> Result<Vec<NodeReading>, Failure> {
    let read = |(planned, node): (&PlannedNode, &RunningNode)| {
        let status = node.get::<NodeStatus>("/v1/status")?;
        let policy = policy_of(node)?;
        let (problems, number) = match foresee(request, planned, node, &policy, VERIFY)? {
            Ok((_, change)) => (not_in_force(&change), Some(change.id)),
            Err(problems) => (problems, None),
        };
        Ok(NodeReading { status, policy, problems, number })
    };
    pairs(plan, nodes).map(read).collect()
}

/// Names each key that is not as planned.
fn not_in_force(change: &ChangeView) -> Vec<String> {
    let name = |edit: &EditView| {
        let EditView { table, name, key, before, after } = edit;
        format!("{table} {name}: {key} is {before}, planned {after}")
    };
    change.effective_edits().map(name).collect()
}

/// Samples the processor time of held routers until `span` is over: for each node, by router.
fn sampled(nodes: &[RunningNode], span: Duration) -> Result<Vec<RouterLoads>, Failure> {
    let (start, mut loads) = (Instant::now(), vec![RouterLoads::default(); nodes.len()]);
    loop {
        let left = span.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Ok(loads);
        }
        thread::sleep(left.min(SAMPLE));
        for (node, loads) in nodes.iter().zip(&mut loads) {
            let xtc: XtcView = node.get("/v1/xtc")?;
            loads.add(&xtc);
        }
    }
}

fn verified(
    request: &PlanRequest,
    planned: &PlannedNode,
    node: &str,
    routers: &RouterLoads,
    (begin, end): (&NodeReading, &NodeReading),
) -> VerifiedNodeView {
    let (then, now) = (&begin.status, &end.status);
    let asked = planned.slices.iter().map(|of| &request.slices[of.slice]);
    let slices: Vec<_> = asked
        .map(|slice| {
            let judge =
                |rate: BitRate, of| side(&slice.name, rate.as_bps(), &end.policy, [then, now], of);
            VerifiedSliceView {
                name: slice.name.clone(),
                send: judge(slice.send, |vif| &vif.send),
                receive: judge(slice.receive, |vif| &vif.receive),
            }
        })
        .collect();
    // What a router takes is judged only where the plan says how much that may be.
    let of = |name: &str| {
        planned.slices.iter().map(|of| &request.slices[of.slice]).find(|of| of.name == name)
    };
    let routers = routers.ppm(|name| of(name).is_some_and(|of| of.router_cpu > CpuShare::ZERO));
    let cpu_ppm = worker_ppm(then, now).zip(routers).map(|(worker, routers)| worker + routers);
    let base = u64::from(request.kinds[planned.kind].cpu_base.as_ppm());
    let cpu_planned_ppm = base + planned.used.of(Resource::Cpu);
    let problems = problems(begin, end);
    let is_held = |one: &VerifiedSliceView| {
        [one.send, one.receive].iter().all(|side| side.verdict != PlanVerdict::Below)
    };
    let held = problems.is_empty()
        && slices.iter().all(is_held)
        && cpu_ppm.is_none_or(|ppm| ppm <= cpu_planned_ppm + CPU_OVER_PPM);
    let name = node.to_owned();
    VerifiedNodeView { name, held, problems, cpu_ppm, cpu_planned_ppm, slices }
}

/// Returns why two readings of a node say nothing about the plan.
fn problems(begin: &NodeReading, end: &NodeReading) -> Vec<String> {
    let mut problems = begin.problems.clone();
    problems.extend(end.problems.iter().filter(|one| !begin.problems.contains(one)).cloned());
    let started = |of: &NodeStatus| of.now_ns.saturating_sub(of.uptime_ns);
    if started(&begin.status).abs_diff(started(&end.status)) > SAME_START_NS {
        problems.push("the node was started anew during the measurement".to_owned());
    } else if begin.number != end.number {
        problems.push("its policy was changed during the measurement".to_owned());
    }
    problems
}

fn text(view: &VerifiedView) -> String {
    let mut page = String::new();
    for node in &view.nodes {
        let percent = |ppm: u64| Resource::Cpu.text(ppm / 1000 * 1000);
        let cpu = node.cpu_ppm.map_or_else(|| "not metered".to_owned(), percent);
        let planned = percent(node.cpu_planned_ppm);
        let _written = writeln!(page, "{}: cpu {cpu}, planned {planned}", node.name);
        for problem in &node.problems {
            let _written = writeln!(page, "  NOT IN FORCE: {problem}");
        }
        let width = node.slices.iter().map(|slice| slice.name.len()).max().unwrap_or(0).max(5);
        let _written = writeln!(
            page,
            "  {:width$}  {:7}  {:>10}  {:>10}  {:>10}",
            "slice", "", "planned", "offered", "got"
        );
        for slice in &node.slices {
            for (direction, side) in [("send", slice.send), ("receive", slice.receive)] {
                let [planned, offered, got] =
                    [side.planned_bps, side.offered_bps, side.got_bps].map(crate::report::rate);
                let _written = writeln!(
                    page,
                    "  {:width$}  {direction:7}  {planned:>10}  {offered:>10}  {got:>10}  {}",
                    slice.name,
                    word(side.verdict)
                );
            }
        }
    }
    let is = if view.held { "The plan is held" } else { "The plan is not held" };
    let _written = writeln!(
        page,
        "{is}. {} of {} directions offered their rate and got it; the others offered less.",
        view.proven, view.sides
    );
    page
}

const fn word(verdict: PlanVerdict) -> &'static str {
    match verdict {
        PlanVerdict::Held => "held",
        PlanVerdict::AskedLess => "offered less",
        PlanVerdict::Idle => "idle",
        PlanVerdict::Below => "BELOW",
    }
}

const SPAN_MIN: Nanos = Nanos::from_secs(1);
const SPAN_MAX: Nanos = Nanos::from_secs(3600);
/// Three points of a processor above what was planned are allowed.
const CPU_OVER_PPM: u64 = 30_000;
/// Time between two samples of routers.
const SAMPLE: Duration = Duration::from_secs(1);
/// Readings of one run of a node give the same start.
const SAME_START_NS: u64 = 100_000_000;
/// The id under which the nodes only check.
const VERIFY: &str = "verify";

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(now_ns: u64, uptime_ns: u64, number: u64) -> NodeReading {
        let status = NodeStatus { now_ns, uptime_ns, ..NodeStatus::default() };
        let policy = PolicyView {
            node: String::new(),
            ports: vec![],
            slices: vec![],
            routers: vec![],
            vifs: vec![],
        };
        NodeReading { status, policy, problems: vec![], number: Some(number) }
    }

    #[test]
    fn readings_of_two_runs_or_two_policies_say_nothing() {
        let second = 1_000_000_000;
        let begin = reading(100 * second, 2 * second, 7);
        assert_eq!(problems(&begin, &reading(110 * second, 12 * second, 7)), [""; 0]);
        // It runs for longer than before, and is another run all the same.
        let anew = problems(&begin, &reading(110 * second, 9 * second, 7));
        assert_eq!(anew, ["the node was started anew during the measurement"]);
        let changed = problems(&begin, &reading(110 * second, 12 * second, 8));
        assert_eq!(changed, ["its policy was changed during the measurement"]);
    }

    #[test]
    fn keys_that_are_not_as_planned_are_named() {
        let edit = |key: &str, before: &str| EditView {
            table: "slice".into(),
            name: "gold".into(),
            key: key.into(),
            before: before.into(),
            after: "5Mbit".into(),
        };
        let edits = vec![edit("send.rate", "5Mbit"), edit("send.min_rate", "1Mbit")];
        let (who, kind) = ("uid 0".to_owned(), weir_api_types::change::ChangeOrigin::Change);
        let change =
            ChangeView { id: 1, at_unix_ms: 0, who, kind, undoes: None, apply: None, edits };
        let named = not_in_force(&change);
        assert_eq!(named, ["slice gold: send.min_rate is \"1Mbit\", planned \"5Mbit\""]);
    }
}
