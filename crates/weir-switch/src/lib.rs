// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The switch as a pure state machine: classify, police, queue, schedule, count.
//!
//! A `Switch` joins *ports* (to the network) with *vifs* (to the tenants). The caller hands in
//! frames as they arrive and asks, for each interface whose device can take a frame, for the next
//! one. Time is an argument; bytes stay in a [`FramePool`] that the caller owns; nothing is
//! allocated per packet and nothing is dropped after it was scheduled.
//!
//! It is not a router: it changes nothing of a frame but its VLAN tag, an unfinished checksum and
//! the congestion mark.
#![no_std]

mod counters;
mod pool;
mod reason;
mod types;

pub use counters::{Counters, Tally};
pub use pool::{Frame, FramePool};
pub use reason::Reason;
pub use types::{Direction, IfaceId, Transmit};
