// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Feedback control of a router's packet rate: identification, design, controllers. Pure: no clock,
//! no I/O.
//!
//! The source is the XTC text: R. S. Couto, M. E. M. Campista, L. H. M. K. Costa, "Network Resource
//! Control for Xen-based Virtualized Software Routers". Section numbers (§) are those of this text.
//!
//! Inside the crate, numbers are floats. Caps and rates, which are enforced, go in and out as the
//! integers of [`weir_units`], clamped at this edge. Models, gains and measures of fit are floats
//! outside too. No input leads to a float that is not finite.
#![no_std]

extern crate alloc;

mod action;
mod actuator;
mod combined;
pub mod control_loop;
mod controller;
mod cost;
mod dead_zone;
mod design;
mod feed_forward;
mod fixed;
pub mod identify;
mod meter;
mod metric;
mod model;
mod noise;
mod number;
mod pi;
pub mod plant;
pub mod police;
mod range;
pub mod realtime;
mod rls;
mod sample;
mod self_tuning;

pub use action::{Action, ActionReason, Settings};
pub use actuator::{Actuator, CapError, PERIODS_LEAST, check_period};
pub use combined::{Combined, CombinedConfig};
pub use controller::{Controller, Estimate};
pub use dead_zone::DeadZone;
pub use design::{DesignError, Gains, Poles, Response};
pub use feed_forward::{FeedForward, FeedForwardConfig};
pub use fixed::{FixedCap, FixedMap, FixedMapError};
pub use meter::{Meter, MeterError, Reading};
pub use metric::relative_rmse;
pub use model::{Model, ModelError};
pub use pi::{Pi, PiConfig};
pub use range::{CapRange, CapRangeError};
pub use rls::Guard;
pub use sample::Sample;
pub use self_tuning::{Design, SelfTuning, SelfTuningConfig};
