// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes that wait for a vif's device alone, and their bound: see [`super::ready`].

use weir_policy::{Policy, Vif};

/// The frames of one vif that wait for its device alone.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeviceBacklog {
    pub(super) bytes: u32,
    /// The vif's class is paused at this many bytes.
    pub(super) bytes_max: u32,
    pub(super) is_paused: bool,
}

impl DeviceBacklog {
    pub(super) const NONE: Self = Self { bytes: 0, bytes_max: u32::MAX, is_paused: false };

    /// Takes over the bound of a policy.
    pub(super) fn follow(&mut self, policy: &Policy, vif: &Vif) {
        let bytes = policy.in_flight(vif).and_then(|bytes| u32::try_from(bytes.get()).ok());
        self.bytes_max = bytes.unwrap_or(u32::MAX);
    }
}
