// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Cycles as they are asked for, and how punctually they were served.

use alloc::vec::Vec;

use weir_units::Nanos;

use crate::ClassId;

/// A part of a cycle in which one owner alone may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// The owner: a class at the top.
    pub owner: ClassId,
    /// Its length.
    pub length: Nanos,
}

/// A cycle, repeated for ever.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CycleConfig {
    /// Its length; what the phases leave of it is closed.
    pub length: Nanos,
    /// The phases from its start on.
    pub phases: Vec<Phase>,
    /// Time before the end of a gate from which on no frame is begun, for a caller that hands it
    /// over late.
    pub guard: Nanos,
    /// Lends the time that an owner leaves to the others.
    pub borrow: bool,
}

/// How punctually gates were used whose owner had packets when they opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhaseCounters {
    /// Gates in which the scheduler was asked for a packet.
    pub met: u64,
    /// Gates that passed without such a call.
    pub missed: u64,
    /// Time from the opening of the gate met last to the first call in it.
    pub late: Nanos,
}
