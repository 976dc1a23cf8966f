// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes to another policy: at a start, and while a node runs.

use weir_kernel_plan::compile;
use weir_platform::journal::Journal;
use weir_platform::run::Platform;
use weir_policy::Policy;

use crate::error::KernelPlaneError;
use crate::new_ports::NewPorts;
use crate::plane::{AppliedPolicy, KernelPlane};

impl KernelPlane {
    /// Makes the host enforce `policy` from now on: applies the plan that leads there from the
    /// present state.
    ///
    /// # Errors
    /// The policy cannot be enforced here, or a step failed; then everything is as before.
    pub fn apply(
        &mut self,
        policy: &Policy,
        journal: &mut Journal,
    ) -> Result<AppliedPolicy, KernelPlaneError> {
        self.apply_all(policy, NewPorts::Wait, journal)
    }

    /// Makes the host enforce another policy while the node runs, as [`Self::apply`] does.
    ///
    /// # Errors
    /// The errors of [`Self::apply`], or a new port's device is missing.
    pub fn change(
        &mut self,
        policy: &Policy,
        journal: &mut Journal,
    ) -> Result<AppliedPolicy, KernelPlaneError> {
        self.apply_all(policy, NewPorts::Refused, journal)
    }

    /// Checks that a live change to `policy` could be made. Changes nothing.
    ///
    /// # Errors
    /// The policy cannot be enforced here, or a command failed.
    pub fn check(&self, policy: &Policy, on: &dyn Platform) -> Result<(), KernelPlaneError> {
        let view = self.view(on, &self.record.all())?;
        let compiled = compile(policy, &view.facts, &self.record.setup);
        let compiled = compiled.map_err(KernelPlaneError::Refused)?;
        NewPorts::Refused.check(&compiled, &self.record.devices)
    }

    fn apply_all(
        &mut self,
        policy: &Policy,
        new_ports: NewPorts,
        journal: &mut Journal,
    ) -> Result<AppliedPolicy, KernelPlaneError> {
        let applied = self.apply_once(policy, new_ports, journal)?;
        // Vifs were postponed for lack of numbers. The numbers of removed owners are free now.
        match applied.compiled.postponed.is_empty() {
            true => Ok(applied),
            false => self.apply_once(policy, new_ports, journal),
        }
    }
}
