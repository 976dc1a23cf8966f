// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service report, `/v1/report`: what slices and vifs were guaranteed, offered and got in a
//! span of time. Offered and got count layer 2; the guarantee and the worst second count as the
//! port's layer does.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The service that slices and vifs got in a span of time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportView {
    /// Name of the node.
    pub node: String,
    /// Begin of the span, milliseconds since 1970.
    pub since_unix_ms: u64,
    /// End of the span, milliseconds since 1970.
    pub until_unix_ms: u64,
    /// Slices and vifs in the order of their names, a slice before its vifs.
    pub lines: Vec<ReportLine>,
    /// Number of slices and vifs beyond the 4096 that the answer holds.
    #[serde(default)]
    pub more: u64,
    /// Ends of files that a crash had torn when the store was opened, and blocks that are damaged.
    pub torn: u64,
    /// Bytes that the store occupies on disk; constant.
    pub store_bytes: u64,
}

/// The service of one slice or vif.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportLine {
    /// The slice.
    pub slice: String,
    /// The vif. Absent for the slice as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vif: Option<String>,
    /// Begin of the first record, milliseconds since 1970.
    pub from_unix_ms: u64,
    /// End of the last record, milliseconds since 1970.
    pub to_unix_ms: u64,
    /// Recorded time: less than the span between the two while the node did not run.
    pub recorded_ns: u64,
    /// Traffic that it sent.
    pub send: ServiceView,
    /// Traffic that it received.
    pub receive: ServiceView,
}

/// The service in one direction. Rates are means over the recorded time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServiceView {
    /// Guaranteed rate.
    pub guaranteed_bps: u64,
    /// Offered rate: all arrivals except those that a filter refused.
    pub offered_bps: u64,
    /// Forwarded rate.
    pub got_bps: u64,
    /// Offered bytes of layer 2.
    pub offered_bytes: u64,
    /// Offered packets.
    pub offered_packets: u64,
    /// Offered bytes that were dropped by a limit of its own or of the receiver.
    pub above_limit_bytes: u64,
    /// Forwarded bytes of layer 2.
    pub got_bytes: u64,
    /// Forwarded packets.
    pub got_packets: u64,
    /// Sum of the seconds below the guarantee.
    pub below_ns: u64,
    /// The second that got the least of its guarantee; absent where nothing was guaranteed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<WorstView>,
}

/// One second: its forwarded rate and the lesser of guarantee and demand.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorstView {
    /// End of the second, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Length of the second: more than 1 s if the node was kept from sampling.
    pub time_ns: u64,
    /// Forwarded rate.
    pub got_bps: u64,
    /// The lesser of guarantee and demand.
    pub owed_bps: u64,
}
