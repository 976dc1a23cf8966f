// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a running node: counters, queues, lateness.
//!
//! Counters start with the worker. Those of the kernel's data plane, and of frames that the XDP
//! program handled for an earlier process, continue. Of each direction of a vif two identities
//! hold, in packets and in bytes:
//! `received + copies = dropped + enqueued`, and `enqueued = sent + dropped_after + backlog`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Counters, queues and lateness at one instant. A tenant's answer holds its own vifs alone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NodeStatus {
    /// Name of the node.
    pub node: String,
    /// When the counters were read, nanoseconds on the monotonic clock.
    pub now_ns: u64,
    /// Nanoseconds since the worker started.
    pub uptime_ns: u64,
    /// The ports, in the policy's order. Empty for a tenant.
    pub ports: Vec<IfaceStatus>,
    /// The vifs, in the policy's order.
    pub vifs: Vec<IfaceStatus>,
    /// Verdicts on the last second of each slice that has a vif with a device.
    #[serde(default)]
    #[schema(required)]
    pub slices: Vec<SliceStatus>,
    /// Packets lost with queues and devices that changes of the policy removed. Absent for a
    /// tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<RemovedPackets>,
    /// Why no service report is recorded now: the text of the disk's error. Absent while reports
    /// are recorded, and for a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub report_failed: Option<String>,
    /// Faults of devices of the kernel's data plane: a device refused a step, or a port cannot have
    /// its tree. Each names the port or vif, the reason, and what is not held until it is gone.
    /// Absent if there are none, and for a tenant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_faults: Vec<String>,
    /// Keys of the policy that the node does not enforce, each with the reason: the scheduler of a
    /// port, or what this host's kernel lacks. Absent if there are none, and for a tenant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unheld: Vec<String>,
    /// CPU model of the node beside the worker's processor time. Absent without a model, and for a
    /// tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_model: Option<CpuModelStatus>,
    /// The worker thread. Absent for a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerStatus>,
}

/// CPU model of a node beside the processor time that its worker takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CpuModelStatus {
    /// Verdict on the last minute.
    pub drift: CpuModelDrift,
    /// Why the model is not used, or in which way it drifted. Absent if it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Latest ten seconds that were compared with the model. Absent before the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest: Option<CpuModelReading>,
}

/// Verdict on a CPU model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CpuModelDrift {
    /// The worker takes as much as the model says.
    Within,
    /// It takes more: plans that rest on the model promise too much.
    Above,
    /// It takes less: plans leave room unused.
    Below,
    /// The model cannot be used.
    Unusable,
}

/// Processor time of the worker beside the model's forecast, in millionths of a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CpuModelReading {
    /// Frames forwarded a second.
    pub rate_pps: u64,
    /// Their mean size, with checksum.
    pub frame_bytes: u64,
    /// Processor time of the worker.
    pub cpu_ppm: u64,
    /// Forecast. Absent for a load that the model was not measured with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_ppm: Option<u64>,
    /// Most that counts as expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_ppm: Option<u64>,
}

/// Verdicts on the last second of one slice, as the service report judges it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SliceStatus {
    /// Name of the slice.
    pub name: String,
    /// Verdict on the traffic that its vifs sent together.
    pub send: Verdict,
    /// Verdict on the traffic that its vifs received together.
    pub receive: Verdict,
}

/// Verdict on one second of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// There is no guarantee to judge by.
    None,
    /// Nothing was offered.
    Idle,
    /// Less than the guarantee was offered, and all of it was delivered.
    Less,
    /// The guarantee was delivered, up to the packets in flight at either end of the second.
    Holds,
    /// Less than the guarantee was delivered because a packet limit was reached.
    Limited,
    /// Less than the guarantee was delivered although more was offered.
    Below,
}

/// Packets that were lost with a vif, a port or a queue that a change of the policy removed. The
/// counters of the interface are gone with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemovedPackets {
    /// Packets that waited in a queue.
    pub queued: u64,
    /// Packets that were admitted and not yet read from the device.
    pub unread: u64,
    /// Packets dropped at a device between its removal and the detachment of its program.
    #[serde(default)]
    #[schema(required)]
    pub dropped: u64,
}

/// One port or vif.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct IfaceStatus {
    /// Name of the port or vif.
    pub name: String,
    /// Name of its Linux device.
    pub device: String,
    /// Driver of the device: `xdp native copy`, `xdp native zero-copy`, `packet`, ….
    pub driver: String,
    /// Reason why the device is not driven by XDP, if XDP was tried first (`kind = "auto"`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback: Option<String>,
    /// True if the device is missing. Nothing is counted until it appears.
    #[serde(default)]
    #[schema(required)]
    pub waiting: bool,
    /// Traffic from the vif; for a port, traffic that left on its wire.
    pub send: DirectionStatus,
    /// Traffic towards the vif; for a port, traffic that arrived from its wire.
    pub receive: DirectionStatus,
    /// Frames on their way to the device's receiver; absent where that is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<InFlightStatus>,
    /// Frames lost in the device's ring, or for lack of a buffer, before the switch read them.
    pub lost_before_receive: u64,
    /// Frames that the device lost after they were handed over, as the kernel counts them.
    pub lost_after_transmit: u64,
    /// Phases of a port with a cycle. Absent for others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phases: Option<PhaseStatus>,
}

/// Phases of a port with a cycle whose slice had packets when they began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PhaseStatus {
    /// Phases in which the worker was there to send.
    pub met: u64,
    /// Phases that passed without.
    pub missed: u64,
    /// Time from the beginning of a phase that was met until the worker was there.
    pub late: LatenessSummary,
}

/// Frames that were handed to a device and that its receiver has not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct InFlightStatus {
    /// The frames.
    pub now: Amount,
    /// Most bytes, but for a part of a frame (`node.in_flight`); absent: a whole ring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes_max: Option<u64>,
    /// Times that due frames waited in their queue since as many were in flight as may be.
    pub held: u64,
}

/// One direction of one interface. The identities of this module hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct DirectionStatus {
    /// Frames that arrived, early drops included.
    pub received: Amount,
    /// Copies that flooding made of them.
    pub copies: Amount,
    /// Drops before a queue, by reason. Reasons that never occurred are absent.
    pub dropped: BTreeMap<String, Amount>,
    /// Frames that entered a queue.
    pub enqueued: Amount,
    /// Drops after a queue.
    pub dropped_after: Amount,
    /// Drops after a queue, by reason. Reasons that never occurred are absent.
    #[serde(default)]
    #[schema(required)]
    pub dropped_after_by: BTreeMap<String, Amount>,
    /// Frames that were forwarded.
    pub sent: Amount,
    /// Forwarded frames that the kernel redirected, a part of `sent`.
    #[serde(default)]
    #[schema(required)]
    pub redirected: Amount,
    /// Frames in the queue now.
    pub backlog: Amount,
    /// Forwarded packets that were marked "congestion experienced", a part of `sent`.
    pub marked: u64,
    /// Packets of `received` whose source address was not learned for lack of room on their bridge,
    /// so that frames to it are flooded. Zero for a vif, whose frames are dropped instead.
    #[serde(default)]
    #[schema(required)]
    pub unlearned: u64,
    /// Time that the first queued packet has waited, nanoseconds: the delay of the next packet.
    /// Zero if the queue is empty, and for a port, whose queues belong to its vifs.
    #[serde(default)]
    #[schema(required)]
    pub wait_ns: u64,
    /// True if the queue is standing: its delay stayed above 20 ms for the last second. Always
    /// false for a port.
    #[serde(default)]
    #[schema(required)]
    pub standing: bool,
    /// Packets a second that a control loop admits to the vifs of the router together. Absent if no
    /// control loop limits the router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_pps: Option<u64>,
    /// Smooth window of this direction. Absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smooth: Option<SmoothStatus>,
    /// Flow queues of this direction. Absent where packets wait in one queue, and for a port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows: Option<FlowsStatus>,
    /// Verdict on the last second, as the service report judges it. Absent for a port, and before
    /// the first second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// A smooth window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SmoothStatus {
    /// Least delay of a packet now, nanoseconds: where the window begins.
    pub position_ns: u64,
    /// Packets that left after the end of their window, since the credit was used up.
    pub late: u64,
    /// Packets that were refused at entry, since they would have waited too long.
    pub refused: u64,
}

/// The queues of a vif's flows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlowsStatus {
    /// Flows that have a queue now.
    pub active: u32,
    /// Active flows without a full turn yet, which go before the others (RFC 8290 §3).
    #[serde(default)]
    #[schema(required)]
    pub sparse: u32,
    /// Times that a flow became active.
    pub started: u64,
    /// Packets that shared the queue of other flows, since `node.flows` had no queue left for
    /// theirs.
    pub shared: u64,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Amount {
    /// Packets.
    pub packets: u64,
    /// Bytes, layer 2 without FCS.
    pub bytes: u64,
}

/// The worker thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct WorkerStatus {
    /// Turns of the worker's loop.
    pub turns: u64,
    /// Turns in which a frame moved.
    pub busy_turns: u64,
    /// Nanoseconds spent in busy turns. Divided by `uptime_ns` it is the worker's load.
    #[serde(default)]
    #[schema(required)]
    pub busy_ns: u64,
    /// Processor time of the thread so far. With `node.idle = "spin"` the thread also takes it
    /// while nothing moves.
    #[serde(default)]
    #[schema(required)]
    pub cpu_ns: u64,
    /// Free frames of the pool.
    pub frames_free: u64,
    /// All frames of the pool.
    pub frames: u64,
    /// The longest time between two looks at the devices without a sleep in between. Frames are
    /// lost if it exceeds the time that a device's ring lasts.
    #[serde(default)]
    #[schema(required)]
    pub longest_turn_ns: u64,
    /// Lateness of wake-ups.
    pub lateness: LatenessSummary,
}

/// Quantiles of the lateness of wake-ups, nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LatenessSummary {
    /// Number of wake-ups.
    pub count: u64,
    /// Median.
    pub p50_ns: u64,
    /// The 99th percentile.
    pub p99_ns: u64,
    /// The 99.9th percentile.
    pub p999_ns: u64,
    /// Maximum.
    pub max_ns: u64,
    /// Sum.
    #[serde(default)]
    #[schema(required)]
    pub sum_ns: u64,
    /// Maximum of the last whole second.
    #[serde(default)]
    #[schema(required)]
    pub recent_max_ns: u64,
}

/// Health of the node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// True if the worker answers.
    pub forwards: bool,
    /// Problems, one line each.
    pub findings: Vec<String>,
    /// Keys of the policy that the node does not enforce, each with the reason: the scheduler of a
    /// port, or what this host's kernel lacks. Absent if there are none, and for a tenant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unheld: Vec<String>,
}

impl Amount {
    /// Returns the sum of both parts.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_add(other.packets),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }

    /// Returns the difference of both parts, at least zero.
    #[must_use]
    pub const fn minus(self, other: Self) -> Self {
        Self {
            packets: self.packets.saturating_sub(other.packets),
            bytes: self.bytes.saturating_sub(other.bytes),
        }
    }
}

impl NodeStatus {
    /// Returns the vif of that name.
    #[must_use]
    pub fn vif(&self, name: &str) -> Option<&IfaceStatus> {
        self.vifs.iter().find(|vif| vif.name == name)
    }

    /// Returns the port of that name.
    #[must_use]
    pub fn port(&self, name: &str) -> Option<&IfaceStatus> {
        self.ports.iter().find(|port| port.name == name)
    }
}
