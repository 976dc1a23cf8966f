// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The experiments: what Weir promises, measured on real packets by independent sinks.
//!
//! [`demo`] is the one to watch, [`TABLES`] the tables of requirements, [`conformance`] one suite
//! for every data plane, [`reproduce`] the figures of published texts. What they are made of is in
//! `weir-experiment`.

pub mod conformance;
pub mod demo;
pub mod demo_plots;
pub mod house;
pub mod iip;
pub mod isolation;
pub mod jitter;
pub mod netback;
pub mod node;
mod peers;
pub mod reproduce;
pub mod routers;
pub mod xen;
pub mod xtc;

/// All tables of requirements.
pub const TABLES: &[weir_experiment::RequirementTable] = &[
    isolation::TABLE,
    netback::TABLE,
    node::TABLE,
    xtc::TABLE,
    jitter::TABLE,
    iip::TABLE,
    house::TABLE,
];
