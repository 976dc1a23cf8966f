// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The switch as a pure state machine: classify, police, queue, schedule, count.
//!
//! A `Switch` joins *ports* (to the network) with *vifs* (to the tenants). The caller hands in
//! frames as they arrive. For each interface whose device has room, it asks for the next frame.
//!
//! Time is an argument, and bytes stay in a [`FramePool`] that the caller owns. Nothing is
//! allocated per packet. The switch drops a scheduled frame in three cases only:
//!
//! - a change of policy removed its receiver, or requires headers for which it has no room;
//! - it crosses from one vif to another, and the receiving vif has no room, in its queue or its
//!   smooth window;
//! - too many frames wait for the rate of a router ([`Switch::limit_router`]).
//!
//! The switch does not route: in a frame it changes only the VLAN tag and the header of a parallel
//! internet, an unfinished checksum and the congestion mark.
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod accounting;
mod capture;
mod checksum;
mod counters;
mod fdb;
mod filter;
mod five_tuples;
mod flow_hash;
mod forwarding;
mod frame;
mod frames;
mod ids;
mod ledger;
mod pacer;
mod pacers;
pub mod pcapng;
mod pih;
mod police;
mod pool;
mod pool_shares;
mod queues;
mod reason;
mod shares;
mod smoothing;
mod spoof;
mod storm;
mod switch;
mod tree;
mod tree_scheduler;
mod types;
mod vlan;

pub use accounting::Accounting;
pub use capture::{CaptureConfig, CaptureCounters, Captured};
pub use checksum::complete as complete_checksum;
pub use counters::{Counters, Tally};
pub use frame::{ArpSender, Ethernet, Fragment, Ip, mark_congestion};
pub use pih::{ETHERTYPE_PIH, Pih, PortHeaders, read_pih};
pub use pool::{Frame, FramePool};
pub use reason::Reason;
pub use smoothing::SmoothState;
pub use switch::{Switch, SwitchError};
pub use types::{IfaceId, Transmit};
pub use vlan::{pop as pop_vlan, push as push_vlan};
pub use weir_policy::{Direction, FiveTuple, PihForm, Prefix};
pub use weir_sched::FlowCounters;
