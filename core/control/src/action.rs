// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a controller wants done, and why.

use core::fmt;

use weir_units::{CpuShare, Instant, PacketRate};

use crate::Sample;

/// What should be in force from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// When it was decided.
    pub at: Instant,
    /// The router's cap, always one of its range.
    pub cap: CpuShare,
    /// Packets a second that may reach the router; `None`: as many as come.
    pub limit: Option<PacketRate>,
    /// Whether it differs from the action before, or is the first since the controller was made or
    /// took over: if not, no actuator need be called.
    pub changed: bool,
    /// Why.
    pub reason: Reason,
}

/// What is in force on a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its cap.
    pub cap: CpuShare,
    /// Packets a second that may reach it; `None`: as many as come.
    pub limit: Option<PacketRate>,
}

impl Action {
    /// What it wants in force.
    #[must_use]
    pub const fn settings(&self) -> Settings {
        Settings { cap: self.cap, limit: self.limit }
    }
}

impl Settings {
    /// A cap without a limit.
    #[must_use]
    pub const fn capped(cap: CpuShare) -> Self {
        Self { cap, limit: None }
    }

    /// The cap that holds the rate which is seen. Under a limit the cap in force is a ceiling and
    /// holds nothing: who takes over without the limit has to begin with what the rate costs.
    pub(crate) fn binding(self, sample: Option<&Sample>) -> CpuShare {
        let used = sample.and_then(Sample::used).filter(|used| *used > CpuShare::ZERO);
        match (self.limit, used) {
            (Some(_), Some(used)) => used.min(self.cap),
            _ => self.cap,
        }
    }
}

/// What was asked for last, to tell what changes. The first action counts as a change, and so does
/// the first after [`Told::forget`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Told(Option<(CpuShare, Option<PacketRate>)>);

impl Told {
    pub(crate) fn act(
        &mut self,
        at: Instant,
        cap: CpuShare,
        limit: Option<PacketRate>,
        reason: Reason,
    ) -> Action {
        let changed = self.0.replace((cap, limit)) != Some((cap, limit));
        Action { at, cap, limit, changed, reason }
    }

    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}

/// Why an action is what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The error is within the dead zone: the cap stays.
    DeadZone,
    /// The control law moved the cap by the error.
    Feedback,
    /// The set-point, or the CPU time that a packet takes, changed what the set-point costs.
    FeedForward,
    /// What the metered CPU time does not explain moved the cap.
    Trim,
    /// What the second lacks so far, or has too much, moved the cap.
    MadeGood,
    /// The error asks for less than the least cap.
    CapLeast,
    /// The error asks for more than the largest cap.
    CapMost,
    /// Too few packets come to reach the set-point, and the cap is not what holds them.
    NoDemand,
    /// Nothing is forwarded, and nobody knows what a packet costs: the cap is doubled.
    Probe,
    /// The cap is the map's for this set-point.
    Map,
    /// The cap of the controller before stays until the set-point changes.
    Adopted,
    /// The rate is held by the limit at ingress; the cap is a ceiling above it.
    Limit,
    /// The router came close to its ceiling, which was raised.
    CeilingRaised,
    /// The router needs far less than its ceiling, which was lowered.
    CeilingLowered,
    /// The ceiling is the largest cap and the rate stays below the set-point.
    NoHeadroom,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeadZone => "error within the dead zone",
            Self::Feedback => "moved by the error",
            Self::FeedForward => "moved by set-point and CPU time a packet",
            Self::Trim => "moved by what metered CPU time does not explain",
            Self::MadeGood => "moved to make the second good",
            Self::CapLeast => "least cap",
            Self::CapMost => "largest cap",
            Self::NoDemand => "fewer packets come than the set-point",
            Self::Probe => "nothing forwarded: cap doubled",
            Self::Map => "cap of the map",
            Self::Adopted => "cap of the controller before",
            Self::Limit => "rate held at ingress",
            Self::CeilingRaised => "ceiling raised: nearly used up",
            Self::CeilingLowered => "ceiling lowered: far from used",
            Self::NoHeadroom => "no headroom: ceiling is the largest cap",
        })
    }
}
