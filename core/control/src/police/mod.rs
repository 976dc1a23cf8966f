// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Policing Mechanism of one node (§3, §8.1): who is held at which rate, when, and what becomes
//! of who does not yield.
//!
//! [`admit`] checks what is promised against what the node can carry. [`Contention`] says whether
//! anybody need be held at all. [`set_points`] shares the capacity by weighted max-min, within what
//! each router was promised and what it uses. [`Conduct`] punishes by grades, each reversible.

mod conduct;
mod contention;
mod set_points;

pub use conduct::{Conduct, ConductConfig, Grade, Judgement};
pub use contention::{Contention, ContentionConfig, Demand};
pub use set_points::{AdmissionError, Claim, admit, set_points, wants, weighted_max_min};
