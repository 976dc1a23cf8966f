// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Experiments on the lab: what Weir promises, measured on real packets by an independent sink.
//!
//! A [`Star`] is the lab, a [`Run`] lets traffic flow over it, an [`Outcome`] is what was seen; a
//! [`Trial`] turns outcomes into series and cases of one result file. [`demo`] is the one to watch,
//! [`verify`] the tables of requirements.
//!
//! Experiments use two processors: the worker has the last one for itself, senders, receivers and
//! the kernel's own work share the others.

mod bpf_system;
pub mod clock;
pub mod conformance;
mod cpu_time;
pub mod demo;
pub mod demo_plots;
mod error;
mod host_changes;
pub mod in_memory;
mod judge;
pub mod node;
mod peers;
pub mod place;
mod probe;
pub mod product;
mod program;
pub mod reproduce;
mod rig;
pub mod routers;
mod run;
mod specs;
mod star;
mod stolen;
mod trial;
pub mod verify;
pub mod xen;

pub use error::TrialError;
pub use probe::Bulk;
pub use rig::Rig;
pub use run::{Change, Middle, Outcome, Run};
pub use star::{Star, TENANTS_MAX, UPLINK};
pub use trial::Trial;

/// A count as a sample; exact up to 2⁵³.
#[expect(clippy::cast_precision_loss, reason = "counts of an experiment stay below 2^53")]
pub(crate) const fn float(count: u64) -> f64 {
    count as f64
}

/// The mean of samples; 0 without any.
pub(crate) fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / float(samples.len().max(1) as u64)
}
