// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The common part of the labs of routers.

use weir_control::CapError;
use weir_experiment::prelude::*;
use weir_platform::process::Identity;

use super::plan::Plan;

/// A lab of routers, as far as traffic that crosses them needs it.
pub(crate) trait Crossed {
    /// Returns its plan.
    fn plan(&self) -> &Plan;

    /// Returns the process of a router that is one.
    fn process(&self, router: usize) -> Option<Identity>;

    /// Reads the packets that a router has forwarded so far.
    fn forwarded(&mut self, router: usize) -> Result<u64, ExperimentError>;
}

/// Converts the error of a cap.
pub(super) fn failed(error: CapError) -> ExperimentError {
    ExperimentError::Node(error.to_string())
}
