// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames in and out of Linux.
//!
//! A [`Pool`] holds the frames; a [`Port`] receives into it and sends from it. [`XdpPort`] is the
//! fast one, over AF_XDP with the data-plane program [`DataPlane`] before it; it works on any
//! device with a native or generic XDP hook. All system calls of the data path are here; what a
//! frame means is none of this crate's business.
//!
//! The loop of a worker, for each port: `receive` a batch, hand it to the switch, ask
//! `transmit_room`, `transmit` what the switch has for it, `flush`.
// This crate is where the system calls are; each block states its argument.
#![allow(unsafe_code)]

mod error;
mod link;
mod memory_map;
mod pool;
mod port;
mod sys;
mod xdp;

pub use error::PortError;
pub use pool::{BindMode, Pool};
pub use port::{Port, PortStatistics};
pub use sys::now;
pub use xdp::{
    AttachMode, DataPlane, Faults, GateCounters, GateId, Gates, PlaneLimits, Role, XdpConfig,
    XdpPort,
};
