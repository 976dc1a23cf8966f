// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a caller sees of a node: counters and policy, as JSON with units in the names.

use std::collections::BTreeMap;

use serde::Serialize;
use utoipa::ToSchema;
use weir_dataplane::status::Verdict;
use weir_dataplane::status::{Amount, DirectionStatus, IfaceStatus, SliceStatus, Status};
use weir_policy::{Policy, Queue, Share, Slice, Vif};

use crate::caller::Caller;

/// Counters, queues, lateness, at one instant. A tenant sees his vifs alone.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct StatusView {
    /// The node's name.
    node: String,
    /// When this was taken, nanoseconds on the monotonic clock.
    now_ns: u64,
    /// Nanoseconds since the worker started.
    uptime_ns: u64,
    /// The ports, in the policy's order.
    ports: Vec<IfaceView>,
    /// The vifs, in the policy's order.
    vifs: Vec<IfaceView>,
    /// What the last second of each slice came to; of those that have a vif with a device.
    slices: Vec<SliceView>,
    /// Packets lost with what changes of policy took away.
    #[serde(skip_serializing_if = "Option::is_none")]
    removed: Option<RemovedView>,
    /// Why no service report is kept, while none is: its disk fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    report_failed: Option<String>,
    /// The worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    worker: Option<WorkerView>,
}

/// One slice: what the last second came to, as the service report judges it.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct SliceView {
    /// Its name.
    name: String,
    /// Of what its vifs sent together; the words are those of a direction's `verdict`.
    #[schema(value_type = String)]
    send: Verdict,
    /// Of what they received together.
    #[schema(value_type = String)]
    receive: Verdict,
}

/// Packets lost with a vif, a port or a queue that went.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct RemovedView {
    /// Waiting in a queue.
    queued: u64,
    /// Let in, and not read from the device yet.
    unread: u64,
    /// Dropped at a device that had left, before the program was off it.
    dropped: u64,
}

/// One port or vif.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct IfaceView {
    /// Its name.
    name: String,
    /// Its device.
    device: String,
    /// How the device is driven.
    driver: String,
    /// Why it is not driven by XDP, if that was tried first.
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback: Option<String>,
    /// It waits for its device, which is not there.
    waiting: bool,
    /// From the vif; for a port: what left on its wire.
    send: DirectionView,
    /// Towards the vif; for a port: what came in from its wire.
    receive: DirectionView,
    /// Frames lost before the switch saw them.
    lost_before_receive: u64,
    /// Frames lost by the device after they were handed over.
    lost_after_transmit: u64,
}

/// One direction: received = dropped + enqueued; enqueued = sent + dropped after + waiting.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct DirectionView {
    /// Frames that arrived.
    received: AmountView,
    /// Copies made of them by flooding.
    copies: AmountView,
    /// Dropped before a queue, by reason.
    dropped: BTreeMap<String, AmountView>,
    /// Taken into a queue.
    enqueued: AmountView,
    /// Dropped after that.
    dropped_after: AmountView,
    /// The same by reason.
    dropped_after_by: BTreeMap<String, AmountView>,
    /// Handed on.
    sent: AmountView,
    /// Of those sent, in the kernel.
    redirected: AmountView,
    /// Queued now.
    backlog: AmountView,
    /// Of those sent, marked "congestion experienced"; packets.
    marked: u64,
    /// How long the first of what is queued has waited: the delay of the next packet. Zero where
    /// none waits, and of a port, whose queues are its vifs'.
    wait_ns: u64,
    /// What the last second came to, as the service report judges it: `none` (nothing is
    /// guaranteed), `idle` (nothing was asked for), `less` (less was asked for, and got), `holds`,
    /// `limited` (less was got, at a limit of packets) or `below`. Absent of a port, and before the
    /// first second.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    verdict: Option<Verdict>,
}

/// Packets and bytes of layer 2 without FCS.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
struct AmountView {
    /// Packets.
    packets: u64,
    /// Bytes.
    bytes: u64,
}

/// The worker thread.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct WorkerView {
    /// Turns of the loop.
    turns: u64,
    /// Of those, turns in which something moved.
    busy_turns: u64,
    /// Nanoseconds that these took, of `uptime_ns`: the worker's load.
    busy_ns: u64,
    /// Frames in the pool that nobody holds.
    frames_free: u64,
    /// Frames in the pool.
    frames: u64,
    /// The longest time between two looks at the devices without a pause in between.
    longest_turn_ns: u64,
    /// Lateness of wake-ups, nanoseconds.
    #[schema(value_type = Object)]
    lateness: weir_dataplane::LatenessSummary,
}

/// Who asks, as the node knows him.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct CallerView {
    /// As the record of changes names him.
    who: String,
    /// `administrator` or `tenant`.
    role: &'static str,
    /// A tenant's slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    slice: Option<String>,
}

/// The policy in force. A tenant sees his slice and his vifs alone.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct PolicyView {
    /// The node's name.
    node: String,
    /// Its ports.
    ports: Vec<PortView>,
    /// Its slices.
    slices: Vec<GroupView>,
    /// Its routers.
    routers: Vec<GroupView>,
    /// Its vifs.
    vifs: Vec<VifView>,
}

/// A port.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct PortView {
    /// Its name.
    name: String,
    /// The link's rate.
    rate_bps: u64,
}

/// A slice or router.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct GroupView {
    /// Its name.
    name: String,
    /// Of what its vifs send together.
    send: ShareView,
    /// Of what its vifs receive together.
    receive: ShareView,
}

/// A vif.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub(crate) struct VifView {
    /// Its name.
    name: String,
    /// Its slice.
    slice: String,
    /// Its router.
    #[serde(skip_serializing_if = "Option::is_none")]
    router: Option<String>,
    /// Its port.
    port: String,
    /// Its device.
    device: String,
    /// Of what it sends.
    send: ShareView,
    /// The queue of what it sends.
    send_queue: QueueView,
    /// Of what it receives.
    receive: ShareView,
    /// The queue of what it receives.
    receive_queue: QueueView,
    /// What a packet counts for in its rates beyond its bytes of layer 2, by its port's `layer` and
    /// `overhead`.
    overhead_bytes: i32,
    /// Bound on the queueing delay of a packet that it sends within its guarantee.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ns: Option<u64>,
}

/// Guarantees and limits in one direction. A guarantee of zero of a slice or router stands for the
/// sum of its members'.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct ShareView {
    /// Share of what is left beyond the guarantees.
    priority: u32,
    /// Guaranteed rate.
    min_rate_bps: u64,
    /// Upper limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    rate_bps: Option<u64>,
    /// Guaranteed packets a second.
    min_pps: u64,
    /// Upper limit of packets a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    max_pps: Option<u64>,
    /// How far the limit may be exceeded at once.
    burst_bytes: u64,
}

/// A queue.
#[derive(Clone, Debug, Serialize, ToSchema)]
struct QueueView {
    /// Most packets held.
    packets: u32,
    /// Most bytes held.
    bytes: u64,
    /// CoDel's target, if there is CoDel.
    #[serde(skip_serializing_if = "Option::is_none")]
    target_ns: Option<u64>,
    /// CoDel's interval, if there is CoDel.
    #[serde(skip_serializing_if = "Option::is_none")]
    interval_ns: Option<u64>,
}

impl StatusView {
    /// What the caller sees.
    pub(crate) fn of(status: &Status, caller: &Caller, policy: &Policy) -> Self {
        let all = caller.slice().is_none();
        let seen = status.vifs.iter().filter(|vif| all || caller.sees_vif(policy, &vif.name));
        let mine = |slice: &&SliceStatus| caller.slice().is_none_or(|name| name == slice.name);
        let slices = status.slices.iter().filter(mine);
        let (removed, worker) = (&status.removed, &status.worker);
        Self {
            node: status.node.clone(),
            now_ns: status.now_ns,
            uptime_ns: status.uptime_ns,
            ports: status.ports.iter().filter(|_| all).map(iface).collect(),
            vifs: seen.map(iface).collect(),
            slices: slices.map(slice).collect(),
            removed: all.then_some(RemovedView {
                queued: removed.queued,
                unread: removed.unread,
                dropped: removed.dropped,
            }),
            report_failed: status.report_failed.clone().filter(|_| all),
            worker: all.then_some(WorkerView {
                turns: worker.turns,
                busy_turns: worker.busy_turns,
                busy_ns: worker.busy_ns,
                frames_free: worker.frames_free,
                frames: worker.frames,
                longest_turn_ns: worker.longest_turn_ns,
                lateness: worker.lateness,
            }),
        }
    }
}

impl CallerView {
    pub(crate) fn of(caller: &Caller) -> Self {
        let slice = caller.slice().map(ToOwned::to_owned);
        let role = if slice.is_some() { "tenant" } else { "administrator" };
        Self { who: caller.who.clone(), role, slice }
    }
}

impl PolicyView {
    /// What the caller sees.
    pub(crate) fn of(policy: &Policy, caller: &Caller) -> Self {
        let all = caller.slice().is_none();
        let mine = |slice: &Slice| caller.slice().is_none_or(|name| name == slice.name);
        let group = |name: &str, send: &Share, receive: &Share| GroupView {
            name: name.to_owned(),
            send: share(send),
            receive: share(receive),
        };
        let routers = policy.routers.iter().filter(|router| mine(&policy[router.slice]));
        let vifs = policy.vifs.iter().filter(|vif| caller.sees(policy, vif));
        let port = |port: &weir_policy::Port| PortView {
            name: port.name.clone(),
            rate_bps: port.rate.as_bps(),
        };
        Self {
            node: policy.node.name.clone(),
            ports: policy.ports.iter().filter(|_| all).map(port).collect(),
            slices: policy
                .slices
                .iter()
                .filter(|slice| mine(slice))
                .map(|one| group(&one.name, &one.send, &one.receive))
                .collect(),
            routers: routers.map(|one| group(&one.name, &one.send, &one.receive)).collect(),
            vifs: vifs.map(|vif| VifView::of(policy, vif)).collect(),
        }
    }
}

impl VifView {
    pub(crate) fn of(policy: &Policy, vif: &Vif) -> Self {
        Self {
            name: vif.name.clone(),
            slice: policy[vif.slice].name.clone(),
            router: vif.router.map(|router| policy[router].name.clone()),
            port: policy[vif.port].name.clone(),
            device: vif.device.clone(),
            send: share(&vif.send),
            send_queue: queue(&vif.send_queue),
            receive: share(&vif.receive),
            receive_queue: queue(&vif.receive_queue),
            overhead_bytes: policy[vif.port].packet_overhead(),
            delay_ns: vif.delay.map(|delay| delay.as_nanos()),
        }
    }
}

fn slice(of: &SliceStatus) -> SliceView {
    SliceView { name: of.name.clone(), send: of.send, receive: of.receive }
}

fn iface(of: &IfaceStatus) -> IfaceView {
    IfaceView {
        name: of.name.clone(),
        device: of.device.clone(),
        driver: of.driver.clone(),
        fallback: of.fallback.clone(),
        waiting: of.waiting,
        send: direction(&of.send),
        receive: direction(&of.receive),
        lost_before_receive: of.lost_before_receive,
        lost_after_transmit: of.lost_after_transmit,
    }
}

fn direction(of: &DirectionStatus) -> DirectionView {
    let each = |by: &BTreeMap<String, Amount>| {
        by.iter().map(|(reason, of)| (reason.clone(), amount(*of))).collect()
    };
    DirectionView {
        received: amount(of.received),
        copies: amount(of.copies),
        dropped: each(&of.dropped),
        enqueued: amount(of.enqueued),
        dropped_after: amount(of.dropped_after),
        dropped_after_by: each(&of.dropped_after_by),
        sent: amount(of.sent),
        redirected: amount(of.redirected),
        backlog: amount(of.backlog),
        marked: of.marked,
        wait_ns: of.wait_ns,
        verdict: of.verdict,
    }
}

const fn amount(of: Amount) -> AmountView {
    AmountView { packets: of.packets, bytes: of.bytes }
}

fn share(of: &Share) -> ShareView {
    ShareView {
        priority: of.priority,
        min_rate_bps: of.min_rate.as_bps(),
        rate_bps: of.rate.map(weir_units::BitRate::as_bps),
        min_pps: of.min_pps.as_pps(),
        max_pps: of.max_pps.map(weir_units::PacketRate::as_pps),
        burst_bytes: of.burst.get(),
    }
}

fn queue(of: &Queue) -> QueueView {
    QueueView {
        packets: of.packets,
        bytes: of.bytes.get(),
        target_ns: of.codel.map(|codel| codel.target.as_nanos()),
        interval_ns: of.codel.map(|codel| codel.interval.as_nanos()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::Role;

    /// What the client reads is what the node said: the two types say the same.
    #[test]
    fn an_administrator_sees_the_whole_status() {
        let mut status = Status { node: "edge".into(), now_ns: 7, ..Status::default() };
        let mut vif = IfaceStatus { name: "a".into(), lost_after_transmit: 3, ..<_>::default() };
        vif.send.dropped.insert("storm".into(), Amount { packets: 1, bytes: 60 });
        (vif.receive.marked, status.worker.turns, status.removed.queued) = (4, 5, 6);
        (vif.send.wait_ns, status.worker.busy_ns) = (8, 9);
        status.report_failed = Some("no service report is kept: the disk is full".into());
        vif.send.verdict = Some(Verdict::Below);
        status.vifs.push(vif);
        for name in ["gold", "lead"] {
            let (send, receive) = (Verdict::Limited, Verdict::Idle);
            status.slices.push(SliceStatus { name: name.into(), send, receive });
        }
        let caller = Caller { who: "uid 0".into(), role: Role::Administrator, token: None };
        let policy = Policy::new("edge");
        let seen = serde_json::to_value(StatusView::of(&status, &caller, &policy)).unwrap();
        assert_eq!(serde_json::from_value::<Status>(seen).unwrap(), status);
        let role = Role::Tenant { slice: "gold".into() };
        let tenant = Caller { who: "token a".into(), role, token: None };
        let seen = serde_json::to_value(StatusView::of(&status, &tenant, &policy)).unwrap();
        assert_eq!((seen["vifs"].as_array().unwrap().len(), seen.get("worker")), (0, None));
        assert_eq!(seen.get("report_failed"), None, "it names the node's files");
        let own = serde_json::json!([{ "name": "gold", "send": "limited", "receive": "idle" }]);
        assert_eq!(seen["slices"], own);
    }
}
