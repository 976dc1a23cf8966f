// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy in force, with all defaults filled in, and the caller as the node knows it.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::change::VifQueueKind;
use crate::packet_match::PacketMatch;
use crate::realtime::RealtimeClassView;

/// The caller, as the node knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallerView {
    /// Name of the caller in the record of changes.
    pub who: String,
    /// Role of the caller.
    pub role: RoleView,
    /// Slice of a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slice: Option<String>,
}

/// Role of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RoleView {
    /// Sees and changes everything.
    Administrator,
    /// Sees everything but packets, the policy file and the advice on a class, and changes nothing.
    Reader,
    /// Sees and changes the vifs of one slice.
    Tenant,
}

/// The policy in force. A tenant's answer holds its slice and its vifs alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyView {
    /// Name of the node.
    pub node: String,
    /// Ports.
    pub ports: Vec<PortView>,
    /// Slices.
    pub slices: Vec<GroupView>,
    /// Routers.
    pub routers: Vec<RouterGroupView>,
    /// Vifs.
    pub vifs: Vec<VifView>,
}

/// A port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortView {
    /// Name of the port.
    pub name: String,
    /// Rate of the link.
    pub rate_bps: u64,
    /// Cycle of phases in which slices send by this port. Absent: all send at any time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cycle: Option<CycleView>,
    /// Guarantee, limit and priority of what the host itself sends by the port. Absent: the policy
    /// gives none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_send: Option<ShareView>,
    /// Guarantee, limit and priority of what the port brings and is for no vif. Absent: the policy
    /// gives none of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_receive: Option<ShareView>,
}

/// The cycle of a port. Phases follow each other in the order of the slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CycleView {
    /// Length of the cycle.
    pub length_ns: u64,
    /// True if slices lend the others the time that they leave of their phases.
    pub borrow: bool,
}

/// A slice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct GroupView {
    /// Name of the slice.
    pub name: String,
    /// VLAN that its frames carry on every port. Absent: none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vlan: Option<u16>,
    /// Number of the parallel internet that it is. Absent: it is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pih: Option<u8>,
    /// Packets without a header that are its own.
    #[serde(rename = "match", default, skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<PacketMatch>,
    /// Guarantees and limits of the traffic that its vifs send together.
    pub send: ShareView,
    /// Guarantees and limits of the traffic that its vifs receive together.
    pub receive: ShareView,
    /// Length of its phase of the cycle of each port that has one. Absent: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase_ns: Option<u64>,
}

/// A router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RouterGroupView {
    /// Name of the router.
    pub name: String,
    /// Guarantees and limits of the traffic that its vifs send together.
    pub send: ShareView,
    /// Guarantees and limits of the traffic that its vifs receive together.
    pub receive: ShareView,
    /// Class of its threads. Absent: they are as they were found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realtime: Option<RealtimeClassView>,
}

/// A vif.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VifView {
    /// Name of the vif.
    pub name: String,
    /// Slice of the vif.
    pub slice: String,
    /// Router of the vif.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub router: Option<String>,
    /// Port of the vif.
    pub port: String,
    /// Linux device of the vif.
    pub device: String,
    /// Guarantees and limits of the traffic that it sends.
    pub send: ShareView,
    /// Smooth window that holds the upper limit of the traffic that it sends. Absent: a token
    /// bucket holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub send_shaper: Option<SmoothWindowView>,
    /// Queue of the traffic that it sends.
    pub send_queue: QueueView,
    /// Guarantees and limits of the traffic that it receives.
    pub receive: ShareView,
    /// Smooth window that holds the upper limit of the traffic that it receives. Absent: a token
    /// bucket holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receive_shaper: Option<SmoothWindowView>,
    /// Queue of the traffic that it receives.
    pub receive_queue: QueueView,
    /// Bytes that its rates charge for a packet beyond layer 2, by the port's `layer` and
    /// `overhead`.
    pub overhead_bytes: i32,
    /// Bytes of its slice's tag and number, which its frames carry on the port. Its counters leave
    /// them out; what it sends is charged for them unless the port counts layer 3.
    #[serde(default)]
    pub header_bytes: u16,
    /// Bound on the queueing delay of a packet that it sends within its guarantee.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ns: Option<u64>,
}

/// Guarantees and limits in one direction. A guarantee of zero of a slice or router stands for the
/// sum of its members' guarantees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ShareView {
    /// Weight for the capacity that is left beyond the guarantees.
    pub priority: u32,
    /// Guaranteed rate.
    pub min_rate_bps: u64,
    /// Upper limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Guaranteed packets a second.
    pub min_pps: u64,
    /// Upper limit of packets a second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_pps: Option<u64>,
    /// Burst of the upper limit.
    pub burst_bytes: u64,
    /// Packets that may exceed `max_pps` at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub burst_packets: Option<u64>,
}

/// Parameters of a smooth window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SmoothWindowView {
    /// Time by which packets may leave ahead of the rate.
    pub credit_ns: u64,
    /// Width of the window.
    pub width_ns: u64,
    /// Time after which the window may move.
    pub interval_ns: u64,
    /// Largest delay at which the window may begin.
    pub delay_max_ns: u64,
}

/// A queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct QueueView {
    /// Way in which packets wait.
    pub kind: VifQueueKind,
    /// Bound in packets.
    pub packets: u32,
    /// Bound in bytes.
    pub bytes: u64,
    /// Target of `CoDel`. Absent without `CoDel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_ns: Option<u64>,
    /// Interval of `CoDel`. Absent without `CoDel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval_ns: Option<u64>,
    /// True if `CoDel` marks packets that can carry ECN instead of dropping them. Absent without
    /// `CoDel`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ecn: Option<bool>,
    /// Delay above which a packet of an L4S sender is marked. Absent where none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l4s_ns: Option<u64>,
}
