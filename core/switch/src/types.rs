// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Types that the switch and its callers share.

use weir_sched::WaitReason;
use weir_units::Instant;

use crate::pool::Frame;

/// An interface of a switch: a port or a vif. It is given when the interface appears in a policy,
/// and stays the same until the interface leaves; afterwards it leads nowhere. At the start the
/// ports are numbered first, then the vifs, from 0 and in the policy's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfaceId(pub u32);

/// The answer of [`crate::Switch::transmit`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// This frame; it is the caller's now, and must reach the device.
    Frame(Frame),
    /// Frames are queued, but none may leave before `until`.
    Wait {
        /// The next instant worth a call.
        until: Instant,
        /// The reason for the wait.
        why: WaitReason,
    },
    /// Nothing is queued: for a vif, in neither of the trees that feed it.
    Idle,
}

impl IfaceId {
    /// Bits of the slot, below those of the generation.
    pub(crate) const SLOT_BITS: u32 = 16;

    /// Returns the place of the interface in every table by interface, below 65 536: a caller that
    /// keeps something for each interface can keep it there, as long as it compares the whole id.
    #[inline]
    #[must_use]
    pub const fn slot(self) -> usize {
        (self.0 & ((1 << Self::SLOT_BITS) - 1)) as usize
    }
}
