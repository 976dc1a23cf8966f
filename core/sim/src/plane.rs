// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all data planes have in common: they take the same policy, count, and say what they lack.

use std::fmt;

use weir_policy::Policy;
use weir_switch::Tally;

/// Whatever enforces a policy between vifs and ports: Weir's switch, the kernel's bridge, the
/// simulator.
pub trait DataPlane {
    /// Why a policy was refused or counters cannot be read.
    type Error;

    /// Returns what the data plane has means for. Having means for something is no promise that it
    /// holds: that is for experiments to show.
    fn abilities(&self) -> Abilities;

    /// Enforces `policy` from now on. The first call starts the data plane; further ones change it
    /// while traffic flows.
    ///
    /// # Errors
    /// The policy is refused; then the one before stays in force.
    fn apply(&mut self, policy: &Policy) -> Result<(), Self::Error>;

    /// Returns what each vif sent and was given since the start, in the policy's order.
    ///
    /// # Errors
    /// The counters cannot be read.
    fn counters(&mut self) -> Result<Vec<VifTraffic>, Self::Error>;
}

/// What every data plane counts of a vif.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VifTraffic {
    /// Its name.
    pub vif: String,
    /// Frames that it handed to the data plane, whatever became of them.
    pub from_vif: Tally,
    /// Frames that were handed to it.
    pub to_vif: Tally,
}

/// Something that an experiment needs a data plane to have means for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// `priority`: shares in proportion to a weight.
    Weight,
    /// `min_rate` of what a vif sends.
    Minimum,
    /// `min_rate` of what a vif receives.
    ReceiveMinimum,
    /// `rate` of what a vif sends to a port.
    Maximum,
    /// `rate` between two vifs, and of what a vif receives.
    NeighbourMaximum,
    /// `max_pps`.
    PacketRate,
    /// `delay`.
    Delay,
    /// A change of policy while traffic flows.
    Change,
}

/// The abilities of a data plane: all but those listed, each with the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    lacking: &'static [(Ability, &'static str)],
}

impl Abilities {
    /// Means for everything.
    pub const ALL: Self = Self::all_but(&[]);

    /// Means for everything but these, each with the reason.
    #[must_use]
    pub const fn all_but(lacking: &'static [(Ability, &'static str)]) -> Self {
        Self { lacking }
    }

    /// Returns why there are no means for `ability`; `None` if there are.
    #[must_use]
    pub fn lacks(&self, ability: Ability) -> Option<&'static str> {
        self.lacking.iter().find(|(lacking, _)| *lacking == ability).map(|(_, why)| *why)
    }
}

impl fmt::Display for Ability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Weight => "weights",
            Self::Minimum => "minimums",
            Self::ReceiveMinimum => "minimums towards a tenant",
            Self::Maximum => "maximums",
            Self::NeighbourMaximum => "maximums between tenants",
            Self::PacketRate => "packet rates",
            Self::Delay => "delay bounds",
            Self::Change => "changes under load",
        })
    }
}
