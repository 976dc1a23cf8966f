// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The file of a plan, as all commands on running nodes take it.

use std::fs::{self, File, TryLockError};
use std::path::Path;
use std::process::ExitCode;

use weir_plan::{NodePlan, PlanAnswer, PlanEffort, PlanRequest};
use weir_platform::failure::Failure;
use weir_platform::output;

use super::{text, view};

/// Reads the file of a plan.
pub(super) fn read(file: &Path) -> Result<PlanRequest, Failure> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = fs::read_to_string(file).map_err(|error| named(&error))?;
    Ok(weir_plan::read_request(&text).map_err(|problems| named(&problems))?)
}

/// Plans for running nodes: `Err` with the answer to print if the slices do not fit.
pub(super) fn placed(request: &PlanRequest) -> Result<NodePlan, PlanAnswer> {
    match weir_plan::plan(request, &PlanEffort::default()) {
        PlanAnswer::Placed(plan) => Ok(plan),
        refused @ PlanAnswer::Refused(_) => Err(refused),
    }
}

/// Prints why slices do not fit.
pub(super) fn print_refused(
    request: &PlanRequest,
    answer: &PlanAnswer,
    json: bool,
) -> Result<ExitCode, Failure> {
    if json {
        output::print_own(&view::answer(request, answer))?;
    } else {
        output::print(&text::answer(request, answer, false))?;
    }
    Ok(ExitCode::from(REFUSED))
}

/// Locks a plan's file against a second apply of it, until the result is dropped.
pub(super) fn lock(file: &Path) -> Result<File, Failure> {
    let named = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let opened = File::open(file).map_err(|error| named(&error))?;
    match opened.try_lock() {
        Ok(()) => Ok(opened),
        Err(TryLockError::WouldBlock) => {
            Err(named(&"another apply or recover of this plan runs").into())
        }
        Err(TryLockError::Error(error)) => Err(named(&error).into()),
    }
}

/// The exit status of a request that does not fit.
pub(super) const REFUSED: u8 = 5;
/// The exit status of a plan that is not held.
pub(super) const NOT_HELD: u8 = 6;
