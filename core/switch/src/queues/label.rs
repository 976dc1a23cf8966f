// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Labels of frames: the traits of a queue, and the part of a frame that it is told.

use weir_sched::Packet;
use weir_units::Instant;

/// Traits of the queue of a vif and direction, in one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueTraits(u8);

/// The part of a frame's content that scheduling knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlowLabel {
    /// The two ECN bits.
    pub(crate) ecn: u8,
    /// The hash of its flow; 0 where its queue tells no flows apart.
    pub(crate) flow: u32,
    /// Set if a stage before the trees has accepted the frame: its queue may not refuse it.
    pub(crate) accepted: bool,
}

impl QueueTraits {
    pub(super) const NONE: Self = Self(0);

    /// Makes the traits. `limited`: a bit rate limits the vif, its router or its slice; `flows`:
    /// the queue tells flows apart.
    pub(super) const fn new(limited: bool, flows: bool) -> Self {
        Self(limited as u8 | (flows as u8) << 1)
    }

    /// Tells whether a bit rate limits the vif, its router or its slice.
    #[inline]
    pub(crate) const fn limited(self) -> bool {
        self.0 & 1 != 0
    }

    /// Tells whether its queue tells flows apart.
    #[inline]
    pub(crate) const fn flows(self) -> bool {
        self.0 & 2 != 0
    }
}

impl FlowLabel {
    /// Returns the packet of a frame.
    #[inline]
    pub(super) fn packet(self, id: u32, bytes: u32, now: Instant) -> Packet {
        let packet = Packet::new(id, bytes, now).of_flow(self.flow);
        match self.ecn {
            0 => packet,
            ECT_1 => packet.scalable(),
            _ => packet.ecn_capable(),
        }
    }
}

/// The ECN bits of an L4S sender (RFC 9331 §4.1).
const ECT_1: u8 = 1;
