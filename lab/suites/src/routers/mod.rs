// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers of the lab, which forward between a source and a sink and whose CPU time is capped: a
//! namespace whose forwarding the kernel's own threads do, or a process that forwards by itself.
//!
//! A `RouterLab` is up as long as its value lives. Weir's data plane stands where a node has it,
//! between the routers and everybody else; a `Loop` samples a router and does with its cap what a
//! training or an XTC instance says. In a `HeldLab` running nodes hold the routers, limits at
//! ingress and all. `Traffic` flows while something is done with either.

mod chain;
mod contender;
pub mod disturbance;
pub mod forward;
mod held_lab;
mod ingress;
mod lab;
mod plan;
mod probe;
mod router;
mod rules;
mod sampling;
mod shared;
mod traffic;
mod training;

use weir_experiment::prelude::*;
use weir_platform::process::Identity;
use weir_policy::ControllerKind;

pub(crate) use chain::{Chain, ChainRun, HOPS, Tried, lost, prefix};
pub use contender::{Contender, LeastCap};
pub(crate) use contender::{Known, PERIOD_TEXT, cap_alone, hold};
pub(crate) use disturbance::Disturbance;
pub(crate) use held_lab::{HeldLab, SAMPLING, UNLIMITED};
pub(crate) use lab::RouterLab;
pub(crate) use plan::{MTU_TCP, Plan, Shape, Way};
pub(crate) use probe::{Probed, probing};
pub(crate) use rules::RuleList;
pub(crate) use sampling::{Loop, Taken};
pub(crate) use shared::{pps, shares};
pub(crate) use traffic::{Flowed, Load, Traffic};
pub(crate) use training::{Trained, Training, below, capacity, mean};

/// A lab of routers, as far as traffic needs it that crosses them.
pub(crate) trait Crossed {
    /// What it is made of.
    fn plan(&self) -> &Plan;

    /// The process of a router that is one.
    fn process(&self, router: usize) -> Option<Identity>;

    /// Packets that a router has forwarded so far.
    fn forwarded(&mut self, router: usize) -> Result<u64, ExperimentError>;
}

/// How a running node holds routers, where that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// Not at all.
    Without,
    /// By their caps alone, with Weir's controller.
    Cap,
    /// As Weir does by default.
    Weir,
}

impl Means {
    /// All, in the order in which they are tried.
    pub(crate) const ALL: [Self; 3] = [Self::Without, Self::Cap, Self::Weir];

    /// Those that hold anything.
    pub(crate) const HELD: [Self; 2] = [Self::Cap, Self::Weir];

    /// What it is called on a page.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Without => "without",
            Self::Cap => "Weir, cap alone",
            Self::Weir => "Weir",
        }
    }

    /// Its name, as in identifiers.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            Self::Without => "without",
            Self::Cap => "cap",
            Self::Weir => "weir",
        }
    }

    /// Who holds them.
    pub(crate) const fn controller(self) -> Option<ControllerKind> {
        match self {
            Self::Without => None,
            Self::Cap => Some(ControllerKind::FeedForward),
            Self::Weir => Some(ControllerKind::Combined),
        }
    }
}

/// What a router is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A process, under the CPU quota of a control group.
    Process,
    /// A namespace, under deadline budgets of its devices' NAPI threads.
    Namespace,
}

impl Kind {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Process, Self::Namespace];

    /// Its name, as in identifiers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Namespace => "namespace",
        }
    }
}
