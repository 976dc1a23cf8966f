// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan for a person: what it costs, how full each kind of node is, then node by node.

use std::fmt::Write;

use weir_plan::{
    NodePlan, PlanAnswer, PlanRefusal, PlanRequest, PlannedNode, RefusalGround, Resource,
    ResourceAmounts, ScarceResource,
};
use weir_units::CpuShare;

use super::view::{node_name, reasons};
use crate::report::{float, rate};

pub(super) fn answer(request: &PlanRequest, answer: &PlanAnswer, all: bool) -> String {
    match answer {
        PlanAnswer::Placed(plan) => placed(request, plan, all),
        PlanAnswer::Refused(refusal) => refused(request, refusal),
    }
}

fn placed(request: &PlanRequest, plan: &NodePlan, all: bool) -> String {
    let mut page = String::new();
    let (slices, nodes) = (request.slices.len(), plan.nodes.len());
    let there: u32 = request.kinds.iter().map(|kind| kind.count).sum();
    let _written = writeln!(
        page,
        "{slices} slices fit on {nodes} of {there} nodes, cost {}. No plan costs less than {}{}.",
        plan.cost,
        plan.cost_bound,
        gap(plan.gap_ppm()),
    );
    let simple = &plan.first_fit;
    let left = match simple.unplaced {
        0 => String::new(),
        some => format!(" and leaves {some} slices over"),
    };
    let _written = writeln!(
        page,
        "First fit decreasing takes {} nodes, cost {}{left}.\n",
        simple.nodes, simple.cost
    );
    kinds(&mut page, request, plan);
    if nodes > NODES_SHOWN && !all {
        let _written = writeln!(page, "\n--all prints the {nodes} nodes, --json all there is.");
        return page;
    }
    for node in &plan.nodes {
        one_node(&mut page, request, node);
    }
    page
}

fn gap(ppm: u64) -> String {
    if ppm == 0 { String::new() } else { format!(" (gap {:.2} %)", float(ppm) / 1e4) }
}

/// A line for each kind: nodes used, and how full these are on average.
fn kinds(page: &mut String, request: &PlanRequest, plan: &NodePlan) {
    let width = request.kinds.iter().map(|kind| kind.name.len()).max().unwrap_or(0).max(4);
    let _written = write!(page, "{:width$}  {:>14}  slices", "kind", "nodes");
    for resource in Resource::ALL {
        let _written = write!(page, "  {:>7}", resource.name());
    }
    page.push('\n');
    for (at, kind) in request.kinds.iter().enumerate() {
        let nodes: Vec<_> = plan.nodes.iter().filter(|node| node.kind == at).collect();
        let slices: usize = nodes.iter().map(|node| node.slices.len()).sum();
        let used = format!("{} of {}", nodes.len(), kind.count);
        let _written = write!(page, "{:width$}  {used:>14}  {slices:>6}", kind.name);
        let sum = |sum: ResourceAmounts, node: &&PlannedNode| sum.plus(&node.used);
        let sum = nodes.iter().fold(ResourceAmounts::default(), sum);
        for resource in Resource::ALL {
            let has = kind.capacity().of(resource) * nodes.len() as u64;
            let share = match has {
                0 => "-".to_owned(),
                has => format!("{:.0} %", 100.0 * float(sum.of(resource)) / float(has)),
            };
            let _written = write!(page, "  {share:>7}");
        }
        page.push('\n');
    }
}

fn one_node(page: &mut String, request: &PlanRequest, node: &PlannedNode) {
    let has = request.kinds[node.kind].capacity();
    let _written = write!(page, "\n{}", node_name(request, node));
    for resource in Resource::ALL.into_iter().filter(|of| has.of(*of) > 0) {
        let of = |amounts: &ResourceAmounts| amount(resource, amounts.of(resource));
        let _written = write!(page, "  {resource} {} of {}", of(&node.used), of(&has));
    }
    page.push('\n');
    let name = |slice: usize| request.slices[slice].name.as_str();
    let names = node.slices.iter().map(|planned| name(planned.slice).len());
    let width = names.max().unwrap_or(0).max(5);
    let phases = node.slices.iter().any(|planned| planned.phase_start.is_some());
    let caps = node.slices.iter().any(|of| request.slices[of.slice].router_cpu > CpuShare::ZERO);
    let _written =
        write!(page, "  {:width$}  {:>10}  {:>10}  {:>9}", "slice", "send", "receive", "cpu");
    page.push_str(if caps { "  router cap" } else { "" });
    page.push_str(if phases { "  phase\n" } else { "\n" });
    for planned in &node.slices {
        let asked = &request.slices[planned.slice];
        let cpu = amount(Resource::Cpu, planned.demand.amounts.of(Resource::Cpu));
        let (send, receive) = (asked.send.to_string(), asked.receive.to_string());
        let name = name(planned.slice);
        let _written = write!(page, "  {name:width$}  {send:>10}  {receive:>10}  {cpu:>9}");
        if caps {
            let _written = write!(page, "  {:>10}", asked.router_cpu.to_string());
        }
        if let (Some(start), Some(length)) = (planned.phase_start, planned.demand.phase) {
            let _written = write!(page, "  {start} + {length}");
        }
        page.push('\n');
    }
}

fn amount(resource: Resource, amount: u64) -> String {
    match resource {
        Resource::Send | Resource::Receive => rate(amount),
        Resource::Cpu | Resource::Cycle | Resource::Packets => resource.text(amount),
    }
}

fn refused(request: &PlanRequest, refusal: &PlanRefusal) -> String {
    let mut page = String::new();
    let slices = request.slices.len();
    let names = names(request, &refusal.conflict.slices);
    let ground = match refusal.ground {
        RefusalGround::NoNode(_) => {
            let reasons = reasons(request, &refusal.ground).join("\n  ");
            return format!("Slice {names} fits on no node, however empty:\n  {reasons}\n");
        }
        RefusalGround::Capacity => {
            "do not fit: they need more than all nodes together have, even if slices were divided."
        }
        RefusalGround::WholeSlices => {
            "do not fit: the sums would do, but whole slices do not go together on nodes."
        }
        RefusalGround::NotFound => {
            "have no place that was found. It is not proven that there is none."
        }
    };
    let _written = writeln!(page, "The {slices} slices {ground}");
    let count = refusal.conflict.slices.len();
    let _written = match (&refusal.ground, refusal.conflict.is_irreducible) {
        (RefusalGround::NotFound, _) => writeln!(page, "Left over: {count} slices: {names}."),
        (_, true) => writeln!(
            page,
            "These {count} do not fit, and without any one of them they do: {names}."
        ),
        (_, false) => writeln!(page, "These {count} do not fit: {names}."),
    };
    if !refusal.scarce.is_empty() {
        let scarce: Vec<_> = refusal.scarce.iter().map(|one| scarce(request, *one)).collect();
        let _written = writeln!(page, "Scarce: {}.", scarce.join("; "));
    }
    match &refusal.relaxation {
        Some(relaxation) => {
            let more = relaxation.resources.iter().filter(|one| !refusal.scarce.contains(one));
            let more: Vec<_> = more.map(|one| scarce(request, *one)).collect();
            let beside = match more.is_empty() {
                true => String::new(),
                false => format!(", and of {}", more.join("; ")),
            };
            let factor = f64::from(relaxation.permille) / 1000.0;
            let _written =
                writeln!(page, "With {factor:.3} times as much of that{beside} all fit.");
            if relaxation.refused_permille > 0 {
                let factor = f64::from(relaxation.refused_permille) / 1000.0;
                let _written =
                    writeln!(page, "With {factor:.3} times as much they do not: proven.");
            }
        }
        None => page.push_str("No factor on what is scarce was found with which they fit.\n"),
    }
    page
}

fn scarce(request: &PlanRequest, of: ScarceResource) -> String {
    let kind = &request.kinds[of.kind];
    let has = amount(of.resource, kind.capacity().of(of.resource));
    format!("{} of {} ({} nodes with {has} each)", of.resource, kind.name, kind.count)
}

fn names(request: &PlanRequest, slices: &[usize]) -> String {
    let shown = slices.iter().take(NAMES_SHOWN).map(|slice| request.slices[*slice].name.as_str());
    let shown = shown.collect::<Vec<_>>().join(", ");
    match slices.len().saturating_sub(NAMES_SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// The most nodes that are printed one by one without being asked for.
const NODES_SHOWN: usize = 20;
/// The most names that a refusal lists.
const NAMES_SHOWN: usize = 40;
