// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control loop of one router (an XTC instance, §8.1): from counters that a meter reads to the
//! cap and the limit that its actuators set, with every decision on record.
//!
//! ```text
//!  Meter ──reading──▶ Sampler ──sample──▶ Controller ──action──▶ Supervisor ──command──▶ Actuator
//!                                             ▲                      │
//!                                             └── settings in force ─┘
//! ```
//!
//! [`ControlLoop`] joins the five. Its owner decides when it runs and brings the two things that
//! touch a host: a [`crate::Meter`] and an [`crate::Actuator`]. The daemon, the lab and the tests
//! in virtual time run this same loop.
//!
//! Each fault has a name, is counted, and leaves the router safe: its last cap stays, and is taken
//! away where nobody can judge it any more. Nothing but its owner ends a loop.

mod driver;
mod log;
mod request;
mod sampler;
mod supervisor;

pub use driver::{Applied, AppliedCap, ControlError, ControlLoop, ExecuteError, ExecuteOutcome};
pub use log::{Decision, DecisionEvent, DecisionLog};
pub use request::{LoopError, LoopPhase, LoopRequest};
pub use sampler::{SampleFault, Sampler, SamplerConfig};
pub use supervisor::{LoopCommand, LoopConfig, LoopStatus, Supervisor};
