// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Policing Mechanism of one node (§3, §8.1): the routers that are held, their set-points, and
//! the punishment of those that do not yield.
//!
//! [`admit`] checks guaranteed rates against the capacity of the node. [`Contention`] decides when
//! routers are held at all. [`set_points`] shares the capacity by weighted max-min, within the
//! guarantee and the use of each router. [`Conduct`] punishes by grades, each reversible.
//!
//! [`GlobalPolice`] does so over all nodes of a network: a tenant has one rate, which all nodes on
//! its way carry ([`max_min_over_nodes`]), and is held where its packets enter.

mod conduct;
mod contention;
mod global;
mod over_nodes;
mod set_points;

pub use conduct::{Conduct, ConductConfig, Grade, Judgement};
pub use contention::{Contention, ContentionConfig, Demand};
pub use global::{GlobalPolice, GlobalRuling, ObservedTraffic, PolicedRouter, TenantAgreement};
pub use over_nodes::{PassingClaim, max_min_over_nodes};
pub use set_points::{
    AdmissionError, MOVED_PART, RateClaim, SET_POINT_LEAST, SHARED_PPM, admit, set_points, wants,
    weighted_max_min,
};
