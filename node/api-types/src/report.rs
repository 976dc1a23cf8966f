// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service report: `/v1/report`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What slices and vifs had in a time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportView {
    /// The node's name.
    pub node: String,
    /// Begin of the time that was asked for, milliseconds since 1970.
    pub since_unix_ms: u64,
    /// Its end.
    pub until_unix_ms: u64,
    /// Slices and their vifs, by name; a slice before its vifs.
    pub lines: Vec<ReportLine>,
    /// Slices and vifs that are not among the lines: 4096 are, at most.
    #[serde(default)]
    pub more: u64,
    /// Ends of files that a crash had torn when the store was opened, and blocks that are damaged.
    pub torn: u64,
    /// Bytes that the store takes on disk, now and ever.
    pub store_bytes: u64,
}

/// What one had.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ReportLine {
    /// The slice.
    pub slice: String,
    /// The vif; without one, the slice as a whole.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vif: Option<String>,
    /// Begin of the first record, milliseconds since 1970.
    pub from_unix_ms: u64,
    /// End of the last one.
    pub to_unix_ms: u64,
    /// Time that records tell of: less than between the two where the node did not run.
    pub recorded_ns: u64,
    /// Of what it sent.
    pub send: ServiceView,
    /// Of what it received.
    pub receive: ServiceView,
}

/// One direction. Rates are means over the recorded time.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ServiceView {
    /// What was guaranteed.
    pub guaranteed_bps: u64,
    /// What came in, but for what was refused for what it is.
    pub offered_bps: u64,
    /// What was handed on.
    pub got_bps: u64,
    /// The same in bytes of layer 2.
    pub offered_bytes: u64,
    /// The same in packets.
    pub offered_packets: u64,
    /// Of the offered, dropped for a limit of its own or of the receiver's.
    pub above_limit_bytes: u64,
    /// Handed on, bytes of layer 2.
    pub got_bytes: u64,
    /// Handed on, packets.
    pub got_packets: u64,
    /// Time in seconds that were below the guarantee.
    pub below_ns: u64,
    /// The second that got the least of what it was owed; absent where nothing was owed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<WorstView>,
}

/// A second, and what it got of what it was owed: the lesser of guarantee and demand.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorstView {
    /// When it ended, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Its length.
    pub time_ns: u64,
    /// What it got.
    pub got_bps: u64,
    /// What it was owed.
    pub owed_bps: u64,
}
