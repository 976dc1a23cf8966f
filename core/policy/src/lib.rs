// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The policy of one node: its ports, the tenants that share them, and the guarantees and limits of
//! each tenant.
//!
//! A policy is data. It is read from a TOML document, every key of which is described in
//! `docs/policy.md`:
//!
//! ```
//! let policy = weir_policy::parse(r#"
//! version = 1
//! [[port]]
//! name = "up0"
//! rate = "100Mbit"
//! [[slice]]
//! name = "gold"
//! [[vif]]
//! name = "gold.0"
//! slice = "gold"
//! send = { min_rate = "130Mbit" }
//! "#);
//! assert_eq!(
//!     policy.unwrap_err().to_string(),
//!     "5:8: port \"up0\".rate: the slices' send.min_rate add up to 130Mbit, at most 100Mbit fit"
//! );
//! ```
//!
//! Or it is built in Rust, and checked by the same rules:
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
//! assert_eq!(policy.check(), Ok(()));
//! assert_eq!(weir_policy::parse(&policy.to_toml()), Ok(policy));
//! ```
//!
//! This crate knows nothing of devices and hosts, and does not enforce a policy.
#![no_std]

extern crate alloc;

mod address;
mod api;
mod bounds;
mod bridges;
mod check;
pub mod count;
mod cycle;
mod dataplane;
mod dataplane_check;
mod decimal;
mod device_pattern;
mod digest;
mod document;
mod draft;
mod filter;
mod finding;
mod fit;
mod five_tuple;
mod format;
mod guarantee;
mod host_share;
mod key_path;
mod model;
mod overbooking;
mod packet_check;
mod phase;
mod pih;
mod problem;
mod queue_defaults;
mod read;
mod realtime;
mod realtime_check;
mod reference;
mod report;
mod resolve;
mod rule;
mod rule_check;
mod schema;
mod share;
mod suggest;
mod unheld;
mod vif_side;
mod wake_latency;
mod walk;
mod write;
mod xtc;
mod xtc_check;

pub use address::{MacAddr, ParseAddressError, Prefix};
pub use api::{Api, Role, Token};
pub use bounds::{
    ADDRESSES_MAX, FILTERS_MAX, FLOWS_MAX, FRAMES_MAX, MACS_MAX, PORTS_MAX, ROUTERS_MAX,
    RULE_DEVICES_MAX, RULES_MAX, SLICES_MAX, VIFS_MAX,
};
pub use check::RingFrames;
pub use dataplane::Dataplane;
pub use decimal::Decimal;
pub use device_pattern::{DevicePattern, NameTemplate, PatternError};
pub use digest::Digest;
pub use draft::{Draft, Edit, EditError};
pub use filter::{Filter, FilterAction};
pub use finding::FindingList;
pub use five_tuple::FiveTuple;
pub use format::{Text, Written};
pub use guarantee::Guarantees;
pub use key_path::KeyPath;
pub use model::{
    FrameSize, Idle, Kind, Layer, Node, Policy, Port, PortCycle, PortId, Reservation, Router,
    RouterId, SchedulerKind, Slice, SliceId, Vif, VifId, VifRule,
};
pub use overbooking::Overbooking;
pub use phase::{phase_for, phase_frames};
pub use pih::PihForm;
pub use problem::{ItemName, Problem, ProblemPlace, Problems, UnsoundPolicy};
pub use read::{parse, read_document};
pub use realtime::{RealtimeKind, RouterRealtime, ThreadSource};
pub use reference::reference;
pub use report::Report;
pub use rule::{BridgeDevice, ExpandedPolicy};
pub use schema::schema;
pub use share::{Codel, Direction, Queue, QueueKind, Share, SmoothWindow};
pub use unheld::{HeldKeys, Unheld, WRR_CATCH_UP};
pub use xtc::{ActuatorKind, ControllerKind, Interface, RouterModel, RouterXtc, Xtc, XtcState};
pub use xtc_check::set_point_faults;
