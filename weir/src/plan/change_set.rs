// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A planned node as changes of a running node's policy.
//!
//! A plan says how much each slice gets; the node's own policy says who it is: its devices, VLANs,
//! routers. So slices are not made here, only what they get is changed: guarantees, limits, phase,
//! and for routers that the node holds the cap of their processor time and the set-point.

use weir_api_types::change::{ChangeSet, GroupChange, RouterChange, ShareChange, VifChange};
use weir_api_types::policy::{PolicyView, PortView};
use weir_api_types::xtc::{RouterView, XtcChange, XtcView};
use weir_plan::{NodeKind, PlanRequest, PlannedNode, PlannedSlice, Resource, SliceRequest};
use weir_units::{BitRate, Nanos};

/// The changes of one node, and what a plan says that the node cannot enforce.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PlannedChange {
    pub(super) set: ChangeSet,
    pub(super) notes: Vec<String>,
}

/// Returns the changes that bring a node to its part of a plan, or all reasons why it is another
/// node than the plan means.
pub(super) fn change_set(
    request: &PlanRequest,
    node: &PlannedNode,
    policy: &PolicyView,
    xtc: &XtcView,
) -> Result<PlannedChange, Vec<String>> {
    let kind = &request.kinds[node.kind];
    let (mut planned, mut problems) = (PlannedChange::default(), Vec::new());
    for of in &node.slices {
        let slice = &request.slices[of.slice];
        if !policy.slices.iter().any(|one| one.name == slice.name) {
            problems.push(format!("there is no slice {}", slice.name));
            continue;
        }
        let ports = policy.ports.iter().filter(|port| {
            policy.vifs.iter().any(|vif| vif.slice == slice.name && vif.port == port.name)
        });
        problems.extend(ports.flat_map(|port| unlike(port, kind)));
        let group = GroupChange {
            send: Some(share(slice.send, slice.limit)),
            receive: Some(share(slice.receive, slice.limit)),
            phase_ns: of.demand.phase.map(|phase| Some(phase.as_nanos())),
        };
        planned.set.slices.insert(slice.name.clone(), group);
        delays(slice, kind, policy, &mut planned);
        routers(slice, of, xtc, &mut planned);
    }
    problems.sort();
    problems.dedup();
    if problems.is_empty() { Ok(planned) } else { Err(problems) }
}

/// Bounds the delay of a slice's vifs on a node without a cycle: there the scheduler's curves hold
/// it, and they are the vifs'. With a cycle the phase does.
fn delays(slice: &SliceRequest, kind: &NodeKind, policy: &PolicyView, planned: &mut PlannedChange) {
    let Some(delay) = slice.delay.filter(|_| kind.cycle.is_none()) else { return };
    let own = policy.vifs.iter().filter(|vif| vif.slice == slice.name);
    let bound = delay.as_nanos().min(DELAY_MAX);
    // A bound is for what is within a guarantee.
    let (sure, without): (Vec<_>, Vec<_>) = own.partition(|vif| vif.send.min_rate_bps > 0);
    for vif in sure.into_iter().filter(|vif| vif.delay_ns != Some(bound)) {
        let change = VifChange { delay_ns: Some(Some(bound)), ..VifChange::default() };
        planned.set.vifs.insert(vif.name.clone(), change);
    }
    if let Some(first) = without.first() {
        let more = match without.len() - 1 {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        planned.notes.push(format!(
            "the delay of slice {}, {delay}, is not set for vif {}{more}: a delay is for what is \
             within a vif's own send.min_rate, and it has none",
            slice.name, first.name
        ));
    }
}

fn share(min_rate: BitRate, limit: Option<BitRate>) -> ShareChange {
    ShareChange {
        min_rate_bps: Some(Some(min_rate.as_bps())),
        rate_bps: limit.map(|limit| Some(limit.as_bps())),
        ..ShareChange::default()
    }
}

/// Says in what a port differs from the link that the plan counts on.
fn unlike(port: &PortView, kind: &NodeKind) -> Vec<String> {
    let name = &port.name;
    let mut found = Vec::new();
    if port.rate_bps < kind.link.as_bps() {
        let has = BitRate::from_bps(port.rate_bps);
        found.push(format!("port {name} has a rate of {has}, the plan's link {}", kind.link));
    }
    let cycle = port.cycle.map(|cycle| Nanos::new(cycle.length_ns));
    let planned = kind.cycle.map(|cycle| cycle.length);
    let text =
        |cycle: Option<Nanos>| cycle.map_or_else(|| "none".to_owned(), |length| length.to_string());
    if cycle != planned {
        let (has, planned) = (text(cycle), text(planned));
        found.push(format!("port {name} has a cycle of {has}, the plan's node of {planned}"));
    }
    found
}

/// Caps the routers of a slice that the node's policy holds; one that it leaves to a controller of
/// several nodes stays so. Several share cap and set-point equally.
fn routers(slice: &SliceRequest, of: &PlannedSlice, xtc: &XtcView, planned: &mut PlannedChange) {
    let is_on = |state: &str| matches!(state, "active" | "paused");
    let is_held = |one: &&RouterView| one.slice == slice.name && is_on(&one.state);
    let held: Vec<&RouterView> = xtc.routers.iter().filter(is_held).collect();
    let cpu = of.demand.amounts.of(Resource::Cpu);
    let Some(count) = u64::try_from(held.len()).ok().filter(|count| *count > 0) else {
        let cap = Resource::Cpu.text(cpu);
        let note =
            format!("no router of slice {} is held, so that its cap, {cap}, is not", slice.name);
        planned.notes.push(note);
        return;
    };
    let cap = u32::try_from(cpu / count).unwrap_or(u32::MAX);
    let set_point = slice.frames.packets(slice.receive).as_pps().div_ceil(count);
    for router in held {
        let xtc = XtcChange {
            set_point_pps: router.set_point_pps.map(|_| set_point),
            cap_max_ppm: Some(cap).filter(|cap| *cap > 0),
            ..XtcChange::default()
        };
        let change = RouterChange { xtc: Some(xtc), ..RouterChange::default() };
        planned.set.routers.insert(router.router.clone(), change);
    }
}

/// The longest delay of a vif, ns: a second.
const DELAY_MAX: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use weir_plan::{PlanAnswer, PlanEffort};

    use super::*;

    const PLAN: &str = r#"
        [[node]]
        name = "edge"
        link = "1Gbit"
        cpu = "100%"
        cycle = "1ms"
        [[slice]]
        name = "gold"
        send = "100Mbit"
        receive = "20Mbit"
        limit = "200Mbit"
        frames = "1254B"
        cpu = "10%"
    "#;

    fn policy(text: &str) -> PolicyView {
        serde_json::from_str(text).unwrap()
    }

    fn planned(policy: &PolicyView, xtc: &str) -> Result<PlannedChange, Vec<String>> {
        planned_of(PLAN, policy, xtc)
    }

    fn planned_of(
        plan: &str,
        policy: &PolicyView,
        xtc: &str,
    ) -> Result<PlannedChange, Vec<String>> {
        let request = weir_plan::read_request(plan).unwrap();
        let PlanAnswer::Placed(plan) = weir_plan::plan(&request, &PlanEffort::default()) else {
            panic!("it fits");
        };
        change_set(&request, &plan.nodes[0], policy, &serde_json::from_str(xtc).unwrap())
    }

    const SHARE: &str = r#"{"priority":1,"min_rate_bps":0,"min_pps":0,"burst_bytes":1}"#;

    fn node(cycle: &str, slice: &str) -> PolicyView {
        let queue = r#"{"kind":"fifo","packets":1,"bytes":1}"#;
        policy(&format!(
            r#"{{"node":"edge","routers":[],
                "ports":[{{"name":"up0","rate_bps":1000000000{cycle}}}],
                "slices":[{{"name":"{slice}","send":{SHARE},"receive":{SHARE}}}],
                "vifs":[{{"name":"v","slice":"{slice}","port":"up0","device":"v","send":{SHARE},
                    "send_queue":{queue},"receive":{SHARE},"receive_queue":{queue},
                    "overhead_bytes":0}}]}}"#
        ))
    }

    #[test]
    fn a_planned_slice_becomes_guarantees_limits_and_a_phase() {
        let cycle = r#","cycle":{"length_ns":1000000,"borrow":false}"#;
        let change = planned(&node(cycle, "gold"), r#"{"routers":[]}"#).unwrap();
        let sent = serde_json::to_value(&change.set).unwrap();
        let gold = &sent["slices"]["gold"];
        assert_eq!(
            gold["send"],
            serde_json::json!({"min_rate_bps": 100_000_000u64, "rate_bps": 200_000_000u64})
        );
        assert_eq!(gold["receive"]["min_rate_bps"], 20_000_000);
        // 1254 bytes are 10.192 µs on the wire; 100 Mb/s of 1250 counted bytes need ten a cycle.
        assert_eq!(gold["phase_ns"], 102_000);
        assert_eq!(change.notes, ["no router of slice gold is held, so that its cap, 10%, is not"]);
    }

    /// Goal: a delay on a node without a cycle is set where a vif can hold it, else it is said.
    #[test]
    fn a_delay_becomes_the_vifs_or_a_note() {
        let plan = PLAN.replace("cycle = \"1ms\"", "").replace("limit", "delay = \"2ms\"\nlimit");
        let mut policy = node("", "gold");
        let notes = planned_of(&plan, &policy, r#"{"routers":[]}"#).unwrap().notes;
        let said = "the delay of slice gold, 2ms, is not set for vif v: a delay is for what is \
                    within a vif's own send.min_rate, and it has none";
        assert!(notes.iter().any(|note| note == said), "{notes:?}");
        policy.vifs[0].send.min_rate_bps = 1_000;
        let change = planned_of(&plan, &policy, r#"{"routers":[]}"#).unwrap();
        assert_eq!(change.set.vifs["v"].delay_ns, Some(Some(2_000_000)));
        assert!(!change.notes.iter().any(|note| note.contains("delay")), "{:?}", change.notes);
        // With a cycle the phase bounds it.
        let change = planned_of(
            &PLAN.replace("limit", "delay = \"2ms\"\nlimit"),
            &{
                let cycle = r#","cycle":{"length_ns":1000000,"borrow":false}"#;
                node(cycle, "gold")
            },
            r#"{"routers":[]}"#,
        );
        assert!(change.unwrap().set.vifs.is_empty());
    }

    #[test]
    fn routers_that_are_held_share_cap_and_set_point() {
        let cycle = r#","cycle":{"length_ns":1000000,"borrow":false}"#;
        let router = |name: &str, state: &str| {
            format!(
                r#"{{"router":"{name}","slice":"gold","state":"{state}","controller":"pi",
                    "actuator":"cgroup v2","period_ns":1,"dry_run":false,"owes_release":false,
                    "set_point_pps":5,"samples":0,"faults":0,"commands":0,"failures":0,"late":0,
                    "late_worst_ns":0,"lost":0}}"#
            )
        };
        let states = [("a", "active"), ("b", "paused"), ("c", "off"), ("d", "leased")];
        let routers = states.map(|(name, state)| router(name, state));
        let xtc = format!(r#"{{"routers":[{}]}}"#, routers.join(","));
        let change = planned(&node(cycle, "gold"), &xtc).unwrap();
        let names: Vec<_> = change.set.routers.keys().collect();
        assert_eq!(names, ["a", "b"]);
        let xtc = change.set.routers["a"].xtc.clone().unwrap();
        // 20 Mb/s are 2000 packets of 1250 counted bytes a second.
        assert_eq!((xtc.set_point_pps, xtc.cap_max_ppm), (Some(1000), Some(50_000)));
        assert_eq!(change.notes, [""; 0]);
    }

    #[test]
    fn a_node_that_is_not_the_plans_is_told_all_differences() {
        let problems = planned(&node("", "lead"), r#"{"routers":[]}"#).unwrap_err();
        assert_eq!(problems, ["there is no slice gold"]);
        let mut slow = node("", "gold");
        slow.ports[0].rate_bps = 1_000_000;
        let problems = planned(&slow, r#"{"routers":[]}"#).unwrap_err();
        assert_eq!(
            problems,
            [
                "port up0 has a cycle of none, the plan's node of 1ms",
                "port up0 has a rate of 1Mbit, the plan's link 1Gbit",
            ]
        );
    }
}
