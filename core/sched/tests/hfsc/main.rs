// SPDX-License-Identifier: Apache-2.0 OR MIT
//! HFSC in virtual time: what it promises, its theory, a model, and two cases worked by hand.
#![expect(clippy::unwrap_used, reason = "a test; the lint spares only functions marked so")]

mod golden;
#[path = "../support/gps.rs"]
mod gps;
mod laws;
mod model;
mod promises;
mod testbed;
