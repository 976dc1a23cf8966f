// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Identification (§5) of a capped router: a training, the cap above which it has no effect, and
//! a model of the range below.
//!
//! *Synopsis*: [`TrainingPlan::steps`] lists caps to set under loads; [`curve`] computes means and
//! intervals of the results; [`cap_threshold`] finds the end of the useful range; [`fit`] fits the
//! model to it. [`one_step`], [`free_run`] and [`persistence`] validate the model on a run that it
//! has not seen.

mod curve;
mod fit;
mod identified;
mod plan;
mod validate;

pub use curve::{CurvePoint, cap_threshold, curve};
pub use fit::{FitError, fit};
pub use identified::{Identified, OperatingPoint, Point};
pub use plan::{PlanError, TrainingPlan, TrainingStep};
pub use validate::{Residual, free_run, one_step, persistence, r_squared};
