// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The status of the loops, for the interface.

use weir_control::control_loop::{Decision, DecisionEvent, LoopPhase};
use weir_control::police::Grade;
use weir_control::{Action, Estimate, Sample};
use weir_policy::XtcState;
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

/// The status of a router that is to be held.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouterStatus {
    /// Its name.
    pub router: String,
    /// Its slice.
    pub slice: String,
    /// The state in the policy. A router that is off there may have a [`Self::lease`].
    pub state: XtcState,
    /// The phase of its loop; `None`: nothing is attached, and [`Self::trouble`] has the reason.
    pub phase: Option<LoopPhase>,
    /// The controller.
    pub controller: &'static str,
    /// The actuator, as in `cgroup v1`; the kind in the policy while nothing is attached.
    pub actuator: &'static str,
    /// The sampling period.
    pub period: Nanos,
    /// The set-point.
    pub set_point: Option<PacketRate>,
    /// True for a dry run.
    pub dry_run: bool,
    /// The cap in force.
    pub cap: Option<CpuShare>,
    /// The granted cap, if it is less than requested because others left no more.
    pub cap_held: Option<CpuShare>,
    /// The limit at ingress.
    pub limit: Option<PacketRate>,
    /// The latest sample.
    pub sample: Option<Sample>,
    /// The controller's estimate.
    pub estimate: Option<Estimate>,
    /// The latest decision and its reason.
    pub latest: Option<Decision>,
    /// The trouble now. The text may name things of others or of the host.
    pub trouble: Option<String>,
    /// The kind of the trouble.
    pub trouble_kind: Option<RouterTrouble>,
    /// True if cap or limit are in force although they should not be: their release is retried.
    pub owes_release: bool,
    /// Samples so far.
    pub samples: u64,
    /// Readings without a sample.
    pub faults: u64,
    /// Commands to actuator and limiter.
    pub commands: u64,
    /// Commands that failed.
    pub failures: u64,
    /// Samples that were late by more than a period.
    pub late: u64,
    /// The worst lateness.
    pub late_worst: Nanos,
    /// The number of times that it was taken.
    pub taken: u64,
    /// The number of times that it was lost.
    pub lost: u64,
    /// Its policing, if the node polices.
    pub police: Option<PolicingStatus>,
    /// The set-point of a controller of several nodes, while it holds.
    pub lease: Option<LeaseStatus>,
}

/// A set-point of a controller of several nodes ([`crate::LeaseRequest`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseStatus {
    /// The set-point.
    pub set_point: PacketRate,
    /// The controller's name.
    pub by: String,
    /// The time at which it is withdrawn unless it is renewed, on the monotonic clock.
    pub until: Instant,
}

/// The policing of a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicingStatus {
    /// True if it is held now: there is contention, it is punished, or it has a set-point.
    pub held: bool,
    /// Its allowed rate before any punishment.
    pub allowed: PacketRate,
    /// Its grade of punishment.
    pub grade: Grade,
    /// The number of changes of the grade.
    pub judged: u64,
}

/// The contention of all routers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicingLoad {
    /// The measured capacity of the node.
    pub capacity: PacketRate,
    /// The demand of all routers.
    pub demand: PacketRate,
    /// True during contention: routers are held.
    pub contended: bool,
    /// The number of times that contention began or ended.
    pub changes: u64,
    /// The number of changes of a router's punishment.
    pub judged: u64,
}

/// A trouble of a router, classified by what ends it; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RouterTrouble {
    /// The router, or a part of it, is missing. It ends when the router is taken.
    Missing,
    /// The policy cannot be realized, and the one before stays in force. It ends with a policy that
    /// can.
    Design,
    /// Cap or limit could not be set. It ends when one is set.
    Command,
    /// A change for it could not be undone. It ends when it is undone: by the next attempt, or when
    /// the router is taken again.
    Left,
    /// Its packets cannot be counted. It ends when they are.
    Reading,
}

impl RouterTrouble {
    /// Returns a text that reveals nothing of other tenants or of the host.
    #[must_use]
    pub const fn redacted_text(self) -> &'static str {
        match self {
            Self::Missing => "it is not there, or cannot be had",
            Self::Design => "it cannot be held as it is asked for",
            Self::Command => "its cap or limit cannot be set",
            Self::Left => "what was done for it is not undone yet",
            Self::Reading => "its packets cannot be counted",
        }
    }
}

/// The load of all loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoopsLoad {
    /// The number of routers.
    pub routers: u64,
    /// The number of passes.
    pub ticks: u64,
    /// The number of samples taken.
    pub steps: u64,
    /// Samples that were late by more than their period.
    pub late: u64,
    /// The worst lateness of a sample.
    pub late_worst: Nanos,
    /// The longest that a sample was late, in thousandths of its period.
    pub late_worst_thousandths: u64,
    /// The number of times that the clock went back.
    pub clock_jumps: u64,
    /// The number of set-points withdrawn since their controller did not renew them.
    pub leases_expired: u64,
    /// CPU time of the thread so far.
    pub cpu: Nanos,
    /// The contention, if the node polices.
    pub policing: Option<PolicingLoad>,
}

/// One decision.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// Its number, from 0, without gaps.
    pub number: u64,
    /// The time of the decision, on the monotonic clock.
    pub at: Instant,
    /// The set-point at that time.
    pub set_point: PacketRate,
    /// The sample.
    pub sample: Option<Sample>,
    /// Set-point minus rate, in packets a second.
    pub error_pps: Option<i64>,
    /// The action.
    pub action: Option<Action>,
    /// The decision in a line: sample, error, action, reason. It may name things of others or of
    /// the host.
    pub text: String,
    /// `text` without what concerns other tenants or the host.
    pub redacted: String,
}

/// Returns a decision as a line that reveals nothing of other tenants or of the host.
#[must_use]
pub fn redacted_text(decision: &Decision) -> String {
    match &decision.event {
        DecisionEvent::ActuatorFailed(_) => {
            let failed =
                DecisionEvent::ActuatorFailed(RouterTrouble::Command.redacted_text().to_owned());
            Decision { event: failed, ..decision.clone() }.to_string()
        }
        _ => decision.to_string(),
    }
}

impl From<&Decision> for LogLine {
    fn from(decision: &Decision) -> Self {
        let (sample, error_pps, action) = match &decision.event {
            DecisionEvent::Sampled { sample, error_pps, action } => {
                (Some(*sample), Some(*error_pps), Some(*action))
            }
            DecisionEvent::Requested(_, action) => (None, None, *action),
            DecisionEvent::Eased(action) => (None, None, Some(*action)),
            DecisionEvent::NoSample(_)
            | DecisionEvent::Judged(_)
            | DecisionEvent::ActuatorFailed(_)
            | DecisionEvent::Retried
            | DecisionEvent::GaveUp
            | DecisionEvent::Released
            | DecisionEvent::Recovered => (None, None, None),
        };
        Self {
            number: decision.number,
            at: decision.at,
            set_point: decision.set_point,
            sample,
            error_pps,
            action,
            text: decision.to_string(),
            redacted: redacted_text(decision),
        }
    }
}
