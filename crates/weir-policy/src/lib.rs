// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy of one node: which ports it has, which tenants share them, and what each is owed.
//!
//! A policy is data. It can be built in Rust:
//!
//! ```
//! use weir_policy::{Policy, Port, Slice, Vif};
//! use weir_units::BitRate;
//!
//! let mut policy = Policy::new("edge1");
//! let up = policy.add_port(Port::new("up0", BitRate::from_mbps(100)));
//! let gold = policy.add_slice(Slice::new("gold"));
//! let mut vif = Vif::new("gold.0", gold, up);
//! vif.send.min_rate = BitRate::from_mbps(30);
//! let vif = policy.add_vif(vif);
//! assert_eq!(policy[vif].port, up);
//! ```
//!
//! Not here: what a device can do, what a host looks like, how a policy is enforced.
#![no_std]

extern crate alloc;

mod address;
mod model;
mod share;

pub use address::{MacAddr, ParseAddressError, Prefix};
pub use model::{
    Action, Filter, FrameSize, Idle, Kind, Layer, Node, Overbooking, Policy, Port, PortId,
    Reservation, Router, RouterId, SchedulerKind, Slice, SliceId, Vif, VifId,
};
pub use share::{Codel, Direction, Queue, Share};
