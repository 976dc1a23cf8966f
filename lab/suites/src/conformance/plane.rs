// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What every data plane can be asked: to start with an intent, to change to another, to stop.

use std::fmt;

use weir_experiment::{ExperimentError, Testbed};

use super::intent::Intent;
use super::planes::{Bridge, Htb, Switch};

/// Whatever stands in the middle of the star: it joins the tenants' devices and the uplink, and
/// holds what it can of an intent.
pub trait DataPlane {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// What it is, in a sentence.
    fn about(&self) -> &'static str;

    /// Why it has no means for something, if so: experiments that need it are skipped, by name.
    /// What it has means for, but does not hold, is for the experiment to show.
    fn lacks(&self, ability: Ability) -> Option<&'static str> {
        let _held = ability;
        None
    }

    /// Takes the middle of the star, which is empty.
    ///
    /// # Errors
    /// It cannot be put there.
    fn start(&mut self, rig: &mut Testbed, intent: &Intent) -> Result<(), ExperimentError>;

    /// Changes what it holds while traffic flows. The tenants are the same.
    ///
    /// # Errors
    /// It refuses the change.
    fn change(&mut self, rig: &Testbed, intent: &Intent) -> Result<(), ExperimentError>;

    /// Called once while traffic flows, after all changes; returns before the traffic ends.
    ///
    /// # Errors
    /// What was to be done beside the traffic could not be done.
    fn beside(&mut self, rig: &Testbed) -> Result<(), ExperimentError> {
        let _nothing = rig;
        Ok(())
    }

    /// Gives the middle back.
    ///
    /// # Errors
    /// It ended with a failure.
    fn stop(&mut self, rig: &mut Testbed) -> Result<(), ExperimentError>;
}

/// What an experiment needs a data plane to have means for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ability {
    /// [`weight`](super::intent::Limits::weight).
    Weight,
    /// [`min_rate`](super::intent::Limits::min_rate) of what a tenant sends.
    Minimum,
    /// The same of what it receives.
    ReceiveMinimum,
    /// [`rate`](super::intent::Limits::rate) of what a tenant sends to the link.
    Maximum,
    /// The same between two tenants, and of what a tenant receives.
    NeighbourMaximum,
    /// [`max_pps`](super::intent::Limits::max_pps).
    PacketRate,
    /// [`delay`](super::intent::Tenant::delay).
    Delay,
    /// [`DataPlane::change`].
    Change,
}

/// The data planes that there are.
#[must_use]
pub fn all() -> Vec<Box<dyn DataPlane>> {
    vec![Box::new(Switch), Box::new(Bridge), Box::new(Htb)]
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
