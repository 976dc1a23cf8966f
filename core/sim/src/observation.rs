// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames on their way, as a run reports them.

use weir_switch::{Frame, IfaceId};
use weir_units::Instant;

use crate::probe::Probe;

/// A frame of a source that left the node, at the far end of the link that it left by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Instant of its arrival there; without a link, of its departure.
    pub at: Instant,
    /// Interface that it left by.
    pub iface: IfaceId,
    /// Its source, by position.
    pub source: usize,
    /// Its number within the source, from 0.
    pub number: u64,
    /// Instant at which it was offered.
    pub offered: Instant,
    /// Its length, with the tag of its VLAN if it has one.
    pub bytes: u64,
}

/// An event that a run reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Observation {
    /// A source handed in a frame, whatever became of it.
    Offered {
        /// Instant of the offer.
        at: Instant,
        /// The source, by position.
        source: usize,
        /// Length of the frame.
        bytes: u64,
    },
    /// A frame left.
    Left(Departure),
}

/// A frame on a link.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Flight {
    /// Towards the switch.
    In(IfaceId, Frame),
    /// Away from it: a frame of a source, with its stamp and its length.
    Out(IfaceId, Probe, u16),
}

impl Departure {
    /// Makes the departure of a frame from its stamp.
    pub(crate) fn new(at: Instant, iface: IfaceId, probe: Probe, len: u16) -> Self {
        let Probe { source, number, offered } = probe;
        Self { at, iface, source: source as usize, number, offered, bytes: len.into() }
    }
}
