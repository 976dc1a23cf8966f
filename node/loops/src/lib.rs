// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Routers held at a packet rate: the Throughput Collector, the XTC instances and their manager
//! (§8.1 of the text behind `weir-control`) on one host.
//!
//! **A tick: read all counters once ([`Readings`]), step every instance that is due
//! ([`Manager::tick`]), put what they decided into force ([`Hands`]), sleep until the next is
//! due.** Time, counters and what is done to the host come in from outside: the [`Manager`] itself
//! reads no clock and touches nothing, so that its tests need neither root nor time.
//!
//! What is asked for is the policy's: set-point, controller, period and state of a router are keys
//! of the document, so that a change of one is on record, survives a restart and can be taken back.
//! [`Manager::follow`] brings the instances to what it says, at once.

mod design;
mod entry;
mod holding;
mod host;
pub mod load;
mod manager;
mod parts;
mod police;
mod readings;
pub mod sim;
mod status;
mod thread;

pub use holding::{Holding, Tell};
pub use host::plan;
pub use manager::Manager;
pub use parts::{Counted, Cpu, Hands, Held, Readings, Sold, Wanted};
pub use status::{Load, LogLine, Policed, Policing, RouterStatus, Trouble, plain};

#[cfg(test)]
mod tests;
