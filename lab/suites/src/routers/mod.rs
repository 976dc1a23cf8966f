// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers of the lab, which forward between a source and a sink and whose CPU time is capped: a
//! namespace, for which the kernel's threads forward, or a process that forwards by itself.
//!
//! A `RouterLab` is up as long as its value lives. Weir's data plane stands between the routers and
//! all other devices, as on a node. A `Loop` runs the control loop that the node ships on one of
//! its routers, in real time. In a `HeldLab` running nodes hold the routers by themselves.
//! `Traffic` flows while an experiment works with either.

mod chain;
mod contender;
mod crossed;
pub mod disturbance;
pub mod forward;
mod held_lab;
mod ingress;
mod kinds;
mod lab;
mod plan;
mod probe;
mod router;
mod rules;
mod sampling;
mod shared;
mod traffic;
mod training;

pub(crate) use chain::{Chain, ChainRun, HOPS, Tried, lost, prefix};
pub use contender::{Contender, LeastCap};
pub(crate) use contender::{Known, PERIOD_TEXT, cap_alone, hold};
pub(crate) use crossed::Crossed;
pub(crate) use disturbance::Disturbance;
pub(crate) use held_lab::{HeldLab, SAMPLING, UNLIMITED};
pub(crate) use kinds::HoldingMeans;
pub use kinds::RouterKind;
pub(crate) use lab::RouterLab;
pub(crate) use plan::{MTU_TCP, Plan, ProbePath, Shape};
pub(crate) use probe::{Probed, probing};
pub(crate) use rules::RuleList;
pub(crate) use sampling::{Loop, RouterSample};
pub(crate) use shared::{pps, shares};
pub(crate) use traffic::{Flowed, RouterLoad, Traffic};
pub(crate) use training::{Trained, Training, below, capacity, mean};
