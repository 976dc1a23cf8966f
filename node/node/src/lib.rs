// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The node: the switch of `weir-switch` on the ports of `weir-ports`, run on one host.
//!
//! One worker thread moves all packets ([`worker`]); everything else (signals, whoever calls
//! [`control`], captures) asks it between two of its turns. What the node changes on its host goes
//! through an undo journal and is undone when it ends.

mod book;
pub mod capture;
pub mod changes;
pub mod clock;
pub mod control;
mod error;
pub mod explain;
mod hotplug;
pub mod interval;
mod lateness;
mod lines;
mod opener;
pub mod overlay;
mod overlay_file;
mod paths;
mod places;
pub mod ports;
mod present;
pub mod redirect;
pub mod rehearsal;
pub mod report;
mod reservation;
mod routers;
mod run;
mod site;
pub mod status;
mod supervisor;
mod takeover;
mod ways;
pub mod worker;
pub mod xtc;

const _: () = assert!(weir_sched::PREFETCHES, "a node asks memory ahead");

pub use error::NodeError;
pub use lateness::{Lateness, LatenessSummary};
pub use run::{Ended, Options, Serving, read_policy, run};
pub use takeover::{Plan, PlanView};
