// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A plan as JSON: bare integers with their unit in the name.

use serde::Serialize;
use weir_plan::{
    NodePlan, PlanAnswer, PlanRefusal, PlanRequest, PlannedNode, RefusalGround, Resource,
    ResourceAmounts, ScarceResource,
};

/// The answer, told apart by `answer`.
#[derive(Debug, Serialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub(super) enum AnswerView {
    Placed(PlacedView),
    Refused(RefusedView),
}

#[derive(Debug, Serialize)]
pub(super) struct PlacedView {
    cost: u64,
    cost_bound: u64,
    gap_ppm: u64,
    first_fit: FirstFitView,
    nodes: Vec<PlannedNodeView>,
}

#[derive(Debug, Serialize)]
struct FirstFitView {
    nodes: usize,
    cost: u64,
    unplaced: usize,
}

#[derive(Debug, Serialize)]
struct PlannedNodeView {
    name: String,
    kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    api: Option<String>,
    used: AmountsView,
    has: AmountsView,
    slices: Vec<PlannedSliceView>,
}

/// Rates are those on the wire.
#[derive(Debug, Serialize)]
struct AmountsView {
    send_bps: u64,
    receive_bps: u64,
    cpu_ppm: u64,
    cycle_ns: u64,
    packets_ppm: u64,
}

/// Rates are those of a policy: `send.min_rate` and `receive.min_rate`.
#[derive(Debug, Serialize)]
struct PlannedSliceView {
    name: String,
    send_bps: u64,
    receive_bps: u64,
    cpu_ppm: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    router_cap_ppm: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase_start_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase_ns: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct RefusedView {
    ground: &'static str,
    proven: bool,
    reasons: Vec<String>,
    conflict: Vec<String>,
    irreducible: bool,
    scarce: Vec<ScarceView>,
    relaxation: Option<RelaxationView>,
}

#[derive(Debug, Serialize)]
struct ScarceView {
    kind: String,
    resource: &'static str,
    each_has: u64,
    nodes: u32,
}

#[derive(Debug, Serialize)]
struct RelaxationView {
    resources: Vec<ScarceView>,
    factor_permille: u32,
    refused_permille: u32,
}

pub(super) fn answer(request: &PlanRequest, answer: &PlanAnswer) -> AnswerView {
    match answer {
        PlanAnswer::Placed(plan) => AnswerView::Placed(placed(request, plan)),
        PlanAnswer::Refused(refusal) => AnswerView::Refused(refused(request, refusal)),
    }
}

/// Returns the name of a node: that of its kind where there is only one, otherwise with its number.
pub(super) fn node_name(request: &PlanRequest, node: &PlannedNode) -> String {
    let kind = &request.kinds[node.kind];
    if kind.count == 1 { kind.name.clone() } else { format!("{}-{}", kind.name, node.number) }
}

pub(super) const fn ground(ground: &RefusalGround) -> &'static str {
    match ground {
        RefusalGround::NoNode(_) => "no_node",
        RefusalGround::Capacity => "capacity",
        RefusalGround::WholeSlices => "whole_slices",
        RefusalGround::NotFound => "not_found",
    }
}

/// Returns the reasons why the first slice of a conflict fits on no node, by kind of node.
pub(super) fn reasons(request: &PlanRequest, of: &RefusalGround) -> Vec<String> {
    let RefusalGround::NoNode(reasons) = of else { return vec![] };
    let each = request.kinds.iter().zip(reasons);
    each.map(|(kind, reason)| format!("{}: {reason}", kind.name)).collect()
}

fn placed(request: &PlanRequest, plan: &NodePlan) -> PlacedView {
    let first_fit = FirstFitView {
        nodes: plan.first_fit.nodes,
        cost: plan.first_fit.cost,
        unplaced: plan.first_fit.unplaced,
    };
    PlacedView {
        cost: plan.cost,
        cost_bound: plan.cost_bound,
        gap_ppm: plan.gap_ppm(),
        first_fit,
        nodes: plan.nodes.iter().map(|node| node_view(request, node)).collect(),
    }
}

fn node_view(request: &PlanRequest, node: &PlannedNode) -> PlannedNodeView {
    let kind = &request.kinds[node.kind];
    let slices = node.slices.iter().map(|planned| {
        let asked = &request.slices[planned.slice];
        PlannedSliceView {
            name: asked.name.clone(),
            send_bps: asked.send.as_bps(),
            receive_bps: asked.receive.as_bps(),
            cpu_ppm: planned.demand.amounts.of(Resource::Cpu),
            router_cap_ppm: Some(asked.router_cpu.as_ppm()).filter(|cap| *cap > 0),
            phase_start_ns: planned.phase_start.map(|start| start.as_nanos()),
            phase_ns: planned.demand.phase.map(|phase| phase.as_nanos()),
        }
    });
    PlannedNodeView {
        name: node_name(request, node),
        kind: kind.name.clone(),
        api: kind.api.as_ref().map(|api| api.address.clone()),
        used: amounts(&node.used),
        has: amounts(&kind.capacity()),
        slices: slices.collect(),
    }
}

fn amounts(of: &ResourceAmounts) -> AmountsView {
    AmountsView {
        send_bps: of.of(Resource::Send),
        receive_bps: of.of(Resource::Receive),
        cpu_ppm: of.of(Resource::Cpu),
        cycle_ns: of.of(Resource::Cycle),
        packets_ppm: of.of(Resource::Packets),
    }
}

fn refused(request: &PlanRequest, refusal: &PlanRefusal) -> RefusedView {
    let scarce = |of: &[ScarceResource]| of.iter().map(|one| scarce_view(request, *one)).collect();
    let names = refusal.conflict.slices.iter();
    RefusedView {
        ground: ground(&refusal.ground),
        proven: refusal.ground != RefusalGround::NotFound,
        reasons: reasons(request, &refusal.ground),
        conflict: names.map(|slice| request.slices[*slice].name.clone()).collect(),
        irreducible: refusal.conflict.is_irreducible,
        scarce: scarce(&refusal.scarce),
        relaxation: refusal.relaxation.as_ref().map(|relaxation| RelaxationView {
            resources: scarce(&relaxation.resources),
            factor_permille: relaxation.permille,
            refused_permille: relaxation.refused_permille,
        }),
    }
}

fn scarce_view(request: &PlanRequest, of: ScarceResource) -> ScarceView {
    let kind = &request.kinds[of.kind];
    ScarceView {
        kind: kind.name.clone(),
        resource: of.resource.name(),
        each_has: kind.capacity().of(of.resource),
        nodes: kind.count,
    }
}
