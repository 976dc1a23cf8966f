// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kernel's counters of routers: packets of their interfaces, CPU time and activations of
//! their threads.
//!
//! The counters only grow; samples are made of it by [`weir_control::control_loop::Sampler`], which
//! also names a counter that stands still, wraps or begins anew.

mod activations;
mod cpu_time;
mod link_meter;
mod netlink;
mod proc_net_dev;

pub use activations::{THREADS_MAX, WatchedActivations, watch};
pub use cpu_time::{CpuMeter, CpuSource};
pub use link_meter::{LINKS_MAX, LinkMeter, SEARCHED_MAX, Side};
pub use netlink::StatsSocket;
pub use proc_net_dev::{DeviceLine, ProcNetDev, parse};

/// The kernel's counters of a device since it was made. A super-frame counts as one packet: it is
/// packets on the wire that are counted only where segmentation and merging are off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Packets that the host got from it.
    pub rx_packets: u64,
    /// Packets that the host gave it.
    pub tx_packets: u64,
    /// Packets from it that the host had no room for.
    pub rx_dropped: u64,
    /// Packets for it that it had no room for.
    pub tx_dropped: u64,
}
