// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of an answer that a caller may see.
//!
//! An administrator or a reader sees all of an answer. A tenant sees its own slice, the routers and
//! vifs of that slice, and nothing of the ports, of the worker, or of the node's files.

use std::borrow::Cow;

use weir_api_types::change::VifQueueKind;
use weir_api_types::packet_match::PacketMatch;
use weir_api_types::policy::{
    CallerView, CycleView, GroupView, PolicyView, PortView, QueueView, RoleView, RouterGroupView,
    ShareView, SmoothWindowView, VifView,
};
use weir_api_types::realtime::{ClassStatusView, RealtimeClass, RealtimeClassView};
use weir_api_types::status::{NodeStatus, SliceStatus};
use weir_loops::ClassStatus;
use weir_policy::{
    FiveTuple, Policy, Queue, QueueKind, RealtimeKind, Router, RouterRealtime, Share, Slice,
    SmoothWindow, Vif,
};
use weir_units::CpuShare;

use crate::caller::{Caller, CallerRole};

/// Returns the part of the status that the caller may see.
pub(crate) fn status<'s>(
    whole: &'s NodeStatus,
    caller: &Caller,
    policy: &Policy,
) -> Cow<'s, NodeStatus> {
    let Some(own) = caller.slice() else { return Cow::Borrowed(whole) };
    let is_own = |slice: &&SliceStatus| slice.name == own;
    let vifs = whole.vifs.iter().filter(|vif| caller.sees_vif(policy, &vif.name));
    Cow::Owned(NodeStatus {
        node: whole.node.clone(),
        now_ns: whole.now_ns,
        uptime_ns: whole.uptime_ns,
        ports: Vec::new(),
        vifs: vifs.cloned().collect(),
        slices: whole.slices.iter().filter(is_own).cloned().collect(),
        removed: None,
        report_failed: None,
        device_faults: Vec::new(),
        unheld: Vec::new(),
        cpu_model: None,
        worker: None,
    })
}

/// Returns the caller as an answer.
pub(crate) fn caller(of: &Caller) -> CallerView {
    let slice = of.slice().map(ToOwned::to_owned);
    let role = match of.role {
        CallerRole::Administrator => RoleView::Administrator,
        CallerRole::Reader => RoleView::Reader,
        CallerRole::Tenant { .. } => RoleView::Tenant,
    };
    CallerView { who: of.who.clone(), role, slice }
}

/// Returns the part of the policy that the caller may see.
pub(crate) fn policy(whole: &Policy, caller: &Caller) -> PolicyView {
    let all = caller.slice().is_none();
    let is_own = |slice: &Slice| caller.slice().is_none_or(|name| name == slice.name);
    let slice = |one: &Slice| GroupView {
        name: one.name.clone(),
        vlan: one.vlan,
        pih: one.pih,
        matches: one.five_tuples.iter().map(packet_match).collect(),
        send: share(&one.send),
        receive: share(&one.receive),
        phase_ns: one.phase.map(|phase| phase.as_nanos()),
    };
    let slices = whole.slices.iter().filter(|slice| is_own(slice));
    let routers = whole.routers.iter().filter(|router| is_own(&whole[router.slice]));
    let vifs = whole.vifs.iter().filter(|vif| caller.sees(whole, vif));
    let port = |port: &weir_policy::Port| PortView {
        name: port.name.clone(),
        rate_bps: port.rate.as_bps(),
        cycle: port
            .cycle
            .map(|cycle| CycleView { length_ns: cycle.length.as_nanos(), borrow: cycle.borrow }),
        host_send: port.host_send.as_ref().map(share),
        host_receive: port.host_receive.as_ref().map(share),
    };
    PolicyView {
        node: whole.node.name.clone(),
        ports: whole.ports.iter().filter(|_| all).map(port).collect(),
        slices: slices.map(slice).collect(),
        routers: routers.map(|one| router(one, all)).collect(),
        vifs: vifs.map(|one| vif(whole, one)).collect(),
    }
}

fn packet_match(of: &FiveTuple) -> PacketMatch {
    PacketMatch {
        protocol: of.protocol_text(),
        src: of.src.map(|prefix| prefix.to_string()),
        dst: of.dst.map(|prefix| prefix.to_string()),
        src_port: of.src_port,
        dst_port: of.dst_port,
    }
}

fn router(of: &Router, all: bool) -> RouterGroupView {
    RouterGroupView {
        name: of.name.clone(),
        send: share(&of.send),
        receive: share(&of.receive),
        realtime: of.realtime.as_ref().map(|class| class_view(class, all)),
    }
}

/// Returns the state of a router's class as an answer. The text of a trouble may name other routers
/// and the host, so a tenant reads only that there is one.
pub(crate) fn class_status(of: &ClassStatus, caller: &Caller) -> ClassStatusView {
    let guaranteed = of.kind != RealtimeKind::Normal;
    let applied = of.applied.unwrap_or_default();
    let plain = || "it is not in force".to_owned();
    ClassStatusView {
        router: of.router.clone(),
        slice: of.slice.clone(),
        class: RealtimeClassView {
            class: class(of.kind),
            deadline_ns: guaranteed.then_some(of.deadline.as_nanos()),
            period_ns: guaranteed.then_some(of.period.as_nanos()),
            cpu_ppm: guaranteed.then_some(of.cpu.as_ppm()),
            core: of.core.filter(|_| caller.slice().is_none()),
            weight: (!guaranteed).then_some(of.weight),
        },
        in_force: of.is_in_force(),
        budget_ppm: applied.budget.map(CpuShare::as_ppm),
        threads: applied.threads,
        used_ppm: applied.used.map(CpuShare::as_ppm),
        trouble: match caller.slice() {
            None => of.trouble.clone(),
            Some(_) => of.trouble.as_ref().map(|_| plain()),
        },
        applications: of.applications,
        refusals: of.refusals,
        exhausted: of.exhausted,
    }
}

fn class_view(of: &RouterRealtime, all: bool) -> RealtimeClassView {
    let guaranteed = of.is_guaranteed();
    RealtimeClassView {
        class: class(of.kind),
        deadline_ns: guaranteed.then_some(of.deadline.as_nanos()),
        period_ns: guaranteed.then_some(of.period.as_nanos()),
        cpu_ppm: guaranteed.then_some(of.cpu.as_ppm()),
        core: of.core.filter(|_| all),
        weight: (!guaranteed).then_some(of.weight),
    }
}

/// Returns a class as an answer.
pub(crate) const fn class(of: RealtimeKind) -> RealtimeClass {
    match of {
        RealtimeKind::Normal => RealtimeClass::Normal,
        RealtimeKind::Periodic => RealtimeClass::Periodic,
        RealtimeKind::Aperiodic => RealtimeClass::Aperiodic,
    }
}

/// Returns a vif's policy as an answer.
pub(crate) fn vif(policy: &Policy, of: &Vif) -> VifView {
    VifView {
        name: of.name.clone(),
        slice: policy[of.slice].name.clone(),
        router: of.router.map(|router| policy[router].name.clone()),
        port: policy[of.port].name.clone(),
        device: of.device.clone(),
        send: share(&of.send),
        send_shaper: of.send_shaper.as_ref().map(window),
        send_queue: queue(&of.send_queue),
        receive: share(&of.receive),
        receive_shaper: of.receive_shaper.as_ref().map(window),
        receive_queue: queue(&of.receive_queue),
        overhead_bytes: policy[of.port].packet_overhead(),
        header_bytes: policy[of.port].header_bytes(&policy[of.slice]),
        delay_ns: of.delay.map(|delay| delay.as_nanos()),
    }
}

fn share(of: &Share) -> ShareView {
    ShareView {
        priority: of.priority,
        min_rate_bps: of.min_rate.as_bps(),
        rate_bps: of.rate.map(weir_units::BitRate::as_bps),
        min_pps: of.min_pps.as_pps(),
        max_pps: of.max_pps.map(weir_units::PacketRate::as_pps),
        burst_bytes: of.burst.get(),
        burst_packets: of.max_pps.map(|_| of.packets_at_once()),
    }
}

fn window(of: &SmoothWindow) -> SmoothWindowView {
    SmoothWindowView {
        credit_ns: of.credit.as_nanos(),
        width_ns: of.width.as_nanos(),
        interval_ns: of.interval.as_nanos(),
        delay_max_ns: of.delay_max.as_nanos(),
    }
}

fn queue(of: &Queue) -> QueueView {
    QueueView {
        kind: queue_kind(of.kind),
        packets: of.packets,
        bytes: of.bytes.get(),
        target_ns: of.codel.map(|codel| codel.target.as_nanos()),
        interval_ns: of.codel.map(|codel| codel.interval.as_nanos()),
        ecn: of.codel.map(|codel| codel.ecn),
        l4s_ns: of.l4s.map(|most| most.as_nanos()),
    }
}

/// Returns the kind of a queue as an answer.
pub(crate) const fn queue_kind(of: QueueKind) -> VifQueueKind {
    match of {
        QueueKind::Fifo => VifQueueKind::Fifo,
        QueueKind::Flows => VifQueueKind::Flows,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_api_types::status::{IfaceStatus, RemovedPackets, Verdict, WorkerStatus};

    /// Goal: an administrator sees every field; a tenant's answer lacks every field about others,
    /// the node or its files.
    #[test]
    fn an_administrator_sees_the_whole_status_and_a_tenant_its_own() {
        let mut whole = NodeStatus { node: "edge".into(), now_ns: 7, ..NodeStatus::default() };
        let mut vif = IfaceStatus { name: "a".into(), ..<_>::default() };
        vif.receive.held_pps = Some(3);
        whole.vifs.push(vif.clone());
        whole.ports.push(IfaceStatus { name: "up0".into(), ..vif });
        whole.worker = Some(WorkerStatus { turns: 5, ..WorkerStatus::default() });
        whole.removed = Some(RemovedPackets { queued: 6, ..RemovedPackets::default() });
        whole.report_failed = Some("no service report is kept: the disk is full".into());
        whole.device_faults = vec!["vif \"lead.0\".device: tc failed".into()];
        whole.unheld = vec!["vif \"lead.0\".delay: not held by HTB here".into()];
        for name in ["gold", "lead"] {
            let (send, receive) = (Verdict::Limited, Verdict::Idle);
            whole.slices.push(SliceStatus { name: name.into(), send, receive });
        }
        let administrator =
            Caller { who: "uid 0".into(), role: CallerRole::Administrator, token: None };
        let policy = Policy::new("edge");
        let sent = serde_json::to_value(status(&whole, &administrator, &policy)).unwrap();
        assert_eq!(serde_json::from_value::<NodeStatus>(sent).unwrap(), whole);
        let role = CallerRole::Tenant { slice: "gold".into() };
        let tenant = Caller { who: "token a".into(), role, token: None };
        let sent = serde_json::to_value(status(&whole, &tenant, &policy)).unwrap();
        let slices = serde_json::json!([{ "name": "gold", "send": "limited", "receive": "idle" }]);
        let expected = serde_json::json!({
            "node": "edge", "now_ns": 7, "uptime_ns": 0, "ports": [], "vifs": [], "slices": slices
        });
        assert_eq!(sent, expected);
    }

    /// Goal: an administrator reads the shares of the host itself; a tenant sees no ports.
    #[test]
    fn the_shares_of_the_host_are_told() {
        let mut whole = Policy::new("edge");
        let min_rate = weir_units::BitRate::from_mbps(40);
        let mut port = weir_policy::Port::new("up0", weir_units::BitRate::from_mbps(100));
        port.host_send = Some(Share { min_rate, ..Share::default() });
        whole.add_port(port);
        let of = |role| policy(&whole, &Caller { who: "a".into(), role, token: None }).ports;
        let ports = of(CallerRole::Administrator);
        let least = ports[0].host_send.as_ref().map(|share| share.min_rate_bps);
        assert_eq!((least, ports[0].host_receive.as_ref()), (Some(40_000_000), None));
        assert!(of(CallerRole::Tenant { slice: "gold".into() }).is_empty());
    }
}
