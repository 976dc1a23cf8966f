// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `weir plan verify`: whether running nodes hold what was planned.
//!
//! The nodes' own counters are read twice. They count what left for the wire, so that nothing needs
//! to be connected; a tester outside is `weir measure`, on the interfaces of one slice.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use weir_api_types::policy::PolicyView;
use weir_api_types::status::NodeStatus;
use weir_api_types::xtc::XtcView;
use weir_plan::{PlanRequest, PlannedNode, Resource};
use weir_platform::failure::{Failure, UsageError};
use weir_platform::output;
use weir_units::{BitRate, Nanos};

use super::file::{NOT_HELD, placed, print_refused, read};
use super::running::{self, RunningNode, pairs};
use super::verdict::{PlanVerdict, SideView, side, worker_ppm};

/// Measure on the running nodes whether what was planned is held: each slice 99 % of its rate,
/// each node at most 3 points of a processor above what was planned. A slice that offers less than
/// its rate is judged by what it offers. Exit status 6: not held.
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
    /// Processor time of the worker and of the planned slices' held routers.
    cpu_ppm: u64,
    /// The sum of the slices' bounds.
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
        let status = |node: &RunningNode| node.get::<NodeStatus>("/v1/status");
        let then = nodes.iter().map(status).collect::<Result<Vec<_>, _>>()?;
        thread::sleep(Duration::from_nanos(self.span.as_nanos()));
        let now = nodes.iter().map(status).collect::<Result<Vec<_>, _>>()?;
        let mut found = Vec::with_capacity(nodes.len());
        for ((planned, node), readings) in pairs(&plan, &nodes).zip(then.iter().zip(&now)) {
            found.push(verified(&request, planned, node, readings)?);
        }
        let view = VerifiedView::of(found);
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

fn verified(
    request: &PlanRequest,
    planned: &PlannedNode,
    node: &RunningNode,
    (then, now): (&NodeStatus, &NodeStatus),
) -> Result<VerifiedNodeView, Failure> {
    let policy: PolicyView = node.get("/v1/policy")?;
    let xtc: XtcView = node.get("/v1/xtc")?;
    let asked = planned.slices.iter().map(|of| (of, &request.slices[of.slice]));
    let slices: Vec<_> = asked
        .map(|(_, slice)| {
            let judge =
                |rate: BitRate, of| side(&slice.name, rate.as_bps(), &policy, [then, now], of);
            VerifiedSliceView {
                name: slice.name.clone(),
                send: judge(slice.send, |vif| &vif.send),
                receive: judge(slice.receive, |vif| &vif.receive),
            }
        })
        .collect();
    let is_planned = |slice: &str| slices.iter().any(|one| one.name == slice);
    let routers = xtc.routers.iter().filter(|router| is_planned(&router.slice));
    let routers: u64 = routers.filter_map(|router| router.used_ppm).map(u64::from).sum();
    let cpu_ppm = worker_ppm(then, now) + routers;
    let cpu_planned_ppm = planned.used.of(Resource::Cpu);
    let is_held = |one: &VerifiedSliceView| {
        [one.send, one.receive].iter().all(|side| side.verdict != PlanVerdict::Below)
    };
    let held = slices.iter().all(is_held) && cpu_ppm <= cpu_planned_ppm + CPU_OVER_PPM;
    Ok(VerifiedNodeView { name: node.name.clone(), held, cpu_ppm, cpu_planned_ppm, slices })
}

fn text(view: &VerifiedView) -> String {
    let mut page = String::new();
    for node in &view.nodes {
        let [cpu, planned] =
            [node.cpu_ppm, node.cpu_planned_ppm].map(|ppm| Resource::Cpu.text(ppm / 1000 * 1000));
        let _written = writeln!(page, "{}: cpu {cpu}, planned {planned}", node.name);
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
