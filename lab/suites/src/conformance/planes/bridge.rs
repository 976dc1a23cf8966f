// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's bridge and a FIFO at the link's rate: the control. It holds nothing, so an
//! experiment that it passes shows nothing.

use weir_experiment::{ExperimentError, Forwarder, Testbed};

use crate::conformance::intent::Intent;
use crate::conformance::plane::DataPlane;

/// A bridge that is asked for everything and has means for nothing.
#[derive(Clone, Copy, Debug)]
pub struct Bridge;

impl DataPlane for Bridge {
    fn name(&self) -> &'static str {
        "bridge"
    }

    fn about(&self) -> &'static str {
        "the kernel's bridge and a FIFO at the link's rate: a control, which must fail"
    }

    fn start(&mut self, rig: &mut Testbed, _intent: &Intent) -> Result<(), ExperimentError> {
        rig.put(&Forwarder::Bridge)
    }

    fn change(&mut self, _rig: &Testbed, _intent: &Intent) -> Result<(), ExperimentError> {
        Ok(())
    }

    fn stop(&mut self, _rig: &mut Testbed) -> Result<(), ExperimentError> {
        Ok(())
    }
}
