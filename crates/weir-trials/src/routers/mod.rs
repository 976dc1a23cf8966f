// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers of the lab, which forward between a source and a sink and whose CPU time is capped: a
//! namespace whose forwarding the kernel's own threads do, or a process that forwards by itself.
//!
//! A `RouterLab` is up as long as its value lives. Weir's data plane stands where a node has it,
//! between the routers and everybody else, and limits what enters for a router. `Traffic` flows
//! while something is done with the lab; a `Loop` samples a router and does with its cap and its
//! limit what an XTC instance says.

pub mod forward;
mod ingress;
mod lab;
mod plan;
mod probe;
mod router;
mod sampling;
mod traffic;
mod training;

pub(crate) use lab::RouterLab;
pub(crate) use plan::{MTU_TCP, Plan};
pub(crate) use probe::{Probed, probing};
pub(crate) use sampling::{Loop, Taken};
pub(crate) use traffic::{Flowed, Load, Traffic};
pub(crate) use training::{Trained, Training, below, mean};

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
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Namespace => "namespace",
        }
    }
}
