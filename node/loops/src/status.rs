// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How the instances are: what the interface shows.

use weir_control::control_loop::{Decision, DecisionEvent, LoopPhase};
use weir_control::police::Grade;
use weir_control::{Action, Estimate, Sample};
use weir_units::{CpuShare, Instant, Nanos, PacketRate};

/// One router that is held at a rate, or is to be.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RouterStatus {
    /// Its name.
    pub router: String,
    /// Its slice.
    pub slice: String,
    /// What the policy wants: `active`, `paused`, `off`.
    pub state: &'static str,
    /// What it is at; `None`: nothing holds it, and [`Self::trouble`] says why.
    pub phase: Option<LoopPhase>,
    /// The controller.
    pub controller: &'static str,
    /// What caps it: as in `cgroup v1`; the kind that the policy names while nothing does.
    pub actuator: &'static str,
    /// From one sample to the next.
    pub period: Nanos,
    /// The rate that it is held at.
    pub set_point: Option<PacketRate>,
    /// Decides and logs, and touches nothing.
    pub dry_run: bool,
    /// The cap in force by it.
    pub cap: Option<CpuShare>,
    /// What of that really holds, where it is less: no more was left beside others.
    pub cap_held: Option<CpuShare>,
    /// Packets a second that are let in.
    pub limit: Option<PacketRate>,
    /// The latest sample.
    pub sample: Option<Sample>,
    /// What the controller believes.
    pub estimate: Option<Estimate>,
    /// The latest decision and its reason.
    pub latest: Option<Decision>,
    /// What is wrong now, with its reason: what is not there, what cannot be held. It may name what
    /// is others' or the host's.
    pub trouble: Option<String>,
    /// Of which kind that is.
    pub trouble_kind: Option<Trouble>,
    /// Cap and limit are in force although they should not be.
    pub owes_release: bool,
    /// Samples so far.
    pub samples: u64,
    /// Readings that gave none.
    pub faults: u64,
    /// What was asked of actuator and limit.
    pub commands: u64,
    /// Of these, what failed.
    pub failures: u64,
    /// Samples that were late by more than a period.
    pub late: u64,
    /// The worst lateness.
    pub late_worst: Nanos,
    /// How often it was got hold of.
    pub taken: u64,
    /// How often it was lost.
    pub lost: u64,
    /// How it stands with policing, where the node does that.
    pub police: Option<Policed>,
}

/// How a router stands with policing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policed {
    /// Whether it is held now: there is contention, it is punished, or it has a set-point.
    pub held: bool,
    /// What it may, before any punishment.
    pub allowed: PacketRate,
    /// What is done about it.
    pub grade: Grade,
    /// How often that changed.
    pub judged: u64,
}

/// What all routers contend for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policing {
    /// What the node was measured to carry.
    pub capacity: PacketRate,
    /// What all routers ask for now.
    pub demand: PacketRate,
    /// Whether that is too much: routers are held.
    pub contended: bool,
    /// How often contention began or ended.
    pub changes: u64,
    /// How often a router's punishment changed.
    pub judged: u64,
}

/// What is wrong with a router, by what shows that it is over; the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// What it is, is not there or cannot be had. Until it is had.
    Missing,
    /// What the policy says cannot be: what was before goes on. Until it says what can be.
    Design,
    /// Its cap or limit could not be set. Until one is.
    Command,
    /// What was done for it could not be undone. Until it is had again.
    Left,
    /// Its packets cannot be counted. Until they are.
    Reading,
}

impl Trouble {
    /// For whoever is not to read of others and of the host.
    #[must_use]
    pub const fn plain(self) -> &'static str {
        match self {
            Self::Missing => "it is not there, or cannot be had",
            Self::Design => "it cannot be held as it is asked for",
            Self::Command => "its cap or limit cannot be set",
            Self::Left => "what was done for it is not undone yet",
            Self::Reading => "its packets cannot be counted",
        }
    }
}

/// What holding all routers takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Routers.
    pub routers: u64,
    /// Passes so far.
    pub ticks: u64,
    /// Steps of instances.
    pub steps: u64,
    /// Samples that were late by more than their period.
    pub late: u64,
    /// The worst lateness of a sample.
    pub late_worst: Nanos,
    /// The longest that a sample was late, in thousandths of its period.
    pub late_worst_thousandths: u64,
    /// How often the clock went back.
    pub clock_jumps: u64,
    /// CPU time of the thread so far.
    pub cpu: Nanos,
    /// What the routers contend for, where the node polices them.
    pub policing: Option<Policing>,
}

/// One decision.
#[derive(Clone, Debug, PartialEq)]
pub struct LogLine {
    /// Its number, from 0, without gaps.
    pub number: u64,
    /// When, on the monotonic clock.
    pub at: Instant,
    /// The set-point then.
    pub set_point: PacketRate,
    /// What was seen.
    pub sample: Option<Sample>,
    /// Set-point minus rate, in packets a second.
    pub error_pps: Option<i64>,
    /// What was decided.
    pub action: Option<Action>,
    /// The whole in a line: sample, error, action, reason. It may name what is others' or the
    /// host's.
    pub text: String,
    /// The same for whoever is not to read of those.
    pub plain: String,
}

/// A decision in a line that says nothing of others and of the host.
#[must_use]
pub fn plain(decision: &Decision) -> String {
    match &decision.event {
        DecisionEvent::ActuatorFailed(_) => {
            let failed = DecisionEvent::ActuatorFailed(Trouble::Command.plain().to_owned());
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
            plain: plain(decision),
        }
    }
}
