// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The invariants of a swarm, and a planted fault for each.
//!
//! A check that cannot fail proves nothing. Each fault sits in the harness, beneath or beside the
//! code that ships, and its invariant must catch it within a hundred seeds.

use std::fmt;
use std::str::FromStr;

/// A statement that holds in every run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// The set-points of routers that use them, and the rates of the others, are within the
    /// capacity.
    Capacity,
    /// A router under police is held at its minimum or above, unless it is stopped.
    Minimum,
    /// A router that asks for no more than its guarantee gets what it asks for, whatever others do.
    Innocent,
    /// Much capacity is idle only if every router that never flooded gets what it asks for.
    Spare,
    /// Every cap is within the policy's range, and limits are where there is an ingress.
    Range,
    /// Actuators are called, and routers taken, a bounded number of times a second; each tick is
    /// followed by a later one.
    Storm,
    /// A dry run, and a router that is off, change nothing.
    Untouched,
    /// The budgets of real-time classes, and caps above them, are within what is granted.
    Budgets,
    /// The manager holds the routers of the policy in force, in their states.
    Policy,
    /// After the last fault every router reaches the rate that it should have.
    Convergence,
    /// A node that crashed and started again treats its routers as before.
    Adoption,
    /// The end of a node leaves no cap, no limit and no class behind.
    Restored,
    /// Every frame is sent, is dropped for a reason, or waits; none is dropped after scheduling.
    Conservation,
    /// Frames of one source and interface leave in their order.
    Order,
    /// In no interval does more leave than rate and burst allow.
    Rate,
    /// A vif with a minimum gets it while it asks for it.
    Share,
    /// The laws of the smooth window.
    Shaper,
    /// Nothing panics.
    Panic,
}

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SwarmMutant {
    /// The manager is told a capacity that is larger by half.
    SharesTooMuch,
    /// The manager is told half of each minimum.
    HalvesMinimums,
    /// The meters of routers with vifs see five times what is offered.
    BlamesInnocents,
    /// The router beside one that is limited is nearly stopped.
    LimitsNeighbours,
    /// The manager is not told the range of caps.
    IgnoresRange,
    /// Each call of the actuator counts as 40.
    CallsTooOften,
    /// The manager is not told of dry runs.
    ActsInDryRuns,
    /// Real-time classes are admitted without a test.
    AdmitsEverything,
    /// Changes of the policy do not reach the manager.
    LosesChanges,
    /// Limits are set to seven tenths of what was requested.
    HoldsLess,
    /// A start after a crash does not undo what the run before left.
    ForgetsAfterCrash,
    /// A router that is given back keeps its cap.
    KeepsCaps,
    /// A frame vanishes on its way out.
    LosesFrame,
    /// Two frames of one source leave in the wrong order.
    SwapsFrames,
    /// The switch is told rates that are a tenth larger.
    SendsFaster,
    /// The switch is told no minimums.
    IgnoresMinimums,
    /// The shaper lends time without end.
    ForgetsCredit,
    /// A call of an actuator panics.
    Panics,
}

impl Invariant {
    /// All invariants.
    pub const ALL: [Self; 18] = [
        Self::Capacity,
        Self::Minimum,
        Self::Innocent,
        Self::Spare,
        Self::Range,
        Self::Storm,
        Self::Untouched,
        Self::Budgets,
        Self::Policy,
        Self::Convergence,
        Self::Adoption,
        Self::Restored,
        Self::Conservation,
        Self::Order,
        Self::Rate,
        Self::Share,
        Self::Shaper,
        Self::Panic,
    ];

    /// Returns the invariant's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Minimum => "minimum",
            Self::Innocent => "innocent",
            Self::Spare => "spare",
            Self::Range => "range",
            Self::Storm => "storm",
            Self::Untouched => "untouched",
            Self::Budgets => "budgets",
            Self::Policy => "policy",
            Self::Convergence => "convergence",
            Self::Adoption => "adoption",
            Self::Restored => "restored",
            Self::Conservation => "conservation",
            Self::Order => "order",
            Self::Rate => "rate",
            Self::Share => "share",
            Self::Shaper => "shaper",
            Self::Panic => "panic",
        }
    }
}

impl SwarmMutant {
    /// Each planted fault with the invariant that must catch it.
    pub const CAUGHT_BY: [(Self, Invariant); 18] = [
        (Self::SharesTooMuch, Invariant::Capacity),
        (Self::HalvesMinimums, Invariant::Minimum),
        (Self::LimitsNeighbours, Invariant::Innocent),
        (Self::BlamesInnocents, Invariant::Spare),
        (Self::IgnoresRange, Invariant::Range),
        (Self::CallsTooOften, Invariant::Storm),
        (Self::ActsInDryRuns, Invariant::Untouched),
        (Self::AdmitsEverything, Invariant::Budgets),
        (Self::LosesChanges, Invariant::Policy),
        (Self::HoldsLess, Invariant::Convergence),
        (Self::ForgetsAfterCrash, Invariant::Adoption),
        (Self::KeepsCaps, Invariant::Restored),
        (Self::LosesFrame, Invariant::Conservation),
        (Self::SwapsFrames, Invariant::Order),
        (Self::SendsFaster, Invariant::Rate),
        (Self::IgnoresMinimums, Invariant::Share),
        (Self::ForgetsCredit, Invariant::Shaper),
        (Self::Panics, Invariant::Panic),
    ];

    /// Returns the fault's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::SharesTooMuch => "shares-too-much",
            Self::HalvesMinimums => "halves-minimums",
            Self::BlamesInnocents => "blames-innocents",
            Self::LimitsNeighbours => "limits-neighbours",
            Self::IgnoresRange => "ignores-range",
            Self::CallsTooOften => "calls-too-often",
            Self::ActsInDryRuns => "acts-in-dry-runs",
            Self::AdmitsEverything => "admits-everything",
            Self::LosesChanges => "loses-changes",
            Self::HoldsLess => "holds-less",
            Self::ForgetsAfterCrash => "forgets-after-crash",
            Self::KeepsCaps => "keeps-caps",
            Self::LosesFrame => "loses-frame",
            Self::SwapsFrames => "swaps-frames",
            Self::SendsFaster => "sends-faster",
            Self::IgnoresMinimums => "ignores-minimums",
            Self::ForgetsCredit => "forgets-credit",
            Self::Panics => "panics",
        }
    }
}

impl fmt::Display for SwarmMutant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for SwarmMutant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::CAUGHT_BY.into_iter().find(|(mutant, _)| mutant.name() == text);
        let names = || Self::CAUGHT_BY.map(|(mutant, _)| mutant.name()).join(", ");
        found.map(|(mutant, _)| mutant).ok_or_else(|| format!("{text}: not one of {}", names()))
    }
}
