// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers of the lab, which forward between a source and a sink and whose CPU time is capped: a
//! namespace, for which the kernel's threads forward, or a process that forwards by itself.
//!
//! In a `RouterLab` running nodes hold the routers, with the control loop that ships.
//! `RouterTraffic` flows and probes go along while an experiment works with it.

mod bench;
mod chain;
mod contender;
pub mod disturbance;
pub mod forward;
mod kinds;
mod lab;
mod lab_policy;
mod plan;
mod probe;
mod rules;
mod sample;
mod traffic;
mod training;

pub(crate) use bench::{BenchLoad, RouterBench};
pub(crate) use chain::{Chain, ChainRun, ChainTrial, HOPS, lost, prefix};
pub use contender::{Contender, LeastCap};
pub(crate) use contender::{PERIOD_TEXT, RouterKnowledge};
pub(crate) use disturbance::Disturbance;
pub(crate) use kinds::HoldingMeans;
pub use kinds::RouterKind;
pub(crate) use lab::RouterLab;
pub(crate) use plan::{Plan, ProbePath, SAMPLING};
pub(crate) use probe::{ProbeResult, probing};
pub(crate) use rules::RuleList;
pub(crate) use sample::{RouterSample, part, pps, shares};
pub(crate) use traffic::{Flowed, RouterLoad, RouterTraffic};
pub(crate) use training::{CapUnit, Training, TrainingRun, below, fit_all};
