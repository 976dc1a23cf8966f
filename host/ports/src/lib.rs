// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames in and out of Linux.
//!
//! A [`Pool`] holds the frames; a [`FramePort`] receives into it and sends from it. The fastest
//! port is [`XdpPort`], over AF_XDP behind the data-plane program ([`XdpPlane`]); it works on any
//! device with a native or generic XDP hook. This crate has all system calls of the data path. It
//! interprets a frame only to finish what a device left undone in it, such as a checksum.
//!
//! The loop of a worker, for each port: `receive` a batch, hand it to the switch, ask
//! `transmit_room`, `transmit` what the switch has for it, `flush`.
// This crate is where the system calls are; each block states its argument.
#![allow(unsafe_code)]

mod any;
mod capture;
mod discard;
mod error;
mod facts;
mod intake;
mod link;
mod link_events;
mod memory;
mod memory_map;
mod messages;
pub mod offload;
mod outbox;
mod packet;
mod pool;
mod port;
pub mod segment;
mod sys;
mod tap;
mod wait;
mod xdp;

pub use any::{AnyPort, ClosingPort};
pub use capture::{CapturePort, CaptureReader, CaptureWriter, CapturedFrame};
pub use error::PortError;
pub use facts::{DeviceProperties, DevicePropertyCache};
pub use link_events::{LinkEvents, device_number};
pub use memory::MemoryPort;
pub use packet::{PacketConfig, PacketPort};
pub use pool::{BindMode, LentChunks, Pool, Region};
pub use port::{FramePort, PortStatistics};
pub use sys::now;
pub use tap::{TapConfig, TapPort};
pub use wait::{RestQuota, WaitMode, Waiter, WakeReason};
pub use xdp::{
    AttachMode, BridgeMember, BucketId, BucketLimit, DeviceRole, Devices, Faults, FrameTrial,
    GateCounters, GateId, Gates, Pins, PlaneLimits, Redirect, RedirectCounters, Route, XdpConfig,
    XdpPlane, XdpPort, link_program, pin_link, renew_link,
};
