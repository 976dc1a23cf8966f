// SPDX-License-Identifier: Apache-2.0 OR MIT
//! New ports of a policy whose devices are missing.
//!
//! At a start a port may wait for its device, since a node starts before the host's network. A live
//! change that adds a port without its device is refused, since the name may be wrong: the change
//! would then remove the tree of the port's real device.

use std::collections::BTreeSet;

use weir_kernel_plan::CompiledPolicy;

use crate::error::KernelPlaneError;

/// Treatment of new ports whose devices are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewPorts {
    /// They wait for their devices.
    Wait,
    /// The policy is refused for them.
    Refused,
}

impl NewPorts {
    /// Checks a policy, where the one in force before had these `devices`.
    ///
    /// # Errors
    /// It is refused for its new ports.
    pub(crate) fn check(
        self,
        compiled: &CompiledPolicy,
        devices: &BTreeSet<String>,
    ) -> Result<(), KernelPlaneError> {
        let waiting = compiled.ports_waiting.iter();
        let new = waiting.filter(|(device, _)| !devices.contains(*device));
        let new: Vec<_> = new.map(|(_, problem)| problem.clone()).collect();
        if new.is_empty() || self == Self::Wait {
            return Ok(());
        }
        Err(KernelPlaneError::Refused(new))
    }
}
