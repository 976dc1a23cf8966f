// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node: one policy applied to one host, from the file to the last undo.
//!
//! `weir-dataplane` moves the packets, `weir-loops` holds routers at their rates, `weir-report`
//! records the service that tenants got. This crate starts and ends all three ([`run()`]), makes
//! live changes ([`control`]) and follows devices that come and go. Every change to the host is
//! first recorded in an undo journal, and is undone when the node ends. A node whose data plane is
//! the kernel's bridge has no worker: `weir-kernel` makes the host enforce the policy.

pub mod changes;
pub mod control;
mod controlled;
mod cpu_drift;
mod error;
mod host_state;
mod hotplug;
mod kernel_node;
mod kernel_status;
mod live_policy;
pub mod old_files;
mod operator_notes;
mod options;
pub mod policy_store;
mod present;
pub mod rehearsal;
mod run;
mod service_manager;
mod takeover;
mod told_lines;

pub use error::NodeError;
pub use options::{NodeEnd, Options, Serving};
pub use run::{read_policy, run};
pub use takeover::{StartPlan, StartPlanView};
