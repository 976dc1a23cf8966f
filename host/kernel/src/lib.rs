// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's data plane on this host: reads the facts that a plan depends on, applies plans, and
//! counts.
//!
//! Nothing here depends on a running process. Disciplines stay at their devices, programs and
//! tables on a BPF file system, and a file in the state folder says what was made. A process that
//! starts reads that file, compares it with the host, and goes on from what is really there. What
//! undoes all of it is in the node's journal.
// A link of a program is made and kept by system calls; each block carries its argument.
#![allow(unsafe_code)]

mod addresses;
mod chain;
mod counters;
mod error;
mod facts;
mod filter;
mod plane;
mod record;
mod tables;

pub use counters::{CountPair, LeafCounts, OwnerCounts, WayCounts};
pub use error::KernelPlaneError;
pub use plane::{AppliedPolicy, KernelPlane, MemberCounts, PlaneCounts};
