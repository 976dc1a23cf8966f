// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The planner: slices onto nodes.
//!
//! A [`PlanRequest`] has kinds of node (link, processors, sending cycle, how many there are, what
//! one costs) and slices (rates, frames, delay, processor time as an upper bound, phase).
//! [`plan()`] says where each slice goes, with which caps and phase, at a cost that is as low as
//! the [`PlanEffort`] finds, beside a lower bound that is proven. Or it refuses, with the smallest
//! set of slices that do not fit together, the resources that are scarce, and the smallest factor
//! on these that would do.
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
//! The way: slices by shape (`shapes`), shapes by class (`classes`), a master program over what a
//! node may hold (`columns`, `lp`, `knapsack`), whole nodes (`rounding`), real slices (`filling`),
//! repair (`repair`), and in integers the proof (`proof`). A refusal is the linear bound
//! (`capacity`), `QuickXplain` (`conflict`) and a search for a factor (`relaxation`).
//!
//! Pure: no clock, no entropy, no files. Work is bounded by counts, so the same request has the
//! same plan on each machine of one kind of processor.
//!
//! Not here: how a plan reaches nodes, and how processor time follows from rates and frames; it is
//! an input.

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
