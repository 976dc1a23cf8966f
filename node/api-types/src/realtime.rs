// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Real-time classes of routers: what is asked for, and what a router's activations suggest.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::given::{Given, given};

/// Class of a router's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum RealtimeClass {
    /// A share among all others by `weight`, and no deadline.
    Normal,
    /// A share of each period, within the deadline of its begin, and of spare time more.
    Periodic,
    /// A share of each period, within the deadline of an event, and no more.
    Aperiodic,
}

/// Changes of a router's class. Where the class names no process, group, guest or interfaces, it is
/// for those of `xtc`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RealtimeChange {
    /// The class.
    #[serde(rename = "type", deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RealtimeClass>)]
    pub class: Given<RealtimeClass>,
    /// Time from an activation to the end of its work.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 100_000, maximum = 4_000_000_000_i64)]
    pub deadline_ns: Given<u64>,
    /// Least time between two activations. Default: the deadline.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, minimum = 100_000, maximum = 4_000_000_000_i64)]
    pub period_ns: Given<u64>,
    /// Guaranteed share, in millionths of a processor.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 1_000_000)]
    pub cpu_ppm: Given<u32>,
    /// The exclusive processor of its threads, in a partition that the host's owner made. Default:
    /// those that all share.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, maximum = 8191)]
    pub core: Given<u32>,
    /// True if a guest of Xen gets no spare time beyond its guarantee. Default: false.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<bool>)]
    pub ceiling: Given<bool>,
    /// Weight of a normal class, of which other processes have 100.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1, maximum = 10_000)]
    pub weight: Given<u32>,
    /// The process that is the router: its id, or the path of a file with its id.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub process: Given<String>,
    /// Path of the router's control group, if somebody else made it.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub group: Given<String>,
    /// Network namespace of the interfaces, by its name in `ip netns`.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub namespace: Given<String>,
    /// The guest, by its name in `xl list`.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub domain: Given<String>,
    /// The router's interfaces, whose threads in the kernel do its work.
    #[serde(deserialize_with = "given", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Vec<RouterInterface>>)]
    pub interface: Given<Vec<RouterInterface>>,
}

/// Interface of a router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RouterInterface {
    /// Device on the node's side.
    pub device: String,
    /// Device inside the router, whose thread forwards for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inside: Option<String>,
}

/// Class of a router, as the policy gives it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RealtimeClassView {
    /// The class.
    #[serde(rename = "type")]
    pub class: RealtimeClass,
    /// Time from an activation to the end of its work. Absent for a normal class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// Least time between two activations. Absent for a normal class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub period_ns: Option<u64>,
    /// Guaranteed share, in millionths of a processor. Absent for a normal class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ppm: Option<u32>,
    /// The exclusive processor of its threads. Absent for those that all share, and for a tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub core: Option<u32>,
    /// Weight of a normal class. Absent for the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<u32>,
}

/// The classes of routers: `/v1/realtime`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RealtimeView {
    /// The routers that have a class, in the policy's order. A tenant sees its own.
    pub routers: Vec<ClassStatusView>,
}

/// State of a router's class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ClassStatusView {
    /// The router.
    pub router: String,
    /// Its slice.
    pub slice: String,
    /// The class as the policy gives it.
    pub class: RealtimeClassView,
    /// True if the class is in force as the policy has it.
    pub in_force: bool,
    /// Budget of all its threads together, in millionths of a processor: the guarantee, or the cap
    /// of `xtc` where that is more. Absent for a weight, and while they have none. While the class
    /// is not in force, the budget that they still have from before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_ppm: Option<u32>,
    /// Threads with the class, or processes with the weight.
    pub threads: u64,
    /// Processor time that they used lately, in millionths of a processor. Absent if it is not
    /// metered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_ppm: Option<u32>,
    /// Reason why it is not in force; a tenant reads only that there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
    /// Times that it came into force.
    pub applications: u64,
    /// Times that it could not be brought into force.
    pub refusals: u64,
    /// Looks at which a thread had used nearly all of its budget: it may have waited for its next
    /// period. The kernel counts no missed deadlines.
    pub exhausted: u64,
}

/// Class that a router's activations suggest: `/v1/realtime/{router}/advice`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AdviceView {
    /// The router.
    pub router: String,
    /// Observed time.
    pub time_ns: u64,
    /// Observed threads.
    pub threads: u32,
    /// Activations: a thread that had waited ran until all of them waited.
    pub activations: u64,
    /// Switches that are missing, since the kernel's ring was full.
    pub lost: u64,
    /// Median time from one activation to the next. Absent with fewer than two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_median_ns: Option<u64>,
    /// The tenth percentile of that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_p10_ns: Option<u64>,
    /// The ninetieth percentile of that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap_p90_ns: Option<u64>,
    /// Processor time that 99 of 100 activations do not exceed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_p99_ns: Option<u64>,
    /// Processor time that all threads used, in millionths of a processor.
    pub used_ppm: u32,
    /// The proposed class. Absent if there were too few activations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<RealtimeClass>,
    /// Proposed deadline, which is the period too. Absent for a normal class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ns: Option<u64>,
    /// Proposed share, in millionths of a processor. Absent for a normal class.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ppm: Option<u32>,
    /// The proposal and its reason in a sentence.
    pub because: String,
}
