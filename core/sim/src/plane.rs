// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interface of all data planes: they enforce a policy, and name what they lack.

use std::fmt;

use weir_policy::Policy;

/// An enforcer of a policy between vifs and ports: Weir's switch, the kernel's bridge, the
/// simulator.
pub trait DataPlane {
    /// Error of a refused policy.
    type Error;

    /// Returns what the data plane has means for. Means for a limit are no proof that the limit
    /// holds: experiments show that.
    fn abilities(&self) -> Abilities;

    /// Enforces `policy` from now on, also while traffic flows. A data plane is made with its first
    /// policy.
    ///
    /// # Errors
    /// The policy is refused; then the one before stays in force.
    fn apply(&mut self, policy: &Policy) -> Result<(), Self::Error>;
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
