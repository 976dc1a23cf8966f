// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The planner: places slices on nodes.
//!
//! A [`PlanRequest`] has kinds of node (link, processors, sending cycle, count, cost) and slices
//! (rates, frames, delay, processor time as an upper bound, phase). [`plan()`] answers with a node,
//! caps and a phase for each slice. The plan's cost is the lowest that the [`PlanEffort`] finds; a
//! proven lower bound stands beside it. If the slices do not fit, the answer is a refusal: an
//! irreducible set of slices that do not fit together, the scarce resources, and the smallest
//! factor on these with which the slices would fit.
//!
//! ```
//! let request = weir_plan::read_request(r#"
//! [[node]]
//! name = "edge"
//! count = 2
//! link = "1Gbit"
//! cpu = "100%"
//! [[slice]]
//! name = "gold"
//! count = 3
//! send = "100Mbit"
//! frames = "1024B"
//! cpu = "40%"
//! "#).unwrap();
//! let weir_plan::PlanAnswer::Placed(plan) = weir_plan::plan(&request, &Default::default()) else {
//!     panic!("they fit");
//! };
//! assert_eq!((plan.nodes.len(), plan.cost_bound), (2, 2));
//! assert!(weir_plan::audit(&request, &plan).is_empty());
//! ```
//!
//! The steps of a plan, by module: group slices by shape (`shapes`) and shapes by class
//! (`classes`); solve a linear master program whose columns are patterns, the sets of slices that
//! one node may hold (`columns`, `lp`, `knapsack`); round to whole nodes (`rounding`); put real
//! slices into the patterns (`filling`); repair the rest (`repair`); prove the bound in integers
//! (`proof`). A refusal comes from the linear bound (`capacity`, `loads`), a conflict (`shrinking`
//! by that bound, `conflict` by patterns) and a search for a factor (`relaxation`).
//!
//! Pure: no clock, no entropy, no files. Work is bounded by counts, so a request has the same plan
//! on all machines with one kind of processor.
//!
//! Not here: how a plan reaches nodes, and how processor time follows from rates and frames.
//! Processor time is an input.

mod audit;
mod capacity;
mod classes;
mod columns;
mod conflict;
mod demand;
mod document;
mod effort;
mod filling;
mod first_fit;
mod fluid;
mod knapsack;
mod loads;
mod lp;
mod packing;
mod placement;
mod plan;
mod proof;
mod relaxation;
mod repair;
mod request;
mod resource;
mod rounding;
mod shapes;
mod shrinking;
mod solve;

pub use audit::audit;
pub use capacity::falls_short;
pub use conflict::SliceConflict;
pub use demand::{KindMismatch, SliceDemand};
pub use document::read_request;
pub use effort::PlanEffort;
pub use plan::{
    FirstFitSummary, NodePlan, PlanAnswer, PlanRefusal, PlannedNode, PlannedSlice, RefusalGround,
    plan,
};
pub use relaxation::{RelaxedOutcome, ResourceRelaxation, ScarceResource, try_relaxed};
pub use request::{
    COST_MAX, CycleLayout, FRAME_MAX, FRAME_MIN, FrameMix, KINDS_MAX, LONGEST_FRAME, ModelGap,
    NODES_MAX, NodeApi, NodeKind, PLAN_SLICES_MAX, PlanRequest, SliceRequest,
};
pub use resource::{Resource, ResourceAmounts};
