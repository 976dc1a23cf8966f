// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What an owner may ask of an instance, what it can be at, and what cannot be asked of it then.

use core::fmt;

use weir_units::{Nanos, PacketRate};

/// What an instance is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It was not activated, or deactivated: no cap is in force by it.
    Inactive,
    /// It holds its set-point.
    Active,
    /// The cap that its set-point needed at last stays, whatever happens.
    Paused,
    /// It is active, but had to take its cap away; it tries again by itself.
    Released,
}

/// What its owner may ask of an instance (§8.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Hold a rate from now on.
    Activate(PacketRate),
    /// Hold another rate.
    SetPoint(PacketRate),
    /// Leave the cap as it is, but for what one sample alone was to make good.
    Pause,
    /// Go on from the cap in force.
    Resume,
    /// Take the cap away.
    Deactivate,
    /// Go on with another controller.
    Switch(&'static str),
    /// Be sampled in another period.
    Period(Nanos),
}

/// What cannot be asked of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InstanceError {
    /// Not at what it is at.
    Phase {
        /// What was asked.
        verb: Verb,
        /// What it is at.
        phase: Phase,
    },
    /// A set-point of nothing, or of more than any router of this node forwards.
    SetPoint {
        /// The set-point.
        set_point: PacketRate,
        /// The bound.
        most: PacketRate,
    },
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inactive => "inactive",
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Released => "released",
        })
    }
}

impl fmt::Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Activate(set_point) => write!(f, "activate at {set_point}"),
            Self::SetPoint(set_point) => write!(f, "set-point {set_point}"),
            Self::Pause => write!(f, "pause"),
            Self::Resume => write!(f, "resume"),
            Self::Deactivate => write!(f, "deactivate"),
            Self::Switch(name) => write!(f, "switch to {name}"),
            Self::Period(period) => write!(f, "sample every {period}"),
        }
    }
}

impl fmt::Display for InstanceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Phase { verb, phase } => write!(f, "cannot {verb}: the instance is {phase}"),
            Self::SetPoint { set_point, most } => {
                write!(f, "set-point of {set_point}, must be above 0pps and at most {most}")
            }
        }
    }
}

impl core::error::Error for InstanceError {}
