// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The few words that the switch and its callers share.

use weir_sched::WaitReason;
use weir_units::Instant;

use crate::pool::Frame;

/// An interface of the switch: the ports first, then the vifs, in the policy's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfaceId(pub u32);

/// The answer to "what is next for this interface?".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transmit {
    /// This frame; it is the caller's now, and must reach the device.
    Frame(Frame),
    /// Frames are queued, none may leave before `until`.
    Wait {
        /// The next instant worth a call.
        until: Instant,
        /// What is waited for.
        why: WaitReason,
    },
    /// Nothing is queued: for a vif, in neither of the trees that feed it.
    Idle,
}
