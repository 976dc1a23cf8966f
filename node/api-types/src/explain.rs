// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why vifs get the rates that they get: `/v1/explain`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::change::VifQueueKind;

/// Explains the rates of a vif, as the port's layer counts them.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExplainView {
    /// The vif.
    pub vif: String,
    /// Its slice.
    pub slice: String,
    /// Its port.
    pub port: String,
    /// Observed time.
    pub time_ns: u64,
    /// Traffic that it sends.
    pub send: ExplainSide,
    /// Traffic that it receives.
    pub receive: ExplainSide,
}

/// Explains one direction.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExplainSide {
    /// Reason why the vif gets no more: `idle`, `demand`, `refused`, `vif_rate`, `router_rate`,
    /// `slice_rate`, `vif_packets`, `router_packets`, `router_held`, `slice_packets`, `guarantee`,
    /// `port`, `receiver`, `pool`, `worker`, `device` or `queue`.
    pub limiter: String,
    /// The limiter and its figures in a sentence.
    pub because: String,
    /// Offered rate.
    pub offered_bps: u64,
    /// Forwarded rate.
    pub got_bps: u64,
    /// Offered packet rate.
    pub offered_pps: u64,
    /// Forwarded packet rate.
    pub got_pps: u64,
    /// Guarantees and limits that apply.
    pub curves: CurvesView,
    /// Packets in the queue now.
    pub queued_packets: u64,
    /// Bytes in the queue now.
    pub queued_bytes: u64,
    /// Bound of the queue in packets.
    pub queue_packets: u32,
    /// Bound of the queue in bytes.
    pub queue_bytes: u64,
    /// Way in which its packets wait.
    pub queue_kind: VifQueueKind,
    /// Flows that have a queue now. Absent where packets wait in one queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flows_active: Option<u32>,
    /// Packets marked "congestion experienced" in the observed time.
    pub marked_packets: u64,
    /// Least delay of a packet now, where a smooth window holds the upper limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smooth_ns: Option<u64>,
    /// Packets dropped in the observed time, by reason.
    pub dropped_packets: BTreeMap<String, u64>,
    /// The port's rate.
    pub port_rate_bps: u64,
    /// Rate that all vifs together got of the port. Absent for a tenant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_got_bps: Option<u64>,
    /// Other vifs by their rate, largest first. A tenant sees only its own.
    pub others: Vec<OtherView>,
    /// Number of other vifs with a rate that are not listed.
    pub more_others: usize,
    /// Commands or keys of the policy file that would raise its rate.
    pub remedies: Vec<String>,
}

/// Guarantees and limits that apply to one direction of a vif.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CurvesView {
    /// Guaranteed rate.
    pub min_rate_bps: u64,
    /// Weight among the vifs of its slice or router.
    pub priority: u32,
    /// Weight of its slice among slices.
    pub slice_priority: u32,
    /// Upper limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_bps: Option<u64>,
    /// Upper limit of its router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub router_rate_bps: Option<u64>,
    /// Upper limit of its slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slice_rate_bps: Option<u64>,
    /// Upper limit of packets a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pps: Option<u64>,
}

/// The rate of another vif.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct OtherView {
    /// The vif.
    pub vif: String,
    /// Its slice.
    pub slice: String,
    /// Forwarded rate.
    pub got_bps: u64,
    /// Guaranteed rate.
    pub min_rate_bps: u64,
}
