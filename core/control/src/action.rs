// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Actions of controllers, each with its reason.

use core::fmt;

use weir_units::{CpuShare, Instant, PacketRate};

use crate::Sample;

/// The settings that a controller requests from now on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Action {
    /// When it was decided.
    pub at: Instant,
    /// The router's cap, always one of its range.
    pub cap: CpuShare,
    /// Packets a second that may reach the router; `None`: as many as come.
    pub limit: Option<PacketRate>,
    /// True if it differs from the last action, or is the first since the controller was made or
    /// took over. Otherwise no actuator need be called.
    pub changed: bool,
    /// The reason for the cap.
    pub reason: ActionReason,
}

/// A cap and a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its cap.
    pub cap: CpuShare,
    /// Packets a second that may reach it; `None`: as many as come.
    pub limit: Option<PacketRate>,
}

impl Action {
    /// Returns the requested settings.
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

    /// Returns the cap that holds the measured rate. Under a limit the cap in force is a ceiling
    /// and holds nothing: a controller that takes over without the limit starts from the CPU time
    /// that the rate costs.
    pub(crate) fn binding(self, sample: Option<&Sample>) -> CpuShare {
        let used = sample.and_then(Sample::used).filter(|used| *used > CpuShare::ZERO);
        match (self.limit, used) {
            (Some(_), Some(used)) => used.min(self.cap),
            _ => self.cap,
        }
    }
}

/// The last request, to tell changes. The first action counts as a change, and so does the first
/// after [`LastRequest::forget`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LastRequest(Option<(CpuShare, Option<PacketRate>)>);

impl LastRequest {
    pub(crate) fn act(
        &mut self,
        at: Instant,
        cap: CpuShare,
        limit: Option<PacketRate>,
        reason: ActionReason,
    ) -> Action {
        let changed = self.0.replace((cap, limit)) != Some((cap, limit));
        Action { at, cap, limit, changed, reason }
    }

    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }
}

/// The reason of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActionReason {
    /// The error is within the dead zone: the cap stays.
    DeadZone,
    /// The control law moved the cap by the error.
    Feedback,
    /// The set-point, or the CPU time that a packet takes, changed what the set-point costs.
    FeedForward,
    /// A difference that the metered CPU time does not explain moved the cap.
    Trim,
    /// The cap compensates packets that the last second lacks or has too many.
    Compensation,
    /// The error asks for less than the least cap.
    CapLeast,
    /// The error asks for more than the largest cap.
    CapMost,
    /// Fewer packets are offered than the set-point, and the cap is not the bottleneck.
    NoDemand,
    /// Nothing is forwarded, and the cost of a packet is unknown: the cap is doubled.
    Probe,
    /// The cap is the map's for this set-point.
    Map,
    /// The cap of the previous controller stays until the set-point changes.
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

impl fmt::Display for ActionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::DeadZone => "error within the dead zone",
            Self::Feedback => "moved by the error",
            Self::FeedForward => "moved by set-point and CPU time a packet",
            Self::Trim => "moved by what metered CPU time does not explain",
            Self::Compensation => "moved to make the second good",
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
