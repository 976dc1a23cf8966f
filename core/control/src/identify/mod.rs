// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Identification (§5): what to run, where the cap stops to matter, and the model of what is below.
//!
//! *Synopsis*: [`TrainingPlan::steps`] says which caps to set under which load; [`curve`] makes
//! means and intervals of what came of it; [`cap_threshold`] says up to where it counts; [`fit`]
//! makes the model of that, and [`one_step`], [`free_run`] and [`persistence`] say how good it is
//! on a run that it has not seen.

mod curve;
mod fit;
mod plan;
mod validate;

pub use curve::{CurvePoint, cap_threshold, curve};
pub use fit::{FitError, Identified, OperatingPoint, Point, fit};
pub use plan::{PlanError, TrainingPlan, TrainingStep};
pub use validate::{Residual, free_run, one_step, persistence, r_squared};
