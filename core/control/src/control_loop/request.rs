// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The phases of a loop, and the requests that its owner may make (§8.1).

use core::fmt;

use weir_units::{Nanos, PacketRate};

/// The phase of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopPhase {
    /// It holds nothing: it was never activated, or was deactivated.
    Inactive,
    /// It holds its set-point.
    Active,
    /// Its settings are frozen, whatever happens.
    Paused,
    /// It is active, but had to release the router; it recovers by itself.
    Released,
}

/// A request of the owner of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopRequest {
    /// Hold a rate from now on.
    Activate(PacketRate),
    /// Hold another rate.
    SetPoint(PacketRate),
    /// Freeze the settings.
    Pause,
    /// Go on from the settings in force.
    Resume,
    /// Release the router.
    Deactivate,
    /// Go on with another controller.
    Switch(&'static str),
    /// Sample in another period.
    Period(Nanos),
}

/// The reason why a request is not possible in the loop's phase or range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoopError {
    /// The request is not possible in this phase.
    Phase {
        /// The request.
        request: LoopRequest,
        /// The phase.
        phase: LoopPhase,
    },
    /// The set-point is zero, or more than any router of this node forwards.
    SetPoint {
        /// The set-point.
        set_point: PacketRate,
        /// The bound.
        most: PacketRate,
    },
}

impl fmt::Display for LoopPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Inactive => "inactive",
            Self::Active => "active",
            Self::Paused => "paused",
            Self::Released => "released",
        })
    }
}

impl fmt::Display for LoopRequest {
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

impl fmt::Display for LoopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Phase { request, phase } => {
                write!(f, "cannot {request}: the instance is {phase}")
            }
            Self::SetPoint { set_point, most } => {
                write!(f, "set-point of {set_point}, must be above 0pps and at most {most}")
            }
        }
    }
}

impl core::error::Error for LoopError {}
