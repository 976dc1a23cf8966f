// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers that a control loop holds at a packet rate: `/v1/xtc`.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The routers that are held at a rate.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct XtcView {
    /// The routers, in the policy's order. A tenant sees his own.
    pub routers: Vec<RouterView>,
    /// What holding all of them takes; for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadView>,
    /// What all of them contend for, where the node polices; for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policing: Option<PolicingView>,
}

/// One router that is held at a rate, or is to be.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RouterView {
    /// Its name.
    pub router: String,
    /// Its slice.
    pub slice: String,
    /// What the policy wants: `active`, `paused` or `off`.
    pub state: String,
    /// What it is at: `active`, `paused`, `released` (it had to take its cap away, and tries again
    /// by itself) or `inactive`; absent where nothing holds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// The controller: `combined`, `feed-forward`, `pi`, `dead-beat`, `self-tuning` or `fixed`.
    pub controller: String,
    /// What caps it, as in `cgroup v1`.
    pub actuator: String,
    /// From one sample to the next.
    pub period_ns: u64,
    /// The rate that it is held at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_point_pps: Option<u64>,
    /// It is decided and logged, and nothing touched.
    pub dry_run: bool,
    /// What it forwarded in the latest sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_pps: Option<u64>,
    /// What came for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_pps: Option<u64>,
    /// CPU time that it used, in millionths of a processor, where that is metered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_ppm: Option<u32>,
    /// The cap in force, in millionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_ppm: Option<u32>,
    /// What of that really holds, where no more is left beside the caps of others; for
    /// administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_held_ppm: Option<u32>,
    /// Packets a second that are let in to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_pps: Option<u64>,
    /// CPU time that a packet is believed to take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<u64>,
    /// The model that is believed in, of a self-tuning controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelView>,
    /// The latest decision in a line: set-point, sample, error, action, reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<String>,
    /// What is wrong now; a tenant reads of which kind it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Cap and limit are in force although they should not be; it is tried again.
    pub owes_release: bool,
    /// Samples so far.
    pub samples: u64,
    /// Readings that gave none.
    pub faults: u64,
    /// Commands to what caps and limits it.
    pub commands: u64,
    /// Of these, what failed.
    pub failures: u64,
    /// Samples that were late by more than a period.
    pub late: u64,
    /// The worst lateness of a sample.
    pub late_worst_ns: u64,
    /// How often it was lost: its process, its guest or its threads were gone.
    pub lost: u64,
    /// How it stands with policing, where the node does that.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub police: Option<PolicedView>,
}

/// How a router stands with policing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicedView {
    /// Whether it is held now: there is contention, it is punished, or it has a set-point.
    pub held: bool,
    /// What it may, before any punishment.
    pub allowed_pps: u64,
    /// What is done about it: `free`, `early drop`, `lower set-point` or `stopped`.
    pub grade: String,
    /// How often that changed.
    pub judged: u64,
}

/// What all routers contend for.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicingView {
    /// What the node was measured to carry.
    pub capacity_pps: u64,
    /// What all routers ask for now.
    pub demand_pps: u64,
    /// Whether that is too much: routers are held.
    pub contended: bool,
    /// How often contention began or ended.
    pub changes: u64,
    /// How often a router's punishment changed.
    pub judged: u64,
}

/// The next rate from the rate before, times a, and the log10 of the cap in per cent, times b.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct ModelView {
    /// What is left of a rate after one sample.
    pub a: f64,
    /// Thousand packets a second that a tenfold cap adds within one sample.
    pub b: f64,
}

/// What holding all routers takes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct LoadView {
    /// Passes over the counters.
    pub ticks: u64,
    /// Steps of instances.
    pub steps: u64,
    /// Samples that were late by more than a period.
    pub late: u64,
    /// The worst lateness of a sample.
    pub late_worst_ns: u64,
    /// How often the clock went back.
    pub clock_jumps: u64,
    /// CPU time so far.
    pub cpu_ns: u64,
}

/// What changes of how a router is held; what is left out stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct XtcChange {
    /// The rate, within the router's `receive.min_pps` and `receive.max_pps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub set_point_pps: Option<u64>,
    /// `active`, `paused` (the cap that its rate needed at last stays) or `off` (neither cap nor
    /// limit).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// `combined`, `feed-forward`, `pi`, `dead-beat`, `self-tuning` or `fixed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// From one sample to the next, at least three periods of the actuator.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 10_000_000, maximum = 1_000_000_000)]
    pub period_ns: Option<u64>,
    /// The least cap, in millionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub cap_min_ppm: Option<u32>,
    /// The largest cap, in millionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub cap_max_ppm: Option<u32>,
}

/// One decision.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DecisionView {
    /// Its number, from 0, without gaps.
    pub number: u64,
    /// When, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// The set-point then.
    pub set_point_pps: u64,
    /// What was forwarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_pps: Option<u64>,
    /// What came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_pps: Option<u64>,
    /// CPU time that was used, in millionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_ppm: Option<u32>,
    /// Set-point minus rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_pps: Option<i64>,
    /// The cap that was decided, in millionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_ppm: Option<u32>,
    /// The limit that was decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_pps: Option<u64>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The whole in a line.
    pub text: String,
}
