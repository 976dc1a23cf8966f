// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Feedback control of a router's packet rate: identification, design, controllers. Pure: no clock,
//! no I/O.
//!
//! The text behind it is XTC: R. S. Couto, M. E. M. Campista, L. H. M. K. Costa, "Network Resource
//! Control for Xen-based Virtualized Software Routers"; section numbers (§) are its.
//!
//! Inside, numbers are floats. They cannot leave: what goes in and out are the integers of
//! [`weir_units`], clamped at this edge, and no input makes a float that is not finite.
#![no_std]

#[cfg(test)]
extern crate alloc;

mod design;
mod model;
mod number;

pub use design::{DesignError, Gains, Poles, Response};
pub use model::{Model, ModelError};
