// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Follows the devices of a data plane in force: a device at which a step fails is left out, so
//! that the plan of all others goes on.
//!
//! The first failure may be of a device that is being made or has just gone, so the host is read
//! once more, and the steps of each device run apart from then on. A device that fails again is
//! left out.

use weir_kernel_plan::DeviceFault;
use weir_platform::journal::Journal;
use weir_policy::Policy;

use crate::error::KernelPlaneError;
use crate::plane::{AppliedPolicy, KernelPlane};

impl KernelPlane {
    /// Makes the host enforce `policy` after its devices changed. Does the same as
    /// [`Self::apply`], but a device at which a step fails is a fault of its port or vif alone.
    ///
    /// # Errors
    /// The errors of [`Self::apply`] that are of no single device.
    pub fn follow(
        &mut self,
        policy: &Policy,
        journal: &mut Journal,
    ) -> Result<AppliedPolicy, KernelPlaneError> {
        self.faults.forget_old();
        let followed = loop {
            let error = match self.apply(policy, journal) {
                Ok(applied) => break Ok(applied),
                Err(error) => error,
            };
            let KernelPlaneError::Step { device, has_programs, source } = error else {
                break Err(error);
            };
            if !self.faults.apart {
                self.faults.apart = true;
                continue;
            }
            let reason = source.to_string().trim_end().replace('\n', "; ");
            let fault = DeviceFault { reason, has_programs };
            let is_new = device.clone().is_some_and(|device| self.faults.add(device, fault));
            if !is_new {
                break Err(KernelPlaneError::Step { device, has_programs, source });
            }
        };
        self.faults.apart = false;
        followed
    }
}
