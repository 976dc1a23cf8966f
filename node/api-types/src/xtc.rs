// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers that a control loop holds at a packet rate: `/v1/xtc`. Rates are packets a second, caps
//! and used CPU time are millionths of a processor. A field is absent if its value is not known,
//! not metered, or not for the caller.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The routers that are held at a rate.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct XtcView {
    /// The routers, in the policy's order. A tenant sees its own.
    pub routers: Vec<RouterView>,
    /// Load of all control loops; for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<LoadView>,
    /// Capacity that the routers contend for, if the node polices them; for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policing: Option<PolicingView>,
}

/// State that the policy, or a lease, asks of a router with a control loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ControlState {
    /// It is held at its set-point.
    Active,
    /// Its last cap and limit stay.
    Paused,
    /// It has neither cap nor limit.
    Off,
    /// It is off in the policy, and a controller of several nodes holds it (`/v1/set-points`).
    Leased,
}

impl fmt::Display for ControlState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Off => "off",
            Self::Leased => "leased",
        })
    }
}

/// Phase of a router's control loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum ControlPhase {
    /// It holds nothing.
    Inactive,
    /// It holds its set-point.
    Active,
    /// Its settings are frozen.
    Paused,
    /// It had to remove the cap, and retries.
    Released,
}

impl fmt::Display for ControlPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inactive => "inactive",
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Released => "released",
        })
    }
}

/// Punishment of a router that offers more than it is allowed. Each grade includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum PunishmentGrade {
    /// No punishment.
    #[serde(rename = "free")]
    Free,
    /// Packets beyond its set-point are dropped at ingress.
    #[serde(rename = "early drop")]
    EarlyDrop,
    /// Its set-point is halved, down to its minimum.
    #[serde(rename = "lower set-point")]
    LowerSetPoint,
    /// It is stopped.
    #[serde(rename = "stopped")]
    Stopped,
}

impl fmt::Display for PunishmentGrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Free => "free",
            Self::EarlyDrop => "early drop",
            Self::LowerSetPoint => "lower set-point",
            Self::Stopped => "stopped",
        })
    }
}

/// One router with a control loop.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RouterView {
    /// Its name.
    pub router: String,
    /// Its slice.
    pub slice: String,
    /// State that the policy asks for, or `leased`.
    pub state: ControlState,
    /// Phase of the control loop; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<ControlPhase>,
    /// The controller: `combined`, `feed-forward`, `pi`, `dead-beat`, `self-tuning` or `fixed`.
    pub controller: String,
    /// Actuator of the cap, such as `cgroup v1`.
    pub actuator: String,
    /// Time from one sample to the next.
    pub period_ns: u64,
    /// Rate at which the router is held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub set_point_pps: Option<u64>,
    /// True for a dry run: decisions are logged and not executed.
    pub dry_run: bool,
    /// Rate that the router forwarded in the latest sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_pps: Option<u64>,
    /// Rate that arrived for the router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_pps: Option<u64>,
    /// CPU time that the router used, in millionths of a processor; absent if it is not metered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_ppm: Option<u32>,
    /// The cap in force, in millionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_ppm: Option<u32>,
    /// Part of the cap that holds, if the caps of other routers leave no more; for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_held_ppm: Option<u32>,
    /// Packets a second that are admitted to the router.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_pps: Option<u64>,
    /// Estimated CPU time of a packet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost_ns: Option<u64>,
    /// Estimated model of a self-tuning controller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelView>,
    /// The latest decision in a line: set-point, sample, error, action, reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latest: Option<String>,
    /// Present trouble; a tenant reads only its kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// True if a cap or limit is still in force that should be removed; removal is retried.
    pub owes_release: bool,
    /// Samples so far.
    pub samples: u64,
    /// Readings that gave no sample.
    pub faults: u64,
    /// Commands to the actuator of the cap and to the limiter.
    pub commands: u64,
    /// Commands that failed.
    pub failures: u64,
    /// Samples that were late by more than a period.
    pub late: u64,
    /// The worst lateness of a sample.
    pub late_worst_ns: u64,
    /// Number of times that its process, guest or threads were gone.
    pub lost: u64,
    /// State of policing, if the node polices routers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub police: Option<PolicedView>,
    /// Set-point of a controller of several nodes, while it holds; for administrators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<LeaseView>,
}

/// A set-point that is withdrawn unless it is renewed in time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeaseView {
    /// The set-point.
    pub set_point_pps: u64,
    /// The controller, as the record names a caller: `token NAME`, or `uid 0`.
    pub by: String,
    /// Time that is left.
    pub left_ns: u64,
}

/// Set-points of a controller of several nodes, for a bounded time. They lie on the policy and are
/// not on record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SetPointRequest {
    /// The time after which they are withdrawn, unless a later request renews them: a second to an
    /// hour.
    #[schema(minimum = 1_000_000_000, maximum = 3_600_000_000_000_u64)]
    pub lease_ns: u64,
    /// The set-point of each router that the policy turns off, in packets a second; `null`
    /// withdraws it. Routers that are not named stay as they are.
    pub set_points_pps: BTreeMap<String, Option<u64>>,
}

/// The outcome of a request for set-points.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SetPointAnswer {
    /// Routers that were not changed, each with the reason.
    pub refused: BTreeMap<String, String>,
}

/// Policing of one router.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicedView {
    /// True if the router is held now: there is contention, it is punished, or it has a set-point.
    pub held: bool,
    /// Rate that the router may forward, before any punishment.
    pub allowed_pps: u64,
    /// Punishment.
    pub grade: PunishmentGrade,
    /// Number of changes of the punishment.
    pub judged: u64,
}

/// Contention among all routers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct PolicingView {
    /// Measured capacity of the node.
    pub capacity_pps: u64,
    /// Present demand of all routers.
    pub demand_pps: u64,
    /// True if the demand exceeds the capacity, so that routers are held.
    pub contended: bool,
    /// Number of times that contention began or ended.
    pub changes: u64,
    /// Number of changes of any router's punishment.
    pub judged: u64,
}

/// Model of a capped router: the next rate is `a` times the rate before plus `b` times the log10 of
/// the cap in per cent.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct ModelView {
    /// Part of a rate that is left after one sample.
    pub a: f64,
    /// Thousand packets a second that a tenfold cap adds within one sample.
    pub b: f64,
}

/// Load of all control loops.
#[derive(Clone, Copy, Debug, Serialize, Deserialize, ToSchema)]
pub struct LoadView {
    /// Passes over the counters.
    pub ticks: u64,
    /// Steps of control loops.
    pub steps: u64,
    /// Samples that were late by more than a period.
    pub late: u64,
    /// The worst lateness of a sample.
    pub late_worst_ns: u64,
    /// Number of times that the clock went back.
    pub clock_jumps: u64,
    /// Set-points that were withdrawn since their controller did not renew them.
    #[serde(default)]
    pub leases_expired: u64,
    /// CPU time so far.
    pub cpu_ns: u64,
}

/// Change of a router's control loop. Absent fields stay as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct XtcChange {
    /// The rate, within the router's `receive.min_pps` and `receive.max_pps`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub set_point_pps: Option<u64>,
    /// `active`, `paused` (the last cap stays) or `off` (neither cap nor
    /// limit).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// `combined`, `feed-forward`, `pi`, `dead-beat`, `self-tuning` or `fixed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller: Option<String>,
    /// Time from one sample to the next, at least three periods of the actuator.
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
    /// Time of the decision, milliseconds since 1970.
    pub at_unix_ms: u64,
    /// Set-point at that time.
    pub set_point_pps: u64,
    /// Rate that was forwarded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate_pps: Option<u64>,
    /// Rate that arrived.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_pps: Option<u64>,
    /// CPU time that was used, in millionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_ppm: Option<u32>,
    /// Set-point minus rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_pps: Option<i64>,
    /// Cap that was set, in millionths of a processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cap_ppm: Option<u32>,
    /// Limit that was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_pps: Option<u64>,
    /// Reason of the decision.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// True if the rate stays below the set-point although the cap is the largest that it may be.
    #[serde(default)]
    #[schema(required)]
    pub no_headroom: bool,
    /// The whole decision in a line.
    pub text: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: people and programs read the same names.
    #[test]
    fn texts_are_the_names_in_json() {
        fn same(value: impl Serialize + fmt::Display) {
            assert_eq!(serde_json::json!(value), value.to_string());
        }
        use ControlPhase as Phase;
        use ControlState as State;
        use PunishmentGrade as Grade;
        [State::Active, State::Paused, State::Off, State::Leased].into_iter().for_each(same);
        [Phase::Inactive, Phase::Active, Phase::Paused, Phase::Released].into_iter().for_each(same);
        [Grade::Free, Grade::EarlyDrop, Grade::LowerSetPoint, Grade::Stopped]
            .into_iter()
            .for_each(same);
    }
}
