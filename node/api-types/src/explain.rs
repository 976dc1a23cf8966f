// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Why vifs get the rates that they get: `/v1/explain`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a vif gets what it gets. Rates are as the port's layer counts.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExplainView {
    /// The vif.
    pub vif: String,
    /// Its slice.
    pub slice: String,
    /// Its port.
    pub port: String,
    /// The time that was looked at.
    pub time_ns: u64,
    /// Of what it sends.
    pub send: ExplainSide,
    /// Of what it receives.
    pub receive: ExplainSide,
}

/// One direction.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ExplainSide {
    /// What kept it from more: `idle`, `demand`, `refused`, `vif_rate`, `router_rate`,
    /// `slice_rate`, `vif_packets`, `router_packets`, `router_held`, `slice_packets`, `guarantee`,
    /// `port`, `receiver`, `pool`, `worker`, `device` or `queue`.
    pub limiter: String,
    /// The same with its numbers, in a sentence.
    pub because: String,
    /// What came in.
    pub offered_bps: u64,
    /// What was handed on.
    pub got_bps: u64,
    /// What came in.
    pub offered_pps: u64,
    /// What was handed on.
    pub got_pps: u64,
    /// Its curves.
    pub curves: CurvesView,
    /// Packets in its queue now.
    pub queued_packets: u64,
    /// Bytes in its queue now.
    pub queued_bytes: u64,
    /// Most packets that its queue holds.
    pub queue_packets: u32,
    /// Most bytes that its queue holds.
    pub queue_bytes: u64,
    /// Packets dropped meanwhile, by reason.
    pub dropped_packets: BTreeMap<String, u64>,
    /// The port's rate.
    pub port_rate_bps: u64,
    /// What all got of the port; a tenant is told that it is full or not by the limiter alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port_got_bps: Option<u64>,
    /// Who has the rest, most first; of other slices a tenant sees nothing.
    pub others: Vec<OtherView>,
    /// Others that got anything and are not listed.
    pub more_others: usize,
    /// Commands, or keys of the policy file, that would give it more.
    pub remedies: Vec<String>,
}

/// What it is owed and may take.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct CurvesView {
    /// Guaranteed rate.
    pub min_rate_bps: u64,
    /// Its share of what is left, among the vifs of its slice or router.
    pub priority: u32,
    /// Its slice's share of what is left, among slices.
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

/// What another vif got.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct OtherView {
    /// The vif.
    pub vif: String,
    /// Its slice.
    pub slice: String,
    /// What it got.
    pub got_bps: u64,
    /// What it is guaranteed.
    pub min_rate_bps: u64,
}
