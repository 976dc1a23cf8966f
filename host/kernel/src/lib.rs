// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's data plane on this host: reads the facts that a plan depends on, applies plans, and
//! reads counters.
//!
//! The data plane needs no running process. Disciplines stay at their devices, programs and tables
//! on a BPF file system, and a record in the state folder lists the objects that were made. A
//! process that starts reads this record, compares it with the host, and continues from what is
//! really there. The undo of each change is in the node's journal.
// A link of a program is made and kept by system calls; each block carries its argument.
#![allow(unsafe_code)]

mod addresses;
mod chain;
mod change;
mod counters;
mod error;
mod facts;
mod faults;
mod filter;
mod follow;
mod new_ports;
mod plane;
mod reading;
mod record;
mod renamed;
mod steps;
mod tables;

pub use counters::{
    CountPair, DirectionCounts, LeafCounts, MemberCounts, OwnerCounts, PlaneCounts, PortCounts,
};
pub use error::KernelPlaneError;
pub use plane::{AppliedPolicy, KernelPlane};
