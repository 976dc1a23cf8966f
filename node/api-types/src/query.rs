// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parameters in the query of a request's path, with their defaults.

use serde::Deserialize;
use utoipa::IntoParams;

/// Query of `/v1/events`.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventsQuery {
    /// Milliseconds between two events.
    #[serde(default = "second")]
    #[param(minimum = 100, maximum = 60000, default = 1000)]
    pub interval_ms: u64,
}

/// Query of `/v1/changes`.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ChangesQuery {
    /// Return at most this many changes, the newest that the caller sees. Default: all.
    #[param(minimum = 1, maximum = 100_000)]
    pub newest: Option<u32>,
}

/// Query of a `POST` to `/v1/changes`.
#[derive(Clone, Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct ChangeSetQuery {
    /// True to check the changes and make none. The answer is the change that they would be.
    #[param(default = false)]
    pub dry_run: bool,
    /// Number that the change must get. If another change has taken it, this one is refused as a
    /// conflict: so a request that is repeated is made once. Default: the next one.
    #[param(minimum = 1)]
    pub number: Option<u64>,
    /// Id of the apply of a plan that the change is part of: 1 to 64 letters, digits, `-` and `_`.
    /// It is kept in the record, and tells the changes of two applies apart. With `apply` and
    /// `number` the set may be empty: such a change uses the number up, so that a request for it
    /// that is still on its way is refused. For administrators.
    #[param(min_length = 1, max_length = 64, pattern = "^[A-Za-z0-9_-]+$")]
    pub apply: Option<String>,
}

/// Query of `/v1/vifs/{vif}/capture`.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct CaptureQuery {
    /// Bytes to keep of each frame.
    #[serde(default = "whole")]
    #[param(minimum = 1, default = 1522)]
    pub snaplen: u16,
    /// Capture only `send` (from the vif) or `receive` (towards the vif).
    pub direction: Option<String>,
    /// Capture only frames with this MAC address.
    pub mac: Option<String>,
    /// Capture only frames with this VLAN on the vif's side.
    pub vlan: Option<u16>,
    /// Capture only frames from this address or network.
    pub src: Option<String>,
    /// Capture only frames to this address or network.
    pub dst: Option<String>,
    /// Capture only frames with this TCP or UDP port.
    pub port: Option<u16>,
}

/// Query of `/v1/report`.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ReportQuery {
    /// Length of the reported time in seconds, back from now.
    #[serde(default = "hour")]
    #[param(minimum = 1, maximum = 31622400, default = 3600)]
    pub since_s: u64,
    /// Report only this slice and its vifs.
    pub slice: Option<String>,
    /// Report only this vif.
    pub vif: Option<String>,
}

/// Query of `/v1/explain`.
#[derive(Clone, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ExplainQuery {
    /// Explain only this vif. Default: all that the caller sees.
    pub vif: Option<String>,
    /// Milliseconds to observe. The answer takes as long.
    #[serde(default = "second")]
    #[param(minimum = 100, maximum = 5000, default = 1000)]
    pub interval_ms: u64,
}

/// Query of `/v1/realtime/{router}/advice`.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct AdviceQuery {
    /// Milliseconds to observe. The answer takes as long.
    #[serde(default = "two_seconds")]
    #[param(minimum = 100, maximum = 10_000, default = 2000)]
    pub interval_ms: u64,
}

/// Query of `/v1/xtc/{router}/log`.
#[derive(Clone, Copy, Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct LogQuery {
    /// Return at most this many decisions, the newest.
    #[serde(default = "newest")]
    #[param(minimum = 1, maximum = 10_000, default = 100)]
    pub newest: u32,
}

/// Name of the response header that says what a capture changes for the vif's frames.
pub const CAPTURE_NOTE: &str = "weir-note";

const fn second() -> u64 {
    1000
}

const fn two_seconds() -> u64 {
    2000
}

const fn hour() -> u64 {
    3600
}

const fn newest() -> u32 {
    100
}

const fn whole() -> u16 {
    1522
}
