// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bounds and units that several tables of a document share.

use weir_units::Nanos;

/// Ports of a node: more NICs than a server has.
pub const PORTS_MAX: usize = 64;
/// Slices of a node: as many as there are VLANs.
pub const SLICES_MAX: usize = 4094;
/// Routers of a node.
pub const ROUTERS_MAX: usize = 8192;
/// Vifs of a node. The largest pool has room for some 5400 with queues of the default size.
pub const VIFS_MAX: usize = 8192;
/// MAC addresses of a vif, named or learned.
pub const MACS_MAX: usize = 1024;
/// IP addresses of a vif.
pub const ADDRESSES_MAX: usize = 256;
/// Filter rules of a vif; they are looked through in order.
pub const FILTERS_MAX: usize = 256;
/// Rules of a port; each device is compared with them in order.
pub const RULES_MAX: usize = 32;
/// Devices that all rules of a node take: as many as the programs of the kernel have room for.
pub const RULE_DEVICES_MAX: u32 = 1008;
/// Frames in the pool: 8 GiB of 2048 bytes.
pub const FRAMES_MAX: u32 = 4 << 20;

/// Flows with a queue of their own at a time, in all: 80 MB of states.
pub const FLOWS_MAX: u32 = 1 << 20;

/// 10 Tbit/s, in bits a second: sums of [`VIFS_MAX`] such rates stay far below 2⁶⁴.
pub(crate) const BPS_MAX: u64 = 10_000_000_000_000;
/// 10 Gpps, in packets a second: beyond minimal frames at a terabit.
pub(crate) const PPS_MAX: u64 = 10_000_000_000;
/// 1 GiB.
pub(crate) const BYTES_MAX: u64 = 1 << 30;
/// A second, in nanoseconds.
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Least [`crate::Node::in_flight`]: a receiver that sleeps needs some 50 µs to wake up.
pub(crate) const IN_FLIGHT_MIN: u64 = 100_000;
/// The largest `target` of a queue.
pub(crate) const TARGET_MAX: Nanos = Nanos::new(SECOND);
/// The largest `interval` of a queue.
pub(crate) const INTERVAL_MAX: Nanos = Nanos::new(10 * SECOND);
/// Linux is built for at most 8192 CPUs.
pub(crate) const CPU_MAX: u32 = 8191;
/// The value of [`crate::Port::CATCH_UP_DEFAULT`], which the default burst of a share follows.
pub(crate) const CATCH_UP_DEFAULT: Nanos = Nanos::from_millis(5);
