// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Live changes: a policy is refused before anything is made for it.

use weir_kernel_plan::{CompiledPolicy, KernelProblem, compile};
use weir_platform::journal::Journal;
use weir_platform::run::Platform;
use weir_policy::Policy;

use crate::error::KernelPlaneError;
use crate::plane::{AppliedPolicy, KernelPlane};

impl KernelPlane {
    /// Checks that the host could enforce `policy`. Changes nothing.
    ///
    /// # Errors
    /// The policy cannot be enforced here, or a command failed.
    pub fn check(&self, policy: &Policy, on: &dyn Platform) -> Result<(), KernelPlaneError> {
        let view = self.view(on, &self.record.all())?;
        let compiled = compile(policy, &view.facts, &self.record.setup);
        let CompiledPolicy { policy, ports_waiting, .. } =
            compiled.map_err(KernelPlaneError::Refused)?;
        let is_new = |problem: &KernelProblem| {
            let mut ports = policy.ports.iter();
            let port = ports.find(|port| problem.place == format!("port {:?}.device", port.name));
            port.is_some_and(|port| !self.record.devices.contains(&port.device))
        };
        let new: Vec<_> = ports_waiting.into_iter().filter(is_new).collect();
        if new.is_empty() { Ok(()) } else { Err(KernelPlaneError::Refused(new)) }
    }

    /// Makes the host enforce another policy while the node runs, as [`Self::apply`] does. A new
    /// port whose device is missing is refused: the wrong name would take a tree away.
    ///
    /// # Errors
    /// The errors of [`Self::apply`], or a new port's device is missing.
    pub fn change(
        &mut self,
        policy: &Policy,
        journal: &mut Journal,
    ) -> Result<AppliedPolicy, KernelPlaneError> {
        self.check(policy, &journal.host())?;
        self.apply(policy, journal)
    }
}
