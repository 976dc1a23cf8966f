// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Converts a planned node to changes of a running node's policy.
//!
//! A plan says how much each slice gets. The identity of a slice (its devices, VLANs, routers) is
//! in the node's own policy. So no slices are made here; only their guarantees, limits and phase
//! are changed, and, for routers that the node controls, the cap of their processor time and the
//! set-point.
//!
//! A plan's rates count layer 2 without checksum. A slice's guarantees and limits on a node count
//! what its ports count (`layer`, `overhead`), so they are converted by the slice's frames.
//!
//! A cap bounds the processor time of a router itself (`router_cpu`). The time that the node spends
//! to forward a slice's frames (`cpu`, or the node's CPU model) is only a forecast, and sets no
//! cap.

use std::collections::BTreeMap;

use weir_api_types::change::{ChangeSet, GroupChange, RouterChange, ShareChange, VifChange};
use weir_api_types::policy::{PolicyView, PortView};
use weir_api_types::xtc::{ControlState, RouterView, XtcChange, XtcView};
use weir_plan::{NodeKind, PlanRequest, PlannedNode, PlannedSlice, SliceRequest};
use weir_policy::Port;
use weir_units::{BitRate, CpuShare, Nanos};

/// The changes of one node, and notes on parts of the plan that the node cannot enforce.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PlannedChange {
    pub(super) set: ChangeSet,
    pub(super) notes: Vec<String>,
}

/// Returns the changes that bring a node to its part of a plan. If the node differs from the node
/// that the plan describes, returns all reasons.
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
        for port in ports {
            problems.extend(unlike(port, kind));
            problems.extend(late(port, kind, slice, of));
        }
        match overhead(slice, kind, policy) {
            Ok(overhead) => {
                let group = GroupChange {
                    send: Some(share(slice, slice.send, overhead)),
                    receive: Some(share(slice, slice.receive, overhead)),
                    phase_ns: of.demand.phase.map(|phase| Some(phase.as_nanos())),
                };
                planned.set.slices.insert(slice.name.clone(), group);
            }
            Err(problem) => problems.push(problem),
        }
        delays(slice, kind, policy, &mut planned);
        routers(slice, xtc, &mut planned);
    }
    problems.sort();
    problems.dedup();
    if problems.is_empty() { Ok(planned) } else { Err(problems) }
}

/// Sets the delay bound of a slice's vifs on a node without a cycle, where the scheduler's curves
/// of the vifs hold it. (With a cycle, the phase holds it.) A curve counts the length of a packet
/// on the wire, as the plan does, or what the port counts if that is more.
fn delays(slice: &SliceRequest, kind: &NodeKind, policy: &PolicyView, planned: &mut PlannedChange) {
    let Some((delay, curve)) = slice.delay.zip(slice.curve_delay(kind)) else { return };
    let own = policy.vifs.iter().filter(|vif| vif.slice == slice.name);
    let bound = curve.as_nanos().min(DELAY_MAX);
    // A delay bound holds only for traffic within a guarantee.
    let (sure, without): (Vec<_>, Vec<_>) = own.partition(|vif| vif.send.min_rate_bps > 0);
    for vif in sure {
        let counted = slice.frames.longest_counted(vif.overhead_bytes);
        let packet = slice.frames.longest_on_wire().max(counted);
        let change = VifChange {
            delay_ns: Some(Some(bound)),
            delay_packet_bytes: Some(Some(packet)),
            ..VifChange::default()
        };
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

/// Returns the bytes that the ports of a slice count for a frame beyond layer 2 without checksum.
/// Without a port, they are those of a port of the planned kind: one with a cycle counts the wire.
///
/// # Errors
/// The ports do not count alike, so that no one number is the slice's rate on all of them.
fn overhead(slice: &SliceRequest, kind: &NodeKind, policy: &PolicyView) -> Result<i32, String> {
    let own = policy.vifs.iter().filter(|vif| vif.slice == slice.name);
    let ports: BTreeMap<_, _> = own.map(|vif| (&vif.port, vif.overhead_bytes)).collect();
    let mut each = ports.values();
    let Some(first) = each.next() else {
        return Ok(if kind.cycle.is_some() { Port::WIRE } else { 0 });
    };
    if each.all(|other| other == first) {
        return Ok(*first);
    }
    let said: Vec<_> = ports.iter().map(|(port, more)| format!("{port} {more:+}")).collect();
    Err(format!(
        "the ports of slice {} do not count alike (bytes of a frame beyond layer 2: {}), and its \
         rates are one number for all of them: give the ports the same layer and overhead",
        slice.name,
        said.join(", ")
    ))
}

/// Returns the guarantee and limit of one direction, as the slice's ports count.
fn share(slice: &SliceRequest, min_rate: BitRate, overhead: i32) -> ShareChange {
    let counted = |rate: BitRate| Some(slice.frames.counted(rate, overhead));
    ShareChange {
        min_rate_bps: Some(counted(min_rate)),
        rate_bps: slice.limit.map(counted),
        ..ShareChange::default()
    }
}

/// Returns by how much a slice's frames may exceed the plan's delay because a port lends phases;
/// nothing if the delay has room for that.
fn late(
    port: &PortView,
    kind: &NodeKind,
    slice: &SliceRequest,
    of: &PlannedSlice,
) -> Option<String> {
    let borrows = port.cycle.is_some_and(|cycle| cycle.borrow);
    let (delay, phase) = slice.delay.zip(of.demand.phase)?;
    let wait = slice.longest_wait(kind, phase, borrows).filter(|wait| *wait > delay)?;
    Some(format!(
        "port {} lends phases (cycle.borrow): a frame of slice {} may take {wait} beside another \
         slice's, its delay is {delay}",
        port.name, slice.name
    ))
}

/// Returns the differences between a port and the link that the plan counts on.
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

/// Caps the routers of a slice that the node's policy holds, if the plan has their processor time.
/// Several routers share cap and set-point equally. A set-point that the policy leaves to a
/// controller of several nodes stays so.
fn routers(slice: &SliceRequest, xtc: &XtcView, planned: &mut PlannedChange) {
    let is_on = |state| matches!(state, ControlState::Active | ControlState::Paused);
    let is_held = |one: &&RouterView| one.slice == slice.name && is_on(one.state);
    let held: Vec<&RouterView> = xtc.routers.iter().filter(is_held).collect();
    let cpu = slice.router_cpu;
    let Some(count) = u32::try_from(held.len()).ok().filter(|count| *count > 0) else {
        if cpu > CpuShare::ZERO {
            let note = format!(
                "no router of slice {} is held, so that its cap, {cpu}, is not",
                slice.name
            );
            planned.notes.push(note);
        }
        return;
    };
    if cpu == CpuShare::ZERO {
        planned.notes.push(format!(
            "the routers of slice {} keep their caps: the plan has no router_cpu for them",
            slice.name
        ));
    }
    let cap = cpu.as_ppm() / count;
    let set_point = slice.frames.packets(slice.receive).as_pps().div_ceil(count.into());
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
        cpu = "4%"
        router_cpu = "10%"
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
        // A port with a cycle counts the wire.
        let overhead = if cycle.is_empty() { 0 } else { 24 };
        policy(&format!(
            r#"{{"node":"edge","routers":[],
                "ports":[{{"name":"up0","rate_bps":1000000000{cycle}}}],
                "slices":[{{"name":"{slice}","send":{SHARE},"receive":{SHARE}}}],
                "vifs":[{{"name":"v","slice":"{slice}","port":"up0","device":"v","send":{SHARE},
                    "send_queue":{queue},"receive":{SHARE},"receive_queue":{queue},
                    "overhead_bytes":{overhead}}}]}}"#
        ))
    }

    #[test]
    fn a_planned_slice_becomes_guarantees_limits_and_a_phase() {
        let cycle = r#","cycle":{"length_ns":1000000,"borrow":false}"#;
        let change = planned(&node(cycle, "gold"), r#"{"routers":[]}"#).unwrap();
        let sent = serde_json::to_value(&change.set).unwrap();
        let gold = &sent["slices"]["gold"];
        // A port with a cycle counts 1274 bytes for 1250 of layer 2.
        assert_eq!(
            gold["send"],
            serde_json::json!({"min_rate_bps": 101_920_000u64, "rate_bps": 203_840_000u64})
        );
        assert_eq!(gold["receive"]["min_rate_bps"], 20_384_000);
        // 1254 bytes are 10.192 µs on the wire; 100 Mb/s of 1250 counted bytes need ten a cycle.
        assert_eq!(gold["phase_ns"], 102_000);
        assert_eq!(change.notes, ["no router of slice gold is held, so that its cap, 10%, is not"]);
    }

    /// Goal: a guarantee is the planned one on a port of any layer, with a cycle or without.
    #[test]
    fn rates_are_those_that_the_slices_ports_count() {
        let plan = PLAN.replace("cycle = \"1ms\"", "");
        let mut policy = node("", "gold");
        let mut asked = |overhead: i32| {
            policy.vifs[0].overhead_bytes = overhead;
            let change = planned_of(&plan, &policy, r#"{"routers":[]}"#).unwrap();
            let gold = change.set.slices["gold"].clone();
            let [send, receive] = [gold.send, gold.receive].map(Option::unwrap);
            [send.min_rate_bps, send.rate_bps, receive.min_rate_bps].map(|of| of.flatten().unwrap())
        };
        assert_eq!(asked(0), [100_000_000, 200_000_000, 20_000_000]);
        // Layer 1 counts 1274 bytes for 1250 of layer 2, layer 3 1236.
        assert_eq!(asked(24), [101_920_000, 203_840_000, 20_384_000]);
        assert_eq!(asked(-14), [98_880_000, 197_760_000, 19_776_000]);
        // A slice is on two ports: its rate is one number on both, or there is none.
        let mut policy = node("", "gold");
        let (mut port, mut vif) = (policy.ports[0].clone(), policy.vifs[0].clone());
        (port.name, vif.name, vif.port) = ("up1".into(), "w".into(), "up1".into());
        policy.ports.push(port);
        policy.vifs.push(vif);
        assert!(planned_of(&plan, &policy, r#"{"routers":[]}"#).is_ok());
        policy.vifs[1].overhead_bytes = 24;
        let problems = planned_of(&plan, &policy, r#"{"routers":[]}"#).unwrap_err();
        let said = "the ports of slice gold do not count alike (bytes of a frame beyond layer 2: \
                    up0 +0, up1 +24), and its rates are one number for all of them: give the ports \
                    the same layer and overhead";
        assert_eq!(problems, [said]);
    }

    /// Goal: on a node without a cycle, a delay is set if a vif can hold it, and noted otherwise.
    #[test]
    fn a_delay_becomes_the_vifs_or_a_note() {
        let plan = PLAN.replace("cycle = \"1ms\"", "").replace("limit", "delay = \"2ms\"\nlimit");
        let mut policy = node("", "gold");
        let change = planned_of(&plan, &policy, r#"{"routers":[]}"#).unwrap();
        let sent = serde_json::to_value(&change.set).unwrap();
        assert_eq!(sent["slices"]["gold"]["send"]["min_rate_bps"], 100_000_000u64, "of layer 2");
        let notes = change.notes;
        let said = "the delay of slice gold, 2ms, is not set for vif v: a delay is for what is \
                    within a vif's own send.min_rate, and it has none";
        assert!(notes.iter().any(|note| note == said), "{notes:?}");
        policy.vifs[0].send.min_rate_bps = 1_000;
        let change = planned_of(&plan, &policy, r#"{"routers":[]}"#).unwrap();
        // Another slice's frame of 1529 and 20 bytes may be on its way for 12.392 µs.
        let vif = &change.set.vifs["v"];
        assert_eq!(vif.delay_ns, Some(Some(2_000_000 - 12_392)));
        assert_eq!(vif.delay_packet_bytes, Some(Some(1274)));
        assert!(!change.notes.iter().any(|note| note.contains("delay")), "{:?}", change.notes);
        // No frame is longer than its promise, if a port counts more than the wire.
        policy.vifs[0].overhead_bytes = 100;
        let change = planned_of(&plan, &policy, r#"{"routers":[]}"#).unwrap();
        assert_eq!(change.set.vifs["v"].delay_packet_bytes, Some(Some(1350)));
        // With a cycle, the phase bounds the delay.
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

    /// Goal: where another slice's frame may be on its way in a phase, a delay without room for
    /// that frame is refused.
    #[test]
    fn a_port_that_lends_phases_needs_room_in_a_delay() {
        // 102 µs of a cycle of 1 ms, and twice 10.192 µs.
        let plan = |delay: &str| PLAN.replace("limit", &format!("delay = \"{delay}\"\nlimit"));
        let asked = |delay: &str, borrow: bool| {
            let cycle = format!(r#","cycle":{{"length_ns":1000000,"borrow":{borrow}}}"#);
            planned_of(&plan(delay), &node(&cycle, "gold"), r#"{"routers":[]}"#)
        };
        assert!(asked("920us", false).is_ok());
        let problems = asked("920us", true).unwrap_err();
        let said = "port up0 lends phases (cycle.borrow): a frame of slice gold may take 930776ns \
                    beside another slice's, its delay is 920us";
        assert_eq!(problems, [said]);
        assert!(asked("931us", true).is_ok());
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
        let capped = change.set.routers["a"].xtc.clone().unwrap();
        // 20 Mb/s are 2000 packets of 1250 counted bytes a second.
        assert_eq!((capped.set_point_pps, capped.cap_max_ppm), (Some(1000), Some(50_000)));
        assert_eq!(change.notes, [""; 0]);
        // The node's own cost of forwarding does not bound a router's processor time.
        let cycle = node(cycle, "gold");
        let change = planned_of(&PLAN.replace("router_cpu = \"10%\"", ""), &cycle, &xtc).unwrap();
        let uncapped = change.set.routers["a"].xtc.clone().unwrap();
        assert_eq!((uncapped.set_point_pps, uncapped.cap_max_ppm), (Some(1000), None));
        let said = "the routers of slice gold keep their caps: the plan has no router_cpu for them";
        assert_eq!(change.notes, [said]);
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
