// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The outcome of a seed: invariants that were broken, and counts.

use std::fmt;

use weir_units::Instant;

use super::mutants::Invariant;

/// An invariant that was broken.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// The time since the start of its part of the run.
    pub at: Instant,
    /// The observation.
    pub text: String,
}

/// Counts of runs: whether things happened at all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwarmTally {
    /// Passes of the control loops.
    pub ticks: u64,
    /// Events.
    pub events: u64,
    /// Changes of policies that were followed.
    pub changed: u64,
    /// Changes of policies that were refused.
    pub refused: u64,
    /// Crashes.
    pub crashes: u64,
    /// Frames that were offered to a switch.
    pub frames: u64,
}

impl SwarmTally {
    /// Adds the counts of another run.
    pub(crate) fn add(&mut self, other: &Self) {
        self.ticks += other.ticks;
        self.events += other.events;
        self.changed += other.changed;
        self.refused += other.refused;
        self.crashes += other.crashes;
        self.frames += other.frames;
    }
}

impl fmt::Display for SwarmTally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ticks, events, changed, refused, crashes, frames } = self;
        write!(
            f,
            "{ticks} passes, {events} events, {changed} changes followed and {refused} refused, \
             {crashes} crashes, {frames} frames"
        )
    }
}
