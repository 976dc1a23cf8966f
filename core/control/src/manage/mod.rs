// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One XTC instance (§8.1) as a state machine: from counters that a meter read to what an actuator
//! should do, with every decision on record.
//!
//! An [`Instance`] is told what was read, period by period, and answers with a [`Command`]; what
//! came of the command it is told by [`Instance::outcome`]. Whatever goes wrong has a name, is
//! counted, and leaves the router safe: its last cap stays, and is taken away where it could not be
//! right any more. Nothing that can happen ends an instance but its owner.

mod instance;
mod log;
mod meter;
mod verb;

pub use instance::{Command, Instance, InstanceConfig, Status};
pub use log::{Decision, DecisionLog, Event};
pub use meter::{Meter, MeterConfig, MeterFault, Reading};
pub use verb::{InstanceError, Phase, Verb};
